"""Columns named in a text: `a, b.c, `odd name`` (Spark's multipart identifiers, separated by commas)."""

from __future__ import annotations

import re

_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*([.,]|$)", re.ASCII)


def column_paths(text: str) -> list[tuple[str, ...]]:
    """The names' parts, each column a path through structs; ValueError for any other text."""
    paths: list[tuple[str, ...]] = []
    parts: tuple[str, ...] = ()
    position, after = 0, ""
    while position < len(text.rstrip()) or after:
        match = _PART.match(text, position)
        if match is None:
            raise ValueError(f"no name of a column at {text[position:]!r}")
        quoted, plain, after = match.groups()
        parts = (*parts, plain if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if after != ".":
            paths.append(parts)
            parts = ()
    return paths


def column_path(text: str) -> tuple[str, ...]:
    """The parts of one column's name; a text that is not the name of one column is a name as it is."""
    try:
        [path] = column_paths(text)
    except ValueError:
        return (text,)
    return path
