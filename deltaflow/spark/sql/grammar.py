"""Patterns of SQL statements, and the fields that they read from the words of a text.

A pattern consists of WORDs, [optional parts], (one | of several), (any number of)*, the characters '(' and
',', @flag, which sets a field to true, and <field:type>. The types are

- table: the statement's table: a name, a path as a string, or IDENTIFIER(…)
- name, column, word: a name as a list of its parts; a name as SQL; a name of a single part, or a string
- number, literal: a number; a number or a string; each may be a parameter of spark.sql(text, args)
- constant, sql: an expression, which ends before one of the words that follow the type: its value, or its
  text
- text: the text up to the closing bracket
- properties: a list of properties in brackets
- rest: the text up to the end, which the fields leave out

A field `one[]` is a list, and `one.two` is a field of an object. A field that the statement leaves out is
None, False or empty. Spark's parser reads the expressions: {"constant": n} and {"sql": n} refer to them by
number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_PATTERN = re.compile(r"<([^>]+)>|@(\w+)|'(.)'|([][()|*])|(\w+)")
_NUMBERS = re.compile(r"(\w+)_(VALUE|LITERAL)")
_NO_FIELDS = frozenset(("", "table"))
_STRINGS = frozenset(("STRING_LITERAL", "DOUBLEQUOTED_STRING"))
_QUOTED_NAMES = frozenset(("BACKQUOTED_IDENTIFIER", "DOUBLEQUOTED_IDENTIFIER"))


class Token(NamedTuple):
    """A word or a punctuation mark of a text, with its position in characters."""

    type: str
    """The name of its type in Spark's lexer; DOUBLEQUOTED_IDENTIFIER for a string that the session reads as a
    name (spark.sql.ansi.doubleQuotedIdentifiers)."""
    start: int
    end: int
    text: str


class Node(NamedTuple):
    """A part of a pattern."""

    construct: str
    """word, slot, flag, optional, repeat, choice or sequence."""
    name: str = ""
    type: str = ""
    stops: tuple[str, ...] = ()
    parts: tuple[Node, ...] = ()


class MismatchError(Exception):
    """The text does not match a pattern, from the token of this number on."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def compiled(pattern: str) -> Node:
    """The pattern as a tree."""
    tokens = [match.groups() for match in _PATTERN.finditer(pattern)]

    def sequence(end: str) -> Node:
        choices: list[list[Node]] = [[]]
        while tokens:
            slot, flag, mark, bracket, word = tokens.pop(0)
            parts = choices[-1]
            if slot:
                name, _, rest = slot.partition(":")
                slot_type, *stops = rest.split() or ("table",)
                parts.append(Node("slot", name, slot_type, tuple(stops)))
            elif flag:
                parts.append(Node("flag", flag))
            elif word or mark:
                parts.append(Node("word", word or mark))
            elif bracket == end:
                break
            elif bracket == "|":
                choices.append([])
            elif bracket == "[":
                parts.append(Node("optional", parts=(sequence("]"),)))
            elif bracket == "(":
                parts.append(sequence(")"))
            elif bracket == "*":
                parts.append(Node("repeat", parts=(parts.pop(),)))
        sequences = tuple(Node("sequence", parts=tuple(parts)) for parts in choices)
        return sequences[0] if len(sequences) == 1 else Node("choice", parts=sequences)

    return sequence("")


