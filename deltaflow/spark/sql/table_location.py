"""Where Spark's catalog says that a table is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.spark.bridge.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def set_location(spark: SparkSession, name: str, path: str) -> None:
    """Gives the entry of a table, by its full name, another location. What was cached is cached anew."""
    is_cached = spark.catalog.isCached(name)
    if is_cached:
        spark.catalog.uncacheTable(name)
    java_classes(spark).sql.CatalogEntries.setLocation(spark._jsparkSession, name, path)
    spark.catalog.refreshTable(name)
    if is_cached:
        spark.catalog.cacheTable(name)
