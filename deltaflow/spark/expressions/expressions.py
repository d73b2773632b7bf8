"""What can be told of a Column before Spark analyses it: of a statement's, or of one that a user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import Column


def has_subquery(column: Column) -> bool:
    """Whether a query is part of the expression."""
    return bool(_expressions().hasSubquery(_java(column)))


def sql_text(column: Column) -> str:
    """The expression as SQL, in the words of Spark rather than the user's."""
    return str(_expressions().sql(_java(column)))


def name_parts(column: Column) -> tuple[str, ...] | None:
    """The parts of the name (`t.a.b`) if the expression is the name of a column or field, else None."""
    name = _expressions().name(_java(column))
    return None if name is None else msgspec.json.decode(name, type=tuple[str, ...])


def _expressions() -> Any:
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is not None
    jvm: Any = SparkContext._active_spark_context._jvm
    return jvm.io.deltaflow.spark.expressions.Expressions


def _java(column: Any) -> Any:
    return column._jc
