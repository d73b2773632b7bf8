"""SQL statements on Delta tables: which there are, and which function runs each.

The JVM asks once for the descriptions of the statements that Python runs. When Spark runs such a statement
on a Delta table, the JVM asks for its rows. A statement is named by the class of Spark's parsed plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.java_classes import java_classes, java_classes_of_context
from deltaflow.spark.bridge.messages import NoFields
from deltaflow.spark.expressions.expressions import has_subquery
from deltaflow.spark.expressions.frames import delta_settings, recache
from deltaflow.spark.sql import delta_sql
from deltaflow.spark.sql.messages import (
    ConcernsAnswer,
    ConcernsRequest,
    DescriptionsAnswer,
    RunAnswer,
    RunRequest,
    StatementDescription,
)
from deltaflow.spark.sql.messages import NamedTable as NamedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AFFECTED_ROWS = StructType([StructField("num_affected_rows", LongType())])
"""The output of DELETE and UPDATE."""
MERGED_ROWS = StructType(
    [
        StructField(name, LongType())
        for name in ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
    ]
)
"""The output of MERGE."""


def refused(statement: str, table: NamedTable | None, advice: str) -> DeltaUnsupportedOperationException:
    """The error of a statement that Delta tables do not support. `statement` is how SQL calls it."""
    return DeltaUnsupportedOperationException(
        f"Operation not allowed: {statement} is not supported for Delta tables"
        f"{'' if table is None else ': ' + table.name}. {advice}",
        error_class="DELTA_OPERATION_NOT_ALLOWED_DETAIL",
        table=None if table is None else table.path,
    )


@dataclass(frozen=True)
class Statement:
    """A statement on a Delta table while it runs.

    In SQL, its function runs on a thread that has the job group and the SQL execution of the caller's thread.
    """

    name: str
    table: NamedTable | None
    """None if the statement names no Delta table, and is ours for another reason."""
    parsed: Mapping[str, Any]
    """The fields as the JVM sends them, with numbers in the place of expressions."""
    settings: Mapping[str, str]
    """The session's settings spark.databricks.delta.*."""
    handle: int | None
    """The JVM's number for the running statement; None for a statement of the Python API."""
    caller: SparkSession | None = None
    """The session of a statement of the Python API."""

    @property
    def path(self) -> str:
        """The table's path, for statements that need a table and take no views (see `statement`)."""
        assert self.table is not None
        assert self.table.path is not None
        return self.table.path

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The fields of Spark's plan; an option is its value or None, a data type its JSON.

        Expressions are unresolved Columns (see expressions.expressions). Relations are left out (see
        `frame`). The clauses of a MERGE are objects, whose `action` is the class of Spark's plan
        (UpdateAction, UpdateStarAction, DeleteAction, InsertAction, InsertStarAction); assignments have `key`
        and `value`. Costs 1 crossing into the JVM, and 1 for each expression; none in the Python API.
        """
        fields: Mapping[str, Any] = self.parsed if self.handle is None else self._with_columns(self.parsed)
        return fields

    @cached_property
    def session(self) -> SparkSession:
        """The session that runs the statement, which may be a stream's or one made by newSession."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if self.caller is not None:
            return self.caller
        context = SparkContext._active_spark_context
        assert context is not None
        return SparkSession(context, self._running.session())

    def frame(self, field: str) -> DataFrame:
        """The relation in a field of the plan, such as the source of a MERGE, with the WITH clause."""
        from pyspark.sql import DataFrame

        return DataFrame(self._running.frame(field), self.session)

    def under_its_name(self, rows: DataFrame) -> DataFrame:
        """Rows of the table under the alias or the name by which the statement's expressions call it."""
        from pyspark.sql import DataFrame

        assert self.table is not None
        return DataFrame(self._running.named(rows._jdf, self.table.name), self.session)

    @cached_property
    def _running(self) -> Any:
        running = java_classes_of_context().sql.RunningStatement.find(self.handle)
        if running is None:
            raise InterruptedError(f"{self.name} was interrupted")
        return running

    def _with_columns(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._with_columns(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"expression": number}:
                from pyspark.sql import Column

                return Column(self._running.column(number))
            case {"constant": number}:
                return self._running.constant(number)
            case {"sql": number}:
                return self._sql(number)
            case {"map": entries}:
                return {self._with_columns(key): self._with_columns(entry) for key, entry in entries}
        return {name: self._with_columns(inner) for name, inner in value.items()}

    def _sql(self, number: int) -> str:
        """A condition as SQL, which has no text for a subquery."""
        from pyspark.sql import Column

        text = str(self._running.sql(number))
        if has_subquery(Column(self._running.column(number))):
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES", expression=text
            )
        return text


