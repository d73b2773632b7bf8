"""What Spark knows about Parquet tables: their catalog entries, and the rules for partition folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.log.files.data_path import hadoop_path
from deltaflow.spark.bridge.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PartitionEntry(msgspec.Struct, frozen=True):
    """A partition in the catalog: its directory, and its values as text."""

    path: str
    values: dict[str, str | None]


class TableEntry(msgspec.Struct, frozen=True):
    """What a name stands for. For format.`path`, `name` is None and `provider` is the format."""

    provider: str | None = None
    path: str = ""
    name: str | None = None
    quoted: str = ""
    is_view: bool = False
    schema: str = ""
    """JSON, with the partition columns."""
    partition_columns: list[str] = []
    properties: dict[str, str] = {}
    partitions: list[PartitionEntry] | None = None
    """None if the table's partitions are the folders of its directory."""


def describe_table(spark: SparkSession, name: str) -> TableEntry:
    """Describes a name, which may be format.`path`. Raises Spark's error if there is no such table."""
    described = java_classes(spark).sql.ParquetTables.describe(spark._jsparkSession, name)
    return msgspec.json.decode(described, type=TableEntry)


def make_entry_delta(spark: SparkSession, entry: TableEntry) -> None:
    """Changes the catalog's entry into that of a Delta table."""
    java_classes(spark).sql.ParquetTables.makeEntryDelta(spark._jsparkSession, entry.quoted)
    spark.catalog.refreshTable(entry.quoted)


def inferred_partition_schema(spark: SparkSession, folders: Sequence[str]) -> StructType:
    """The columns that Spark infers from folders `column=value/…`, which all have the same columns."""
    text = msgspec.json.encode(folders).decode()
    schema = java_classes(spark).sql.ParquetTables.partitionSchema(spark._jsparkSession, text)
    return StructType.fromJson(msgspec.json.decode(schema))


def schema_of_file(spark: SparkSession, path: str) -> StructType:
    """The schema of a Parquet file as Spark reads it; no row is read."""
    # With this option, Spark does not read the path as a pattern.
    return spark.read.option("__globPaths__", "false").parquet(hadoop_path(path)).schema


def cast_columns(spark: SparkSession, columns: pa.Table, schema: StructType) -> pa.Table:
    """Lets Spark cast columns of text to the types of the schema and back to text; null if a cast fails.

    The rows are partitions, not rows of a table.
    """
    names = [str(i) for i in range(columns.num_columns)]
    frame = spark.createDataFrame(columns.rename_columns(names))
    casts = [
        f"cast(try_cast(`{name}` as {field.dataType.simpleString()}) as string) as `{name}`"
        for name, field in zip(names, schema.fields, strict=True)
    ]
    return frame.coalesce(1).selectExpr(*casts).toArrow()
