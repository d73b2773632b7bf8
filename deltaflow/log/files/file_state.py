"""Active and removed files of a version in Arrow: action reconciliation without an object per file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.file_key import file_key
from deltaflow.log.files.file_rows import (
    COLUMNS_OF_ADD,
    COLUMNS_OF_REMOVE,
    DELETION_VECTOR,
    FILES_SCHEMA,
    ROWS_PER_BATCH,
    STRING_MAP,
    TOMBSTONES_SCHEMA,
    vector_row,
)
from deltaflow.log.files.stored_statistics import StatisticsSource
from deltaflow.log.protocol.actions import (
    AddFile,
    AnyAction,
    RemoveFile,
    fields_beyond,
)

_KEY = pa.field("key", pa.string())
KEYED_FILES_SCHEMA = FILES_SCHEMA.append(_KEY)
"""FILES_SCHEMA and `key`, what identifies the file (`file_key`); null where that is the path itself."""
KEYED_TOMBSTONES_SCHEMA = TOMBSTONES_SCHEMA.append(_KEY)
"""TOMBSTONES_SCHEMA and `key`, as in KEYED_FILES_SCHEMA."""


_ACTION_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition_values", STRING_MAP),
        pa.field("size", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRING_MAP),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("extra", pa.string()),
        pa.field("active", pa.bool_(), nullable=False),
        pa.field("modification_time", pa.int64()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
    ]
)
_SMALLEST_TAIL_TO_FOLD = 4_096
# Every commit adds a chunk, and to concatenate tables takes time for each chunk.
_MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class _Parts:
    files: Sequence[pa.RecordBatch]
    tombstones: Sequence[pa.RecordBatch]
    tail: pa.Table


class FileState:
    """Files of one version: those of an earlier version, and the file actions since, newest last.

    Invariants: a key is in one row of `files` or `tombstones` at most; all keys of `tail` are newer. The
    tail is folded into them when they are asked for, or when it has grown as long as they are, so that
    following a table costs only what its new commits hold. A fold copies only the batches that it changes.
    """

    __slots__ = ("_parts", "stats_source", "text_bytes")

    def __init__(
        self,
        files: Sequence[pa.RecordBatch] = (),
        tombstones: Sequence[pa.RecordBatch] = (),
        actions: Iterable[AnyAction] = (),
        table_path: str = "",
        stats_source: StatisticsSource | None = None,
    ) -> None:
        """Batches by KEYED_FILES_SCHEMA and KEYED_TOMBSTONES_SCHEMA, and newer actions. `stats_source` has
        the statistics of the files that have a `stats_row`."""
        self.stats_source = stats_source
        self.text_bytes = 0
        """Bytes of the statistics that actions have brought, those of files that were removed since, too."""
        self._parts = _Parts(files, tombstones, _ACTION_SCHEMA.empty_table())
        if actions:
            after = self.after(actions, table_path)
            self._parts, self.text_bytes = after._parts, after.text_bytes

    def after(self, actions: Iterable[AnyAction], table_path: str) -> FileState:
        """The files after these actions; this state stays as it is."""
        parts = self._parts
        newer = pa.Table.from_batches(_action_batches(actions, table_path), _ACTION_SCHEMA)
        tail = pa.concat_tables([parts.tail, newer])
        if tail["key"].num_chunks > _MOST_CHUNKS:
            tail = tail.combine_chunks()
        state = FileState(stats_source=self.stats_source)
        state.text_bytes = self.text_bytes + newer["stats"].nbytes
        state._parts = _Parts(parts.files, parts.tombstones, tail)
        if tail.num_rows > max(_SMALLEST_TAIL_TO_FOLD, sum(batch.num_rows for batch in parts.files)):
            state._fold()
        return state

    @property
    def files(self) -> pa.Table:
        """The active files, by FILES_SCHEMA."""
        return pa.Table.from_batches(self._fold().files, KEYED_FILES_SCHEMA).drop_columns(["key"])

    @property
    def tombstones(self) -> pa.Table:
        """The removed files whose tombstones are in the log, expired ones included, by TOMBSTONES_SCHEMA."""
        return pa.Table.from_batches(self._fold().tombstones, KEYED_TOMBSTONES_SCHEMA).drop_columns(["key"])

    def _fold(self) -> _Parts:
        # Threads that fold at once write equal parts.
        parts = self._parts
        if parts.tail.num_rows:
            newest = _newest_of_each_key(parts.tail)
            keys = newest["key"].combine_chunks()
            added = newest.filter(newest["active"])
            removed = newest.filter(pc.invert(newest["active"]))
            parts = _Parts(
                _with_appended(_without_keys(parts.files, keys), added, KEYED_FILES_SCHEMA),
                _with_appended(_without_keys(parts.tombstones, keys), removed, KEYED_TOMBSTONES_SCHEMA),
                _ACTION_SCHEMA.empty_table(),
            )
            self._parts = parts
        return parts


class NoFileState(FileState):
    """The state of snapshots without files: it consumes all actions and keeps none."""

    __slots__ = ()

    def after(self, actions: Iterable[AnyAction], table_path: str) -> FileState:
        """This state. `actions` are consumed, since the caller's iterator updates other state as it runs."""
        for _ in actions:
            pass
        return self

    def _fold(self) -> _Parts:
        raise RuntimeError("this snapshot was made without its files")


