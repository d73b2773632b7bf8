"""`DeltaMergeBuilder`: the clauses of a MERGE by Python, with the signatures of `delta.tables`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltaflow.batch.arguments import as_column, as_columns
from deltaflow.batch.dml.merge import merge
from deltaflow.batch.dml.merge_clauses import Clause
from deltaflow.batch.sql_names import quoted
from deltaflow.builders import Action, Assignments, MergeBuilder, When, check_merge
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.statements import MERGED_ROWS, frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class DeltaMergeBuilder(MergeBuilder):
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

    def _with(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> DeltaMergeBuilder:
        assigned = None if assignments is None else as_columns(assignments)
        clause = Clause(when, action, as_column(condition), assigned)
        return self._copy([*self._clauses, clause], evolves=self._evolves)

    def _copy(self, clauses: Sequence[Clause], *, evolves: bool) -> DeltaMergeBuilder:
        return DeltaMergeBuilder(
            self._spark, self._path, self._alias, self._source, self._condition, clauses, evolves=evolves
        )


def merge_builder(
    spark: SparkSession, path: str, alias: str | None, source: Any, condition: Any
) -> DeltaMergeBuilder:
    """A builder without clauses, its arguments checked."""
    check_merge(source, condition)
    return DeltaMergeBuilder(spark, path, alias, source, as_column(condition))
