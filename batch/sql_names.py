"""Names of columns and fields as SQL."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def quoted_name(parts: Sequence[str]) -> str:
    """A name of several parts, each in backticks."""
    return ".".join(map(quoted, parts))
