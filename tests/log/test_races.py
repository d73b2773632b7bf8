"""Eight processes on one table at once: they all create it, then append to it, and one also overwrites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import deltaflow.errors
from deltaflow.log import DeltaLog

WRITERS = [*(f"writer{number}" for number in range(7)), "overwriter"]
APPENDS = 12


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The table's path, and by writer what it committed (file by version) and which errors it met."""
    path = str(tmp_path_factory.mktemp("race") / "table")
    program = str(Path(__file__).with_name("racing_writer.py"))
    package_root = str(Path(deltaflow.errors.__file__).parents[1])
    processes = [
        subprocess.Popen(
            [sys.executable, program, path, writer, str(APPENDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": package_root},
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
    assert [process.returncode for process in processes] == [0] * len(processes)
    return path, {writer: json.loads(output) for writer, output in zip(WRITERS, outputs, strict=True)}


def test_there_is_one_table_id_and_one_metadata_action(race: tuple[str, dict[str, Any]]) -> None:
    path, results = race
    commits = list(DeltaLog.for_table(path).commits(0))
    with_metadata = [commit.version for commit in commits if commit.metadata or commit.protocol]
    assert with_metadata == [0]
    (creator,) = [writer for writer, result in results.items() if "0" in result["committed"]]
    assert DeltaLog.for_table(path).snapshot().table_id == f"id-{creator}"


def test_versions_are_contiguous_and_each_is_of_the_writer_that_was_told_so(
    race: tuple[str, dict[str, Any]],
) -> None:
    path, results = race
    told = {
        int(version): file for result in results.values() for version, file in result["committed"].items()
    }
    commits = list(DeltaLog.for_table(path).commits(0))
    assert [commit.version for commit in commits] == list(range(len(commits)))
    assert {commit.version: commit.adds[0].path for commit in commits} == told
    assert len({commit.commit_info.txn_id for commit in commits if commit.commit_info}) == len(commits)


def test_appends_never_fail_and_dependent_writes_fail_as_conflicts(race: tuple[str, dict[str, Any]]) -> None:
    _, results = race
    for writer, result in results.items():
        assert len(result["committed"]) + len(result["errors"]) == APPENDS + 1
        assert set(result["errors"]) <= ({"DELTA_CONCURRENT_WRITE"} if writer == "overwriter" else set())


def test_every_appended_file_is_there_once_and_deltalake_reads_the_same_rows(
    race: tuple[str, dict[str, Any]],
) -> None:
    path, results = race
    ours = DeltaLog.for_table(path).snapshot().files["path"].to_pylist()
    assert len(ours) == len(set(ours))
    for writer, result in results.items():
        if writer != "overwriter":
            active = [file for file in ours if file.startswith(f"{writer}-")]
            assert sorted(result["committed"].values()) == sorted(active)
    table = DeltaTable(path)
    assert sorted(table.file_uris()) == sorted(f"{path}/{file}" for file in ours)
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted(f"{row['writer']}-{row['id']}.parquet" for row in rows) == sorted(ours)
