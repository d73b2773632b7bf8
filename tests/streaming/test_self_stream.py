"""A stream that reads the table it writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import every_action, ids, load

pytestmark = pytest.mark.spark


def blind(path: str) -> list[bool]:
    return [info["isBlindAppend"] for info in every_action(path, "commitInfo")]


def test_its_commits_are_not_blind(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 3)
    for _ in range(2):
        # Every run reads what the run before has added.
        streams.copy(streams.read(table).selectExpr("id + 10 AS id"), table, checkpoint)
    assert blind(table) == [True, False, False]
    found = ids(load(streams.spark, table))
    assert found == [0, 1, 2, 10, 11, 12, 20, 21, 22]
