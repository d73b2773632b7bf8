"""SQL statements on Delta tables: which there are, and who answers them.

The JVM asks once which kinds of statement concern us and where their table is named, and for each
statement on a Delta table, when Spark runs it, for its rows. A kind is the name of the class of Spark's
parsed plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.bridge.messages import NoFields
from deltaflow.spark.sql import delta_sql
from deltaflow.spark.sql.messages import (
    ConcernsAnswer,
    ConcernsRequest,
    DescribedKind,
    KindsAnswer,
    OutputAnswer,
    OutputRequest,
    RunAnswer,
    RunRequest,
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


def refused(name: str, table: NamedTable | None, advice: str) -> DeltaUnsupportedOperationException:
    """What to raise for a statement that cannot be."""
    return DeltaUnsupportedOperationException(
        f"Operation not allowed: {name} is not supported for Delta tables"
        f"{'' if table is None else ': ' + table.name}. {advice}",
        error_class="DELTA_OPERATION_NOT_ALLOWED_DETAIL",
        table=None if table is None else table.path,
    )


@dataclass(frozen=True)
class Statement:
    """A statement on a Delta table.

    Its function runs on a thread that is to Spark as the caller's: jobs that it starts are in the caller's
    job group and SQL execution.
    """

    kind: str
    table: NamedTable | None
    """None where no Delta table is named, but something else makes the statement ours."""
    parsed: Mapping[str, Any]
    """The fields as the JVM says them, with numbers for expressions."""
    settings: Mapping[str, str]
    """The session's settings spark.databricks.delta.*."""
    handle: int
    """By which the JVM knows the statement, as long as it runs."""

    @property
    def path(self) -> str:
        """The table's, which there is wherever a kind takes no views and needs a table (see `statement`)."""
        assert self.table is not None
        assert self.table.path is not None
        return self.table.path

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """What Spark parsed: the fields of its plan, options as value or None, types as their JSON.

        Expressions are Columns that nothing is resolved in yet (see expressions.expressions); relations
        are left out (see `frame`). The clauses of a MERGE are objects with the class of Spark's plan as
        `action` (UpdateAction, UpdateStarAction, DeleteAction, InsertAction, InsertStarAction); assignments
        have `key` and `value`. Crossings into the JVM: 1 and 1 for each expression.
        """
        fields: Mapping[str, Any] = self._with_columns(self.parsed)
        return fields

    @cached_property
    def session(self) -> SparkSession:
        """The session in which the statement runs: newSession's or a stream's, where it is one of those."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context = SparkContext._active_spark_context
        assert context is not None
        return SparkSession(context, self._running.session())

    def frame(self, field: str) -> DataFrame:
        """The relation in a field of the plan, as a MERGE's source, with what stands behind WITH."""
        from pyspark.sql import DataFrame

        return DataFrame(self._running.frame(field), self.session)

    def under_its_name(self, rows: DataFrame) -> DataFrame:
        """Rows of the table under the alias or the name by which the statement's expressions call it."""
        from pyspark.sql import DataFrame

        assert self.table is not None
        return DataFrame(self._running.named(rows._jdf, self.table.name), self.session)

    @cached_property
    def _running(self) -> Any:
        from pyspark import SparkContext

        assert SparkContext._active_spark_context is not None
        jvm: Any = SparkContext._active_spark_context._jvm
        running = jvm.io.deltaflow.spark.sql.RunningStatement.find(self.handle)
        if running is None:
            raise InterruptedError(f"{self.kind} was interrupted")
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
                return self._running.sql(number)
            case {"map": entries}:
                return {self._with_columns(key): self._with_columns(entry) for key, entry in entries}
        return {name: self._with_columns(inner) for name, inner in value.items()}


Rows = Sequence[Sequence[Any]]
"""By position. Maps are dicts with text as keys, structs dicts or sequences, timestamps aware datetimes."""
Run = Callable[[Statement], Rows]
Concerns = Callable[[Mapping[str, Any]], bool]
Output = Callable[[NamedTable | None, Mapping[str, Any]], StructType]


@dataclass(frozen=True)
class _Kind:
    run: Run
    table: str | None
    views: bool
    changes: bool
    concerns: Concerns | None
    output: StructType | Output | None

    def described(self) -> DescribedKind:
        return DescribedKind(
            table=self.table,
            views=self.views,
            asks=self.concerns is not None,
            output=self.output.json() if isinstance(self.output, StructType) else None,
            asks_for_output=callable(self.output),
        )


_kinds: dict[str, _Kind] = {}


def statement(
    *kinds: str,
    table: str | None = "table",
    views: bool = False,
    changes: bool = False,
    concerns: Concerns | None = None,
    output: StructType | Output | None = None,
) -> Callable[[Run], Run]:
    """Decorator: the function runs statements of these kinds on Delta tables, and answers with their rows.

    `table` is the field of the parsed plan that names the table, or has the relation over it. `views`: also
    on views over Delta tables. `changes`: the table is another one afterwards. `concerns` tells by the
    plan's fields whether a statement is ours that names no Delta table. `output` is the schema of the rows,
    or what tells it from the table and the fields; without it, it is that of Spark's plan, which most
    changes leave empty.
    """

    def add(function: Run) -> Run:
        for kind in kinds:
            _kinds[kind] = _Kind(function, table, views, changes, concerns, output)
        return function

    return add


dispatcher.handle("statement.words")(delta_sql.first_words)
dispatcher.handle("statement.parse")(delta_sql.parse)


@dispatcher.handle("statement.kinds")
def _describe_kinds(request: NoFields) -> KindsAnswer:
    return KindsAnswer(kinds={name: kind.described() for name, kind in _kinds.items()})


@dispatcher.handle("statement.concerns")
def _concerns(request: ConcernsRequest) -> ConcernsAnswer:
    concerns = _kinds[request.kind].concerns
    return ConcernsAnswer(concerns=concerns is not None and concerns(request.statement))


@dispatcher.handle("statement.output")
def _output(request: OutputRequest) -> OutputAnswer:
    output = _kinds[request.kind].output
    assert callable(output)
    return OutputAnswer(output=output(request.table, request.statement).json())


@dispatcher.handle("statement.run")
def _run(request: RunRequest) -> RunAnswer:
    table = request.table
    kind = _kinds[request.kind]
    if table is None and kind.table is not None and kind.concerns is None:
        raise DeltaAnalysisException(
            f"{request.kind}: its table is not a Delta table, and only Delta tables have this.",
            error_class="DELTA_TABLE_ONLY_OPERATION",
        )
    statement = Statement(request.kind, table, request.statement, request.settings, request.handle)
    rows = kind.run(statement)
    # What Spark has cached of the table is read anew.
    changed = table.path if kind.changes and table is not None else None
    return RunAnswer(rows=rows, changed=changed)


def run_statement(
    spark: SparkSession, kind: str, table: NamedTable | None, fields: Mapping[str, Any]
) -> DataFrame:
    """Runs the function for statements of a kind, as the SQL text would, and returns its rows.

    The fields are such as JSON can hold.
    """
    from pyspark.sql import DataFrame

    frame = java_classes(spark).sql.DeltaStatement.run(
        spark._jsparkSession, kind, msgspec.json.encode(table).decode(), msgspec.json.encode(fields).decode()
    )
    return DataFrame(frame, spark)
