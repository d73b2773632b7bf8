"""What holds for every command: JSON anywhere, exit codes, completion, interrupts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deltaflow.cli import main
from deltaflow.cli.root import _COMMANDS
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol


@pytest.fixture
def table(tmp_path: Path) -> str:
    written = HandWrittenTable(tmp_path / "t")
    written.commit(0, protocol(), meta_data(), add("a"))
    return written.path


def run(*arguments: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result


@pytest.mark.parametrize("place", range(4))
def test_json_goes_anywhere(table: str, place: int) -> None:
    line = ["log", table, "history"]
    line.insert(place, "--json")
    [row] = [json.loads(text) for text in run(*line).stdout.splitlines()]
    assert row["version"] == 0


def test_an_error_is_json_too(tmp_path: Path) -> None:
    result = run("log", str(tmp_path), "history", "--json", exit_code=1)
    assert result.stdout == ""
    error = json.loads(result.stderr)
    assert error["error"] == "DELTA_MISSING_DELTA_TABLE"
    assert error["table"] == str(tmp_path)


def test_exit_codes(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("log", table, "history")
    assert run("log", str(tmp_path), "history", exit_code=1).stderr.startswith("Error: [DELTA_MISSING")
    run("log", table, "nothing", exit_code=2)
    run("nothing", exit_code=2)
    run("doctor", table, exit_code=3)

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deltaflow.cli.log.existing_log", interrupted)
    assert run("log", table, "history", exit_code=130).stderr == "Interrupted.\n"


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help(name: str) -> None:
    listed = run("--help").stdout
    assert _COMMANDS[name].short_help in listed
    assert "--json" in run(name, "--help").stdout


def test_the_version() -> None:
    assert run("--version").stdout.startswith("deltaflow, version ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deltaflow ", set(_COMMANDS)),
        ("deltaflow log /t ", {"history", "state", "commit", "files", "size"}),
        ("deltaflow log /t state --", {"--version", "--json", "--help"}),
        ("deltaflow completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_the_shell_completes(line: str, expected: set[str]) -> None:
    words = line.split(" ")
    environment = {
        **os.environ,
        "_DELTAFLOW_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = "from deltaflow.cli import main; main(prog_name='deltaflow')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        check=True,
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert {text.partition(",")[2] for text in done.stdout.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_DELTAFLOW_COMPLETE" in script
    assert json.loads(run("completion", shell, "--json").stdout)["script"] + "\n" == script
