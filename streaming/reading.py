"""The table that a stream reads, with the query's options."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import StructType

from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import physical_names
from deltaflow.spark.bridge.messages import Message
from deltaflow.streaming.source_options import SourceOptions


@dataclass(frozen=True)
class Reading:
    """A table as it was when the query started, and the query's options."""

    log: DeltaLog
    """Its snapshots have no files: a stream asks for the files of its initial snapshot alone."""
    table_id: str
    version: int
    """The newest version at the start of the query, which schema and partition columns are from."""
    schema: StructType
    partition_columns: tuple[str, ...]
    options: SourceOptions
    mapping_mode: str = "none"
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


def reading_of(newest: Snapshot, options: SourceOptions, *, counts_rows: bool = False) -> Reading:
    """The reading of a query that starts at the newest version of its table."""
    return Reading(
        stream_log(newest.path),
        newest.table_id,
        newest.version,
        newest.schema,
        tuple(newest.partition_columns),
        options,
        newest.mapping_mode,
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


class DescribedBatch(DescribedReading, frozen=True, kw_only=True):
    """The description of the scan of a micro-batch."""

    reads: str = "stream"
    start: str | None
    end: str
