"""Requests of Spark about tables that are read, and Python's answers."""

from __future__ import annotations

import msgspec

from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.scan.messages import ColumnMapping, Relation, RowIdColumns


class ReadRequest(Message, frozen=True):
    """read: the relation over a table."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]


class PinRequest(Message, frozen=True):
    """scan.pin: an execution of a query asks for the version that a scan without one reads."""

    scan: str
    schema: str | None
    """The schema of the analysed query; None if it is not known."""
    version: int | None
    """The version of the table that another scan of this execution has got."""


class PinAnswer(Message, frozen=True):
    version: int
    scan: str
    partition_schema: str
    size_in_bytes: int
    mapping: ColumnMapping | None
    vectors: int
    """How many files have deletion vectors."""
    row_ids: RowIdColumns | None


class ChangeFeedRequest(Message, frozen=True):
    """changes.load: the change rows of a range of a table's versions."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]


class ChangeFeedAnswer(Message, frozen=True):
    root: str
    scan: str
    """The description of the range."""
    schema: str
    is_computed: bool
    """Whether the change rows are computed from those of the scans, by the steps of ChangeScansAnswer."""


class ChangeScansRequest(Message, frozen=True):
    """changes.pin: an execution of a query asks for the scans of a range."""

    scan: str
    version: int | None
    """The version of the table that another scan of this execution has got."""


class ChangeStep(Message, frozen=True, kw_only=True):
    """A step of a computation by Spark: columns, or aggregates of groups, and a condition for the result."""

    columns: list[str]
    """SQL, with aliases."""
    group_by: list[str] = msgspec.field(default_factory=list)
    """Columns, which the result has, too; then `columns` are aggregates."""
    condition: str | None = None


class ChangeScansAnswer(Message, frozen=True):
    version: int
    """The newest version of the table, for this execution."""
    relations: list[Relation]
    steps: list[ChangeStep]
    """Of change rows that are computed."""