class Reading:
    """The tokens of one text, and what a pattern has read of them."""

    def __init__(self, text: str, tokens: Sequence[Token], begin: int) -> None:
        self.text = text
        self.tokens = tokens
        self.at = begin
        self.table: tuple[str, int] | None = None
        self.fields: dict[str, Any] = {}
        self.values: list[tuple[str, int]] = []
        """The expressions that fields refer to by number: the text of each, and where it begins."""

    def read_all(self, pattern: Node) -> None:
        """Reads the whole text by a pattern, or raises MismatchError."""
        self._read(pattern)
        while self._word() == ";":
            self.at += 1
        if self.at < len(self.tokens):
            raise MismatchError(self.at)
        self._set_defaults(pattern)

    def _read(self, node: Node) -> None:
        # Once the first word of a part matches, no alternative is tried.
        match node.construct:
            case "word":
                if self._word() != node.name:
                    raise MismatchError(self.at)
                self.at += 1
            case "flag":
                self._put(node.name, True)
            case "slot":
                self._put(node.name, getattr(self, f"_read_{node.type}")(*node.stops))
            case "sequence":
                for part in node.parts:
                    self._read(part)
            case "optional":
                self._reads_one(node.parts)
            case "repeat":
                while self._reads_one(node.parts):
                    pass
            case _:
                if not self._reads_one(node.parts):
                    raise MismatchError(self.at)

    def _set_defaults(self, node: Node) -> None:
        for part in node.parts:
            self._set_defaults(part)
        if node.construct == "flag":
            self.fields.setdefault(node.name, False)
        elif node.construct == "slot" and node.name.endswith("[]"):
            self.fields.setdefault(node.name.removesuffix("[]"), [])
        elif node.construct == "slot" and node.name not in _NO_FIELDS and "." not in node.name:
            self.fields.setdefault(node.name, None)

    def _reads_one(self, nodes: Sequence[Node]) -> bool:
        begin = self.at
        for node in nodes:
            try:
                self._read(node)
            except MismatchError as mismatch:
                if mismatch.at > begin:
                    raise
            else:
                return self.at > begin
        return False

    def _put(self, name: str, value: Any) -> None:
        if name in _NO_FIELDS:
            return
        if name.endswith("[]"):
            self.fields.setdefault(name.removesuffix("[]"), []).append(value)
            return
        *parents, last = name.split(".")
        fields = self.fields
        for parent in parents:
            fields = fields.setdefault(parent, {})
        if last in fields:  # A part of several in any order has come twice.
            raise MismatchError(self.at)
        fields[last] = value

    def _token(self) -> Token:
        if self.at == len(self.tokens):
            raise MismatchError(self.at)
        return self.tokens[self.at]

    def _word(self) -> str:
        return self.tokens[self.at].text.upper() if self.at < len(self.tokens) else ""

    def _slice(self, begin: int) -> tuple[str, int]:
        if begin == self.at:
            raise MismatchError(self.at)
        start = self.tokens[begin].start
        return self.text[start : self.tokens[self.at - 1].end], start

    def _value(self, begin: int) -> int:
        self.values.append(self._slice(begin))
        return len(self.values) - 1

    def _until(self, *stops: str) -> int:
        """Skips to one of these words outside of brackets, a closing bracket or the end; returns the
        begin."""
        begin, depth = self.at, 0
        while self.at < len(self.tokens):
            word = self._word()
            if depth == 0 and (word in stops or word in (")", ";")):
                break
            depth += {"(": 1, ")": -1}.get(word, 0)
            self.at += 1
        return begin

    def _read_table(self) -> None:
        begin = self.at
        if self._token().type in _STRINGS:
            self.at += 1
        elif self._word() == "IDENTIFIER" and self.at + 1 < len(self.tokens):
            self.at += 1
            if self._word() == "(":
                self.at += 1
                self._until()
                if self._word() != ")":
                    raise MismatchError(self.at)
                self.at += 1
        else:
            self._read_name()
        self.table = self._slice(begin)

    def _read_name(self) -> list[str]:
        parts = [self._identifier()]
        while self._word() == ".":
            self.at += 1
            parts.append(self._identifier())
        return parts

    def _read_column(self) -> str:
        return ".".join(
            part if re.fullmatch(r"\w+", part) else f"`{part.replace('`', '``')}`"
            for part in self._read_name()
        )

    def _identifier(self) -> str:
        token = self._token()
        if token.type in _QUOTED_NAMES:
            self.at += 1
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        if token.type in _STRINGS or _NUMBERS.fullmatch(token.type) or not re.fullmatch(r"\w+", token.text):
            raise MismatchError(self.at)
        self.at += 1
        return token.text

    def _read_word(self) -> str | dict[str, int]:
        return self._read_literal() if self._token().type in _STRINGS else self._identifier()

    def _read_number(self) -> dict[str, int]:
        if self._token().type in _STRINGS:
            raise MismatchError(self.at)
        return self._read_literal()

    def _read_literal(self) -> dict[str, int]:
        begin = self.at
        if self._word() == ":":
            self.at += 1
            self._identifier()
        else:
            self.at += self._word() == "-"
            token_type = self._token().type
            if not _NUMBERS.fullmatch(token_type) and token_type not in (*_STRINGS, "QUESTION"):
                raise MismatchError(self.at)
            self.at += 1
        return {"constant": self._value(begin)}

    def _read_constant(self, *stops: str) -> dict[str, int]:
        return {"constant": self._value(self._until(*stops))}

    def _read_sql(self, *stops: str) -> dict[str, int]:
        return {"sql": self._value(self._until(*stops))}

    def _read_text(self) -> str:
        return self._slice(self._until())[0]

    def _read_rest(self) -> None:
        self.at = len(self.tokens)

    def _read_properties(self) -> dict[str, list[Any]]:
        self._read(Node("word", "("))
        entries: list[Any] = []
        while True:
            key = self._read_literal() if self._token().type in _STRINGS else ".".join(self._read_name())
            self.at += self._word() == "="
            is_boolean = self._word() in ("TRUE", "FALSE")
            entries.append((key, self._identifier().lower() if is_boolean else self._read_literal()))
            if self._word() != ",":
                break
            self.at += 1
        self._read(Node("word", ")"))
        return {"map": entries}
