"""Conditions in SQL on a table's columns, as Spark's analysis sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from pyspark.sql.types import StructType

from deltaflow.spark.bridge.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Fault(msgspec.Struct, frozen=True):
    """What a condition has in it that cannot be in a rule for rows."""

    kind: Literal["aggregate", "nondeterministic", "function", "expression"]
    """`function`: a user-defined one. `expression`: anything else, such as a subquery."""
    sql: str


def fault_in(spark: SparkSession, condition: str, schema: StructType) -> Fault | None:
    """What is wrong with a condition as a rule for rows of the schema. One crossing.

    Spark's AnalysisException for what is no condition on these columns at all.
    """
    conditions = java_classes(spark).expressions.Conditions
    fault = conditions.faultIn(spark._jsparkSession, condition, schema.json())
    return msgspec.json.decode(fault, type=Fault | None)
