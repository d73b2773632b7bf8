"""The files that hold the change rows of a commit (PROTOCOL.md, "Add CDC File").

A commit with cdc actions has its change rows in their files. The change rows of any other commit are the rows
of the files that it adds (inserts) and removes (deletes). A file that is removed and added again with another
deletion vector gives the rows that one vector has and the other lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.deletion_vectors import DeletionVector, inline_vector, read_deletion_vectors
from deltaflow.log.files.file_key import logical_key
from deltaflow.log.files.file_rows import FILES_SCHEMA, STATS, STRING_MAP, vector_row
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.actions import AddCDCFile, AddFile, RemoveFile
from deltaflow.log.protocol.commit import Commit

CHANGE_TYPE = "_change_type"
INSERT, DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE = "insert", "delete", "update_preimage", "update_postimage"
"""The values of the column CHANGE_TYPE."""
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_COLUMNS = T.StructType(
    [
        T.StructField(CHANGE_TYPE, T.StringType()),
        T.StructField(COMMIT_VERSION, T.LongType()),
        T.StructField(COMMIT_TIMESTAMP, T.TimestampType()),
    ]
)
"""The columns that change rows have beside those of the table."""
CHANGE_FILES = pa.schema(
    [
        *(FILES_SCHEMA.field(name) for name in ("path", "partition_values", "size", "modification_time")),
        STATS,
        FILES_SCHEMA.field("deletion_vector"),
    ]
)
"""One row per file with change rows, columns as in FILES_SCHEMA. The partition values have those of the
change columns, too: all of them for files of the table, and all but _change_type, which is in the file, for
those of cdc actions. The deletion vector leaves out the rows of the file that are no change rows."""

ChangeAction = AddFile | RemoveFile | AddCDCFile

# A file whose number of rows is not in the log has at most so many.
_MOST_ROWS = 1 << 32


@dataclass(frozen=True)
class ChangeFiles:
    """The files with the change rows of one commit, by CHANGE_FILES: `recorded` has those of cdc actions,
    `removed` and `added` those of the table."""

    recorded: pa.Table
    removed: pa.Table
    added: pa.Table


def change_files(commit: Commit, timestamp_ms: int, table_path: str) -> ChangeFiles:
    """The files with the change rows of a commit, which was made at a time in milliseconds since 1970.

    Raises DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA if a file was removed without its partition values
    or its size.
    """
    rows = _Rows(commit.version, timestamp_ms)
    if commit.cdc:
        recorded = [rows.of(file, None, None) for file in commit.cdc]
        return ChangeFiles(_table(recorded), _table([]), _table([]))
    if changes_nothing(commit):
        return ChangeFiles(_table([]), _table([]), _table([]))
    adds = {_place(file, table_path): file for file in commit.adds if file.data_change}
    removed: list[_Row] = []
    pairs: list[tuple[RemoveFile, AddFile]] = []
    for file in commit.removes:
        if not file.data_change:
            continue
        if file.partition_values is None or file.size is None:
            raise CorruptLogError(
                error_class="DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA",
                removed_file=file.path,
                file=file.path,
                version=commit.version,
                table=table_path,
            )
        again = adds.pop(_place(file, table_path), None)
        if again is None:
            removed.append(rows.of(file, DELETE, vector_row(file.deletion_vector)))
        else:
            pairs.append((file, again))
    added = [rows.of(file, INSERT, vector_row(file.deletion_vector)) for file in adds.values()]
    for file, again, deleted, restored in _differences(pairs, commit.version, table_path):
        if deleted is not None:
            removed.append(rows.of(file, DELETE, deleted))
        if restored is not None:
            added.append(rows.of(again, INSERT, restored))
    return ChangeFiles(_table([]), _table(removed), _table(added))


def inserted_files(files: pa.Table, version: int, timestamp_ms: int) -> pa.Table:
    """The files (CHANGE_FILES) whose rows are all inserts of one version: those of a table's snapshot."""
    own = _Rows(version, timestamp_ms).change_values(INSERT)
    every = pa.array(range(files.num_rows), pa.int64())
    values = _array(files["partition_values"]).take(every)  # a copy, because a slice has the keys of all
    # The entries of all files, then the change columns of all, sorted by file; the sort is stable.
    names = pa.ListArray.from_arrays(values.offsets, values.keys)
    of_file = pa.concat_arrays([pc.list_parent_indices(names).cast(pa.int64()), *[every] * len(own)])
    order = pc.sort_indices(of_file)
    keys = pa.concat_arrays([values.keys, *(pa.repeat(name, len(every)) for name in own)])
    items = pa.concat_arrays([values.items, *(pa.repeat(text, len(every)) for text in own.values())])
    ends = pc.cumulative_sum(pc.add(pc.list_value_length(names), len(own))).cast(pa.int32())
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    maps = pa.MapArray.from_arrays(starts, keys.take(order), items.take(order))
    place = CHANGE_FILES.get_field_index("partition_values")
    return files.select(CHANGE_FILES.names).set_column(
        place, CHANGE_FILES.field(place), maps.cast(STRING_MAP)
    )


def recorded_files(files: pa.Table) -> pa.Array:
    """Which of the files (CHANGE_FILES) are those of cdc actions: they have the change type in the file."""
    return _array(pc.map_lookup(files["partition_values"], CHANGE_TYPE, "first").is_null())


# ------------------------------------------------------------------------------------------- for streams


