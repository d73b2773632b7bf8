"""DESCRIBE DETAIL: what a table is, in one row (delta-spark's TableDetail)."""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltaflow.batch.timestamps import moment_of
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.files.data_path import hadoop_path
from deltaflow.log.protocol.features import supported_features
from deltaflow.spark.sql.statements import NamedTable, Rows

_NAMES = ArrayType(StringType())
DETAIL = StructType(
    [
        StructField("format", StringType()),
        StructField("id", StringType()),
        StructField("name", StringType()),
        StructField("description", StringType()),
        StructField("location", StringType()),
        StructField("createdAt", TimestampType()),
        StructField("lastModified", TimestampType()),
        StructField("partitionColumns", _NAMES),
        StructField("clusteringColumns", _NAMES),
        StructField("numFiles", LongType()),
        StructField("sizeInBytes", LongType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("minReaderVersion", IntegerType()),
        StructField("minWriterVersion", IntegerType()),
        StructField("tableFeatures", _NAMES),
    ]
)
"""The output of DESCRIBE DETAIL."""


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: list[list[str]]


def describe_detail(table: NamedTable) -> Rows:
    """The one row of DETAIL."""
    assert table.path is not None
    log = DeltaLog.for_table(table.path)
    snapshot = log.snapshot()
    return [_row(table, snapshot, log.modification_time_ms(snapshot.version))]


def _row(table: NamedTable, snapshot: Snapshot, modified_ms: int | None) -> tuple[Any, ...]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    created_ms = metadata.created_time
    return (
        "delta",
        metadata.id,
        metadata.name if table.name.startswith("delta.`") else table.name,
        metadata.description,
        hadoop_path(snapshot.path),
        None if created_ms is None else moment_of(created_ms),
        None if modified_ms is None else moment_of(modified_ms),
        metadata.partition_columns,
        _clustering_columns(snapshot),
        snapshot.num_files,
        snapshot.size_in_bytes,
        metadata.configuration,
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )


def _clustering_columns(snapshot: Snapshot) -> list[str]:
    domain = snapshot.domains.get("delta.clustering")
    if domain is None:
        return []
    clustering = msgspec.json.decode(domain.configuration, type=_Clustering)
    return [".".join(column) for column in clustering.clustering_columns]
