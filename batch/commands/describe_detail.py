"""DESCRIBE DETAIL: one row that describes a table (delta-spark's TableDetail)."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, TimestampType

from deltaflow.batch.result_rows import datetime_of, schema_of
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.files.data_path import hadoop_path
from deltaflow.log.protocol.features import supported_features
from deltaflow.spark.sql.statements import NamedTable, Rows

_NAMES = ArrayType(StringType())
DETAIL = schema_of(
    format=StringType(),
    id=StringType(),
    name=StringType(),
    description=StringType(),
    location=StringType(),
    createdAt=TimestampType(),
    lastModified=TimestampType(),
    partitionColumns=_NAMES,
    clusteringColumns=_NAMES,
    numFiles=LongType(),
    sizeInBytes=LongType(),
    properties=MapType(StringType(), StringType()),
    minReaderVersion=IntegerType(),
    minWriterVersion=IntegerType(),
    tableFeatures=_NAMES,
)
"""The output of DESCRIBE DETAIL."""


def describe_detail(table: NamedTable) -> Rows:
    """The row of DETAIL, as a list."""
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
        None if created_ms is None else datetime_of(created_ms),
        None if modified_ms is None else datetime_of(modified_ms),
        metadata.partition_columns,
        clustering_names(snapshot),
        snapshot.num_files,
        snapshot.size_in_bytes,
        metadata.configuration,
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )


def clustering_names(snapshot: Snapshot) -> list[str]:
    """The columns by which a table is clustered."""
    return [".".join(path) for path in snapshot.clustering_columns]
