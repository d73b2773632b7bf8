"""Reads checkpoints (PROTOCOL.md, "Checkpoints") into a table's state, in columns and batch by batch."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.data_path import resolve_data_path
from deltaflow.log.files.file_rows import (
    COLUMNS_OF_ADD,
    COLUMNS_OF_REMOVE,
    DELETION_VECTOR,
    FIELDS_OF_ADD,
    FIELDS_OF_REMOVE,
    FILES_SCHEMA,
    TOMBSTONES_SCHEMA,
    keys_or_null,
)
from deltaflow.log.files.file_state import KEYED_FILES_SCHEMA, KEYED_TOMBSTONES_SCHEMA, FileState, NoFileState
from deltaflow.log.files.json_column import field_of, json_column
from deltaflow.log.files.stored_statistics import StatisticsSource
from deltaflow.log.protocol.actions import AddFile, AnyAction, RemoveFile, Sidecar, decode_actions
from deltaflow.log.protocol.commit import Commit, read_whole, to_commit
from deltaflow.log.replay.checkpoint_budget import CheckpointBudget
from deltaflow.log.replay.checkpoint_file import CheckpointFile, part_of_checkpoint
from deltaflow.log.replay.checkpoint_statistics import CheckpointStatistics, with_plain_types
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.state import TableState
from deltaflow.store import FileStatus

SIDECARS_DIRECTORY = "_sidecars"
_ROWS_PER_BATCH = 8_192
# Statistics are read when somebody asks for them; partition values are in the strings, too.
_UNREAD_OF_ADD = ("stats", "stats_parsed", "partitionValues_parsed", "dataChange")
# Maps that no reader needs.
_MAPS_BESIDE = ("add.tags", "remove.partitionValues", "remove.tags")
_NUMBERS = pa.array(range(_ROWS_PER_BATCH), pa.int64())
# A field that the action always has: a row holds the action whose field is not null.
_REQUIRED_FIELDS = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
    "checkpointMetadata": "version",
}
_ADD_FIELDS = {
    column: (name, FILES_SCHEMA.field(column).type)
    for name, column in FIELDS_OF_ADD.items()
    if name not in _UNREAD_OF_ADD
}
_REMOVE_FIELDS = {
    column: (name, TOMBSTONES_SCHEMA.field(column).type) for name, column in FIELDS_OF_REMOVE.items()
}


def read_checkpoint(log: LogFiles, checkpoint: Checkpoint) -> TableState:
    """The state at the checkpoint's version; CorruptLogError naming a file that is broken or missing.

    The statistics of files stay in the checkpoint until somebody asks for them (checkpoint_statistics).
    """
    contents = _Contents(log.path, CheckpointStatistics(log, checkpoint), fields=log.file_fields)
    commit = _read(log, checkpoint, contents)
    file_actions = [action for action in contents.actions if isinstance(action, AddFile | RemoveFile)]
    return TableState(
        version=checkpoint.version,
        timestamp_ms=checkpoint.files[0].modification_time_ms,
        protocol=commit.protocol,
        metadata=commit.metadata,
        transactions={txn.app_id: txn for txn in commit.txns},
        domains={domain.domain: domain for domain in commit.domains if not domain.removed},
        file_state=file_state_of(log, contents.files, contents.tombstones, file_actions, contents.statistics),
    )


def file_state_of(
    log: LogFiles,
    files: Sequence[pa.RecordBatch] = (),
    tombstones: Sequence[pa.RecordBatch] = (),
    actions: Sequence[AnyAction] = (),
    statistics: StatisticsSource | None = None,
) -> FileState:
    """The files of a version, as far as the log's snapshots keep them."""
    if log.file_fields is not None and not log.file_fields:
        return NoFileState()
    return FileState(files, tombstones, actions, log.path, statistics)


def check_checkpoint(log: LogFiles, checkpoint: Checkpoint) -> None:
    """CorruptLogError unless `read_checkpoint` gives a state with protocol and metadata.

    Reads all of it, sidecars and statistics included, and keeps no more than a batch of files at a time.
    """
    statistics = CheckpointStatistics(log, checkpoint)
    commit = _read(log, checkpoint, _Contents(log.path, statistics, keeps_files=False))
    statistics.check()
    if commit.protocol is None or commit.metadata is None:
        file = f"{log.directory}/{checkpoint}"
        raise CorruptLogError(f"{file} lacks the protocol or the metadata of the table.", file=file)


@dataclass(slots=True)
class _Contents:
    """What the files of a checkpoint hold: batches of files and tombstones, and all other actions.

    Without `keeps_files` the batches are only decoded. `fields` are as in LogFiles.file_fields.
    """

    table_path: str
    statistics: CheckpointStatistics
    keeps_files: bool = True
    fields: frozenset[str] | None = None
    files: list[pa.RecordBatch] = field(default_factory=list)
    tombstones: list[pa.RecordBatch] = field(default_factory=list)
    actions: list[AnyAction] = field(default_factory=list)


