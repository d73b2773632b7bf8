"""What Spark asks of a streaming source or sink, and what Python answers.

Schemas and offsets are JSON in a string, as Spark's classes give and take them.
"""

from __future__ import annotations

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.write.messages import WriteRequest


class SourceSchemaRequest(Message, frozen=True):
    """source.schema: readStream.load."""

    path: str | None
    options: dict[str, str]
    user_schema: str | None


class SourceSchemaAnswer(Message, frozen=True):
    schema: str


class SourceFilter(Message, frozen=True):
    """The option sourceFilter as Spark reads it, or what is wrong with it."""

    predicate: Predicate | None
    fault: str | None


class StartSourceRequest(Message, frozen=True):
    """source.start: a query starts that reads the table."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]
    defined_schema: str | None
    """That of source.schema; None where the JVM has forgotten it."""
    source_filter: SourceFilter | None


class ReadLimits(Message, frozen=True):
    """The most that a micro-batch takes; a limit that is left out, or None, is none."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


class StartSourceAnswer(Message, frozen=True):
    schema: str
    root: str
    reading: str
    """What source.open is to be given; a DescribedReading as JSON."""
    limits: ReadLimits
    filter: str | None


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
    """A limit of Spark's that the source does not know."""


class LatestOffsetAnswer(Message, frozen=True):
    offset: str
    newest: str | None


class GetBatchRequest(Message, frozen=True):
    """source.getBatch."""

    handle: int
    start: str | None
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


class BatchRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.stream: a micro-batch is to be added to the table."""

    path: str | None
    options: dict[str, str]
    partition_by: list[str]
    output_mode: str
    query_id: str
    batch_id: int
    offsets: str | None
    """What the checkpoint's file offsets/<batch id> holds."""
