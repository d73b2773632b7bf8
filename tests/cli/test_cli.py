"""The command line, on tables of another writer and on hand-written ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import deltaflow.errors
from deltaflow.cli import main
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol
from tests.mapped_tables import MappedTable
from tests.webhdfs import WebHdfsServer


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("cli") / "a table")
    for part in ("x", "y", None):
        rows = pa.table({"id": pa.array([1, 2, None], pa.int64()), "part": pa.array([part] * 3, pa.string())})
        write_deltalake(path, rows, mode="append", partition_by=["part"], name="events")
    DeltaTable(path).delete("part = 'y'")
    return path


def run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["log", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, result.output
    return result.output


def run_json(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def test_history_tells_the_commits_newest_first(table: str) -> None:
    rows = run_json(table, "history")
    assert [row["version"] for row in rows] == [3, 2, 1, 0]
    assert rows[0]["operation"] == "DELETE"
    assert (rows[0]["added"], rows[0]["removed"]) == (0, 1)
    assert rows[3]["parameters"]["mode"] == "Append"
    assert "DELETE" in run(table, "history")


def test_history_of_a_log_whose_first_commits_were_cleaned_up(table: str, tmp_path: Path) -> None:
    DeltaTable(table).create_checkpoint()
    copy = tmp_path / "t" / "_delta_log"
    copy.mkdir(parents=True)
    for file in (Path(table) / "_delta_log").iterdir():
        if file.name not in ("00000000000000000000.json", "00000000000000000001.json"):
            (copy / file.name).write_bytes(file.read_bytes())
    assert [row["version"] for row in run_json(str(tmp_path / "t"), "history")] == [3, 2]
    message = run(str(tmp_path / "t"), "commit", "0", exit_code=1)
    assert "Available commits: [2, 3]" in message


def test_state_of_the_newest_and_of_an_older_version(table: str) -> None:
    (newest,) = run_json(table, "state")
    assert (newest["version"], newest["files"], newest["name"]) == (3, 2, "events")
    assert newest["partition_columns"] == ["part"]
    assert [field["name"] for field in newest["schema"]["fields"]] == ["id", "part"]
    (older,) = run_json(table, "state", "--version", "1")
    assert (older["version"], older["files"]) == (1, 2)
    text = run(table, "state")
    assert "|-- id: long (nullable = true)" in text
    assert newest["id"] in text


def test_a_table_whose_first_commit_has_no_schema(tmp_path: Path) -> None:
    table = HandWrittenTable(tmp_path / "table")
    first = meta_data()
    del first["metaData"]["schemaString"]
    table.commit(0, protocol(), first)
    table.commit(1, meta_data(), add("a"))
    (state,) = run_json(table.path, "state", "--version", "0")
    assert state["schema"] == {"type": "struct", "fields": []}
    (newest,) = run_json(table.path, "state")
    assert [field["name"] for field in newest["schema"]["fields"]] == ["id", "part"]
    assert [row["version"] for row in run_json(table.path, "history")] == [1, 0]
    assert run_json(table.path, "commit", "0")[1] == first
    assert [row["path"] for row in run_json(table.path, "files")] == ["a"]
    assert "data files" in run(table.path, "size")


def test_state_tells_what_the_checksum_of_the_version_is_worth(table: str, tmp_path: Path) -> None:
    assert run_json(table, "state")[0]["checksum"] is None
    log = tmp_path / "t" / "_delta_log"
    shutil.copytree(Path(table) / "_delta_log", log)
    (state,) = run_json(str(log.parent), "state")
    checksum = log / "00000000000000000003.crc"
    checksum.write_text(json.dumps({"numFiles": state["files"], "tableSizeBytes": state["size_bytes"]}))
    assert run_json(str(log.parent), "state") == [state | {"checksum": "agrees with the log"}]
    checksum.write_text(json.dumps({"numFiles": 7, "metadata": {"id": "other"}}))
    differences = {
        "numFiles": {"log": 2, "checksum": 7},
        "metadata.id": {"log": state["id"], "checksum": "other"},
    }
    assert run_json(str(log.parent), "state") == [state | {"checksum": differences}]
    assert "numFiles.checksum: 7" in run(str(log.parent), "state")


def test_commit_gives_the_actions_as_the_log_has_them(table: str) -> None:
    file = Path(table) / "_delta_log" / "00000000000000000003.json"
    expected = [json.loads(line) for line in file.read_text().splitlines()]
    assert run_json(table, "commit", "3") == expected
    text = run(table, "commit", "3")
    assert "remove" in text
    assert "partitionValues.part: y" in text


def test_files_have_their_statistics(table: str) -> None:
    rows = run_json(table, "files")
    assert len(rows) == 2
    assert all(row["stats"]["numRecords"] == 3 for row in rows)
    assert all(row["stats"]["maxValues"] == {"id": 2} for row in rows)
    sizes = {row["path"]: row["size_bytes"] for row in rows}
    assert sizes == {path: (Path(table) / path).stat().st_size for path in sizes}
    assert "id: 1 … 2 (1 null)" in run(table, "files")


@pytest.mark.parametrize(("partition", "values"), [("part=x", ["x"]), ("PART=", [None]), ("part=y", [])])
def test_files_of_a_partition(table: str, partition: str, values: list[str | None]) -> None:
    rows = run_json(table, "files", "--partition", partition)
    assert [row["partition_values"]["part"] for row in rows] == values


@pytest.mark.parametrize("partition", ["id=1", "part", "=x"])
def test_what_is_no_partition(table: str, partition: str) -> None:
    message = run(table, "files", "--partition", partition, exit_code=1)
    assert "[DELTA_ILLEGAL_OPTION]" in message
    assert "Partition columns: part." in message


def test_size_of_everything(table: str) -> None:
    rows = {row["what"]: (row["files"], row["size_bytes"]) for row in run_json(table, "size")}
    assert rows["data files"] == (2, sum(row["size_bytes"] for row in run_json(table, "files")))
    log = list((Path(table) / "_delta_log").glob("*[0-9].json"))
    assert rows["log: commits"] == (4, sum(file.stat().st_size for file in log))
    assert rows["removed files that the log knows"][0] == 1
    assert "data files" in run(table, "size")


@pytest.mark.parametrize("command", [["history"], ["state"], ["files"], ["size"], ["commit", "0"]])
def test_a_path_without_a_table(tmp_path: Path, command: list[str]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        message = run(str(path), *command, exit_code=1)
        assert message.startswith("Error: [DELTA_MISSING_DELTA_TABLE]")
        assert "Traceback" not in message


def test_versions_that_are_not_there(table: str) -> None:
    assert "Available versions" in run(table, "state", "--version", "9", exit_code=1)
    assert "Available commits: [0, 3]" in run(table, "commit", "9", exit_code=1)


def test_an_action_with_a_number_of_which_nobody_makes_one_is_shown_as_text(tmp_path: Path) -> None:
    table = HandWrittenTable(tmp_path / "t")
    table.first_commit(add("a"))
    table.write(
        1, b'{"commitInfo":{"operation":"W","cost":1e999}}\n{"remove":{"path":"a","dataChange":true}}\n'
    )
    info, remove = run_json(table.path, "commit", "1")
    assert json.loads(info["commitInfo"])["operation"] == "W"
    assert remove == {"remove": {"path": "a", "dataChange": True}}
    assert "1e999" in run(table.path, "commit", "1")


def test_a_broken_commit_is_named(table: str, tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{broken")
    for command in (["history"], ["state"], ["commit", "0"]):
        assert "00000000000000000000.json" in run(str(tmp_path / "t"), *command, exit_code=1)


def test_a_schema_that_cannot_be_read(tmp_path: Path) -> None:
    written = HandWrittenTable(tmp_path / "t")
    written.commit(0, protocol(), {"metaData": {**meta_data()["metaData"], "schemaString": '{"type":'}})
    for command in ("state", "files"):
        assert "metaData is not JSON" in run(written.path, command, exit_code=1)


def test_text_of_the_log_moves_no_cursor(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1]}), name="\x1b[2J\x07oops [bold]x[/bold]")
    text = run(path, "state")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[2J" in text
    assert "[bold]x[/bold]" in text


def test_a_table_in_memory() -> None:
    assert "DELTA_MISSING_DELTA_TABLE" in run("memory://nothing/t", "state", exit_code=1)


@pytest.mark.parametrize("command", ["history", "state", "files", "size"])
def test_a_table_on_webhdfs_is_as_on_the_disk(table: str, command: str) -> None:
    pytest.importorskip("requests", reason="fsspec's client of WebHDFS needs it")
    with WebHdfsServer(Path(table).parent) as server:
        found = run_json(f"{server.url}/{Path(table).name}", command)
    assert found == run_json(table, command)


def test_it_changes_nothing_and_needs_no_java(table: str) -> None:
    before = {file: file.stat().st_mtime_ns for file in Path(table).rglob("*")}
    root = str(Path(deltaflow.errors.__file__).parents[1])
    program = [sys.executable, "-m", "deltaflow.cli", "log", table, "state", "--json"]
    done = subprocess.run(
        program, env={"PATH": "", "PYTHONPATH": root}, check=True, timeout=60, stdout=subprocess.PIPE
    )
    assert json.loads(done.stdout)["files"] == 2
    assert {file: file.stat().st_mtime_ns for file in Path(table).rglob("*")} == before


@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_of_a_mapped_table_are_shown_by_the_names_of_its_columns(tmp_path: Path, mode: str) -> None:
    table = MappedTable(tmp_path / "t", mode).path
    rows = run_json(table, "files")
    assert [row["partition_values"] for row in rows] == [
        {"größe.`1`": "u"},
        {"größe.`1`": None},
        {"größe.`1`": "u"},
    ]
    assert rows[0]["stats"]["maxValues"] == {"id": 4, "a,b": 104, "s p": {"x.y": 40, "z": "z4"}}
    assert "c-1" not in run(table, "files")
    [row] = run_json(table, "files", "--partition", "größe.`1`=")
    assert row["path"] == "part-5.parquet"
