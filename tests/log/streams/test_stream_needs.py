"""Which files a vacuum leaves to streams, by their checkpoints, without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deltaflow.errors import DeltaUnsupportedOperationException
from tests.log.hand_written import HandWrittenTable, add, remove
from tests.log.streams.test_checkpoint import checkpoint
from tests.tables import set_time


def offset(table_id: str, version: int, index: int, *, is_initial: bool) -> str:
    fields = {"sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": version}
    return json.dumps({**fields, "index": index, "isStartingVersion": is_initial})


NONE = "-"
OTHER = offset("another", 5, -1, is_initial=False)
IN_SNAPSHOT, DONE = offset("table-1", 0, 0, is_initial=True), offset("table-1", 2, -1, is_initial=False)


@pytest.mark.parametrize(
    ("batches", "done", "is_needed"),
    [
        ([[IN_SNAPSHOT]], 0, True),
        ([[IN_SNAPSHOT]], 1, False),
        ([[DONE]], 1, False),
        # The second source had nothing to read, or was not there, when the batch before was done.
        ([[OTHER, NONE], [OTHER, IN_SNAPSHOT]], 1, True),
        ([[OTHER], [OTHER, IN_SNAPSHOT]], 1, True),
        ([[OTHER, NONE], [OTHER, NONE]], 1, False),
        ([[OTHER, DONE], [OTHER, DONE]], 1, False),
    ],
)
def test_files_of_a_batch_that_is_not_done(
    table: HandWrittenTable, tmp_path: Path, batches: list[list[str]], done: int, is_needed: bool
) -> None:
    removed = Path(table.path, "a")
    removed.write_bytes(b"rows")
    os.utime(removed, (1, 1))
    set_time(table.first_commit(add("a")), 1_000)
    set_time(table.commit(1, remove("a"), add("b")), 2_000)
    entries = {number: "\n".join(["v1", "{}", *offsets]) for number, offsets in enumerate(batches)}
    path = checkpoint(tmp_path / "checkpoint", entries, tuple(range(done)))
    log = table.log()
    plan = log.plan_vacuum(0)
    assert plan.files["path"].to_pylist() == ["a"]
    if not is_needed:
        log.check_streams(plan, [path])
        return
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_VACUUM_BREAKS_STREAM"):
        log.check_streams(plan, [path])
