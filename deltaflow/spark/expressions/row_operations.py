"""What an operation on rows (DELETE, UPDATE, MERGE) asks of Spark for which PySpark has no words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.bridge.messages import Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Expression(msgspec.Struct, frozen=True):
    """An analysed expression."""

    sql: str
    deterministic: bool
    subquery: bool


@dataclass(frozen=True)
class PartitionFilter:
    """What a condition says of the partitions of a table."""

    has_data_filters: bool
    """Whether it has conjuncts that are not on partition columns alone."""
    predicate: Predicate | None
    """Those that are, as far as they have a form for data skipping."""
    partitions: Sequence[int] | None
    """The partitions of the scan (deltaflow.spark.scan.file_index) for which those are true; None: all."""


def new_handle(spark: SparkSession) -> int:
    """A handle for the dispatcher, as the JVM gives them."""
    handle: int = java_classes(spark).bridge.Python.newHandle()
    return handle


def delta_settings(spark: SparkSession) -> dict[str, str]:
    """What the session sets of spark.databricks.delta.*: one crossing, where spark.conf.getAll has many."""
    return msgspec.json.decode(_operations(spark).settings(_java_session(spark)), type=dict[str, str])


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session like this one, with these settings."""
    from pyspark.sql import SparkSession

    own = SparkSession(spark.sparkContext, _java_session(spark).cloneSession())
    for name, value in settings.items():
        own.conf.set(name, value)
    return own


def scanned(spark: SparkSession, relation: Message) -> DataFrame:
    """The rows of a scan (deltaflow.spark.scan.file_index.relation)."""
    from pyspark.sql.classic.dataframe import DataFrame

    described = msgspec.json.encode(relation).decode()
    return DataFrame(_operations(spark).scan(_java_session(spark), described), spark)


def under_name(rows: DataFrame, name: str) -> DataFrame:
    """The rows as those of a table of this name, whose parts may qualify their columns."""
    from pyspark.sql.classic.dataframe import DataFrame

    spark = rows.sparkSession
    return DataFrame(_operations(spark).named(_java_session(spark), _java(rows), name), spark)


def expressions(frame: DataFrame) -> list[Expression]:
    """The condition of a filter, or the expressions of a projection; nothing for any other frame.

    A projection with aggregates, windows or generators is another frame.
    """
    described = _operations(frame.sparkSession).expressions(_java(frame))
    return msgspec.json.decode(described, type=list[Expression])


def condition_of(matching: DataFrame) -> str:
    """The condition of a filter, as Spark shows it in plans: `(id#7L = 3)`."""
    return str(_operations(matching.sparkSession).condition(_java(matching)))


def partition_filter(matching: DataFrame, partition_columns: Sequence[str]) -> PartitionFilter:
    """Of a filter over a frame of `scanned`. Spark evaluates it on the partitions' values, without a job."""
    spark = matching.sparkSession
    names = _java_list(spark, partition_columns)
    answer = msgspec.json.decode(_operations(spark).split(_java_session(spark), _java(matching), names))
    return PartitionFilter(answer["data"], answer["predicate"], answer["partitions"])


def with_one_reducer(frame: DataFrame) -> DataFrame:
    """The same frame, whose shuffles end in one task: for aggregates of which few rows are left."""
    from pyspark.sql.classic.dataframe import DataFrame

    spark = frame.sparkSession
    return DataFrame(
        _operations(spark).withOneReducer(_java_session(spark), _java(frame)),
        spark,
    )


def fields(projection: DataFrame) -> list[list[str] | None]:
    """The path of names that each column selects; None for what is no column and no field of structs.

    The name of a column is as the projection writes it, those of fields are as their structs have them.
    """
    described = _operations(projection.sparkSession).fields(_java(projection))
    return msgspec.json.decode(described, type=list[list[str] | None])


def assigned(values: DataFrame, types: StructType, table: str) -> list[Column]:
    """The columns of a projection cast to `types`, of the same names, as an INSERT into `table` casts them.

    They are expressions over the frame that was projected. DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION for a
    value that store assignment does not allow; a value that does not fit fails the job that meets it.
    """
    from pyspark.sql.classic.column import Column

    spark = values.sparkSession
    try:
        columns = _operations(spark).assigned(_java_session(spark), _java(values), types.json(), table)
    except AnalysisException as error:
        if error.getCondition() != "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST":
            raise
        facts = error.getMessageParameters() or {}
        raise DeltaAnalysisException(
            error_class="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
            column_name=facts.get("colName"),
            given=facts.get("srcType"),
            wanted=facts.get("targetType"),
            table=table,
        ) from error
    return [Column(column) for column in columns]


def write_rows(rows: DataFrame, write: int, name: str) -> None:
    """Has Spark write the frame's rows by the FileWrite that is kept under the handle `write`.

    `name` is shown with the query in Spark's UI.
    """
    spark = rows.sparkSession
    _operations(spark).write(_java_session(spark), _java(rows), write, name)


def is_cancelled_job(error: Exception) -> bool:
    """Whether Spark was told to end the job that has failed, as by a stream's stop()."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and error.getCondition() == "SPARK_JOB_CANCELLED"


def recache(spark: SparkSession, path: str) -> None:
    """Has Spark read anew what it has cached of the table."""
    _operations(spark).recache(_java_session(spark), path)


def _java_list(spark: SparkSession, values: Sequence[str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    filled = jvm.java.util.ArrayList()
    for value in values:
        filled.add(value)
    return filled


def _java(frame: DataFrame) -> Any:
    return frame._jdf


def _java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _operations(spark: SparkSession) -> Any:
    return java_classes(spark).expressions.RowOperations
