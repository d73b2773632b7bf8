"""CREATE and REPLACE TABLE of what a builder was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from deltaflow.spark.bridge.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_table_builder(spark: SparkSession, statement: Mapping[str, Any]) -> None:
    """Runs the statement as Spark runs that of SQL; its fields are those that TableBuilder.java reads."""
    java_classes(spark).sql.TableBuilder.run(spark._jsparkSession, msgspec.json.encode(statement).decode())
