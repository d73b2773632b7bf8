"""The table that a stream reads, with the query's options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from deltaflow.batch.read.change_scans import with_change_columns
from deltaflow.errors import CorruptLogError, DeltaIllegalStateException, VersionNotFoundError
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import mapping_mode, physical_names, table_schema
from deltaflow.log.streams.schema_log import SchemaLog
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.scan.file_index import STREAM
from deltaflow.spark.scan.messages import RowIdColumns
from deltaflow.streaming.commit_times import CommitTimes
from deltaflow.streaming.source_options import SourceOptions

_GONE = ("DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS")


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
    row_ids: RowIdColumns | None = None
    """For a stream whose rows have `_metadata` with row ids."""
    commit_times: CommitTimes = field(default_factory=CommitTimes, repr=False, compare=False)
    """Those of the commits that a stream of change rows has met."""

    @property
    def rows_schema(self) -> StructType:
        """The schema of the rows that the stream gives: that of the table, or that of its change rows."""
        return with_change_columns(self.schema) if self.options.read_change_feed else self.schema

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

    def snapshot_if_there(self, version: int) -> Snapshot | None:
        """The table at a version, or None if the log no longer has it."""
        try:
            return self.log.snapshot_at(version)
        except (VersionNotFoundError, CorruptLogError) as error:
            if error.error_class not in _GONE:
                raise
            return None

    @contextmanager
    def needs(self, version: int) -> Iterator[None]:
        """Raises DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE if the log no longer has the version that the
        block reads."""
        try:
            yield
        except (VersionNotFoundError, CorruptLogError) as error:
            if error.error_class not in _GONE:
                raise
            raise DeltaIllegalStateException(
                error_class="DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
                missing_version=version,
                reason=error.message,
                table=self.path,
            ) from error


def stream_log(path: str) -> DeltaLog:
    """The log of a table that a stream reads."""
    return DeltaLog.for_table(path, with_files=False)


def reading_of(
    newest: Snapshot,
    options: SourceOptions,
    *,
    schema_log: SchemaLog | None = None,
    counts_rows: bool = False,
    row_ids: RowIdColumns | None = None,
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
        row_ids,
    )


class DescribedReading(Message, frozen=True):
    """A Reading in plain values, to be passed through the JVM."""

    path: str
    id: str
    schema_version: int
    """Reading.version: that of the schema. The files are of many versions."""
    schema: str
    partition_columns: tuple[str, ...]
    options: SourceOptions
    mapping_mode: str
    schema_log: SchemaLog | None = None
    row_ids: RowIdColumns | None = None


class DescribedBatch(DescribedReading, frozen=True, kw_only=True):
    """The description of the scan of a micro-batch."""

    reads: str = STREAM
    start: str | None
    end: str
    newest_time_ms: int
    """When the newest version was committed at the source's last look at the log. It tells the batch from one
    of the same offsets in a log that was put back from a copy."""
    recorded: bool | None = None
    """Of a batch of change rows: whether the scan has the files of cdc actions, or those of the table."""


def described_fields(reading: Reading) -> dict[str, Any]:
    """The fields of a DescribedReading."""
    return {
        "path": reading.path,
        "id": reading.table_id,
        "schema_version": reading.version,
        "schema": reading.schema.json(),
        "partition_columns": reading.partition_columns,
        "options": reading.options,
        "mapping_mode": reading.mapping_mode,
        "schema_log": reading.schema_log,
        "row_ids": reading.row_ids,
    }


def described_reading(described: DescribedReading) -> Reading:
    """The reading that was described."""
    return Reading(
        stream_log(described.path),
        described.id,
        described.schema_version,
        schema_of_json(described.schema),
        described.partition_columns,
        described.options,
        described.mapping_mode,
        described.schema_log,
        row_ids=described.row_ids,
    )


def schema_of_json(json: str) -> StructType:
    """A schema that was passed through the JVM."""
    return StructType.fromJson(msgspec.json.decode(json))
