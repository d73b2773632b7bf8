"""What MERGE asks of Spark about expressions and about its source (see MergePlans.java, MergeSource.java)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import types as T

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.bridge.messages import Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class Resolved:
    """An analysed expression. Its column serves over every frame with the attributes of its own."""

    column: Column
    sql: str
    type: T.DataType
    deterministic: bool
    subquery: bool
    aggregate: bool
    of_row: bool
    """Whether it can be evaluated with a row alone: it has no window or generator."""
    path: Sequence[str] | None
    """The names of a column, and of the field in it, if it is one."""


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


class _Described(msgspec.Struct):
    sql: str
    type: str
    deterministic: bool
    subquery: bool
    aggregate: bool
    of_row: bool = msgspec.field(name="ofRow")
    path: list[str] | None


def scanned_like(frame: DataFrame, relation: Message) -> DataFrame:
    """The rows of a scan (file_index.relation) with the attributes of another scan of its table."""
    described = msgspec.json.encode(relation).decode()
    return _frame(frame, _plans(frame).scan(frame.sparkSession._jsparkSession, described, _java(frame)))


def resolved(frame: DataFrame, columns: Sequence[Column]) -> list[Resolved]:
    """The columns, analysed over the frame. Raises Spark's AnalysisException."""
    if not columns:
        return []
    plans = _plans(frame)
    found = plans.resolved(_java(frame), _java_list(frame, columns))
    facts = msgspec.json.decode(plans.described(_java(frame), found), type=list[_Described])
    return [
        Resolved(
            column,
            fact.sql,
            T._parse_datatype_json_string(fact.type),
            fact.deterministic,
            fact.subquery,
            fact.aggregate,
            fact.of_row,
            fact.path,
        )
        for column, fact in zip(_columns(found), facts, strict=True)
    ]


def references(frame: DataFrame, columns: Sequence[Column]) -> list[Column]:
    """The columns of the frame that analysed columns refer to."""
    return _columns(_plans(frame).references(_java(frame), _java_list(frame, columns)))


def within(condition: Column, frame: DataFrame) -> Column | None:
    """The conjuncts of an analysed condition that need nothing but the frame's columns; None without any."""
    found = _plans(frame).within(condition._jc, _java(frame))
    return None if found is None else _column(found)


def equal_sides(condition: Column, target: DataFrame, source: DataFrame) -> list[tuple[Column, Column]]:
    """Of the conjuncts by which an expression over the target equals one over the source: these two."""
    sides = _columns(_plans(target).keys(condition._jc, _java(target), _java(source)))
    return list(zip(sides[::2], sides[1::2], strict=True))


def skipping_predicate(matching: DataFrame) -> Predicate | None:
    """The condition of a filter over a scan for data skipping, None where nothing is known of it; its op is
    "never" where it is true of no row."""
    found: Predicate | None = msgspec.json.decode(
        _plans(matching).predicate(matching.sparkSession._jsparkSession, _java(matching))
    )
    return found


def store_assigned(spark: SparkSession, value: Column, kind: T.DataType, column: str) -> Column:
    """The value as one of an atomic type, by the session's store assignment; `column` is for errors."""
    plans = java_classes(spark).expressions.MergePlans
    cast = plans.cast(spark._jsparkSession, value._jc, kind.json(), column)
    return _column(cast)


def source_facts(source: DataFrame) -> SourceFacts:
    """What the frame reads. From now on its executions read the newest tables at these versions."""
    return msgspec.json.decode(_sources(source).described(_java(source)), type=SourceFacts)


def pinned(source: DataFrame) -> DataFrame:
    """The frame at the versions that `source_facts` told, and at one time for now."""
    return _frame(source, _sources(source).pinned(source.sparkSession._jsparkSession, _java(source)))


def release(checkpointed: DataFrame) -> None:
    """Gives back the storage of a frame that was checkpointed locally."""
    _sources(checkpointed).release(_java(checkpointed))


def _frame(like: DataFrame, java: Any) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(java, like.sparkSession)


def _column(java: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(java)


def _columns(java: Any) -> list[Column]:
    # An iterator of Java's tells its end by an exception, which costs more than the elements.
    return [_column(java.get(i)) for i in range(java.size())]


def _java(frame: DataFrame) -> Any:
    return frame._jdf


def _java_list(frame: DataFrame, columns: Sequence[Column]) -> Any:
    jvm: Any = frame.sparkSession.sparkContext._jvm
    filled = jvm.java.util.ArrayList()
    for column in columns:
        filled.add(column._jc)
    return filled


def _plans(frame: DataFrame) -> Any:
    return java_classes(frame.sparkSession).expressions.MergePlans


def _sources(frame: DataFrame) -> Any:
    return java_classes(frame.sparkSession).expressions.MergeSource
