"""Which files a vacuum leaves to streams, by their checkpoints, without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deltaflow.errors import DeltaUnsupportedOperationException
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove
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


def test_a_folder_of_another_source_does_not_say_what_is_read(
    table: HandWrittenTable, tmp_path: Path
) -> None:
    """Of a query that reads a source twice, Spark numbers the source by its last place, and its folder by
    the first one."""
    removed = Path(table.path, "a")
    removed.write_bytes(b"rows")
    os.utime(removed, (1, 1))
    feed = meta_data(configuration={"delta.enableChangeDataFeed": "true"})
    set_time(table.commit(0, protocol(1, 4), feed, add("a")), 1_000)
    removal = remove("a", size=4, partitionValues={})
    set_time(table.commit(1, removal, add("b")), 2_000)
    lines = [f"1:{offset('table-1', 1, -1, is_initial=False)}", f"2:{OTHER}"]
    path = checkpoint(tmp_path / "checkpoint", {0: "\n".join(["v2", "{}", *lines])}, (0,))
    for folder, (table_id, is_feed) in enumerate((("table-1", True), ("another", False))):
        record = {"path": "p", "tableId": table_id, "options": {"read_change_feed": is_feed}}
        Path(path, "sources", str(folder)).mkdir(parents=True)
        Path(path, "sources", str(folder), "deltaflow.json").write_text(json.dumps(record))
    log = table.log()
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_VACUUM_BREAKS_STREAM"):
        log.check_streams(log.plan_vacuum(0), [path])
