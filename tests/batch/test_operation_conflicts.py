"""Which operations exclude each other: one process is held before its commit while another one commits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltaflow
from tests.batch import held_operation
from tests.batch.held_operation import OPERATIONS, create
from tests.tables import actions, load, tuples, versions

pytestmark = pytest.mark.spark

COMMITTED = "committed"
APPENDED = "ConcurrentAppendException"
REMOVED = "ConcurrentDeleteReadException"
WRITE_SERIALIZABLE = [
    # held, rival, outcome of the held one
    ("append_1", "overwrite", COMMITTED),
    ("append_1", "delete_partition_1", COMMITTED),
    ("append_1", "merge_1", COMMITTED),
    ("append_1", "optimize_1", COMMITTED),
    ("update_1", "append_1", COMMITTED),
    ("update_1", "update_1", APPENDED),
    ("update_1", "update_2", COMMITTED),
    ("update_1", "delete_partition_1", REMOVED),
    ("update_1", "delete_partition_2", COMMITTED),
    ("update_1", "merge_1", APPENDED),
    ("update_1", "merge_2", COMMITTED),
    ("update_1", "insert_by_merge_1", APPENDED),
    ("update_1", "insert_by_merge_2", COMMITTED),
    ("update_1", "optimize_1", APPENDED),
    ("update_1", "optimize_2", COMMITTED),
    ("update_1", "overwrite", APPENDED),
    ("delete_partition_1", "append_1", COMMITTED),
    ("delete_partition_1", "update_1", APPENDED),
    ("delete_partition_1", "update_2", COMMITTED),
    ("delete_partition_1", "delete_partition_1", REMOVED),
    ("delete_partition_1", "optimize_1", APPENDED),
    ("delete_rows_1", "delete_rows_1", APPENDED),
    ("delete_rows_1", "delete_rows_2", COMMITTED),
    ("delete_rows_1", "optimize_2", COMMITTED),
    ("delete_rows_anywhere", "update_2", APPENDED),
    ("delete_rows_anywhere", "append_1", COMMITTED),
    ("merge_1", "append_1", COMMITTED),
    ("merge_1", "update_1", APPENDED),
    ("merge_1", "update_2", COMMITTED),
    ("merge_1", "merge_1", APPENDED),
    ("merge_1", "merge_2", COMMITTED),
    ("merge_1", "delete_partition_1", REMOVED),
    ("merge_1", "delete_partition_2", COMMITTED),
    ("merge_1", "optimize_1", APPENDED),
    ("merge_1", "optimize_2", COMMITTED),
    ("insert_by_merge_1", "append_1", COMMITTED),
    ("insert_by_merge_1", "insert_by_merge_1", APPENDED),
    ("insert_by_merge_1", "insert_by_merge_2", COMMITTED),
    ("insert_by_merge_1", "update_2", COMMITTED),
    ("optimize_1", "append_1", COMMITTED),
    ("optimize_1", "update_1", REMOVED),
    ("optimize_1", "update_2", COMMITTED),
    ("optimize_1", "delete_partition_1", REMOVED),
    ("optimize_1", "merge_2", COMMITTED),
    ("optimize_1", "optimize_1", REMOVED),
    ("optimize_1", "optimize_2", COMMITTED),
    ("optimize_1", "overwrite", REMOVED),
    ("overwrite", "append_1", COMMITTED),
    ("overwrite", "update_1", APPENDED),
    ("overwrite", "delete_partition_1", REMOVED),
    ("overwrite", "optimize_1", APPENDED),
]
SERIALIZABLE = [
    ("append_1", "update_1", COMMITTED),
    ("update_1", "append_1", APPENDED),
    ("update_2", "append_1", COMMITTED),
    ("delete_partition_1", "append_1", APPENDED),
    ("delete_rows_anywhere", "append_1", APPENDED),
    ("merge_1", "append_1", APPENDED),
    ("merge_2", "append_1", COMMITTED),
    ("insert_by_merge_1", "append_1", APPENDED),
    ("insert_by_merge_2", "append_1", COMMITTED),
    ("optimize_1", "append_1", COMMITTED),
    ("overwrite", "append_1", APPENDED),
]
WITH_VECTORS = [
    # Whoever marks rows of a file removes the file, and adds it with its vector.
    ("delete_rows_1", "append_1", COMMITTED),
    ("delete_rows_1", "delete_rows_1", APPENDED),
    ("delete_rows_1", "optimize_1", APPENDED),
    ("update_1", "merge_1", APPENDED),
    ("merge_1", "delete_rows_1", APPENDED),
    ("optimize_1", "delete_rows_1", REMOVED),
]
EFFECTS = {
    "append_1": lambda rows: {*rows, (100, 1, 1)},
    "overwrite": lambda rows: {(200, 1, 2), (201, 2, 2)},
    "delete_partition_1": lambda rows: {row for row in rows if row[1] != 1},
    "delete_partition_2": lambda rows: {row for row in rows if row[1] != 2},
    "delete_rows_1": lambda rows: {row for row in rows if row[0] != 3},
    "delete_rows_2": lambda rows: {row for row in rows if row[0] != 13},
    "delete_rows_anywhere": lambda rows: {row for row in rows if row[0] != 3},
    "update_1": lambda rows: {(i, p, v + 1) if p == 1 and i < 8 else (i, p, v) for i, p, v in rows},
    "update_2": lambda rows: {(i, p, v + 1) if p == 2 and i < 18 else (i, p, v) for i, p, v in rows},
    "merge_1": lambda rows: {*(row for row in rows if row[0] != 2), (2, 1, 5), (301, 1, 5)},
    "merge_2": lambda rows: {*(row for row in rows if row[0] != 12), (12, 2, 5), (302, 2, 5)},
    "insert_by_merge_1": lambda rows: {
        *rows,
        (301, 1, 5),
        *([] if any(r[0] == 2 for r in rows) else [(2, 1, 5)]),
    },
    "insert_by_merge_2": lambda rows: {*rows, (302, 2, 5)},
    "optimize_1": lambda rows: rows,
    "optimize_2": lambda rows: rows,
}


class Held:
    """The other process."""

    def __init__(self) -> None:
        root = str(Path(deltaflow.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, held_operation.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        assert self.answer() == "ready"

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def held() -> Iterator[Held]:
    other = Held()
    yield other
    assert other.process.stdin is not None
    other.process.stdin.close()
    assert other.process.wait(60) == 0
    assert other.process.stdout is not None
    other.process.stdout.close()


def row_set(spark, path):
    return set(tuples(load(spark, path).select("id", "p", "v")))


def run(spark, held, path, operation, rival, outcome):
    before = row_set(spark, path)
    held.say(f"{operation} {path}")
    assert held.answer() == "prepared"
    OPERATIONS[rival](spark, path)
    held.say("go on")
    assert held.answer() == outcome
    after_rival = EFFECTS[rival](before)
    if outcome != COMMITTED:
        assert row_set(spark, path) == after_rival
    elif operation == "append_1":
        assert row_set(spark, path) == EFFECTS[operation](after_rival)
    else:  # as if the rival had come afterwards
        assert row_set(spark, path) == EFFECTS[rival](EFFECTS[operation](before))
    committed = len(versions(path))
    assert committed == (3 if outcome == COMMITTED else 2)


@pytest.mark.parametrize(("operation", "rival", "outcome"), WRITE_SERIALIZABLE)
@pytest.mark.sampled(60)
def test_write_serializable(spark, held, tmp_path, operation, rival, outcome):
    path = str(tmp_path / "table")
    create(spark, path, "WriteSerializable")
    run(spark, held, path, operation, rival, outcome)


@pytest.mark.parametrize(("operation", "rival", "outcome"), WITH_VECTORS)
@pytest.mark.sampled(12)
def test_rows_are_marked(spark, held, tmp_path, operation, rival, outcome):
    path = str(tmp_path / "table")
    create(spark, path, "WriteSerializable", **{"delta.enableDeletionVectors": "true"})
    run(spark, held, path, operation, rival, outcome)
    if operation == "delete_rows_1" and outcome == COMMITTED:
        assert any("deletionVector" in add for add in actions(path, "add"))


@pytest.mark.parametrize(("operation", "rival", "outcome"), SERIALIZABLE)
@pytest.mark.sampled(12)
def test_serializable(spark, held, tmp_path, operation, rival, outcome):
    path = str(tmp_path / "table")
    create(spark, path, "Serializable")
    run(spark, held, path, operation, rival, outcome)


@pytest.mark.parametrize("rival", ["append_1", "update_2", "optimize_2", "delete_partition_2"])
@pytest.mark.sampled(3)
def test_a_restore_depends_on_all(spark, held, tmp_path, rival):
    path = str(tmp_path / "table")
    create(spark, path, "WriteSerializable")
    OPERATIONS["delete_rows_1"](spark, path)
    held.say(f"restore {path}")
    assert held.answer() == "prepared"
    OPERATIONS[rival](spark, path)
    held.say("go on")
    assert held.answer().startswith("Concurrent")
