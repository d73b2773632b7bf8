"""What Spark asks of a scan when it plans a query, and what Python answers.

`scan` is the description of a scan, a JSON object that the JVM does not look into; schemas are JSON as well.
"""

from __future__ import annotations

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.messages import Message


class Relation(Message, frozen=True):
    """From which the JVM makes a HadoopFsRelation."""

    root: str
    pinned: bool
    scan: str
    partition_schema: str
    data_schema: str
    size_in_bytes: int
    options: dict[str, str]
    """Of Spark's Parquet reader."""


class PartitionsRequest(Message, frozen=True):
    """scan.partitions: the values of all partitions, as an Arrow stream."""

    scan: str
    timestamps: list[str]
    """The partition columns of that type."""
    time_zone: str


class AggregatesRequest(Message, frozen=True):
    """scan.aggregates: the values of aggregate functions over the rows of partitions (None: of all)."""

    scan: str
    partitions: list[int] | None
    functions: list[dict[str, str]]
    """As deltaflow.log.files.aggregates takes them."""


class AggregatesAnswer(Message, frozen=True):
    values: list[int | str | None] | None
    """None: the statistics do not tell them."""


class FilesRequest(Message, frozen=True):
    """scan.files: the files of partitions (None: of all), as an Arrow stream."""

    scan: str
    partitions: list[int] | None
    predicate: Predicate | None
    limit: int | None
    """So many rows are enough."""


class BadPartitionValueRequest(Message, frozen=True):
    """scan.badPartitionValue: a value of a partition column that is none of its type."""

    scan: str
    column: str
    type: str
    value: str
