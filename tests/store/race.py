"""Processes that commit to one table at once, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltaflow.errors
from deltaflow.log import DeltaLog

WRITERS = ["a", "b", "c"]
COMMITS = 5


def race(program: Path, path: str, storage_options: dict[str, Any]) -> list[tuple[int, str]]:
    """Lets the processes go all at once; returns the versions and files that they say they committed."""
    arguments = {"path": path, "storage_options": storage_options, "commits": COMMITS}
    root = str(Path(deltaflow.errors.__file__).parents[1])
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), json.dumps({**arguments, "writer": writer})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for writer in WRITERS
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(WRITERS)
    return [(int(version), name) for output in outputs for version, name in json.loads(output).items()]


def check_race(log: DeltaLog, told: list[tuple[int, str]]) -> None:
    """Versions without a gap, each of the writer that was told so; one table, made once."""
    commits = list(log.commits(0))
    assert sorted(told) == [(commit.version, commit.adds[0].path) for commit in commits]
    assert [commit.version for commit in commits] == list(range(len(WRITERS) * COMMITS))
    assert [commit.version for commit in commits if commit.metadata] == [0]
    expected = sorted(f"{writer}-{number}.parquet" for writer in WRITERS for number in range(COMMITS))
    assert sorted(log.snapshot().files["path"].to_pylist()) == expected
