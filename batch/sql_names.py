"""Names of columns and fields as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from deltaflow.definition_text import quoted

__all__ = ["quoted", "quoted_name"]


def quoted_name(parts: Sequence[str]) -> str:
    """A name of several parts, each in backticks."""
    return ".".join(map(quoted, parts))
