"""The clauses of a MERGE by Python, in a classic session."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Self

from deltaflow.batch.arguments import as_column, as_columns
from deltaflow.batch.dml.merge import merge
from deltaflow.batch.dml.merge_clauses import Clause
from deltaflow.batch.sql_names import quoted
from deltaflow.interface.merge_builder import Action, Assignments, DeltaMergeBuilder, When
from deltaflow.spark.expressions.frames import under_name
from deltaflow.spark.sql.statements import MERGED_ROWS, frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class MergeBuilder(DeltaMergeBuilder):
    """Merges by the module of MERGE."""

    def __init__(
        self, spark: SparkSession, path: str, alias: str | None, source: DataFrame, condition: Column
    ) -> None:
        super().__init__()
        self._spark = spark
        self._path = path
        self._alias = alias
        self._source = source
        self._condition = condition
        self._read_version: int | None = None
        self._known_schema: StructType | None = None

    def reading(self, version: int) -> Self:
        """A MERGE whose source was made of the table's rows at a version: what has changed since then is a
        conflict."""
        at_version = copy(self)
        at_version._read_version = version
        return at_version

    def of_schema(self, schema: StructType) -> Self:
        """A MERGE whose clauses are made for the table's columns by this schema: MetadataChangedException if
        it has another one when the MERGE begins."""
        of_schema = copy(self)
        of_schema._known_schema = schema
        return of_schema

    def _execute(self) -> DataFrame:
        done = merge(
            self._spark,
            self._path,
            self._source,
            self._condition,
            self._clauses,
            named=self._named,
            with_schema_evolution=self._evolves,
            read_version=self._read_version,
            known_schema=self._known_schema,
        )
        return frame_of_rows(self._spark, [] if done is None else [done], MERGED_ROWS)

    def _clause(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> Clause:
        assigned = None if assignments is None else as_columns(assignments)
        return Clause(when, action, as_column(condition), assigned)

    def _named(self, rows: DataFrame) -> DataFrame:
        return rows if self._alias is None else under_name(rows, quoted(self._alias))
