"""What Spark's analysis tells about expressions over a frame (see Analysis.java)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import types as T

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.java_classes import java_classes, java_list

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Facts(msgspec.Struct, frozen=True, rename="camel"):
    """What Analysis.java says of an analysed expression; see `Analysed`."""

    sql: str
    type: str
    path: list[str] | None
    of_row: bool
    nondeterministic: str | None
    has_subquery: bool
    is_correlated: bool
    aggregate: str | None = None
    function: str | None = None

    @property
    def data_type(self) -> T.DataType:
        """The type of its values."""
        return T._parse_datatype_json_string(self.type)


@dataclass(frozen=True)
class Analysed:
    """An analysed expression. Its column serves over every frame with the attributes of its own."""

    column: Column
    sql: str
    type: T.DataType
    path: Sequence[str] | None
    """The names of a column, and of the field in it, if the expression is one."""
    of_row: bool
    """Whether a row alone gives its value: it has no window and no generator."""
    nondeterministic: str | None
    """The SQL of its first part that is not deterministic; None without any."""
    aggregate: str | None
    """The SQL of its first aggregate; None without any."""
    function: str | None
    """The SQL of its first user-defined function; None without any."""
    has_subquery: bool
    is_correlated: bool
    """Whether a subquery in it refers to columns outside of the subquery."""


class FilterFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What the condition of a filter over a scan says of the scan's files."""

    has_data_filters: bool
    """Whether it has conjuncts that are not on partition columns alone."""
    partition_predicate: Predicate | None
    """Those that are, as far as they have a form for data skipping."""
    predicate: Predicate | None
    """All conjuncts, as far as they have one; its op is "never" where Spark knows that no row matches."""
    partitions: Sequence[int] | None
    """The partitions of the scan (deltaflow.spark.scan.file_index) for which those on partition columns are
    true, by Spark's own evaluation; None: all."""


def analysed(frame: DataFrame, columns: Sequence[Column], *, at_one_time: bool = True) -> list[Analysed]:
    """The columns, analysed over the frame: two crossings, and one a column. Raises Spark's
    AnalysisException. `at_one_time`: with one time for now, that of this call."""
    if not columns:
        return []
    analysis = _analysis(frame.sparkSession)
    return _with_facts(frame, analysis.analysed(_java(frame), _java_list(frame, columns), at_one_time))


def analysed_if_resolved(
    frame: DataFrame, columns: Sequence[Column], *, at_one_time: bool = True
) -> list[Analysed] | None:
    """As `analysed`; None where the frame lacks a column or field. PySpark logs every AnalysisException as an
    error, also one that is caught."""
    if not columns:
        return []
    analysis = _analysis(frame.sparkSession)
    found = analysis.analysedIfResolved(_java(frame), _java_list(frame, columns), at_one_time)
    return None if found is None else _with_facts(frame, found)


def _with_facts(frame: DataFrame, found: Any) -> list[Analysed]:
    analysis = _analysis(frame.sparkSession)
    facts = msgspec.json.decode(analysis.facts(_java(frame), found), type=list[Facts])
    return [
        Analysed(
            column,
            fact.sql,
            fact.data_type,
            fact.path,
            fact.of_row,
            fact.nondeterministic,
            fact.aggregate,
            fact.function,
            fact.has_subquery,
            fact.is_correlated,
        )
        for column, fact in zip(_columns(found), facts, strict=True)
    ]


def filter_facts(matching: DataFrame, partition_columns: Sequence[str]) -> FilterFacts:
    """What a filter over a scan says of its files: Spark evaluates it on partition values, without a job."""
    spark = matching.sparkSession
    names = _java_list(matching, partition_columns)
    answer = _analysis(spark).filter(spark._jsparkSession, _java(matching), names)
    return msgspec.json.decode(answer, type=FilterFacts)


def references(frame: DataFrame, columns: Sequence[Column]) -> list[Column]:
    """The columns of the frame that analysed columns refer to."""
    return _columns(_analysis(frame.sparkSession).references(_java(frame), _java_list(frame, columns)))


def within(condition: Column, frame: DataFrame) -> Column | None:
    """The conjuncts of an analysed condition that need nothing but the frame's columns; None without any."""
    found = _analysis(frame.sparkSession).within(condition._jc, _java(frame))
    return None if found is None else _column(found)


def without_subqueries(condition: Column, spark: SparkSession) -> Column | None:
    """The conjuncts of an analysed condition that have no subquery; None without any."""
    found = _analysis(spark).withoutSubqueries(condition._jc)
    return None if found is None else _column(found)


def equal_sides(condition: Column, target: DataFrame, source: DataFrame) -> list[tuple[Column, Column]]:
    """Of the conjuncts by which an expression over the target equals one over the source: these two."""
    sides = _columns(_analysis(target.sparkSession).keys(condition._jc, _java(target), _java(source)))
    return list(zip(sides[::2], sides[1::2], strict=True))


def store_assigned(spark: SparkSession, value: Column, data_type: T.DataType, column: str) -> Column:
    """The value as one of an atomic type, by the session's store assignment; `column` is for errors."""
    return _column(_analysis(spark).cast(spark._jsparkSession, value._jc, data_type.json(), column))


def since_epoch(timestamp: Column, spark: SparkSession) -> Column:
    """The time from 1970 to an analysed timestamp without a zone, as an interval of days and seconds."""
    return _column(_analysis(spark).sinceEpoch(timestamp._jc))


def _column(java: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(java)


def _columns(java: Any) -> list[Column]:
    # An iterator of Java's tells its end by an exception, which costs more than the elements.
    return [_column(java.get(i)) for i in range(java.size())]


def _java(frame: DataFrame) -> Any:
    return frame._jdf


def _java_list(frame: DataFrame, values: Sequence[Column] | Sequence[str]) -> Any:
    found = (value if isinstance(value, str) else value._jc for value in values)
    return java_list(frame.sparkSession, found)


def _analysis(spark: SparkSession) -> Any:
    return java_classes(spark).expressions.Analysis
