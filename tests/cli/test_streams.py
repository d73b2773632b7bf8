"""`deltaflow lag` and `deltaflow restart-plan` on a checkpoint of another implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deltaflow.cli import main
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    written = HandWrittenTable(tmp_path / "table")
    written.commit(0, protocol(), meta_data(), add("a"))
    written.commit(1, add("b"))
    for name in ("a", "b"):
        (tmp_path / "table" / name).touch()
    return written


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """One batch is done, which ends before version 1."""
    directory = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (directory / folder).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"query-1"}')
    offset = DeltaSourceOffset("table-1", 1, -100, False).json()
    (directory / "offsets" / "0").write_text(f"v1\n{{}}\n{offset}")
    (directory / "commits" / "0").write_text("v1\n{}")
    return str(directory)


def run(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result


def test_lag(table: HandWrittenTable, checkpoint: str) -> None:
    found = json.loads(run("lag", checkpoint, "--table", table.path, "--json").stdout)
    [source] = found["sources"]
    assert (source["version"], source["versions"], source["files"]) == (1, 1, 1)
    assert "Stream query-1: batch 0 is done" in run("lag", checkpoint, "--table", table.path).output
    unknown = run("lag", checkpoint, exit_code=3).output
    assert "does not name the table" in unknown
    assert "is not NAME=VALUE" in run("lag", checkpoint, "--option", "x", exit_code=2).output


def test_a_restart_plan(table: HandWrittenTable, checkpoint: str) -> None:
    line = ["restart-plan", checkpoint, "--table", table.path]
    assert "the next start begins batch 1" in run(*line).output
    assert json.loads(run(*line, "--json").stdout)["batch"]["batch_id"] == 1
    table.commit(2, remove("a"))
    stopped = run(*line, exit_code=3).output
    assert "DELTA_SOURCE_IGNORE_DELETE" in stopped
    assert "DELTA_SOURCE_IGNORE" not in run(*line, "--option", "ignoreDeletes=true").output
