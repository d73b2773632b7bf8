"""The rules by which all tests check what deltaflow has written (tests/protocol_rules.py) can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from tests.log.hand_written import append, create
from tests.protocol_rules import broken_rules
from tests.tables import edit_commit

pytestmark = pytest.mark.breaks_protocol

VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 1, "cardinality": 1}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Two commits and a checkpoint."""
    log = DeltaLog(LocalLogStore(), str(tmp_path))
    create(log, "a")
    append(log, "b")
    log.checkpoint()
    assert broken(log) == []
    return log


def broken(log: DeltaLog) -> list[str]:
    return list(broken_rules(Path(log.path, "_delta_log")))


def edit(name: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda action: action.get(name, {}).update(fields)


def with_column_metadata(action: dict[str, Any]) -> None:
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        schema["fields"][0]["metadata"] = {"delta.generationExpression": "1"}
        action["metaData"]["schemaString"] = json.dumps(schema)


def without_size(action: dict[str, Any]) -> None:
    action.get("add", {}).pop("size", None)


MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "0"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (edit("protocol", minReaderVersion=3), "do not go with the lists"),
        (edit("protocol", minWriterVersion=7, writerFeatures=["deletionVectors"]), "with reader version 1"),
        (
            edit("metaData", configuration={"delta.enableDeletionVectors": "true"}),
            "needs ['deletionVectors']",
        ),
        (edit("metaData", configuration=MAPPED), "no id or no physical name"),
        (with_column_metadata, "needs ['generatedColumns']"),
        (edit("add", partitionValues={"x": "1"}), "add has values of ['x']"),
        (edit("add", deletionVector=VECTOR), "a deletion vector without the feature"),
        (edit("add", path="c"), "its files are not those of the commits"),
        (without_size, "add lacks ['size']"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_log_is_found(log: DeltaLog, change: Callable[[dict[str, Any]], None], said: str) -> None:
    edit_commit(log.path, change)
    assert any(said in problem for problem in broken(log)), broken(log)


def test_a_commit_that_says_something_twice(log: DeltaLog) -> None:
    file = Path(log.path, "_delta_log", f"{1:020}.json")
    file.write_text(file.read_text() + file.read_text().splitlines()[-1] + "\n")
    assert any("names one file twice" in problem for problem in broken(log))
