"""`deltaflow doctor` on a sound and on a broken table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from deltaflow.cli import main


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    for part in ("x", "y"):
        write_deltalake(
            path, pa.table({"id": [1, 2], "part": [part] * 2}), mode="append", partition_by=["part"]
        )
    return path


def test_a_sound_table_of_another_writer(table: str) -> None:
    result = CliRunner().invoke(main, ["doctor", table])
    assert (result.exit_code, result.output) == (0, "Nothing was found.\n")
    assert CliRunner().invoke(main, ["doctor", table, "--json"]).output == ""


def test_a_finding_has_its_repair_and_the_exit_code_3(table: str) -> None:
    [lost] = [uri for uri in DeltaTable(table).file_uris() if "part=x" in uri]
    Path(lost).unlink()
    file = str(Path(lost).relative_to(table))
    result = CliRunner().invoke(main, ["doctor", table])
    assert result.exit_code == 3
    assert "ERROR file-missing: 1 files of version 1" in result.output
    assert file in result.output
    assert "Repair: Restore them" in result.output
    assert result.output.endswith("Found: 1 error.\n")
    asked = CliRunner().invoke(main, ["--json", "doctor", table])
    assert asked.exit_code == 3
    [found] = [json.loads(line) for line in asked.stdout.splitlines()]
    assert (found["check"], found["files"], found["count"]) == ("file-missing", [file], 1)
