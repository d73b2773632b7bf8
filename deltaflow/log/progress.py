"""How long work tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of the step, how much is done, and how much there is (None: not known)."""


def no_progress(step: str, done: int, total: int | None) -> None:
    """For callers who do not want to know."""
