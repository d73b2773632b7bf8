"""`DeltaMergeBuilder`: the clauses of a MERGE by Python, with the signatures of `delta.tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from deltaflow.batch.arguments import as_assignments, as_column
from deltaflow.batch.dml.merge import merge
from deltaflow.batch.dml.merge_clauses import Clause, When
from deltaflow.batch.sql_names import quoted
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.statements import MERGED_ROWS, frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaMergeBuilder:
    """Specifies how to merge a source into a table, clause by clause; made by `DeltaTable.merge`.

    Of the clauses about a row the first applies whose condition is true; only the last of them may be
    without one. Every method returns a builder with one more clause.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        alias: str | None,
        source: DataFrame,
        condition: Column,
        clauses: Sequence[Clause] = (),
        *,
        evolves: bool = False,
    ) -> None:
        self._spark = spark
        self._path = path
        self._alias = alias
        self._source = source
        self._condition = condition
        self._clauses = clauses
        self._evolves = evolves

    def whenMatchedUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Update columns of a row that matches; `set` has them with their new values (SQL or Columns)."""
        return self._update(When.MATCHED, condition, as_assignments(set, "'set' in whenMatchedUpdate"))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Update all columns of a row that matches with those of the source."""
        return self._with(Clause(When.MATCHED, "update", as_column(condition), None))

    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a row that matches."""
        return self._with(Clause(When.MATCHED, "delete", as_column(condition)))

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row for one of the source that matches none; columns that `values` lacks are null."""
        assignments = as_assignments(values, "'values' in whenNotMatchedInsert")
        return self._with(Clause(When.NOT_MATCHED, "insert", as_column(condition), assignments))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Insert a row of the source that matches none."""
        return self._with(Clause(When.NOT_MATCHED, "insert", as_column(condition), None))

    def whenNotMatchedBySourceUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Update columns of a row that no row of the source matches."""
        assignments = as_assignments(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._update(When.NOT_MATCHED_BY_SOURCE, condition, assignments)

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a row that no row of the source matches."""
        return self._with(Clause(When.NOT_MATCHED_BY_SOURCE, "delete", as_column(condition)))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Let the table take over columns of the source that it lacks and that clauses assign to."""
        return self._copy(self._clauses, evolves=True)

    def execute(self) -> DataFrame:
        """Merge; one row that tells how many rows were affected, updated, deleted and inserted. No row if the
        table has this merge already (txnVersion)."""
        done = merge(
            self._spark,
            self._path,
            self._source,
            self._condition,
            self._clauses,
            named=self._named,
            with_schema_evolution=self._evolves,
        )
        return frame_of_rows(self._spark, [] if done is None else [done], MERGED_ROWS)

    def _named(self, rows: DataFrame) -> DataFrame:
        return rows if self._alias is None else under_name(rows, quoted(self._alias))

    def _update(
        self, when: When, condition: str | Column | None, assignments: Sequence[tuple[Column, Column]]
    ) -> DeltaMergeBuilder:
        if not assignments and condition is None:
            return self  # it would say nothing about any row
        return self._with(Clause(when, "update", as_column(condition), assignments))

    def _with(self, clause: Clause) -> DeltaMergeBuilder:
        return self._copy([*self._clauses, clause], evolves=self._evolves)

    def _copy(self, clauses: Sequence[Clause], *, evolves: bool) -> DeltaMergeBuilder:
        return DeltaMergeBuilder(
            self._spark, self._path, self._alias, self._source, self._condition, clauses, evolves=evolves
        )


def merge_builder(
    spark: SparkSession, path: str, alias: str | None, source: Any, condition: Any
) -> DeltaMergeBuilder:
    """A builder without clauses, its arguments checked."""
    if source is None:
        raise ValueError("'source' in merge cannot be None")
    if not isinstance(source, DataFrame):
        raise TypeError("Type of 'source' in merge must be DataFrame.")
    search = as_column(condition)
    if search is None:
        raise ValueError("'condition' in merge cannot be None")
    return DeltaMergeBuilder(spark, path, alias, source, search)
