"""Which files of the table a write replaces: none, all, those of its partitions, those of a predicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.files.partition_conditions import any_of, known_conditions
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalStateException
from deltaflow.log import (
    FILES_SCHEMA,
    AddFile,
    OptimisticTransaction,
    Snapshot,
    schema_from_string,
)
from deltaflow.log.files.data_skipping import Predicate
from deltaflow.log.files.file_rows import refuse_deletion_vectors
from deltaflow.log.files.file_statistics import number_of_rows
from deltaflow.spark.scan.file_index import READ_ALL, ScannedFiles, complete_paths, relation
from deltaflow.spark.write.file_write import Check, ReplaceWhere, local_path

_MISMATCH = "DELTA_REPLACE_WHERE_MISMATCH"
_NO_FILES = FILES_SCHEMA.empty_table()


class Removal:
    """Which files of the table a write removes: none."""

    checks: Sequence[Check] = ()
    """What its rows have to satisfy besides the table's own checks."""
    replace_where: ReplaceWhere | None = None

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Before a file is written: records what the write reads."""

    def removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        """The removed ones of the snapshot's files, when `adds` were written; records that they were read."""
        return _NO_FILES

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        """What commitInfo counts besides the numbers of files."""
        return {}


class WholeTable(Removal):
    """Every file is removed."""

    def begin(self, transaction: OptimisticTransaction) -> None:
        transaction.read_whole_table()

    def removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        return _NO_FILES if transaction.snapshot is None else transaction.snapshot.files

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        return {"numRemovedBytes": pc.sum(removed["size"]).as_py() or 0}


class WrittenPartitions(WholeTable):
    """The files of the partitions that the data has are removed (dynamic partition overwrite)."""

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Nothing is read yet: the partitions are known when their files are."""

    def removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        snapshot = transaction.snapshot
        if snapshot is None or not adds:
            return _NO_FILES
        columns = [snapshot.schema[name] for name in snapshot.partition_columns]
        partitions = {tuple(add.partition_values[c.name] for c in columns) for add in adds}
        return transaction.files_matching(any_of(columns, sorted(partitions, key=repr)))


class MatchingRows(WholeTable):
    """The rows that a predicate is true for are replaced: files that hold any are removed, and those of
    their rows that it is not true for are written again (delta-spark's replaceWhere).

    Spark finds the files (`replaced`) before it writes any.
    """

    def __init__(
        self, handle: int, predicate: str, *, checks_rows: bool, data_columns: bool, data_change: bool
    ) -> None:
        self._handle = handle
        self._predicate = predicate
        self._data_columns = data_columns
        self._data_change = data_change
        self._touched = _NO_FILES
        self._transaction: OptimisticTransaction | None = None
        self.replace_where = None
        if checks_rows:
            error = DeltaAnalysisException(error_class=_MISMATCH, predicate=predicate, violation="")
            self.checks = (Check(predicate, str(error), shows_values=True),)

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Nothing is read yet: Spark tells which files the predicate matches."""
        self._transaction = transaction
        if transaction.snapshot is not None:
            self.replace_where = ReplaceWhere(
                self._predicate, self._scan("all"), self._replaced, self._files_of_scan
            )

    def removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        return self._touched

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        counts = {**super().metrics(removed, copied_rows), "numCopiedRows": copied_rows}
        rows_removed = number_of_rows(removed["stats"])
        if rows_removed is not None:
            counts["numDeletedRows"] = rows_removed - copied_rows
        return {**counts, "numAddedChangeFiles": 0}

    def _files_of_scan(self, which: str) -> ScannedFiles:
        """Of a scan of `replace_where`: all files that the table has, or those that the predicate matches."""
        snapshot, path = self._read
        files = snapshot.files if which == "all" else self._touched
        refuse_deletion_vectors(files, path, snapshot.version)
        return ScannedFiles(path, tuple(snapshot.partition_columns), files)

    def _replaced(
        self, paths: Sequence[str], partition_filter: Predicate | None, *, has_data_filters: bool
    ) -> dict[str, Any] | None:
        """Notes the files; answers with the scan of the files whose other rows stay, None if none do."""
        snapshot, path = self._read
        transaction = self._transaction
        assert transaction is not None
        if has_data_filters and not self._data_columns:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
                predicate=self._predicate,
                columns=", ".join(snapshot.partition_columns),
                table=path,
            )
        if has_data_filters and not self._data_change:
            raise DeltaAnalysisException(
                error_class="DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET",
                predicate=self._predicate,
                table=path,
            )
        columns = {name: snapshot.schema[name] for name in snapshot.partition_columns}
        condition = known_conditions(partition_filter, columns)
        if condition is None:
            transaction.read_whole_table()
        else:
            transaction.files_matching(condition)
        wanted = pa.array([local_path(found) for found in paths], pa.string())
        complete = pc.replace_substring_regex(complete_paths(path, snapshot.files["path"]), "^file:(//)?", "")
        self._touched = snapshot.files.filter(pc.is_in(complete, value_set=wanted))
        if self._touched.num_rows != len(wanted):
            raise DeltaIllegalStateException(
                f"Spark found {len(wanted)} files for {self._predicate}, of which the table has "
                f"{self._touched.num_rows}.",
                table=path,
                version=snapshot.version,
            )
        transaction.read_files(self._touched)
        return self._scan("touched") if has_data_filters and self._touched.num_rows else None

    @property
    def _read(self) -> tuple[Snapshot, str]:
        assert self._transaction is not None
        assert self._transaction.snapshot is not None
        return self._transaction.snapshot, self._transaction.path

    def _scan(self, which: str) -> dict[str, Any]:
        """With the schema that the table gets: files that lack columns of it have nulls there."""
        snapshot, path = self._read
        assert self._transaction is not None
        assert self._transaction.metadata is not None
        return relation(
            {
                "kind": "write",
                "path": path,
                "version": snapshot.version,
                "handle": self._handle,
                "which": which,
            },
            path,
            schema_from_string(self._transaction.metadata.schema_string, table=path),
            list(snapshot.partition_columns),
            snapshot.size_in_bytes,
            READ_ALL,
        )
