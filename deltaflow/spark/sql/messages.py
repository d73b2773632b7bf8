"""What the JVM asks about SQL statements, and what Python answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from deltaflow.spark.bridge.messages import Message
from deltaflow.store import qualified_path


class NamedTable(Message, frozen=True):
    """The Delta table that a statement names, or the view over one."""

    name: str
    path: str | None
    """With a scheme, where Spark's default file system is not the local one. None for a view."""
    viewed: str | None = None
    """The path of the table of which a temporary view has all rows and columns of the newest version."""

    def __post_init__(self) -> None:
        for name in ("path", "viewed"):
            path = getattr(self, name)
            if path is not None:
                msgspec.structs.force_setattr(self, name, qualified_path(path))

    @property
    def changed_path(self) -> str | None:
        """The path of the table whose rows a statement changes; None for a view that stands for none."""
        return self.path or self.viewed


class WordsAnswer(Message, frozen=True):
    """statement.words: the first words of the texts for which the JVM asks statement.parse, before or after
    it has tried Spark's own parser."""

    before: list[str]
    after: list[str]


class ParseRequest(Message, frozen=True):
    """statement.parse: a text and its tokens: the name of the type, the begin and the end of each."""

    text: str
    tokens: list[tuple[str, int, int]]


class ParsedStatement(Message, frozen=True):
    """A statement that Delta adds to Spark's SQL."""

    name: str
    fields: dict[str, Any]
    values: list[tuple[str, int]]
    """The expressions, which the fields refer to by number: the text of each and where it begins."""
    explain: str | None
    """The text of the EXPLAIN before the statement."""
    is_sparks_too: bool
    """Whether later releases of Spark have the statement, for tables of other formats."""


class ParseAnswer(Message, frozen=True):
    table: tuple[str, int] | None = None
    """The text that names the statement's table, and where it begins; None if the statement is Spark's."""
    mismatch: int | None = None
    """The number of the first wrong token, of a text that is a statement of Delta's up to its table."""
    statement: ParsedStatement | None = None


class StatementDescription(Message, frozen=True):
    """What the JVM has to know about the statements of one name; see `statement`."""

    table_field: str | None
    views: bool
    asks: bool
    """Whether the JVM has to ask statement.concerns if the statement names no Delta table."""
    output: str | None
    """The schema of the rows, as JSON; None if it is that of Spark's plan."""


class DescriptionsAnswer(Message, frozen=True):
    """statement.descriptions, by the names of the statements."""

    descriptions: dict[str, StatementDescription]


class ConcernsRequest(Message, frozen=True):
    """statement.concerns: the name of a statement that names no Delta table, and the fields of its plan."""

    statement: str
    fields: dict[str, Any]


class ConcernsAnswer(Message, frozen=True):
    concerns: bool


class RunRequest(Message, frozen=True):
    """statement.run: the name of a statement, its table and the fields of its plan; see `Statement`."""

    statement: str
    table: NamedTable | None
    name: str | None
    """The table's name in a statement that only Delta has; None in a statement of Spark's."""
    fields: dict[str, Any]
    settings: dict[str, str]
    handle: int


class RunAnswer(Message, frozen=True):
    rows: Sequence[Sequence[Any]]
    changed: str | None
    """The path of the table that the statement has changed."""
