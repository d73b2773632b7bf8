"""Tables by name in Spark's session catalog: finds them, creates them, gives them another location."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.sql.statements import NamedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The Delta table of a name, which may be delta.`path`, or the view over one; None for anything else.

    Reads no table; 1 crossing. Raises Spark's ParseException if the text is no name.
    """
    found = java_classes(spark).sql.TableNames.locate(spark._jsparkSession, name)
    return None if found is None else msgspec.json.decode(found, type=NamedTable)


def new_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The name and path that a new managed table of this name would have; None if there is such a table.

    Raises Spark's errors if there is no such database, and if the text is no name of a table.
    """
    found = java_classes(spark).sql.TableNames.locateNew(spark._jsparkSession, name)
    return None if found is None else msgspec.json.decode(found, type=NamedTable)


def create_table(spark: SparkSession, statement: Mapping[str, Any]) -> None:
    """Runs CREATE or REPLACE TABLE as SQL does. TableBuilder.java reads the fields of the statement."""
    java_classes(spark).sql.TableBuilder.run(spark._jsparkSession, msgspec.json.encode(statement).decode())


def location_of(spark: SparkSession, name: str, location: str) -> str:
    """The path that a statement gives the table of a full name: a relative one is below its database's."""
    return str(java_classes(spark).sql.CatalogEntries.pathOfName(spark._jsparkSession, name, location))


def set_location(spark: SparkSession, name: str, path: str) -> None:
    """Gives the entry of a table, by its full name, another location. A cached table is cached anew."""
    is_cached = spark.catalog.isCached(name)
    if is_cached:
        spark.catalog.uncacheTable(name)
    java_classes(spark).sql.CatalogEntries.setLocation(spark._jsparkSession, name, path)
    spark.catalog.refreshTable(name)
    if is_cached:
        spark.catalog.cacheTable(name)
