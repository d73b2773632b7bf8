"""Requests of Spark about tables that are read, and Python's answers."""

from __future__ import annotations

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


class ChangeScansRequest(Message, frozen=True):
    """changes.pin: an execution of a query asks for the scans of a range."""

    scan: str
    version: int | None
    """The version of the table that another scan of this execution has got."""


class ChangeScansAnswer(Message, frozen=True):
    version: int
    """The newest version of the table, for this execution."""
    relations: list[Relation]
