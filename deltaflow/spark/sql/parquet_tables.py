"""Parquet tables by name or path, as Spark's catalog and its rules for partition folders know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.spark.bridge.java_classes import java_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PartitionEntry(msgspec.Struct, frozen=True):
    """A partition that the catalog lists: its directory, and its values as text."""

    path: str
    values: dict[str, str | None]


class TableEntry(msgspec.Struct, frozen=True):
    """What a name is; a format.`path` has no `name`, and its database for a `provider`."""

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
    """None where the table's partitions are the folders that its directory has."""


def describe_table(spark: SparkSession, name: str) -> TableEntry:
    """What a name is, which may be format.`path`; Spark's own error for a name of nothing."""
    described = java_classes(spark).sql.ParquetTables.describe(spark._jsparkSession, name)
    return msgspec.json.decode(described, type=TableEntry)


def becomes_delta(spark: SparkSession, entry: TableEntry) -> None:
    """Makes the catalog's entry that of a Delta table."""
    java_classes(spark).sql.ParquetTables.becomesDelta(spark._jsparkSession, entry.quoted)
    spark.catalog.refreshTable(entry.quoted)


def inferred_partition_schema(spark: SparkSession, folders: Sequence[str]) -> StructType:
    """The columns of folders `column=value/…`, which all have the same ones, by Spark's rules."""
    text = msgspec.json.encode(folders).decode()
    schema = java_classes(spark).sql.ParquetTables.partitionSchema(spark._jsparkSession, text)
    return StructType.fromJson(msgspec.json.decode(schema))


def schema_of_file(spark: SparkSession, path: str) -> StructType:
    """The columns of a Parquet file as Spark reads them; no row is read."""
    # The option keeps Spark from taking characters of the path for a pattern.
    return spark.read.option("__globPaths__", "false").parquet(f"file:{path}").schema


def cast_columns(spark: SparkSession, columns: pa.Table, schema: StructType) -> pa.Table:
    """Columns of text, cast by Spark to the types of the schema and to text again: null where it fails.

    A row is a partition, never one of a table.
    """
    names = [str(i) for i in range(columns.num_columns)]
    frame = spark.createDataFrame(columns.rename_columns(names))
    casts = [
        f"cast(try_cast(`{name}` as {field.dataType.simpleString()}) as string) as `{name}`"
        for name, field in zip(names, schema.fields, strict=True)
    ]
    return frame.coalesce(1).selectExpr(*casts).toArrow()
