"""The rows that a MERGE writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from deltaflow.batch.dml.merge_changes import ACTION, IS_MATCH
from deltaflow.batch.dml.merge_clauses import ResolvedClause
from deltaflow.batch.dml.merge_expressions import union
from deltaflow.batch.dml.merge_join import MergeJoin
from deltaflow.batch.dml.merge_metrics import MergeCounts
from deltaflow.batch.dml.row_level_operation import INSERTED
from deltaflow.batch.rewrite.marked_rows import MarkedRows, RowsOfFiles
from deltaflow.batch.rewrite.recorded_changes import change_type
from deltaflow.batch.rows.computed_columns import with_computed
from deltaflow.batch.sql_names import quoted
from deltaflow.interface.merge_builder import When
from deltaflow.log.files.change_files import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE
from deltaflow.log.protocol.identity_columns import identity_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class MergeRows:
    """Frames of the rows that a MERGE writes, with the columns that the table has afterwards."""

    def __init__(self, join: MergeJoin, counts: MergeCounts, *, records: bool) -> None:
        """`records`: whether the commit records its change rows."""
        self._join = join
        self._operation = join.operation
        self._merge = join.merge
        self._counts = counts
        self._records = records

    @property
    def numbered(self) -> set[str]:
        """The identity columns whose numbers the table gives to inserted rows."""
        identities = identity_columns(self._merge.schema).keys()
        return {name for clause in self._join.inserting for name in clause.computed & identities}

    def rewritten(self, touched: pa.Table) -> DataFrame:
        """The rows of the touched files as they are to be."""
        joined = self._join.joined(touched, "left", row_ids=True)
        action = self._join.action(matched=F.col(IS_MATCH).isNotNull())
        rows = joined.withColumn(ACTION, action)
        deletes = [i for i, clause in enumerate(self._join.changing, 1) if clause.action == "delete"]
        if deletes:
            rows = rows.where(~F.col(ACTION).isin(deletes))
        updates = self._join.updates
        row_ids = self._operation.row_ids(F.col(ACTION).isin([number for number, _ in updates]))
        return self._selected(rows, updates, self._merge.copied, row_ids)

    def as_they_were(self, rows: RowsOfFiles) -> DataFrame | None:
        """Rows of the table, with their row ids; None without any."""
        if not rows.files.num_rows:
            return None
        return self._join.with_row_ids(self._operation.rows(rows, like=self._join.target))

    def copied(self, account: MarkedRows) -> DataFrame | None:
        """The rows that the account wants to be copied; None without any."""
        rows = self.as_they_were(account.unmarked)
        if rows is None:
            return None
        return self._with_schema(rows, [F.col(quoted(name)) for name in self._operation.row_id_names])

    def _with_schema(self, rows: DataFrame, others: Sequence[Column]) -> DataFrame:
        """Rows of the table that stay, with the columns that it has afterwards."""
        copied = zip(self._merge.copied, self._merge.schema.names, strict=True)
        return rows.select(*[value.alias(name) for value, name in copied], *others)

    def before(self, account: MarkedRows, updated: DataFrame | None) -> DataFrame:
        """The rows that are updated and deleted, as they were."""
        frames = []
        if updated is not None:
            may_keep = not self._join.compares_floats
            frames.append(self._operation.before(updated, account, self._with_schema, may_keep=may_keep))
        deleted = self.as_they_were(account.deleted)
        if deleted is not None:
            frames.append(self._with_schema(deleted, [change_type(DELETE)]))
        return union(frames)

    def _kind(self, kind: str) -> list[Column]:
        """The kind of change rows, where the commit records them."""
        return [change_type(kind)] if self._records else []

    def updated_at_once(self, found: DataFrame) -> DataFrame:
        """The rows that are updated, with their new values, as the first join has kept them."""
        updates = self._join.updates
        kept = found.where(F.col(ACTION).isin([number for number, _ in updates]))
        few = kept.coalesce(self._operation.tasks_for(self._counts.updated))
        return self._selected(few, updates, None, ())

    def updated(self, rows: DataFrame) -> DataFrame:
        """The rows that are updated, those at the positions that the first join has found, with their new
        values."""
        updates = self._join.updates
        by_source = any(clause.when is When.NOT_MATCHED_BY_SOURCE for _, clause in updates)
        how = "left" if by_source else "inner"
        matched = F.col(IS_MATCH).isNotNull() if by_source else F.lit(True)
        rows = self._join.joined(rows, how).withColumn(ACTION, self._join.action(matched=matched))
        others = [*self._operation.row_ids(F.lit(True)), *self._kind(UPDATE_POSTIMAGE)]
        return self._selected(rows, updates, None, others)

    def inserted(self, unmatched: DataFrame) -> DataFrame:
        """The new rows, in as few tasks as fit, and counted as INSERTED."""
        most = max(self._join.source.rows - self._counts.matched_updated - self._counts.matched_deleted, 0)
        inserts = list(enumerate(self._join.inserting, 1))
        others = [*self._operation.new_row_ids(), *self._kind(INSERT)]
        rows = unmatched.coalesce(self._operation.tasks_for(most))
        return self._selected(rows, inserts, None, others).observe(INSERTED, F.count(F.lit(1)))

    def _selected(
        self,
        rows: DataFrame,
        clauses: Sequence[tuple[int, ResolvedClause]],
        otherwise: Sequence[Column] | None,
        others: Sequence[Column],
    ) -> DataFrame:
        """The table's columns: the values of the clause whose number a row has. Then `others`, those of row
        ids and the kind of a change."""
        values = [(number, clause.values) for number, clause in clauses]
        columns = []
        for place, column in enumerate(self._merge.schema.fields):
            if otherwise is None:
                value = values[-1][1][place]
                cases = values[:-1]
            else:
                value = otherwise[place]
                cases = values
            for number, given in reversed(cases):
                value = F.when(F.col(ACTION) == number, given[place]).otherwise(value)
            columns.append(value.alias(column.name))
        computed = {
            name: F.col(ACTION).isin([number for number, clause in clauses if name in clause.computed])
            for name in frozenset().union(*(clause.computed for _, clause in clauses))
        }
        if not computed:
            return rows.select(*columns, *others)
        selected = rows.select(*columns, F.col(ACTION), *others)
        names = [*self._operation.row_id_names, *([CHANGE_TYPE] if self._records else [])]
        snapshot = self._operation.snapshot
        return with_computed(
            selected, self._merge.schema, snapshot.partition_columns, computed, names, snapshot.path
        )
