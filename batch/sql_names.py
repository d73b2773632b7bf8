"""Names of columns and fields as SQL."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """A name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def quoted_name(parts: Sequence[str]) -> str:
    """A name in parts, as SQL has it."""
    return ".".join(map(quoted, parts))