Rows = Sequence[Sequence[Any]]
"""Values by position. Maps are dicts with strings as keys, structs are dicts or sequences, timestamps are
datetimes with a time zone."""
Run = Callable[[Statement], Rows]
Concerns = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class _Handler:
    """The function that runs a statement, and what the JVM has to know; see `statement`."""

    run: Run
    table_field: str | None
    views: bool
    changes: bool
    concerns: Concerns | None
    output: StructType | None

    def description(self) -> StatementDescription:
        return StatementDescription(
            table_field=self.table_field,
            views=self.views,
            asks=self.concerns is not None,
            output=None if self.output is None else self.output.json(),
        )


_handlers: dict[str, _Handler] = {}


def statement(
    *names: str,
    table_field: str | None = "table",
    views: bool = False,
    changes: bool = False,
    concerns: Concerns | None = None,
    output: StructType | None = None,
) -> Callable[[Run], Run]:
    """Decorator: the function runs the statements of these names on Delta tables, and returns their rows.

    `table_field` is the field of the parsed plan that has the table's name, or the relation over the table.
    `views`: the function also gets views over Delta tables. `changes`: the statement changes the table, so
    that Spark has to read anew what it has cached of it. `concerns` decides by the plan's fields whether a
    statement that names no Delta table is ours. `output` is the schema of the rows; without it, the schema is
    that of Spark's plan, which is empty for most statements that change a table.
    """

    def add(function: Run) -> Run:
        for name in names:
            _handlers[name] = _Handler(function, table_field, views, changes, concerns, output)
        return function

    return add


dispatcher.handle("statement.words")(delta_sql.first_words)
dispatcher.handle("statement.parse")(delta_sql.parse)


@dispatcher.handle("statement.descriptions")
def _describe(request: NoFields) -> DescriptionsAnswer:
    return DescriptionsAnswer(
        descriptions={name: handler.description() for name, handler in _handlers.items()}
    )


@dispatcher.handle("statement.concerns")
def _concerns(request: ConcernsRequest) -> ConcernsAnswer:
    concerns = _handlers[request.statement].concerns
    return ConcernsAnswer(concerns=concerns is not None and concerns(request.fields))


@dispatcher.handle("statement.run")
def _run(request: RunRequest) -> RunAnswer:
    name, table = request.statement, request.table
    handler = _handlers[name]
    if table is None and handler.table_field is not None and handler.concerns is None:
        words = re.sub("(?<=[a-z])(?=[A-Z])", " ", name).upper()
        raise DeltaAnalysisException(
            f"{request.name} is not a Delta table. {words} is for Delta tables alone, and not for views.",
            error_class="DELTA_TABLE_ONLY_OPERATION",
        )
    rows = handler.run(Statement(name, table, request.fields, request.settings, request.handle))
    return RunAnswer(rows=rows, changed=_changed_path(handler, table))


def run_statement(spark: SparkSession, name: str, table: NamedTable, fields: Mapping[str, Any]) -> DataFrame:
    """Runs a statement for the Python API, as SQL would run it, and returns its rows.

    Costs 2 crossings into the JVM, and 1 if the statement changes the table.
    """
    handler = _handlers[name]
    rows = handler.run(Statement(name, table, fields, delta_settings(spark), None, spark))
    path = _changed_path(handler, table)
    if path is not None:
        recache(spark, path)
    return frame_of_rows(spark, rows, handler.output or StructType())


def frame_of_rows(spark: SparkSession, rows: Rows, schema: StructType) -> DataFrame:
    """A DataFrame of rows that are there already; to collect it starts no job."""
    from pyspark.sql import DataFrame

    json = msgspec.json.encode(rows).decode()
    frame = java_classes(spark).sql.StatementRows.frame(spark._jsparkSession, json, schema.json())
    return DataFrame(frame, spark)


def _changed_path(handler: _Handler, table: NamedTable | None) -> str | None:
    """The path of the table that a statement has changed."""
    return table.changed_path if handler.changes and table is not None else None
