"""The clauses of a MERGE by Python, in a session of Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from deltaflow.connect.sql_text import column_name, expression
from deltaflow.definition_text import not_in_sql, quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.interface.merge_builder import Action, Assignments, DeltaMergeBuilder, When

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_WHEN = {
    When.MATCHED: "MATCHED",
    When.NOT_MATCHED: "NOT MATCHED",
    When.NOT_MATCHED_BY_SOURCE: "NOT MATCHED BY SOURCE",
}


class MergeBuilder(DeltaMergeBuilder):
    """Merges by a statement, whose clauses are texts."""

    def __init__(self, spark: SparkSession, target: str, source: DataFrame, condition: str) -> None:
        super().__init__()
        self._spark = spark
        self._target = target
        self._source = source
        self._condition = condition

    def _execute(self) -> DataFrame:
        if not self._clauses:
            raise DeltaAnalysisException(error_class="DELTA_MERGE_MISSING_WHEN")
        evolution = " WITH SCHEMA EVOLUTION" if self._evolves else ""
        clauses = "\n".join([f"ON {self._condition}", *self._clauses])
        # Spark makes a view of the frame, which lasts for the statement and does not have the frame's alias.
        return self._spark.sql(
            f"MERGE{evolution} INTO {_braces(self._target)} USING {{source}}{_braces(_alias(self._source))}\n"
            f"{_braces(clauses)}",
            source=self._source,
        )

    def _clause(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> str:
        if assignments is not None and not assignments and action != "delete":
            raise not_in_sql(f"A clause that {action}s no column", f"Name a column, or use {action}All.")
        where = "" if condition is None else f" AND {expression(self._spark, condition)}"
        return f"WHEN {_WHEN[when]}{where} THEN {self._action(action, assignments)}"

    def _action(self, action: Action, assignments: Assignments | None) -> str:
        if action == "delete":
            return "DELETE"
        if assignments is None:
            return "UPDATE SET *" if action == "update" else "INSERT *"
        names = [column_name(name) for name in assignments]
        values = [expression(self._spark, value) for value in assignments.values()]
        if action == "update":
            pairs = zip(names, values, strict=True)
            return f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in pairs)}"
        return f"INSERT ({', '.join(names)}) VALUES ({', '.join(values)})"


def _alias(source: DataFrame) -> str:
    """AS and the alias of the frame, if it has one; operators that leave the columns alone keep it."""
    from pyspark.sql.connect import plan
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

    assert isinstance(source, ConnectDataFrame)
    found: Any = source._plan
    while isinstance(found, (plan.Deduplicate, plan.Filter, plan.Hint, plan.Limit, plan.Offset, plan.Sort)):
        found = found._child
    return f" AS {quoted(found._alias)}" if isinstance(found, plan.SubqueryAlias) else ""


def _braces(text: str) -> str:
    """The text for `spark.sql` with frames, which reads what is in braces."""
    return text.replace("{", "{{").replace("}", "}}")
