"""The files that hold the change rows of a commit (PROTOCOL.md, "Add CDC File").

A commit with cdc actions has its change rows in their files. The change rows of any other commit are the rows
of the files that it adds (inserts) and removes (deletes). A file that is removed and added again with another
deletion vector gives the rows that one vector has and the other lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.deletion_vectors import DeletionVector, inline_vector, read_deletion_vectors
from deltaflow.log.files.file_key import logical_key
from deltaflow.log.files.file_rows import FILES_SCHEMA, vector_row
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.actions import AddCDCFile, AddFile, RemoveFile
from deltaflow.log.protocol.commit import Commit

CHANGE_TYPE = "_change_type"
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
        FILES_SCHEMA.field(name)
        for name in ("path", "partition_values", "size", "modification_time", "stats", "deletion_vector")
    ]
)
"""One row per file with change rows, columns as in FILES_SCHEMA. The partition values have those of the
change columns, too: all of them for files of the table, and all but _change_type, which is in the file, for
those of cdc actions. The deletion vector leaves out the rows of the file that are no change rows."""

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
    if _changes_nothing(commit):
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
            removed.append(rows.of(file, "delete", vector_row(file.deletion_vector)))
        else:
            pairs.append((file, again))
    added = [rows.of(file, "insert", vector_row(file.deletion_vector)) for file in adds.values()]
    for file, again, deleted, restored in _differences(pairs, commit.version, table_path):
        if deleted is not None:
            removed.append(rows.of(file, "delete", deleted))
        if restored is not None:
            added.append(rows.of(again, "insert", restored))
    return ChangeFiles(_table([]), _table(removed), _table(added))


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
        values = {**(file.partition_values or {}), **self._change_values(change_type)}
        stats = None if isinstance(file, AddCDCFile) else file.stats
        return (file.path, list(values.items()), file.size, self.timestamp_ms, stats, vector)

    def _change_values(self, change_type: str | None) -> Mapping[str, str]:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.timestamp_ms)
        values = {
            COMMIT_VERSION: str(self.version),
            COMMIT_TIMESTAMP: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return values if change_type is None else {CHANGE_TYPE: change_type, **values}


def _table(rows: Sequence[_Row]) -> pa.Table:
    columns: list[list[Any]] = [[row[place] for row in rows] for place in range(len(CHANGE_FILES))]
    return pa.table(columns, schema=CHANGE_FILES)


def _place(file: AddFile | RemoveFile, table_path: str) -> str:
    return logical_key(file.path, None, table_path)


def _changes_nothing(commit: Commit) -> bool:
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
    counted = FileStatistics(_table([_of_pair(remove, add) for remove, add in pairs]), T.StructType())
    records = counted.num_records.to_pylist()
    for (remove, add), old, new, count in zip(pairs, before, after, records, strict=True):
        yield remove, add, _all_but(new, old, count), _all_but(old, new, count)


def _of_pair(remove: RemoveFile, add: AddFile) -> _Row:
    return (remove.path, [], 0, 0, add.stats or remove.stats, None)


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
