"""Rivals of `apply_changes`, at a moment of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltaflow.streaming.cdc.current_rows import CurrentRows
from deltaflow.streaming.cdc.history_rows import HistoryRows


def before_the_merge(
    monkeypatch: pytest.MonkeyPatch, rows: type[CurrentRows] | type[HistoryRows], rival: Callable[[], Any]
) -> None:
    """From now on the rival acts when a batch has been prepared, and before its MERGE."""
    merge = rows.merge

    def merge_after_the_rival(*arguments: Any) -> None:
        rival()
        merge(*arguments)

    monkeypatch.setattr(rows, "merge", merge_after_the_rival)
