"""Pieces of SQL in arguments of the Python API, as Spark's parser and its session catalog read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.sql.statements import NamedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The Delta table of a name, delta.`path` included, or the view over one; None for all else.

    Reads no table: one crossing. Spark's ParseException for what is no name.
    """
    found = java_classes(spark).sql.TableNames.locate(spark._jsparkSession, name)
    return None if found is None else msgspec.json.decode(found, type=NamedTable)


def new_table(spark: SparkSession, name: str) -> NamedTable | None:
    """The table that is to be made under a name, at the place of a managed one; None if there is a table.

    Spark's own errors for a database that is not there, and for what is no name of a table.
    """
    found = java_classes(spark).sql.TableNames.locateNew(spark._jsparkSession, name)
    return None if found is None else msgspec.json.decode(found, type=NamedTable)


def name_parts(spark: SparkSession, name: str) -> list[str]:
    """The parts of a name, without their quotes. Spark's ParseException for what is none."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    jvm: Any = spark.sparkContext._jvm
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(parser.parseMultipartIdentifier(name)))


def type_json(spark: SparkSession, text: str) -> Any:
    """A type, written as in SQL, in the form of schemas in JSON. Spark's ParseException for what is none."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    return msgspec.json.decode(parser.parseDataType(text).json())
