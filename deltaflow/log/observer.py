"""Named points of an operation at which a test can hold, kill or fail the process; silent in production."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Observer = Callable[[str, dict[str, Any]], None]


def _silent(point: str, facts: dict[str, Any]) -> None:
    return None


_observer: Observer = _silent


def observe(point: str, **facts: Any) -> None:
    """Tell the observer that the calling thread is at `point` ("commit put", say); it may block or raise."""
    _observer(point, facts)


def set_observer(observer: Observer | None) -> None:
    """Replace the observer of this process; None makes it silent again."""
    global _observer
    _observer = _silent if observer is None else observer
