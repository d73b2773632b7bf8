"""Names and data types in arguments of the Python API, as Spark's parser reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def name_parts(spark: SparkSession, name: str) -> list[str]:
    """The parts of a name, without their quotes. Raises Spark's ParseException if the text is no name."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    jvm: Any = spark.sparkContext._jvm
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(parser.parseMultipartIdentifier(name)))


def type_json(spark: SparkSession, text: str) -> Any:
    """A data type of SQL as the JSON of schemas. Raises Spark's ParseException if it is none."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    return msgspec.json.decode(parser.parseDataType(text).json())
