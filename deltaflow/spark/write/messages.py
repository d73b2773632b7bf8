"""What the JVM asks of Python while it writes rows into a table, and what Python answers.

Schemas and the descriptions of scans are JSON in a string.
"""

from __future__ import annotations

from typing import NamedTuple

from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.scan.messages import ColumnMapping


class WrittenFile(NamedTuple):
    """A new data file: its absolute path, URI-encoded by Hadoop, its bytes, and ms since the epoch."""

    path: str
    size: int
    modification_time: int


class WriteRequest(Message, frozen=True, kw_only=True):
    """write.begin.…: the fields of all writes. Each way to write has its own request (see `begins_write`)."""

    handle: int
    schema: str
    """The frame's."""
    scans: list[str]
    """The descriptions of the scans of Delta tables in the frame's plan."""
    settings: dict[str, str]
    """The session's settings that deltaflow.log.protocol.properties knows."""
    partition_overwrite_mode: str
    store_assignment_policy: str
    has_condition: bool
    """Whether the write's statement has a condition on the rows that it replaces (`condition_of_write`)."""


class FrameWriteRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.frame: Python has begun the write; `write` is the handle of its FileWrite."""

    write: int


class Check(Message, frozen=True):
    """A condition, in SQL, that every row has to satisfy.

    If it is false or null, `message` is the error; it begins with an error class in brackets. If
    `shows_values`, the values of the condition's columns follow it. `without_column` is the class of the
    error if the rows lack a column of the condition; None for Spark's own error. `is_users`: the condition is
    of the write's user, who may call any function, and not of the table. `of_write`: the write that holds the
    condition as an expression (`condition_of_write`), of which the SQL only tells people.
    """

    condition: str
    message: str
    shows_values: bool = False
    without_column: str | None = None
    is_users: bool = False
    of_write: int | None = None


class Numbers(Message, frozen=True):
    """The numbers that an identity column gives to new rows: the first one, and the step to the next."""

    first: int
    step: int


class Target(Message, frozen=True, kw_only=True):
    """Where rows are written, and how they become rows of the table (see RowPlan)."""

    path: str
    partition_columns: list[str]
    keeps_partition_columns: bool
    mapping: ColumnMapping | None
    options: dict[str, str]
    """Of Spark's Parquet writer."""
    optimized_write_bytes: int | None
    frame_schema: str
    table_schema: str
    parsed_schema: str | None
    cast_schema: str | None
    columns: list[str]
    identities: dict[str, Numbers]
    generated: dict[str, str]
    checks: list[Check]


class QuarantineTarget(Target, frozen=True, kw_only=True):
    """Where the rows go that do not fit the table; see Quarantine."""

    batch_id: int
    query_id: str
    cast_errors: list[str]
    value_errors: list[str]


class BeginAnswer(Message, frozen=True):
    """`target` is None if there is nothing to write. `is_repeated`: the table has this very write already."""

    target: Target | None
    quarantine: QuarantineTarget | None
    is_repeated: bool
    settings_to_unset: list[str]


class CommitRequest(Message, frozen=True):
    """write.commit: the files of the table's rows, and the files of the quarantined rows."""

    handle: int
    files: list[WrittenFile]
    quarantined: list[WrittenFile]


class CommitAnswer(Message, frozen=True):
    is_followed: bool
    """The JVM has to call write.followUp."""


class AbortRequest(Message, frozen=True):
    """write.abort. Files are None if Spark's job was not begun, or has failed and removed its files."""

    handle: int
    files: list[WrittenFile] | None
    quarantined: list[WrittenFile] | None


class ViolatedRequest(Message, frozen=True):
    """write.violated: a row failed a check. The message begins with the error class in brackets."""

    handle: int
    message: str


class JudgedTwiceRequest(Message, frozen=True):
    """write.judgedTwice: of so many parts of a batch that was judged, Spark has several copies."""

    handle: int
    parts: int


class WithoutColumnRequest(Message, frozen=True):
    """write.withoutColumn: the rows lack a column that a check's condition names."""

    condition: str
    error_class: str
    column: str


class UnplannableRequest(Message, frozen=True):
    """write.unplannable: an expression that Spark cannot evaluate row by row."""

    expression: str
