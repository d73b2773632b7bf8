"""The Java classes of deltaflow in the driver's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_classes(spark: SparkSession) -> Any:
    """The Java package io.deltaflow.spark, with its sub-packages."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.io.deltaflow.spark