def change_actions(commit: Commit) -> tuple[ChangeAction, ...]:
    """The actions whose files hold the change rows of a commit, in log order, by which a stream numbers them:
    cdc actions if there are any, or else those that add and remove files of the table and change data."""
    if commit.cdc:
        return commit.cdc
    of_table = (action for action in commit.actions if isinstance(action, AddFile | RemoveFile))
    return tuple(action for action in of_table if action.data_change)


def with_change_actions(commit: Commit, actions: Sequence[ChangeAction]) -> Commit:
    """The commit with some of its change actions alone, for `change_files`."""
    return replace(
        commit,
        adds=tuple(action for action in actions if isinstance(action, AddFile)),
        removes=tuple(action for action in actions if isinstance(action, RemoveFile)),
        cdc=tuple(action for action in actions if isinstance(action, AddCDCFile)),
    )


def files_to_admit(actions: Sequence[ChangeAction], table_path: str) -> pa.Table:
    """The files of change actions, in their order, by which a stream counts what a batch takes.

    They have the columns of CHANGE_FILES, without the change columns and without vectors. The statistics of a
    file that was marked again have the number of its change rows, and those of others their own.
    """
    stats = [None if isinstance(action, AddCDCFile) else action.stats for action in actions]
    if any(not isinstance(action, AddCDCFile) and action.deletion_vector for action in actions):
        stats = _stats_of_change_rows(actions, table_path)
    return _table(
        [
            (action.path, list((action.partition_values or {}).items()), action.size or 0, 0, text, None)
            for action, text in zip(actions, stats, strict=True)
        ]
    )


def _stats_of_change_rows(actions: Sequence[ChangeAction], table_path: str) -> list[str | None]:
    files = [action for action in actions if not isinstance(action, AddCDCFile)]
    deleted = {(type(file), _place(file, table_path)): _cardinality(file) for file in files}
    rows = FileStatistics(
        _table([(file.path, [], 0, 0, file.stats, vector_row(file.deletion_vector)) for file in files]),
        T.StructType(),
    ).num_rows.to_pylist()
    found: list[str | None] = []
    for file, live in zip(files, rows, strict=True):
        other = deleted.get((RemoveFile if isinstance(file, AddFile) else AddFile, _place(file, table_path)))
        if other is None:
            count = live if file.deletion_vector is not None else None
        else:
            count = max(0, other - _cardinality(file))
        found.append(file.stats if count is None else f'{{"numRecords":{count}}}')
    return found


def _cardinality(file: AddFile | RemoveFile) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


_Row = Sequence[Any]
_Vector = dict[str, Any]


@dataclass(frozen=True)
class _Rows:
    """Makes rows of CHANGE_FILES for the files of a commit."""

    version: int
    timestamp_ms: int

    def of(
        self, file: AddFile | RemoveFile | AddCDCFile, change_type: str | None, vector: _Vector | None
    ) -> _Row:
        values = {**(file.partition_values or {}), **self.change_values(change_type)}
        stats = None if isinstance(file, AddCDCFile) else file.stats
        return (file.path, list(values.items()), file.size, self.timestamp_ms, stats, vector)

    def change_values(self, change_type: str | None) -> Mapping[str, str]:
        """The change columns as partition values."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.timestamp_ms)
        values = {
            COMMIT_VERSION: str(self.version),
            COMMIT_TIMESTAMP: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return values if change_type is None else {CHANGE_TYPE: change_type, **values}


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _table(rows: Sequence[_Row]) -> pa.Table:
    columns: list[list[Any]] = [[row[place] for row in rows] for place in range(len(CHANGE_FILES))]
    return pa.table(columns, schema=CHANGE_FILES)


def _place(file: AddFile | RemoveFile, table_path: str) -> str:
    return logical_key(file.path, None, table_path)


def changes_nothing(commit: Commit) -> bool:
    """Whether a MERGE has counted that it changed no row: it may have rewritten files all the same."""
    info = commit.commit_info
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    changes = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return all(str(metrics.get(name)) == "0" for name in changes)


def _differences(
    pairs: Sequence[tuple[RemoveFile, AddFile]], version: int, table_path: str
) -> Iterator[tuple[RemoveFile, AddFile, _Vector | None, _Vector | None]]:
    """For files that were removed and added again: the vectors that leave all rows out but those that were
    deleted, and but those that came back; None where there are none."""
    before = _vectors([remove for remove, _ in pairs], version, table_path)
    after = _vectors([add for _, add in pairs], version, table_path)
    records = pc.coalesce(*(_records([pair[i] for pair in pairs]) for i in (1, 0))).to_pylist()
    for (remove, add), old, new, count in zip(pairs, before, after, records, strict=True):
        yield remove, add, _all_but(new, old, count), _all_but(old, new, count)


def _records(files: Sequence[AddFile | RemoveFile]) -> pa.Array:
    """How many rows each file has by its own action, whatever is deleted; null where that does not say it."""
    rows: list[_Row] = [(file.path, [], 0, 0, file.stats, None) for file in files]
    return FileStatistics(_table(rows), T.StructType()).num_records


def _vectors(
    files: Sequence[AddFile | RemoveFile], version: int, table_path: str
) -> list[DeletionVector | None]:
    rows: list[_Row] = [(file.path, [], 0, 0, file.stats, vector_row(file.deletion_vector)) for file in files]
    return read_deletion_vectors(_table(rows), table_path, version)


def _all_but(
    vector: DeletionVector | None, other: DeletionVector | None, records: int | None
) -> _Vector | None:
    """An inline vector of all rows of a file but those that `vector` alone has; None without any."""
    if vector is None:
        return None
    changed = vector.rows if other is None else vector.rows - other.rows
    if not changed:
        return None
    return vector_row(inline_vector(changed.flip(0, _MOST_ROWS if records is None else records)))
