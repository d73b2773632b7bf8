"""What the JVM asks about SQL statements, and what Python answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltaflow.spark.bridge.messages import Message


class NamedTable(Message, frozen=True):
    """The Delta table that a statement names, or the view over one."""

    name: str
    path: str | None
    """None for a view."""


class WordsAnswer(Message, frozen=True):
    """statement.words: the first words of texts of which statement.parse is to be asked, before or after
    Spark's own parser."""

    before: list[str]
    after: list[str]


class ParseRequest(Message, frozen=True):
    """statement.parse: a text, and its tokens: the name of their type, where they begin and end."""

    text: str
    tokens: list[tuple[str, int, int]]


class ParsedStatement(Message, frozen=True):
    """A statement of Delta's."""

    kind: str
    fields: dict[str, Any]
    values: list[tuple[str, int]]
    """Expressions, which the fields number: their texts and where they begin."""
    explain: str | None
    """The text of the EXPLAIN before the statement."""


class ParseAnswer(Message, frozen=True):
    table: tuple[str, int] | None = None
    """The text that names the statement's table, and where it begins; None: it is none of Delta's."""
    mismatch: int | None = None
    """The token at which a text is no statement of Delta's after all, though it is one up to its table."""
    statement: ParsedStatement | None = None


class DescribedKind(Message, frozen=True):
    """What the JVM has to know of a kind of statements; see `statement`."""

    table: str | None
    views: bool
    asks: bool
    """Whether statement.concerns tells which of them are ours."""
    output: str | None
    """The schema of the rows, as JSON."""
    asks_for_output: bool
    """Whether statement.output tells that schema."""


class KindsAnswer(Message, frozen=True):
    """statement.kinds."""

    kinds: dict[str, DescribedKind]


class ConcernsRequest(Message, frozen=True):
    """statement.concerns: a statement by its kind and the fields of its plan, which names no Delta table."""

    kind: str
    statement: dict[str, Any]


class ConcernsAnswer(Message, frozen=True):
    concerns: bool


class OutputRequest(Message, frozen=True):
    """statement.output."""

    kind: str
    table: NamedTable | None
    statement: dict[str, Any]


class OutputAnswer(Message, frozen=True):
    output: str


class RunRequest(Message, frozen=True):
    """statement.run; see `Statement`."""

    kind: str
    table: NamedTable | None
    statement: dict[str, Any]
    settings: dict[str, str]
    handle: int


class RunAnswer(Message, frozen=True):
    rows: Sequence[Sequence[Any]]
    changed: str | None
    """The path of the table that the statement has changed."""
