"""What Spark's catalog asks of Python, and what Python answers."""

from __future__ import annotations

from deltaflow.spark.bridge.messages import Message


class LoadTableRequest(Message, frozen=True):
    """catalog.load; `version` is that of VERSION AS OF, `as_of_micros` the time of TIMESTAMP AS OF."""

    name: str
    path: str
    may_be_absent: bool
    version: str | None
    as_of_micros: int | None
    is_path_of_query: bool
    settings: dict[str, str]


class LoadedTable(Message, frozen=True):
    """A table as an entry of the catalog is to describe it. The schema is JSON."""

    path: str
    version: int | None
    schema: str
    partition_columns: list[str]
    properties: dict[str, str]
    comment: str | None


class LoadTableAnswer(Message, frozen=True):
    table: LoadedTable | None
    """None: there is no table, and the request says that it may be so."""


class TableExistsRequest(Message, frozen=True):
    path: str


class TableExistsAnswer(Message, frozen=True):
    exists: bool


class Transform(Message, frozen=True):
    """An expression of PARTITIONED BY: its function, "identity" for a column alone, and its columns."""

    transform: str
    columns: list[str]


class DefinitionRequest(Message, frozen=True):
    """catalog.check, catalog.commit: a statement that creates or replaces a table; see TableDefinition."""

    operation: str
    name: str
    path: str
    location: str | None
    is_path: bool
    is_in_catalog: bool
    is_managed: bool
    is_save_as_table: bool
    defined_schema: str
    partitioning: list[Transform]
    properties: dict[str, str]
    settings: dict[str, str]


class RefusedRequest(Message, frozen=True):
    """catalog.refuse: an operation on a table that its commits would not show."""

    what: str
    table: str


class OtherFormatRequest(Message, frozen=True):
    """catalog.refuseOtherFormat: the name of a table that is no Delta table."""

    table: str
