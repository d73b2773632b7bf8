"""What Spark's catalog asks of Python, and what Python answers."""

from __future__ import annotations

from deltaflow.spark.bridge.messages import Message


class LoadTableRequest(Message, frozen=True):
    """catalog.load. `version` is what VERSION AS OF says, `as_of_micros` the time of TIMESTAMP AS OF."""

    name: str
    path: str
    may_be_absent: bool
    version: str | None
    as_of_micros: int | None
    is_path_of_query: bool
    settings: dict[str, str]


class LoadedTable(Message, frozen=True):
    """The table as the catalog's entry is to describe it. The schema is JSON."""

    path: str
    version: int | None
    schema: str
    partition_columns: list[str]
    properties: dict[str, str]
    comment: str | None


class LoadTableAnswer(Message, frozen=True):
    table: LoadedTable | None
    """None if there is no table, and the request says that it may be absent."""


class TableExistsRequest(Message, frozen=True):
    path: str


class TableExistsAnswer(Message, frozen=True):
    exists: bool


class RefusedRequest(Message, frozen=True):
    """catalog.refuse: an operation that would change a table without a commit in its log."""

    operation: str
    name: str


class RelativePathRequest(Message, frozen=True):
    """catalog.refuseRelativePath."""

    path: str


class OtherFormatRequest(Message, frozen=True):
    """catalog.refuseOtherFormat: the name of a table of another format."""

    name: str
