"""What operations ask of Spark about frames and PySpark cannot say (see Frames.java, MergeSource.java)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from deltaflow.spark.bridge.java_classes import java_classes, java_list
from deltaflow.spark.bridge.messages import Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# As conservative as delta-spark: filters and projections of Delta tables and of rows that the query has.
_REPEATABLE = {
    "DeltaScan",
    "Distinct",
    "Filter",
    "LocalRelation",
    "OneRowRelation",
    "Project",
    "SubqueryAlias",
    "Union",
    "View",
}


class SourceFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What a frame reads."""

    scans: Sequence[str]
    """The descriptions (file_index) of its scans of Delta tables, with their versions."""
    cached: bool
    """Whether Spark has some of it cached."""
    operators: frozenset[str]
    """The names of Spark's operators in its plan; those scans are "DeltaScan"."""
    variable_expressions: frozenset[str]
    """Which expressions in it may have other values another time: nondeterministic, function, subquery."""

    @property
    def repeatable(self) -> bool:
        """Whether every execution gives the same rows for sure, once it is `pinned`."""
        return self.operators <= _REPEATABLE and not self.variable_expressions


def new_handle(spark: SparkSession) -> int:
    """A handle for the dispatcher, as the JVM gives them."""
    handle: int = java_classes(spark).bridge.Python.newHandle()
    return handle


def delta_settings(spark: SparkSession) -> dict[str, str]:
    """What the session sets of spark.databricks.delta.*: one crossing, where spark.conf.getAll has many."""
    return msgspec.json.decode(_frames(spark).settings(_java_session(spark)), type=dict[str, str])


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session like this one, with these settings."""
    from pyspark.sql import SparkSession

    own = SparkSession(spark.sparkContext, _java_session(spark).cloneSession())
    for name, value in settings.items():
        own.conf.set(name, value)
    return own


def scanned(spark: SparkSession, relation: Message) -> DataFrame:
    """The rows of a scan (deltaflow.spark.scan.file_index.relation)."""
    described = msgspec.json.encode(relation).decode()
    return _frame(spark, _frames(spark).scan(_java_session(spark), described))


def scanned_like(frame: DataFrame, relation: Message) -> DataFrame:
    """The same, with the attributes of another scan of its table."""
    spark, described = frame.sparkSession, msgspec.json.encode(relation).decode()
    return _frame(spark, _frames(spark).scan(_java_session(spark), described, _java(frame)))


def under_name(rows: DataFrame, name: str) -> DataFrame:
    """The rows as those of a table of this name, whose parts may qualify their columns."""
    spark = rows.sparkSession
    return _frame(spark, _frames(spark).named(_java_session(spark), _java(rows), name))


def with_one_reducer(frame: DataFrame) -> DataFrame:
    """The same frame, whose shuffles end in one task: for aggregates of which few rows are left."""
    spark = frame.sparkSession
    return _frame(spark, _frames(spark).withOneReducer(_java_session(spark), _java(frame)))


def write_rows(rows: DataFrame, write: int, name: str) -> dict[str, int]:
    """Has Spark write the frame's rows by the FileWrite that is kept under the handle `write`; returns the
    number that each observation in the frame (DataFrame.observe) has found, by its name.

    `name` is shown with the query in Spark's UI.
    """
    spark = rows.sparkSession
    observed = _frames(spark).write(_java_session(spark), _java(rows), write, name)
    return msgspec.json.decode(observed, type=dict[str, int])


def is_cancelled_job(error: Exception) -> bool:
    """Whether Spark was told to end the job that has failed, as by a stream's stop()."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and error.getCondition() == "SPARK_JOB_CANCELLED"


def recache(spark: SparkSession, path: str) -> None:
    """Has Spark read anew what it has cached of the table."""
    _frames(spark).recache(_java_session(spark), path)


def source_facts(source: DataFrame) -> SourceFacts:
    """What the frame reads. From now on its executions read the newest tables at these versions."""
    return msgspec.json.decode(_sources(source).described(_java(source)), type=SourceFacts)


class EvaluatedSubqueries(NamedTuple):
    """Columns whose subqueries are evaluated (see Subqueries.java)."""

    columns: Sequence[Column]
    rows: Sequence[DataFrame]
    """What the subqueries found: local checkpoints."""
    scans: Sequence[str]
    """As those of SourceFacts."""


def evaluated_subqueries(pinned: DataFrame, columns: Sequence[Column]) -> EvaluatedSubqueries:
    """Evaluates each subquery in analysed columns, by a job. They read the versions of Delta tables that
    executions of the frame `pinned` read, and refer to no columns outside of them."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    spark = pinned.sparkSession
    given = java_list(spark, [column._jc for column in columns])
    found = java_classes(spark).expressions.Subqueries(_java_session(spark), _java(pinned), given)
    scans = msgspec.json.decode(found.scans())["scans"]
    rows = found.rows()
    kept = [_frame(spark, rows.get(i)) for i in range(rows.size())]
    new = found.columns()
    return EvaluatedSubqueries([ClassicColumn(new.get(i)) for i in range(new.size())], kept, scans)


def read_at(frame: DataFrame, root: str, version: int) -> None:
    """Makes executions of the frame read this version of a table where they read its newest. `root`: the
    table's directory as a Hadoop path."""
    _sources(frame).readAt(_java(frame), root, version)


def pinned(source: DataFrame) -> DataFrame:
    """The frame at the versions that `source_facts` told."""
    spark = source.sparkSession
    return _frame(spark, _sources(source).pinned(_java_session(spark), _java(source)))


def at_one_time(source: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, list[Column]]:
    """The frame, whose attributes stay the same, and analysed columns, with one time for now."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    spark = source.sparkSession
    given = java_list(spark, [column._jc for column in columns])
    found = _sources(source).atOneTime(_java_session(spark), _java(source), given)
    return _frame(spark, found.get(0)), [ClassicColumn(found.get(i)) for i in range(1, found.size())]


def _frame(spark: SparkSession, java: Any) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(java, spark)


def _java(frame: DataFrame) -> Any:
    return frame._jdf


def _java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _frames(spark: SparkSession) -> Any:
    return java_classes(spark).expressions.Frames


def _sources(frame: DataFrame) -> Any:
    return java_classes(frame.sparkSession).expressions.MergeSource
