"""`deltaflow offsets …`: what it prints, what it asks, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deltaflow.cli import main
from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol


def written_table(path: Path, table_id: str) -> str:
    written = HandWrittenTable(path)
    written.commit(0, protocol(), meta_data(table_id=table_id), add("a"))
    written.commit(1, add("b"))
    return written.path


@pytest.fixture
def table(tmp_path: Path) -> str:
    return written_table(tmp_path / "table", "table-1")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    directory = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (directory / folder).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"query-1"}')
    for batch in range(2):
        offset = DeltaSourceOffset("table-1", batch + 1, -100, False).json()
        (directory / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{offset}\n{{"topic":{{"0":{batch}}}}}')
        (directory / "commits" / str(batch)).write_text("v1\n{}")
    return str(directory)


def run(*arguments: str, exit_code: int = 0, answer: str | None = None) -> Any:
    result = CliRunner().invoke(main, ["offsets", *arguments], input=answer, env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, result.output
    return result


def test_show(checkpoint: str) -> None:
    rows = [json.loads(line) for line in run("show", checkpoint, "--json").stdout.splitlines()]
    assert [(row["batch"], row["source"], row["done"]) for row in rows] == [
        (1, "0", True),
        (1, "1", True),
        (0, "0", True),
        (0, "1", True),
    ]
    assert (rows[0]["version"], rows[0]["table_id"], rows[0]["index"]) == (2, "table-1", -1)
    assert rows[1]["offset"] == '{"topic":{"0":1}}'
    assert "Query query-1" in run("show", checkpoint).output
    assert "NOT_A_STREAM_CHECKPOINT" in run("show", f"{checkpoint}/none", exit_code=1).output


def test_a_change_says_what_it_does_and_asks(checkpoint: str, table: str) -> None:
    line = ["rewind", checkpoint, "--table", table, "--version", "1"]
    said = run(*line, answer="n\n", exit_code=1).output
    assert "reads" in said
    assert "again from the commit of version 1 on" in said
    assert StreamCheckpoint(checkpoint).planned == [0, 1]
    done = run(*line, answer="y\n").output
    assert "The checkpoint as it was is in" in done
    assert StreamCheckpoint(checkpoint).planned == [0, 1, 2, 3]
    # The other source stays where it is.
    assert StreamCheckpoint(checkpoint).offsets(3).offsets["1"] == '{"topic":{"0":1}}'


def test_a_change_as_json(checkpoint: str, table: str) -> None:
    line = ["rewind", checkpoint, "--table", table, "--version", "0", "--json"]
    asked = run(*line, answer="n\n", exit_code=1)
    assert "again from the commit of version 0 on" in asked.stderr
    # Older releases of click repeat the answer there.
    assert asked.stdout.strip() in ("", "n")
    result = run("rewind", checkpoint, "--table", table, "--version", "0", "--yes", "--json")
    done = json.loads(result.stdout)
    assert done["checkpoint"] == checkpoint
    assert StreamCheckpoint(done["backup"]).planned == [0, 1]
    # In the order in which they are written: Spark does not start between the first one and the last one.
    assert done["files"] == ["edits/3", "offsets/3", "commits/2", "commits/3", "offsets/2"]


def test_what_is_wrong_on_the_line(checkpoint: str, table: str) -> None:
    rewind = ["rewind", checkpoint, "--table", table]
    assert "either --version or --timestamp" in run(*rewind, exit_code=2).output
    assert "does not name the table" in run("rewind", checkpoint, "--version", "1", exit_code=2).output
    assert "is no time" in run(*rewind, "--timestamp", "soon", exit_code=2).output
    assert "cannot skip" in run(*rewind, "--timestamp", "2100-01-01T00:00:00Z", exit_code=1).output.replace(
        "\n", " "
    )


def test_fork_adopt_and_rebuild(checkpoint: str, table: str, tmp_path: Path) -> None:
    fork = str(tmp_path / "fork")
    run("fork", checkpoint, fork, "--yes")
    assert StreamCheckpoint(fork).query_id != "query-1"
    anew = written_table(tmp_path / "anew", "table-2")
    assert "table-2" in run("adopt", checkpoint, "--table", anew, "--yes").output
    position = StreamCheckpoint(checkpoint).offsets(3).delta_offset("0")
    assert position is not None
    assert (position.reservoir_id, position.is_starting_version) == ("table-2", True)
    message = run("rebuild", str(tmp_path / "lost"), "--sink", table, "--yes", exit_code=1).output
    assert "no commit of a query" in message
