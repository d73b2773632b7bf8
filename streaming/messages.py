"""Requests of Spark to a streaming source or sink, and Python's answers.

Schemas and offsets are JSON in a string, as Spark's classes give and take them.
"""

from __future__ import annotations

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.scan.messages import Relation, RowIdColumns
from deltaflow.spark.write.messages import WriteRequest


class SourceSchemaRequest(Message, frozen=True):
    """source.schema: readStream.load."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]
    user_schema: str | None


class SourceSchemaAnswer(Message, frozen=True):
    schema: str
    row_ids: RowIdColumns | None
    """For _metadata of the stream's rows; None if the table has no row tracking."""


class SourceFilter(Message, frozen=True):
    """The option sourceFilter as a predicate, or the reason why Spark cannot read it (`fault`)."""

    predicate: Predicate | None
    fault: str | None


class StartSourceRequest(Message, frozen=True):
    """source.start: a query that reads the table starts."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]
    metadata_path: str
    """The directory that the source may use below the query's checkpoint."""
    defined: str | None
    """What source.schema answered, a SourceSchemaAnswer as JSON; None if the JVM no longer knows it."""
    source_filter: SourceFilter | None


class ReadLimits(Message, frozen=True):
    """The most that a micro-batch takes; None means no limit."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


class StartSourceAnswer(Message, frozen=True):
    schema: str
    root: str
    reading: str
    """A DescribedReading as JSON, for source.open."""
    limits: ReadLimits
    has_schema_log: bool
    """Whether Python has to know when a batch is done."""


class OpenSourceRequest(Message, frozen=True):
    """source.open: the query begins to work."""

    handle: int
    reading: str


class LatestOffsetRequest(Message, frozen=True):
    """source.latestOffset."""

    handle: int
    start: str | None
    limits: ReadLimits
    unknown_limit: str | None
    """A limit of Spark that the source does not know."""


class LatestOffsetAnswer(Message, frozen=True):
    offset: str
    newest: str | None


class GetBatchRequest(Message, frozen=True):
    """source.getBatch."""

    handle: int
    start: str | None
    end: str


class BatchAnswer(Message, frozen=True):
    relations: list[Relation]
    """Their rows together are those of the batch: one for the rows of a table, up to two for change rows."""


class CommitRequest(Message, frozen=True):
    """source.commit: the batch that ends at the offset is done, and another one is planned."""

    handle: int
    end: str


class MetricsRequest(Message, frozen=True):
    """source.metrics."""

    handle: int
    done: str | None


class MetricsAnswer(Message, frozen=True):
    metrics: dict[str, str]


class OpenSinkRequest(Message, frozen=True):
    """sink.open: writeStream.start."""

    path: str | None
    options: dict[str, str]
    output_mode: str


class OpenSinkAnswer(Message, frozen=True):
    has_table: bool
    """Whether the table is there before the query's first batch."""


class BatchRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.stream: the write of a micro-batch begins."""

    path: str | None
    options: dict[str, str]
    partition_by: list[str]
    output_mode: str
    query_id: str
    batch_id: int
    offsets: str | None
    """The content of the checkpoint's file offsets/<batch id>."""
    checkpoint: str | None
    """The query's checkpoint, in the first batch of a run; None in the others."""
    had_table: bool
    """Whether the table was there when the query started, or is by an earlier batch of this run."""
