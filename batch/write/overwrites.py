"""Which files of the table a write replaces: none, all, those of its partitions, or those of a predicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaflow.batch.files.partition_conditions import in_any_partition
from deltaflow.batch.rewrite.marked_rows import RewrittenFiles
from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.recorded_changes import change_type, with_change_type
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.batch.rows.char_varchar import check_finds_char
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log import FILES_SCHEMA, AddFile, OptimisticTransaction, Snapshot
from deltaflow.log.files.change_files import DELETE, INSERT
from deltaflow.log.protocol.column_mapping import physical_name, table_schema
from deltaflow.log.protocol.features import has_change_data_feed
from deltaflow.spark.expressions.analysis import analysed, references
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.write.file_write import Check, condition_of_write, session_of_write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_OPERATION = "replaceWhere"
_MISMATCH = "DELTA_REPLACE_WHERE_MISMATCH"
_NO_FILES = FILES_SCHEMA.empty_table()


class OverwriteScope:
    """What a write replaces: nothing, unless a subclass says otherwise."""

    checks: Sequence[Check] = ()
    """Checks that the write's rows have to pass besides the table's own."""

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Is called before a file is written; records what the write reads."""

    def columns_of_files(self, transaction: OptimisticTransaction, schema: StructType) -> StructType:
        """The columns of the write's files, for a table with this schema."""
        return schema

    def copy_rows(self, transaction: OptimisticTransaction, copies: NewFiles) -> None:
        """Is called after the write's own job; writes the rows of removed files that stay in the table."""

    def record_removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        """The files of the snapshot that the commit of `adds` removes; records that they were read."""
        return _NO_FILES

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        """The metrics of commitInfo besides the numbers of files."""
        return {}


class WholeTable(OverwriteScope):
    """Replaces the whole table: every file is removed."""

    def begin(self, transaction: OptimisticTransaction) -> None:
        transaction.record_read_of_whole_table()

    def record_removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        return _NO_FILES if transaction.snapshot is None else transaction.snapshot.files

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        return {"numRemovedBytes": pc.sum(removed["size"]).as_py() or 0}


