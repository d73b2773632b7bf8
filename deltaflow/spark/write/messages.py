"""What the JVM asks of Python while it writes rows into a table, and what Python answers.

Schemas and the descriptions of scans are JSON in a string.
"""

from __future__ import annotations

from typing import NamedTuple

from deltaflow.spark.bridge.messages import Message


class WrittenFile(NamedTuple):
    """A new data file: its URI-encoded absolute path as Hadoop gives it, bytes, ms since the epoch."""

    path: str
    size: int
    modification_time: int


class WriteRequest(Message, frozen=True, kw_only=True):
    """write.begin.…: what every write says. The settings are the session's.

    Each way to write has a method and a request of its own; see `begins_write`.
    """

    handle: int
    schema: str
    """The frame's."""
    scans: list[str]
    """Those of Delta tables in the frame's plan."""
    settings: dict[str, str]
    """Those of deltaflow.log.protocol.properties."""
    partition_overwrite_mode: str
    store_assignment_policy: str


class FrameWriteRequest(WriteRequest, frozen=True, kw_only=True):
    """write.begin.frame: Python writes a frame; `write` is the handle of its FileWrite."""

    write: int


class Check(Message, frozen=True):
    """A condition, in SQL, that every row has to satisfy: where it is false or null, `message`, which begins
    with an error class in brackets, is the error. `shows_values`: the values of its columns follow.
    `without_column`: the class of the error where the rows lack a column of the condition; None: Spark's own.
    """

    condition: str
    message: str
    shows_values: bool = False
    without_column: str | None = None


class Target(Message, frozen=True, kw_only=True):
    """Where rows are written, and what they go through before (see RowPlan)."""

    path: str
    partition_columns: list[str]
    options: dict[str, str]
    """Of Spark's Parquet writer."""
    optimized_write_bytes: int | None
    frame: str
    table: str
    cast: str | None
    columns: list[str]
    checks: list[Check]


class QuarantineTarget(Target, frozen=True, kw_only=True):
    """Where the rows of a batch go that do not fit the table; see Quarantine."""

    batch_id: int
    query_id: str
    cast_errors: list[str]
    value_errors: list[str]


class BeginAnswer(Message, frozen=True):
    """`target` None: there is nothing to write; `is_repeated`: the table has this very write already."""

    target: Target | None
    quarantine: QuarantineTarget | None
    is_repeated: bool
    settings_to_unset: list[str]


class CommitRequest(Message, frozen=True):
    """write.commit, with the files of the rows, and those of the rows that are quarantined."""

    handle: int
    files: list[WrittenFile]
    quarantined: list[WrittenFile]


class CommitAnswer(Message, frozen=True):
    is_followed: bool
    """write.followUp is to be called."""


class AbortRequest(Message, frozen=True):
    """write.abort; files are None where Spark's job was not begun, or has failed and removed its own."""

    handle: int
    files: list[WrittenFile] | None
    quarantined: list[WrittenFile] | None


class ViolatedRequest(Message, frozen=True):
    """write.violated: a row failed a check, whose message begins with the error class in brackets."""

    handle: int
    message: str


class WithoutColumnRequest(Message, frozen=True):
    """write.withoutColumn: the rows lack a column that a check's condition names."""

    condition: str
    error_class: str
    column: str


class UnplannableRequest(Message, frozen=True):
    """write.unplannable: an expression that rows cannot be checked with."""

    expression: str
