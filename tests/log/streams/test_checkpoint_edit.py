"""A change of a checkpoint is made whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rewind import plan_rewind
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.store import LocalLogStore
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol


def offset(version: int, table_id: str = "table-1") -> str:
    return DeltaSourceOffset(table_id, version, -100, False).json()


@pytest.fixture
def table(tmp_path: Path) -> str:
    written = HandWrittenTable(tmp_path / "table")
    written.commit(0, protocol(), meta_data(), add("a"))
    written.commit(1, add("b"))
    written.commit(2, add("c"))
    return written.path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three batches of one source, all of them done."""
    directory = tmp_path / "checkpoint"
    for folder in ("offsets", "commits", "sources/0", "sink"):
        (directory / folder).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"query-1"}')
    for batch in range(3):
        (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset(batch + 1)}")
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (directory / "sources" / "0" / "0").write_text("v1")
    (directory / "sink" / "deltaflow.json").write_text("{}")
    return directory


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()
    }


def test_a_rewind_adds_two_empty_batches(table: str, checkpoint: Path) -> None:
    before = content(checkpoint)
    edit = plan_rewind(str(checkpoint), table, version=1)
    assert content(checkpoint) == before
    backup = edit.apply()
    assert backup is not None
    assert content(Path(backup)) == before
    after = content(checkpoint)
    assert {name: text for name, text in after.items() if name in before} == before
    added = sorted(after.keys() - before.keys())
    assert added == ["commits/3", "commits/4", "edits/4", "offsets/3", "offsets/4"]
    assert StreamCheckpoint(str(checkpoint)).newest_edit == 4
    assert after["offsets/4"].decode() == f"v1\n{{}}\n{offset(1)}"


def test_a_batch_that_may_not_be_written_is_not_left_out(table: str, checkpoint: Path) -> None:
    plan_rewind(str(checkpoint), table, version=2)
    (checkpoint / "commits" / "2").unlink()
    # Batch 2 is the commit of version 2. Whether its rows are written, the checkpoint does not say.
    with pytest.raises(DeltaIllegalArgumentException, match="cannot skip"):
        plan_rewind(str(checkpoint), table, version=2)
    plan_rewind(str(checkpoint), table, version=1).apply()
    found = StreamCheckpoint(str(checkpoint))
    assert (found.newest_planned, found.newest_done) == (4, 4)


@pytest.mark.parametrize(
    ("recorded", "moved"),
    [
        pytest.param(["table-1", "table-2"], [0, 1], id="one source twice"),
        pytest.param(["table-1", "table-1", "table-2"], [0], id="two sources"),
        pytest.param([], None, id="not recorded"),
    ],
)
def test_a_source_that_a_query_reads_twice_is_moved_as_a_whole(
    table: str, checkpoint: Path, recorded: list[str], moved: list[int] | None
) -> None:
    """Spark takes the last of its offsets."""
    for batch in range(3):
        lines = [offset(batch + 1), offset(batch + 1), offset(batch + 1, "table-2")]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
    for folder, table_id in enumerate(recorded):
        (checkpoint / "sources" / str(folder)).mkdir(exist_ok=True)
        record = {"path": table, "tableId": table_id, "options": {"read_change_feed": False}}
        (checkpoint / "sources" / str(folder) / "deltaflow.json").write_text(json.dumps(record))
    if moved is None:
        with pytest.raises(DeltaUnsupportedOperationException, match="does not say whether they are one"):
            plan_rewind(str(checkpoint), table, version=1, source="0")
        return
    edit = plan_rewind(str(checkpoint), table, version=1, source="0")
    assert any("several times: 0, 1 are one" in step for step in edit.steps) == (len(moved) > 1)
    lines = edit.files["offsets/4"].splitlines()[2:]
    assert [number for number, line in enumerate(lines) if line == offset(1)] == moved


def test_the_rest_of_a_snapshot_is_not_left_out(table: str, checkpoint: Path) -> None:
    inside = DeltaSourceOffset("table-1", 2, 1, True).json()
    (checkpoint / "offsets" / "2").write_text(f"v1\n{{}}\n{inside}")
    with pytest.raises(DeltaUnsupportedOperationException, match="inside of the snapshot of version 2"):
        plan_rewind(str(checkpoint), table, version=1)
    assert "version 0 on" in plan_rewind(str(checkpoint), table, version=0).steps[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("place", ["commits/1", "metadata"])
def test_a_copy_that_is_interrupted_leaves_nothing(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    error: type[BaseException],
) -> None:
    open_output = LocalLogStore.open_output

    def interrupted(store: LocalLogStore, path: str) -> Any:
        if path.endswith(place):
            raise error
        return open_output(store, path)

    monkeypatch.setattr(LocalLogStore, "open_output", interrupted)
    target = tmp_path / "fork"
    with pytest.raises(error):
        plan_fork(str(checkpoint), str(target)).apply()
    assert content(target) == {}
    monkeypatch.undo()
    plan_fork(str(checkpoint), str(target)).apply()
    assert StreamCheckpoint(str(target)).newest_done == 2


def test_a_rewind_that_is_interrupted_leaves_the_checkpoint(
    table: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(checkpoint)
    # The third of the five files is in the way.
    edit = plan_rewind(str(checkpoint), table, version=1)
    (checkpoint / "commits" / "3").mkdir()
    with pytest.raises(Exception, match=r"commits/3|is running"):
        edit.apply()
    assert content(checkpoint) == before


def test_a_fork_has_another_query_and_no_sink(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "fork"
    plan_fork(str(checkpoint), str(target)).apply()
    copied, original = content(target), content(checkpoint)
    assert json.loads(copied.pop("edits/2"))["steps"]
    assert copied.pop("metadata") != original.pop("metadata")
    original.pop("sink/deltaflow.json")
    assert copied == original
    with pytest.raises(DeltaIllegalArgumentException, match="There are files"):
        plan_fork(str(checkpoint), str(target))


def test_a_fork_needs_the_record_of_the_state(table: str, checkpoint: Path, tmp_path: Path) -> None:
    """Spark's record of a batch that is done names the state's files, and has the watermark."""
    written = HandWrittenTable(tmp_path / "sink")
    written.commit(0, protocol(), meta_data(), {"txn": {"appId": "query-1", "version": 2}})
    (checkpoint / "commits" / "2").unlink()
    fork = plan_fork(str(checkpoint), str(tmp_path / "fork"), sink=written.path)
    assert "after batch 2" in fork.steps[0]
    (checkpoint / "state").mkdir()
    with pytest.raises(DeltaUnsupportedOperationException, match="Batch 2 is written and not recorded"):
        plan_fork(str(checkpoint), str(tmp_path / "fork"), sink=written.path)


def test_checkpoints_in_another_store(table: str, checkpoint: Path) -> None:
    files = fsspec.filesystem("memory")
    files.put(str(checkpoint), "/streams/", recursive=True)
    try:
        before = {path: files.cat(path) for path in files.find("/streams/checkpoint")}
        backup = plan_rewind("memory://streams/checkpoint", table, version=0).apply()
        assert backup is not None
        assert StreamCheckpoint(backup).planned == [0, 1, 2]
        found = StreamCheckpoint("memory://streams/checkpoint")
        assert (found.newest_planned, found.newest_done) == (4, 4)
        position = found.offsets(4).delta_offset("0")
        assert position is not None
        assert position.reservoir_version == 0
        assert {path: files.cat(path) for path in before} == before
        plan_fork("memory://streams/checkpoint", "memory://streams/fork").apply()
        assert StreamCheckpoint("memory://streams/fork").newest_done == 4
    finally:
        files.rm("/streams", recursive=True)
