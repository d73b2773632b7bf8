"""Checkpoints of a snapshot (PROTOCOL.md, "Checkpoints"): classic, multi-part and V2."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaflow.log.files.conversion import converted
from deltaflow.log.maintenance.checkpoint_parts import part_of_other_actions, parts_of_paths
from deltaflow.log.maintenance.checkpoint_rows import (
    FileRows,
    OtherAction,
    OtherRows,
    file_batch,
    other_actions,
    spark_schema,
)
from deltaflow.log.protocol.actions import CheckpointMetadata, Sidecar, decode_actions, encode_actions
from deltaflow.log.protocol.features import has_v2_checkpoints
from deltaflow.log.protocol.properties import (
    CHECKPOINT_PART_SIZE,
    CHECKPOINT_POLICY,
    CHECKPOINT_V2_FILE_FORMAT,
    DELETED_FILE_RETENTION_MS,
    SET_TRANSACTION_RETENTION_MS,
)
from deltaflow.log.replay.checkpoint_file import CheckpointFile, part_of_checkpoint
from deltaflow.log.replay.checkpoint_reader import SIDECARS_DIRECTORY
from deltaflow.log.replay.last_checkpoint import LastCheckpoint, V2Checkpoint, write_hint
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles, random_id
from deltaflow.log.replay.snapshot import Snapshot

_FILES_PER_PART = 2_000_000
"""Files and tombstones in one part of a classic checkpoint. This is large, since parts do not appear at once:
few tables should need them."""
_FILES_PER_SIDECAR = 50_000
_ROWS_PER_GROUP = 50_000
_FILES_WITH_STATISTICS = 250_000
"""Files whose statistics are in memory at once. A writer's row groups may be as large."""
_THREADS = 2
"""They make rows, most of which is to parse statistics, while others are written."""
_LONGEST_HINTED_SCHEMA = 20_000
# Columns whose values hardly ever repeat: a dictionary would be useless.
_ALWAYS_NEW = {"path", "stats", "size", "stats_parsed"}
_CLASSIC_COLUMNS = ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")


@dataclass(frozen=True, slots=True)
class _State:
    """The content of a checkpoint or of a part of it: a snapshot without what has expired."""

    snapshot: Snapshot
    files: pa.Table
    tombstones: pa.Table
    others: Sequence[OtherAction]
    rows: FileRows
    part: int | None = None
    """The part of a multi-part checkpoint: only its rows are written."""

    @property
    def number_of_files(self) -> int:
        return int(self.files.num_rows + self.tombstones.num_rows)

    def parts(self, number: int) -> Iterator[_State]:
        """The parts of a multi-part checkpoint. Each has all files and tombstones; their column `part` says
        which of them are its own."""
        files, tombstones = _with_parts(self.files, number), _with_parts(self.tombstones, number)
        for part in range(number):
            others = self.others if part == part_of_other_actions(number) else ()
            yield replace(self, files=files, tombstones=tombstones, others=others, part=part)

    def slices(self, files: int) -> Iterator[_State]:
        """The content in slices of so many files and tombstones each; at least one slice."""
        for start in range(0, max(1, self.number_of_files), files):
            of_files = self.files.slice(start, files)
            tombstone = max(0, start - self.files.num_rows)
            tombstones = self.tombstones.slice(tombstone, files - of_files.num_rows)
            yield replace(self, files=of_files, tombstones=tombstones)


