"""The requests of Spark about a scan while it plans a query, and Python's answers.

`scan` is the description of a scan, a JSON object that the JVM does not read. Schemas are JSON, too.
"""

from __future__ import annotations

from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.messages import Message


class ColumnMapping(Message, frozen=True):
    """How the columns of a mapped table are found in its files."""

    schema: str
    """The table's, with the metadata of column mapping."""
    by_id: bool
    """By the ids of Parquet's fields; otherwise by their physical names."""


class RowIdColumns(Message, frozen=True):
    """The names of the columns that keep row ids in files; see deltaflow.log.protocol.row_tracking."""

    row_id: str
    row_commit_version: str


class Relation(Message, frozen=True):
    """The fields from which the JVM makes a HadoopFsRelation."""

    root: str
    pinned: bool
    scan: str
    partition_schema: str
    data_schema: str
    mapping: ColumnMapping | None
    size_in_bytes: int
    options: dict[str, str]
    """Of Spark's Parquet reader."""
    vectors: int | None
    """How many of the files have deletion vectors; None if the JVM has to ask scan.vectors."""
    row_ids: RowIdColumns | None
    """None if _metadata has no row ids."""


class PartitionsRequest(Message, frozen=True):
    """scan.partitions: the values of all partitions, as an Arrow stream."""

    scan: str
    timestamps: list[str]
    """The partition columns of type timestamp."""
    time_zone: str


class AggregatesRequest(Message, frozen=True):
    """scan.aggregates: the values of aggregate functions over partitions; None for all partitions."""

    scan: str
    partitions: list[int] | None
    functions: list[dict[str, str]]
    """As deltaflow.log.files.aggregates takes them."""


class AggregatesAnswer(Message, frozen=True):
    values: list[int | str | None] | None
    """None if the statistics do not give all values exactly."""


class FilesRequest(Message, frozen=True):
    """scan.files: the files of partitions, as an Arrow stream; None for all partitions."""

    scan: str
    partitions: list[int] | None
    predicate: Predicate | None
    limit: int | None
    """The number of rows that the query needs."""
    live: bool | None
    """Whether the scan leaves out deleted rows; if not, a file with a deletion vector is an error. None if
    the files are not read."""
    row_ids: bool
    """Whether the answer has the row ids of the files."""


class BitmapsRequest(Message, frozen=True):
    """scan.bitmaps: deletion vectors by their numbers, as RoaringBitmaps of 32 bits in an Arrow stream: as
    many of the first ones as make a few megabytes, at least one."""

    scan: str
    numbers: list[int]


class VectorsRequest(Message, frozen=True):
    """scan.vectors: how many files of a scan have deletion vectors."""

    scan: str


class VectorsAnswer(Message, frozen=True):
    vectors: int


class BadPartitionValueRequest(Message, frozen=True):
    """scan.badPartitionValue: a value of a partition column that its type does not have."""

    scan: str
    column: str
    type: str
    value: str
