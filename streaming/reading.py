"""The table that a stream reads, with the query's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import mapping_mode, physical_names, table_schema
from deltaflow.log.streams.schema_log import SchemaLog
from deltaflow.spark.bridge.messages import Message
from deltaflow.streaming.source_options import SourceOptions


@dataclass(frozen=True)
class Reading:
    """A table as it was when the query started, and the query's options."""

    log: DeltaLog
    """Its snapshots have no files: a stream asks for the files of its initial snapshot alone."""
    table_id: str
    version: int
    """The version that schema and partition columns are from: the newest at the start of the query, or that
    of the schema log's entry."""
    schema: StructType
    partition_columns: tuple[str, ...]
    options: SourceOptions
    mapping_mode: str = "none"
    schema_log: SchemaLog | None = None
    """For a stream with schemaTrackingLocation."""
    counts_rows: bool = False
    """Whether the files come with their statistics even if the stream does not choose files by them."""

    @property
    def reads_stats(self) -> bool:
        """Whether the files come with their statistics."""
        return self.counts_rows or self.options.reads_stats

    @property
    def physical_partition_columns(self) -> dict[str, str]:
        """The partition columns in their order, each with its name in partition values."""
        return physical_names(self.schema, self.partition_columns)

    @property
    def path(self) -> str:
        """The table's directory."""
        return self.log.path


def stream_log(path: str) -> DeltaLog:
    """The log of a table that a stream reads."""
    return DeltaLog.for_table(path, with_files=False)


def reading_of(
    newest: Snapshot,
    options: SourceOptions,
    *,
    schema_log: SchemaLog | None = None,
    counts_rows: bool = False,
) -> Reading:
    """The reading of a query that starts when its table has the newest version."""
    version, metadata, schema = newest.version, newest.metadata, None
    if schema_log is not None and schema_log.current is not None:
        version, metadata = schema_log.current.delta_commit_version, schema_log.current.metadata
        schema = table_schema(metadata, table=newest.path, version=version)
    return Reading(
        stream_log(newest.path),
        newest.table_id,
        version,
        newest.schema if schema is None else schema,
        tuple(metadata.partition_columns),
        options,
        mapping_mode(metadata, newest.path),
        schema_log,
        counts_rows,
    )


class DescribedReading(Message, frozen=True):
    """A Reading in plain values, to be passed through the JVM."""

    path: str
    id: str
    version: int
    schema: str
    partition_columns: tuple[str, ...]
    options: SourceOptions
    mapping_mode: str
    schema_log: SchemaLog | None = None


class DescribedBatch(DescribedReading, frozen=True, kw_only=True):
    """The description of the scan of a micro-batch."""

    reads: str = "stream"
    start: str | None
    end: str


def described_fields(reading: Reading) -> dict[str, Any]:
    """The fields of a DescribedReading."""
    return {
        "path": reading.path,
        "id": reading.table_id,
        "version": reading.version,
        "schema": reading.schema.json(),
        "partition_columns": reading.partition_columns,
        "options": reading.options,
        "mapping_mode": reading.mapping_mode,
        "schema_log": reading.schema_log,
    }


def described_reading(described: DescribedReading) -> Reading:
    """The reading that was described."""
    return Reading(
        stream_log(described.path),
        described.id,
        described.version,
        schema_of_json(described.schema),
        described.partition_columns,
        described.options,
        described.mapping_mode,
        described.schema_log,
    )


def schema_of_json(json: str) -> StructType:
    """A schema that was passed through the JVM."""
    return StructType.fromJson(msgspec.json.decode(json))