def _newest_of_each_key(tail: pa.Table) -> pa.Table:
    # group_by would load Arrow's datasets (40 MB). Dictionary codes count keys by their first occurrence:
    # from the end, a key is new where its code is above all codes before it.
    from_end = pa.array(range(tail.num_rows - 1, -1, -1), pa.int64())
    codes = tail["key"].combine_chunks().take(from_end).dictionary_encode().indices
    highest = pc.cumulative_max(codes)
    is_new = pc.not_equal(highest[1:], highest[:-1])
    newest = pa.concat_arrays([pa.array([True]), is_new]).take(from_end)
    return tail if pc.all(newest).as_py() else tail.filter(newest)


def _without_keys(batches: Sequence[pa.RecordBatch], keys: pa.Array) -> list[pa.RecordBatch]:
    """The batches without the rows of these keys; a batch that has none of them is not copied."""
    if not batches:
        return []
    found = pc.is_in(pa.chunked_array([_keys(batch) for batch in batches]), value_set=keys)
    kept: list[pa.RecordBatch] = []
    start = 0
    for batch in batches:
        mask = found.slice(start, batch.num_rows).combine_chunks()
        start += batch.num_rows
        if pc.any(mask).as_py():
            batch = batch.filter(pc.invert(mask))
        if batch.num_rows:
            kept.append(batch)
    return kept


def _keys(batch: pa.RecordBatch) -> pa.Array:
    key = batch.column("key")
    return batch.column("path") if key.null_count == len(key) else pc.coalesce(key, batch.column("path"))


def _with_appended(
    batches: list[pa.RecordBatch], actions: pa.Table, schema: pa.Schema
) -> Sequence[pa.RecordBatch]:
    """The batches and the rows of file actions, with the small ones merged so that they stay few."""
    if actions.num_rows == 0:
        return batches
    key = pc.if_else(pc.equal(actions["key"], actions["path"]), pa.scalar(None, pa.string()), actions["key"])
    special = {
        "key": key,
        "stats_text": actions["stats"],
        "stats_row": pa.chunked_array([pa.nulls(actions.num_rows, pa.int64())]),
    }
    columns = [special[name] if name in special else actions[name] for name in schema.names]
    rows = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
    for batch in rows.to_batches(max_chunksize=ROWS_PER_BATCH):
        while batches and _is_worth_merging(batches[-1], batch):
            batch = pa.concat_batches([batches.pop(), batch])
        batches.append(batch)
    return batches


def _is_worth_merging(before: pa.RecordBatch, last: pa.RecordBatch) -> bool:
    rows: int = before.num_rows + last.num_rows
    return rows <= ROWS_PER_BATCH and before.num_rows <= 2 * last.num_rows


def _action_batches(actions: Iterable[AnyAction], table_path: str) -> Iterator[pa.RecordBatch]:
    rows = _ActionRows(table_path)
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            rows.append(action)
            if len(rows) >= ROWS_PER_BATCH:
                yield rows.flush()
    if len(rows):
        yield rows.flush()


class _ActionRows:
    """Columns that grow by file actions until they become a record batch."""

    def __init__(self, table_path: str) -> None:
        self._table_path = table_path
        self._columns: list[list[Any]] = [[] for _ in _ACTION_SCHEMA]

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, action: AddFile | RemoveFile) -> None:
        values = action.partition_values
        of_one_type: tuple[Any, ...]
        if isinstance(action, AddFile):
            extra = fields_beyond(action, COLUMNS_OF_ADD)
            of_one_type = (True, action.modification_time, None, None)
        else:
            extra = fields_beyond(action, COLUMNS_OF_REMOVE)
            of_one_type = (False, None, action.deletion_timestamp, action.extended_file_metadata)
        row = (
            file_key(action, self._table_path),
            action.path,
            None if values is None else list(values.items()),
            action.size,
            action.stats,
            None if action.tags is None else list(action.tags.items()),
            vector_row(action.deletion_vector),
            action.base_row_id,
            action.default_row_commit_version,
            extra,
            *of_one_type,
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def flush(self) -> pa.RecordBatch:
        arrays = [
            pa.array(column, field.type) for column, field in zip(self._columns, _ACTION_SCHEMA, strict=True)
        ]
        self._columns = [[] for _ in _ACTION_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=_ACTION_SCHEMA)