def _read(log: LogFiles, checkpoint: Checkpoint, contents: _Contents) -> Commit:
    """Read all files of the checkpoint into `contents`; its other actions as a commit."""
    for status in checkpoint.files:
        if status.name.endswith(".json"):
            _read_json(log, status, contents)
        else:
            _read_file(log, f"{log.directory}/{status.name}", contents)
    if contents.fields is None or contents.fields:
        for sidecar in [action for action in contents.actions if isinstance(action, Sidecar)]:
            _read_file(log, _sidecar_path(log, sidecar), contents)
    return to_commit(
        checkpoint.version,
        checkpoint.files[0].modification_time_ms,
        tuple(contents.actions),
        f"{log.directory}/{checkpoint}",
    )


def _sidecar_path(log: LogFiles, sidecar: Sidecar) -> str:
    directory = f"{log.directory}/{SIDECARS_DIRECTORY}"
    found = resolve_data_path(directory, sidecar.path)
    if not found.deletable:  # so it is not in the directory
        raise CorruptLogError(
            f"A checkpoint names the sidecar {sidecar.path}, which is not in {directory}. A table has no "
            'sidecars elsewhere (PROTOCOL.md, "Sidecar File Information").',
            table=log.path,
            file=sidecar.path,
        )
    return found.path


def _read_json(log: LogFiles, status: FileStatus, contents: _Contents) -> None:
    path = f"{log.directory}/{status.name}"
    with part_of_checkpoint(path):
        data = read_whole(log.store, log.directory, status)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "Not found", path)
        contents.actions.extend(decode_actions(data, path))


def _read_file(log: LogFiles, path: str, contents: _Contents) -> None:
    with part_of_checkpoint(path), log.store.open(path) as stream:
        _read_parquet(stream, path, contents)


def _read_parquet(stream: BinaryIO, path: str, contents: _Contents) -> None:
    file = CheckpointFile(stream)
    parquet = file.parquet
    column_types = {
        column.name: column.type for column in parquet.schema_arrow if pa.types.is_struct(column.type)
    }
    unneeded = {"remove.dataChange", *(f"add.{name}" for name in _UNREAD_OF_ADD), *_broken_maps(file)}
    known = [name for name in ("add", "remove", *_REQUIRED_FIELDS) if name in column_types]
    columns = [f"{name}.{child.name}" for name in known for child in column_types[name]]
    columns = [column for column in columns if column not in unneeded and _is_kept(column, contents.fields)]
    first_row = contents.statistics.add_file(path, parquet)
    budget = CheckpointBudget(file, path)
    # Threads would decode several columns at once, which takes more memory and is hardly faster.
    for batch in file.batches(columns, size=_ROWS_PER_BATCH, use_threads=False):
        budget.spend(batch.nbytes)
        found = {name: with_plain_types(batch.column(name)) for name in batch.schema.names}
        for name, column in found.items():
            if name == "add":
                _read_adds(column, contents, first_row)
            elif name == "remove":
                _read_removes(column, contents)
            else:
                contents.actions.extend(_decoded(name, column, path))
            del column
        first_row += batch.num_rows
        # Otherwise the pool would keep the memory that decoding used.
        del batch, found
        pa.default_memory_pool().release_unused()


def _broken_maps(file: CheckpointFile) -> Iterator[str]:
    """Those of _MAPS_BESIDE that pyarrow refuses to read: the releases 1.0.2 to 1.5.0 of deltalake leave null
    values out, and not their keys, of maps whose values cannot be null."""
    parquet = file.parquet
    leaves = list(map(parquet.schema.column, range(len(parquet.schema))))
    for name in _MAPS_BESIDE:
        own = [index for index, leaf in enumerate(leaves) if leaf.path.startswith(f"{name}.")]
        if len({leaves[index].max_definition_level for index in own}) != 1:
            continue
        counts = (
            {file.chunks.null_count(group, index) for index in own} - {None}
            for group in range(parquet.num_row_groups)
        )
        if any(len(different) > 1 for different in counts):
            yield name


def _is_kept(column: str, fields: frozenset[str] | None) -> bool:
    action, _, name = column.partition(".")
    if fields is None or action not in ("add", "remove"):
        return True
    if action == "remove" and "deletionTimestamp" not in fields:
        return False
    # The deletion vector is a part of what identifies a file.
    is_kept = name.removesuffix("_parsed") in fields
    return is_kept or (name == "deletionVector" and "path" in fields)


def _decoded(name: str, values: pa.StructArray, path: str) -> list[AnyAction]:
    """The actions in a column other than `add` and `remove`, as objects."""
    if values.null_count == len(values):
        return []
    values = values.filter(pc.is_valid(field_of(values, _REQUIRED_FIELDS[name])))
    lines = [f'{{"{name}":{text}}}' for text in json_column(values).to_pylist()]
    return decode_actions("\n".join(lines).encode(), path)


