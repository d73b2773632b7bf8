"""Processes that commit to one table at once, and what must hold afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltaflow.log import DeltaLog
from tests.processes import run_at_once

WRITERS = ["a", "b", "c"]
COMMITS = 5


def race(program: Path, path: str, storage_options: dict[str, Any]) -> list[tuple[int, str]]:
    """Lets the processes go all at once; returns the versions and files that they say they committed."""
    arguments = {"path": path, "storage_options": storage_options, "commits": COMMITS}
    told = run_at_once(
        program, [[json.dumps({**arguments, "writer": writer})] for writer in WRITERS], timeout_s=120
    )
    return [(int(version), name) for commits in told for version, name in commits.items()]


def check_race(log: DeltaLog, told: list[tuple[int, str]]) -> None:
    """Versions without a gap, each of the writer that was told so; one table, made once."""
    commits = list(log.commits(0))
    assert sorted(told) == [(commit.version, commit.adds[0].path) for commit in commits]
    assert [commit.version for commit in commits] == list(range(len(WRITERS) * COMMITS))
    assert [commit.version for commit in commits if commit.metadata] == [0]
    expected = sorted(f"{writer}-{number}.parquet" for writer in WRITERS for number in range(COMMITS))
    assert sorted(log.snapshot().files["path"].to_pylist()) == expected
