"""A stream that reads the table it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def blind(path: str) -> list[bool]:
    commits = sorted((Path(path) / "_delta_log").glob("*.json"))
    return [
        json.loads(commit.read_text().splitlines()[0])["commitInfo"]["isBlindAppend"] for commit in commits
    ]


def test_its_commits_are_not_blind(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 3)
    for _ in range(2):
        # Every run reads what the run before has added.
        streams.copy(streams.read(table).selectExpr("id + 10 AS id"), table, checkpoint)
    assert blind(table) == [True, False, False]
    found = sorted(row.id for row in streams.spark.read.format("delta").load(table).collect())
    assert found == [0, 1, 2, 10, 11, 12, 20, 21, 22]
