"""The active files of a table as Arrow: reconciliation of add and remove without an object per file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.actions import AddFile, RemoveFile, add_from_fields, fields_beyond
from deltaflow.log.commit import Commit

_STRING_MAP = pa.map_(pa.string(), pa.string())
FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition_values", _STRING_MAP, nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("stats", pa.string()),
        pa.field("tags", _STRING_MAP),
        pa.field("extra", pa.string()),
    ]
)
"""One row a file: `path` as in the log, size in bytes, modification_time in ms, stats as JSON text;
`extra` is the JSON object of all other fields of the add action but dataChange, null without any."""

_KEYED_SCHEMA = FILES_SCHEMA.insert(0, pa.field("key", pa.string(), nullable=False))
_ACTION_SCHEMA = _KEYED_SCHEMA.append(pa.field("active", pa.bool_(), nullable=False))
_COLUMNS_OF_ADD = ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "dataChange")
_ROWS_PER_BATCH = 16_384
_SMALLEST_TAIL_TO_FOLD = 4_096


class FileState:
    """Files of one version: the active ones of an earlier version, and the actions since, newest last.

    Invariants: `base` has one row a key; all keys of `tail` are newer than those of `base`. The tail
    is folded into the base when `files` is asked for, or when it has grown as long as the base, so
    that following a table costs what its new commits hold.
    """

    __slots__ = ("_base", "_tail")

    def __init__(self, base: pa.Table | None = None, tail: pa.Table | None = None) -> None:
        self._base = _KEYED_SCHEMA.empty_table() if base is None else base
        self._tail = _ACTION_SCHEMA.empty_table() if tail is None else tail

    def after(self, commits: Iterable[Commit], table_path: str) -> FileState:
        """The files after these commits; this state stays as it is."""
        tail = pa.concat_tables(
            [self._tail, pa.Table.from_batches(_batches(commits, table_path), _ACTION_SCHEMA)]
        )
        state = FileState(self._base, tail)
        if tail.num_rows > max(_SMALLEST_TAIL_TO_FOLD, self._base.num_rows):
            state._fold()
        return state

    @property
    def files(self) -> pa.Table:
        """The active files, by FILES_SCHEMA."""
        self._fold()
        return self._base.drop_columns(["key"])

    def _fold(self) -> None:
        # Two threads may fold at once: both write the same base, and never a tail that it lacks.
        base, tail = self._base, self._tail
        if tail.num_rows == 0:
            return
        newest = _newest_of_each_key(tail)
        if base.num_rows:
            base = base.filter(pc.invert(pc.is_in(base["key"], value_set=newest["key"].combine_chunks())))
        added = newest.filter(newest["active"]).drop_columns(["active"])
        self._base, self._tail = pa.concat_tables([base, added]), _ACTION_SCHEMA.empty_table()


def add_files(files: pa.Table, *, data_change: bool = True) -> Iterator[AddFile]:
    """The add actions of rows of a snapshot's `files`, with everything that the log said of them."""
    for batch in files.to_batches(max_chunksize=_ROWS_PER_BATCH):
        for row in batch.to_pylist():
            yield add_from_fields(
                {
                    "path": row["path"],
                    "partitionValues": dict(row["partition_values"]),
                    "size": row["size"],
                    "modificationTime": row["modification_time"],
                    "dataChange": data_change,
                    "stats": row["stats"],
                    "tags": None if row["tags"] is None else dict(row["tags"]),
                },
                row["extra"],
            )


def remove_files(
    files: pa.Table, deletion_timestamp_ms: int, *, data_change: bool = True
) -> list[RemoveFile]:
    """The remove actions for rows of a snapshot's `files`."""
    return [add.remove(deletion_timestamp_ms, data_change=data_change) for add in add_files(files)]


def file_key(action: AddFile | RemoveFile, table_path: str) -> str:
    """What identifies a logical file (PROTOCOL.md, "Action Reconciliation"): decoded path and vector id."""
    path = action.path
    if "%" in path:
        path = _decoded(path)
    if path.startswith(("/", "file:")):
        path = path.removeprefix("file:")
        path = "/" + path.lstrip("/")
        path = path.removeprefix(table_path.rstrip("/") + "/")
    if action.deletion_vector is not None:
        return f"{path}\0{action.deletion_vector.unique_id}"
    return path


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        # Not the UTF-8 of any name: it stands for itself.
        return path


def _newest_of_each_key(tail: pa.Table) -> pa.Table:
    order = pa.array(range(tail.num_rows), pa.int64())
    last = (
        pa.table({"key": tail["key"], "order": order})
        .group_by("key")
        .aggregate([("order", "max")])["order_max"]
    )
    if len(last) == tail.num_rows:
        return tail
    return tail.filter(pc.is_in(order, value_set=last.combine_chunks()))


def _batches(commits: Iterable[Commit], table_path: str) -> Iterator[pa.RecordBatch]:
    rows = _Rows(table_path)
    for commit in commits:
        for action in commit.actions:
            if isinstance(action, AddFile | RemoveFile):
                rows.append(action)
        if len(rows) >= _ROWS_PER_BATCH:
            yield rows.flush()
    if len(rows):
        yield rows.flush()


class _Rows:
    """Columns that grow by file actions until they become a record batch."""

    def __init__(self, table_path: str) -> None:
        self._table_path = table_path
        self._columns: list[list[Any]] = [[] for _ in _ACTION_SCHEMA]

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, action: AddFile | RemoveFile) -> None:
        key = file_key(action, self._table_path)
        row: tuple[Any, ...]
        if isinstance(action, AddFile):
            row = (
                key,
                action.path,
                list(action.partition_values.items()),
                action.size,
                action.modification_time,
                action.stats,
                None if action.tags is None else list(action.tags.items()),
                fields_beyond(action, _COLUMNS_OF_ADD),
                True,
            )
        else:
            row = (key, action.path, [], 0, 0, None, None, None, False)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def flush(self) -> pa.RecordBatch:
        arrays = [
            pa.array(column, kind.type) for column, kind in zip(self._columns, _ACTION_SCHEMA, strict=True)
        ]
        self._columns = [[] for _ in _ACTION_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=_ACTION_SCHEMA)