class WrittenPartitions(WholeTable):
    """Replaces the partitions that the written rows are in (dynamic partition overwrite)."""

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Records that there is no table. Of one that is there, the partitions are not known before the files
        are written."""
        if transaction.snapshot is None:
            super().begin(transaction)

    def record_removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        snapshot = transaction.snapshot
        if snapshot is None or not adds:
            return _NO_FILES
        columns = [snapshot.schema[name] for name in snapshot.partition_columns]
        partitions = {tuple(add.partition_values[physical_name(c)] for c in columns) for add in adds}
        return transaction.record_read_of_partitions(in_any_partition(columns, sorted(partitions, key=repr)))


class MatchingRows(WholeTable):
    """Replaces the rows for which a predicate is true (delta-spark's replaceWhere).

    If the predicate names partition columns alone, the files of its partitions are removed unread. Otherwise
    two jobs follow the write's own: one counts the rows that match in each file, and one writes the other
    rows of these files again. For a change data feed, one more records the rows that match.
    """

    def __init__(
        self,
        handle: int,
        predicate: str,
        *,
        is_of_statement: bool = False,
        checks_rows: bool,
        data_columns: bool = True,
        data_change: bool = True,
        is_alone: bool = False,
    ) -> None:
        """`handle` is the handle of the write, which leads to its session. `is_of_statement`: the
        condition is that of the write's statement (`condition_of_write`), and `predicate` only tells people.
        `is_alone`: whether no rival adds rows for which the predicate is true."""
        self._handle = handle
        self._predicate = predicate
        self._is_of_statement = is_of_statement
        self._data_columns = data_columns
        self._data_change = data_change
        self._is_alone = is_alone
        self._has_data_filters = False
        self._touched = _NO_FILES
        self._rows_removed: int | None = 0
        if checks_rows:
            error = DeltaAnalysisException(error_class=_MISMATCH, predicate=predicate, violation="")
            of_write = handle if is_of_statement else None
            self.checks = (Check(predicate, str(error), shows_values=True, is_users=True, of_write=of_write),)

    def _condition(self, rows: DataFrame) -> Column:
        """The predicate over a frame of the table's rows."""
        return condition_of_write(self._handle, rows) if self._is_of_statement else F.expr(self._predicate)

    def begin(self, transaction: OptimisticTransaction) -> None:
        """Has Spark analyse the predicate, and records the partitions that it names as read; or that there is
        no table. Of a new table, as in delta-spark, the predicate means nothing."""
        snapshot = transaction.snapshot
        if snapshot is None:
            super().begin(transaction)
            self.checks = ()
            return
        check_finds_char(session_of_write(self._handle), snapshot)
        with self._touched_files(transaction) as files:
            rows = files.rows()
            condition = self._condition(rows)
            if has_subquery(condition):
                raise DeltaUnsupportedOperationException(
                    error_class="DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES",
                    expression=self._predicate,
                )
            matching = rows.where(condition)
            files.deterministic_condition(rows, condition)
            found = files.filter_facts(matching)
            if not self._is_alone:
                files.record_read(found)
            if not found.has_data_filters:
                self._touched = files.record_files_of_partitions(found)
                self._rows_removed = snapshot.number_of_rows(self._touched)
                return
            if not self._data_columns:
                raise self._names_other_columns(rows, condition, snapshot)
        self._has_data_filters = True
        if not self._data_change:
            raise DeltaAnalysisException(
                error_class="DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET",
                predicate=self._predicate,
                table=snapshot.path,
            )

    def _names_other_columns(
        self, rows: DataFrame, condition: Column, snapshot: Snapshot
    ) -> DeltaAnalysisException:
        [found] = analysed(rows, [condition])
        named = rows.select(*references(rows, [found.column])).columns
        others = [name for name in named if name not in snapshot.partition_columns]
        return DeltaAnalysisException(
            error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
            column_name=others[0] if others else self._predicate,
            columns=", ".join(snapshot.partition_columns),
            table=snapshot.path,
        )

    def columns_of_files(self, transaction: OptimisticTransaction, schema: StructType) -> StructType:
        return with_change_type(schema, INSERT) if self._may_record(transaction) else schema

    def _may_record(self, transaction: OptimisticTransaction) -> bool:
        """Whether the table has a change data feed that may need more than added and removed files."""
        assert transaction.metadata is not None
        return self._has_data_filters and has_change_data_feed(transaction.metadata)

    def record_removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        return self._touched

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        counts = {**super().metrics(removed, copied_rows), "numCopiedRows": copied_rows}
        if self._rows_removed is not None:
            counts["numDeletedRows"] = self._rows_removed
        return {**counts, "numAddedChangeFiles": 0}

    def copy_rows(self, transaction: OptimisticTransaction, copies: NewFiles) -> None:
        if not self._has_data_filters:
            return
        assert transaction.snapshot is not None
        with self._touched_files(transaction) as files:
            rows = files.rows()
            _, matches = files.deterministic_condition(rows, self._condition(rows))
            matching = rows.where(matches)
            if self._may_record(transaction):
                self._record_changes(files, matching, copies)
                return
            touched = files.record_touched_files(matching)
            account = RowAccount(_OPERATION, transaction.snapshot, touched, touched[MATCHING_ROWS.name])
            if account.files_to_read.num_rows:
                # Rows for which the predicate is null stay, too.
                there = files.with_row_ids(files.rows(account.files_to_read, like=rows))
                copies.copy(there.where(~matches.eqNullSafe(F.lit(True))), _OPERATION)
            account.check(copies.rows)
        self._touched, self._rows_removed = account.files, account.gone

    def _record_changes(self, files: TouchedFiles, matching: DataFrame, copies: NewFiles) -> None:
        """Copies the other rows, and records the rows that match if there are others."""
        account = RewrittenFiles(_OPERATION, files.snapshot, *files.record_marked_rows(matching))
        others = account.unmarked
        if others.files.num_rows:
            copies.record(files.rows(account.deleted).select("*", change_type(DELETE)), _OPERATION)
            copies.copy(files.with_row_ids(files.rows(others)), _OPERATION)
            account.check_recorded(copies.recorded_rows, 0)
        account.check(copies.rows)
        self._touched, self._rows_removed = account.files, account.gone

    def _touched_files(self, transaction: OptimisticTransaction) -> TouchedFiles:
        """The table's files, with the schema that the table gets; columns that a file lacks are null."""
        assert transaction.metadata is not None
        schema = table_schema(transaction.metadata, table=transaction.path)
        return TouchedFiles(session_of_write(self._handle), transaction, _OPERATION, schema)
