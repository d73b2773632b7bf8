"""What starts the command slowly is not loaded by the commands that must start fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.hand_written import HandWrittenTable, add

PROGRAM = """
import sys
from deltaflow.cli import main
main(sys.argv[1:], prog_name="deltaflow", standalone_mode=False)
print("modules:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    written = HandWrittenTable(tmp_path / "t")
    written.first_commit(add("a"))
    return written.path


def modules(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, timeout=60, stdout=subprocess.PIPE, text=True
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "command", [["--help"], ["log", "x", "--help"], ["log", "x", "history", "--help"], ["completion", "bash"]]
)
def test_help_loads_no_library_of_data(command: list[str]) -> None:
    assert not modules(*command) & {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "rich"}


@pytest.mark.parametrize("command", ["history", "commit"])
def test_commits_are_shown_without_pyarrow_and_pyspark(table: str, command: str) -> None:
    version = ["0"] if command == "commit" else []
    loaded = modules("log", table, command, *version)
    assert {"msgspec", "fsspec"} <= loaded
    assert not loaded & {"pyspark", "py4j", "pandas", "pyarrow", "numpy"}
