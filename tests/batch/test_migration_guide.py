"""docs/migrating-from-delta-spark.md: every name that people look for, and what is true of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import deltaflow.exceptions
import deltaflow.tables
from tests.batch.test_delta_table import PARAMETERS, public_methods

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/migrating-from-delta-spark.md").read_text()
ROWS = [line for line in GUIDE.splitlines() if line.startswith("|")]


def state_of(name: str) -> str:
    """The second column of the row that has a name in its first one."""
    found = [row.split(" | ") for row in ROWS if f"`{name}`" in row.split(" | ")[0]]
    assert len(found) == 1, name
    return found[0][1]


@pytest.mark.parametrize("method", sorted(PARAMETERS["DeltaTable"]))
def test_methods_are_there_as_the_guide_says(method: str) -> None:
    rows = [row for row in ROWS if re.search(rf"`(DeltaTable\.)?{method}`", row.split(" | ")[0])]
    assert len(rows) == 1
    assert (rows[0].split(" | ")[1] == "not yet") == (method not in public_methods("DeltaTable"))


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_classes_are_there_as_the_guide_says(name: str) -> None:
    if name != "DeltaTable":
        assert (state_of(name) == "not yet") == (name not in deltaflow.tables.__all__)


@pytest.mark.parametrize("name", deltaflow.exceptions.__all__)
def test_exceptions_are_in_it(name: str) -> None:
    assert state_of(name) == "`deltaflow.exceptions`"


def test_settings_that_are_heeded_are_in_it() -> None:
    sources = [
        *(ROOT / "deltaflow").glob("log/*.py"),
        *(ROOT / "batch").glob("*.py"),
        *(ROOT / "streaming").glob("*.py"),
    ]
    heeded = {
        name
        for source in sources
        for name in re.findall(r'"spark\.databricks\.delta\.([\w.]*\w)"', source.read_text())
    }
    assert {name for name in heeded if f"`{name}`" not in GUIDE} == set()
