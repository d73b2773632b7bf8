"""What a Column tells by itself: a statement's, or one that a user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from deltaflow.spark.bridge.java_classes import java_classes_of_context

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def has_subquery(column: Column) -> bool:
    """Whether a query is part of the expression."""
    return bool(_expressions().hasSubquery(_java(column)))


def sql_text(column: Column) -> str:
    """The expression as SQL, in the words of Spark rather than the user's."""
    return str(_expressions().sql(_java(column)))


def simple_string(condition: Column) -> str:
    """An analysed condition as Spark shows it in plans, with its constants evaluated: `(id#7L = 3)`."""
    return str(_expressions().simpleString(_java(condition)))


def simple_string_of_text(spark: SparkSession, condition: str) -> str:
    """A condition in SQL that is only parsed, as Spark shows it in plans: `('id = 3)`. Spark's ParseException
    for what is none."""
    return str(_expressions().simpleString(spark._jsparkSession, condition))


def name_parts(column: Column) -> tuple[str, ...] | None:
    """The parts of the name (`t.a.b`) if the expression is the name of a column or field, else None."""
    name = _expressions().name(_java(column))
    return None if name is None else msgspec.json.decode(name, type=tuple[str, ...])


def identity_numbers(first: int, step: int) -> Column:
    """New numbers for rows, each once within one stage of a job: `first` and those after it by `step`.

    Every task takes each n-th of them, of n tasks. A row must use one such expression only once.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_expressions().identityNumbers(first, step))


def _expressions() -> Any:
    return java_classes_of_context().expressions.Expressions


def _java(column: Any) -> Any:
    return column._jc