def write_checkpoint(log: LogFiles, snapshot: Snapshot, session: Mapping[str, str]) -> None:
    """Write a checkpoint of the snapshot, and let _last_checkpoint name it.

    The table's properties (delta.checkpointPolicy, delta.checkpoint.*) decide whether it is a classic or a V2
    checkpoint, and which columns it has; `session` has Spark's settings (spark.databricks.delta.checkpoint*).
    Rows are built and written one row group at a time. Every file appears whole. A V2 checkpoint, and a
    classic one of a single part, is complete as soon as it appears.
    """
    state = _state(log, snapshot)
    is_v2 = has_v2_checkpoints(snapshot.protocol)
    part_size = CHECKPOINT_PART_SIZE.of(session, log.path)
    if is_v2 and CHECKPOINT_POLICY.of(snapshot.metadata.configuration, log.path) == "v2":
        file_format = CHECKPOINT_V2_FILE_FORMAT.of(session, log.path)
        hint = _write_v2(log, state, part_size or _FILES_PER_SIDECAR, file_format)
    else:
        # Tables with V2 checkpoints must not have multi-part checkpoints.
        parts = 1 if is_v2 else max(1, -(-state.number_of_files // (part_size or _FILES_PER_PART)))
        hint = _write_classic(log, state, parts)
    write_hint(log, hint)
    # Otherwise the pool would keep the memory that encoding used: 25 to 45 MB for 20,000 files.
    del state
    pa.default_memory_pool().release_unused()


def write_classic_copy(log: LogFiles, checkpoint: Checkpoint) -> None:
    """Copy a V2 checkpoint to the classic name, where old readers find the protocol that stops them
    (PROTOCOL.md, "Handling Backward compatibility while moving to UUID-named v2 Checkpoints").

    CorruptLogError for one that is broken; that all of its pages can be read is not looked for.
    """
    content = log.store.read(f"{log.directory}/{checkpoint}")
    path = f"{log.directory}/{checkpoint.version:020}.checkpoint.parquet"
    if str(checkpoint).endswith(".parquet"):
        with part_of_checkpoint(f"{log.directory}/{checkpoint}"):
            CheckpointFile(io.BytesIO(content))
        with log.store.open_output(path) as file:
            file.write(content)
        return
    actions = decode_actions(content, str(checkpoint))
    others = [action for action in actions if isinstance(action, OtherAction)]
    # Another writer's JSON checkpoint may hold file actions itself: it gets no copy.
    if len(others) == len(actions):
        _write_actions(log, path, others)


def _state(log: LogFiles, snapshot: Snapshot) -> _State:
    configuration, now_ms = snapshot.metadata.configuration, log.clock()
    tombstones_after_ms = now_ms - DELETED_FILE_RETENTION_MS.of(configuration, log.path)
    retention_ms = SET_TRANSACTION_RETENTION_MS.of(configuration, log.path)
    tombstones = snapshot.tombstones
    deleted_ms = pc.coalesce(tombstones["deletion_timestamp"], pa.scalar(0, pa.int64()))
    tombstones = tombstones.filter(pc.greater(deleted_ms, tombstones_after_ms))
    return _State(
        snapshot=snapshot,
        files=snapshot.files,
        tombstones=tombstones,
        others=other_actions(snapshot, None if retention_ms is None else now_ms - retention_ms),
        rows=FileRows(snapshot, snapshot.files, tombstones),
    )


def _write_classic(log: LogFiles, state: _State, parts: int) -> LastCheckpoint:
    others = OtherRows(state.others, log.path)
    column_types = {**others.column_types, **state.rows.column_types}
    schema = pa.schema([(name, column_types[name]) for name in _CLASSIC_COLUMNS])
    size_in_bytes = 0
    for number, part in enumerate([state] if parts == 1 else state.parts(parts), start=1):
        of_part = f".{number:010}.{parts:010}" if parts > 1 else ""
        path = f"{log.directory}/{state.snapshot.version:020}.checkpoint{of_part}.parquet"
        head = [others.batch(schema)] if part.others else []
        size_in_bytes += _write_parquet(log, path, schema, chain(head, _file_batches(part, schema)))
    return LastCheckpoint(
        version=state.snapshot.version,
        size=state.number_of_files + len(state.others),
        parts=parts if parts > 1 else None,
        size_in_bytes=size_in_bytes,
        num_of_add_files=state.files.num_rows,
        checkpoint_schema=_hinted_schema(schema),
    )


def _write_v2(log: LogFiles, state: _State, files_per_sidecar: int, file_format: str) -> LastCheckpoint:
    """Sidecars first: once the checkpoint's own file is there, all of it is."""
    schema = pa.schema(list(state.rows.column_types.items()))
    sidecars = []
    for part in state.slices(files_per_sidecar):
        name = f"{random_id()}.parquet"
        path = f"{log.directory}/{SIDECARS_DIRECTORY}/{name}"
        size = _write_parquet(log, path, schema, _file_batches(part, schema))
        sidecars.append(Sidecar(path=name, size_in_bytes=size, modification_time=log.clock()))
    sidecars_bytes = sum(sidecar.size_in_bytes for sidecar in sidecars)
    tags: dict[str, str | None] = {
        "sidecarNumActions": str(state.number_of_files),
        "sidecarSizeInBytes": str(sidecars_bytes),
        "numOfAddFiles": str(state.files.num_rows),
    }
    actions = [CheckpointMetadata(version=state.snapshot.version, tags=tags), *state.others, *sidecars]
    name = f"{state.snapshot.version:020}.checkpoint.{random_id()}.{file_format}"
    size = _write_actions(log, f"{log.directory}/{name}", actions)
    return LastCheckpoint(
        version=state.snapshot.version,
        size=state.number_of_files + len(actions),
        size_in_bytes=sidecars_bytes + size,
        num_of_add_files=state.files.num_rows,
        v2_checkpoint=V2Checkpoint(path=name, size_in_bytes=size, modification_time=log.clock()),
    )


def _write_actions(log: LogFiles, path: str, actions: Sequence[OtherAction]) -> int:
    """Write actions that are not of files; the size of their file in bytes."""
    if path.endswith(".parquet"):
        rows = OtherRows(actions, log.path)
        schema = pa.schema(list(rows.column_types.items()))
        return _write_parquet(log, path, schema, [rows.batch(schema)])
    content = encode_actions(actions)
    with log.store.open_output(path) as file:
        file.write(content)
    return len(content)


def _with_parts(rows: pa.Table, parts: int) -> pa.Table:
    batches = rows.select(["path"]).to_batches(max_chunksize=_ROWS_PER_GROUP)
    numbers = [parts_of_paths(batch.column(0), parts) for batch in batches]
    return rows.append_column("part", pa.chunked_array(numbers, pa.int64()))


def _file_batches(state: _State, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    def adds(files: pa.RecordBatch) -> pa.RecordBatch:
        return file_batch("add", state.rows.adds(files), schema)

    yield from converted(_files_with_statistics(state), adds, _THREADS)
    for batch in _row_groups(state.tombstones, state.part):
        yield file_batch("remove", state.rows.removes(batch), schema)


def _files_with_statistics(state: _State) -> Iterator[pa.RecordBatch]:
    for start in range(0, state.files.num_rows, _FILES_WITH_STATISTICS):
        files = state.snapshot.with_stats(state.files.slice(start, _FILES_WITH_STATISTICS))
        yield from _row_groups(files, state.part)


def _row_groups(rows: pa.Table, part: int | None) -> Iterator[pa.RecordBatch]:
    # One group at a time, since filtering copies.
    for start in range(0, rows.num_rows, _ROWS_PER_GROUP):
        group = rows.slice(start, _ROWS_PER_GROUP)
        if part is not None:
            group = group.filter(pc.equal(group["part"], part))
        yield from group.combine_chunks().to_batches()


def _write_parquet(log: LogFiles, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows, a row group each batch; the size of the file in bytes."""
    with log.store.open_output(path) as file:
        with pq.ParquetWriter(
            file, schema, compression="snappy", use_dictionary=_dictionary_columns(schema), store_schema=False
        ) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return file.tell()


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """The columns, as Parquet names them, whose values are likely to repeat."""
    file = io.BytesIO()
    pq.write_table(schema.empty_table(), file)
    leaves = pq.ParquetFile(file).schema
    paths = [leaves.column(index).path for index in range(len(leaves))]
    return [path for path in paths if path.split(".")[1] not in _ALWAYS_NEW]


def _hinted_schema(schema: pa.Schema) -> dict[str, Any] | None:
    """The schema as Spark's JSON; None if it is too long for a hint."""
    described: dict[str, Any] = spark_schema(schema).jsonValue()
    return described if len(str(described)) <= _LONGEST_HINTED_SCHEMA else None
