"""What Spark asks about tables that are read, and what Python answers."""

from __future__ import annotations

from deltaflow.spark.bridge.messages import Message


class ReadRequest(Message, frozen=True):
    """read: the relation over a table."""

    path: str | None
    options: dict[str, str]
    settings: dict[str, str]


class PinRequest(Message, frozen=True):
    """scan.pin: an execution of a query reads the scan of a table's newest version."""

    scan: str
    schema: str | None
    """That of the analysed query; None where nobody knows it."""
    version: int | None
    """The version that the same execution reads already."""


class PinAnswer(Message, frozen=True):
    version: int
    scan: str
    partition_schema: str
    size_in_bytes: int
