"""`deltaflow vacuum` lists and deletes what no version needs, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import deltaflow.errors
from deltaflow.cli import main
from deltaflow.log.maintenance.vacuum_candidates import INVENTORY_SCHEMA
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

OLD_S = 1_700_000_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    written = HandWrittenTable(tmp_path / "t")
    written.commit(0, protocol(), meta_data(), add("needed.parquet"))
    for name in ("needed.parquet", "orphan.parquet"):
        file = tmp_path / "t" / name
        file.write_bytes(b"x" * 10)
        os.utime(file, (OLD_S, OLD_S))
    return tmp_path / "t"


def run(*arguments: str, exit_code: int = 0, answer: str | None = None) -> Any:
    result = CliRunner().invoke(main, ["vacuum", *arguments], input=answer)
    assert result.exit_code == exit_code, result.output
    return result


def names(table: Path) -> list[str]:
    return sorted(file.name for file in table.glob("*.parquet"))


def test_a_dry_run_needs_no_java_and_deletes_nothing(table: Path) -> None:
    root = str(Path(deltaflow.errors.__file__).parents[1])
    program = [sys.executable, "-m", "deltaflow.cli", "vacuum", str(table), "--dry-run", "--json"]
    done = subprocess.run(
        program, env={"PATH": "", "PYTHONPATH": root}, check=True, timeout=60, stdout=subprocess.PIPE
    )
    [row] = [json.loads(line) for line in done.stdout.splitlines()]
    assert row == {"path": f"file:{table}/orphan.parquet", "size_bytes": 10}
    assert names(table) == ["needed.parquet", "orphan.parquet"]
    text = run(str(table), "--dry-run").output
    assert text.splitlines() == [
        f"file:{table}/orphan.parquet",
        "A vacuum would delete 1 files and empty directories, 10 B.",
    ]


def test_it_asks_before_it_deletes(table: Path) -> None:
    assert "Aborted" in run(str(table), answer="n\n", exit_code=1).output
    assert names(table) == ["needed.parquet", "orphan.parquet"]
    assert "Deleted 1 files" in run(str(table), answer="y\n").output
    assert names(table) == ["needed.parquet"]
    operations = [
        json.loads(line)["commitInfo"]["operation"]
        for version in (1, 2)
        for line in (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        if "commitInfo" in line
    ]
    assert operations == ["VACUUM START", "VACUUM END"]


def test_without_a_question(table: Path) -> None:
    assert json.loads(run(str(table), "--yes", "--json").stdout) == {"deleted": 1, "size_bytes": 10}
    assert names(table) == ["needed.parquet"]


def test_a_retention_below_the_tables_is_refused(table: Path) -> None:
    assert "RETENTION_PERIOD_TOO_SHORT" in run(str(table), "--retain", "1", "--dry-run", exit_code=1).output
    run(str(table), "--retain", "-1", exit_code=2)
    run(str(table), "--retain", "nan", exit_code=2)


@pytest.mark.parametrize("hours", ["inf", "1e300"])
def test_a_retention_without_end(table: Path, hours: str) -> None:
    run(str(table), "--retain", hours, "--yes")
    assert names(table) == ["needed.parquet", "orphan.parquet"]


def test_a_stream_that_needs_files_is_asked_for(table: Path, tmp_path: Path) -> None:
    result = run(str(table), "--dry-run", "--checkpoint", str(tmp_path / "none"), exit_code=1)
    assert "DELTA_NOT_A_STREAM_CHECKPOINT" in result.output


def test_by_the_log_alone_or_by_an_inventory(table: Path, tmp_path: Path) -> None:
    for name in ("removed.parquet", "other.parquet"):
        (table / name).write_bytes(b"x" * 10)
        os.utime(table / name, (OLD_S, OLD_S))
    written = table / "_delta_log" / f"{1:020}.json"
    written.write_text(json.dumps(remove("removed.parquet", size=10)) + "\n")
    for version in range(2):
        os.utime(table / "_delta_log" / f"{version:020}.json", (OLD_S + version, OLD_S + version))
    inventory = tmp_path / "inventory.parquet"
    names_of_files = [f"file:{table}/{name}" for name in ("orphan.parquet", "needed.parquet")]
    columns = [names_of_files, [10, 10], [False, False], [OLD_S * 1_000] * 2]
    pq.write_table(pa.table(columns, schema=INVENTORY_SCHEMA), inventory)
    found = run(str(table), "--dry-run", "--inventory", str(inventory)).output
    assert found.splitlines()[:-1] == [f"file:{table}/orphan.parquet"]
    assert "removed.parquet" in run(str(table), "--dry-run", "--lite").output
    assert json.loads(run(str(table), "--yes", "--json", "--lite").stdout) == {"deleted": 1, "size_bytes": 10}
    assert names(table) == ["needed.parquet", "orphan.parquet", "other.parquet"]
    run(str(table), "--lite", "--inventory", str(inventory), exit_code=2)
    run(str(table), "--inventory", str(written), exit_code=2)
    pq.write_table(pa.table({"path": ["a"]}), inventory)
    assert (
        "cannot be read as an inventory" in run(str(table), "--inventory", str(inventory), exit_code=2).output
    )