def _read_adds(adds: pa.StructArray, contents: _Contents, first_row: int) -> None:
    fields = _fields_of_rows(adds)
    if fields is None:
        return
    columns = _columns(fields, _ADD_FIELDS)
    columns["stats_text"] = _nulls(len(fields["path"]), pa.string())
    columns["stats_row"] = _nulls(len(fields["path"]), pa.int64())
    if contents.fields is None or "stats" in contents.fields:
        rows = pc.add(_NUMBERS.slice(0, len(adds)), first_row)
        columns["stats_row"] = rows.filter(pc.is_valid(field_of(adds, "path")))
    for name in ("partition_values", "size", "modification_time"):
        is_kept = contents.fields is None or _ADD_FIELDS[name][0] in contents.fields
        if is_kept and columns[name].null_count:
            raise pa.ArrowInvalid(f"an add action without {_ADD_FIELDS[name][0]}")
    columns["extra"] = _extra(fields, _apart(fields, COLUMNS_OF_ADD))
    batch = _batch(columns, KEYED_FILES_SCHEMA, contents.table_path)
    if contents.keeps_files:
        contents.files.append(_compacted(batch))


def _read_removes(removes: pa.StructArray, contents: _Contents) -> None:
    fields = _fields_of_rows(removes)
    if fields is None:
        return
    columns = _columns(fields, _REMOVE_FIELDS)
    columns["extra"] = _extra(fields, _apart(fields, COLUMNS_OF_REMOVE))
    batch = _batch(columns, KEYED_TOMBSTONES_SCHEMA, contents.table_path)
    if contents.keeps_files:
        contents.tombstones.append(_compacted(batch))


def _fields_of_rows(actions: pa.StructArray) -> dict[str, pa.Array] | None:
    """The fields of the actions, without the rows that hold none; None if no row holds one."""
    is_there = pc.is_valid(field_of(actions, "path"))
    number = pc.sum(is_there).as_py() or 0
    if number == 0:
        return None
    if number < len(actions):
        actions = actions.filter(is_there)
    return dict(zip((child.name for child in actions.type), actions.flatten(), strict=True))


def _columns(fields: dict[str, pa.Array], wanted: dict[str, tuple[str, pa.DataType]]) -> dict[str, pa.Array]:
    rows = len(fields["path"])
    return {
        name: _cast(fields[field_name], arrow_type) if field_name in fields else pa.nulls(rows, arrow_type)
        for name, (field_name, arrow_type) in wanted.items()
    }


def _cast(values: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(arrow_type):
        return values.cast(arrow_type)
    # A deletion vector: without an offset, if none of a file's has one, and null where no field has a value.
    fields = [
        field_of(values, field.name).cast(field.type)
        if values.type.get_field_index(field.name) >= 0
        else pa.nulls(len(values), field.type)
        for field in arrow_type
    ]
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type), mask=fields[0].is_null())


def _apart(fields: dict[str, pa.Array], columns: tuple[str, ...]) -> tuple[str, ...]:
    """The names of fields that are columns of their own, and not in `extra`."""
    vectors = fields.get("deletionVector")
    if vectors is None or all(
        field.name in DELETION_VECTOR.names or field_of(vectors, field.name).null_count == len(vectors)
        for field in vectors.type
    ):
        return columns
    return tuple(name for name in columns if name != "deletionVector")


def _extra(fields: dict[str, pa.Array], apart_from: Sequence[str]) -> pa.Array:
    """The JSON object of the other fields, null where all of them are null."""
    others = {
        name: values
        for name, values in fields.items()
        if name not in apart_from and values.null_count < len(values)
    }
    if not others:
        return pa.nulls(len(fields["path"]), pa.string())
    texts = json_column(pa.StructArray.from_arrays(list(others.values()), names=list(others)))
    return pc.if_else(pc.equal(texts, "{}"), pa.scalar(None, pa.string()), texts)


def _batch(columns: dict[str, pa.Array], schema: pa.Schema, table_path: str) -> pa.RecordBatch:
    columns["key"] = keys_or_null(columns["path"], columns["deletion_vector"], table_path)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    # Damaged pages may decode to invalid UTF-8, which would crash its first reader.
    batch.validate(full=True)
    return batch


def _compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of the batch in memory of exactly its size.

    Decoders leave up to as much memory unused as they fill, and the default pool keeps what they free.
    """
    full = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
    content = batch.select(full).serialize(memory_pool=pa.system_memory_pool())
    copied = pa.ipc.read_record_batch(content, pa.schema(map(batch.schema.field, full)))
    columns = [
        copied.column(field.name) if field.name in full else _nulls(batch.num_rows, field.type)
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@lru_cache(maxsize=8)
def _nulls(rows: int, arrow_type: pa.DataType) -> pa.Array:
    return pa.nulls(rows, arrow_type)
