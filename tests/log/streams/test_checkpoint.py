"""Checkpoints of streams, read without Spark: Spark's own of delta-spark's streams, and damaged ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from deltaflow.errors import DeltaIllegalArgumentException, DeltaIllegalStateException
from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.log.streams.source_offset import BASE_INDEX
from tests.goldens import GOLDENS

STREAMS = GOLDENS / "streams"
needed = pytest.mark.skipif(not STREAMS.is_dir(), reason=f"{STREAMS} is not there: set DELTAFLOW_GOLDENS")
OFFSET = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":3,"index":-1,"isStartingVersion":false}'
ENTRY = f'v1\n{{"batchWatermarkMs":0}}\n{OFFSET}'


def checkpoint(folder: Path, entries: dict[int, str], done: tuple[int, ...] = (), query: str = "q") -> str:
    """Writes a checkpoint, and returns its path."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for batch, text in entries.items():
        (folder / "offsets" / str(batch)).write_text(text)
        (folder / "offsets" / f".{batch}.crc").write_text("crc")
    for batch in done:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


@needed
@pytest.mark.parametrize(
    ("name", "done", "has_state"),
    [
        ("source-in-snapshot", 1, False),
        ("source-in-commit", 2, False),
        ("sink-replay", 2, False),
        ("source-with-delete", 0, False),
        ("aggregate-complete", 3, True),
    ],
)
def test_streams_of_delta_spark(name: str, done: int, has_state: bool) -> None:
    [entry] = [e for e in json.loads((STREAMS / "manifest.json").read_text()) if e["name"] == name]
    found = StreamCheckpoint(str(STREAMS / name / "checkpoint"))
    last = entry["last_offset"]
    assert found.query_id == entry["query_id"]
    assert (found.newest_planned, found.newest_done, found.has_state) == (last["batch"], done, has_state)
    batch = found.offsets(last["batch"])
    offset = batch.delta_offset("0")
    assert offset is not None
    assert (offset.reservoir_id, offset.reservoir_version) == (last["reservoirId"], last["reservoirVersion"])
    assert (offset.index, offset.is_starting_version) == (BASE_INDEX, False)
    assert batch.text() == Path(batch.path).read_text()


def test_batches_that_are_planned_and_done(tmp_path: Path) -> None:
    """Spark removes old entries, and leaves its own checksums and unfinished files beside them."""
    path = checkpoint(tmp_path, {9: ENTRY, 10: ENTRY, 11: ENTRY}, done=(8, 9, 10))
    (tmp_path / "offsets" / "12.tmp").write_text("unfinished")
    found = StreamCheckpoint(path)
    assert (found.planned, found.done) == ([9, 10, 11], [8, 9, 10])
    assert (found.newest_planned, found.newest_done) == (11, 10)
    assert StreamCheckpoint(f"file:{path}").directory == found.directory


def test_sources_by_number_and_by_name(tmp_path: Path) -> None:
    """Those without an offset, and those of other formats."""
    kafka = '{"topic":{"0":23}}'
    lines = [OFFSET, "-", kafka]
    named = [f"{name}:{line}" for name, line in zip(("a", "b", "c"), lines, strict=True)]
    entries = {0: "\n".join(["v1", "", *lines]), 1: "\n".join(["v2", "{}", *named])}
    found = StreamCheckpoint(checkpoint(tmp_path, entries))
    numbered, by_name = found.offsets(0), found.offsets(1)
    assert dict(numbered.offsets) == {"0": OFFSET, "1": None, "2": kafka}
    assert dict(by_name.offsets) == {"a": OFFSET, "b": None, "c": kafka}
    assert [numbered.text(), by_name.text()] == list(entries.values())
    assert numbered.delta_offset("0") == by_name.delta_offset("a")
    assert [by_name.delta_offset(name) for name in ("b", "c", "another")] == [None] * 3


def test_a_query_before_its_first_batch(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"7"}')
    found = StreamCheckpoint(str(tmp_path))
    assert (found.query_id, found.newest_planned, found.newest_done) == ("7", None, None)


def test_the_query_id_is_lost(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, {0: ENTRY})
    (tmp_path / "metadata").unlink()
    assert StreamCheckpoint(path).query_id is None


def test_on_another_file_system() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/streams/c/metadata", b'{"id":"q"}')
    files.pipe("/streams/c/offsets/0", ENTRY.encode())
    files.pipe("/streams/c/state/0/0/1.delta", b"state")
    try:
        found = StreamCheckpoint("memory://streams/c")
        assert (found.query_id, found.planned, found.has_state) == ("q", [0], True)
        assert found.offsets(0).text() == ENTRY
    finally:
        files.rm("/streams", recursive=True)


@pytest.mark.parametrize("content", ["nothing", "an empty directory", "a file"])
def test_no_checkpoint(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c"
    if content == "an empty directory":
        path.mkdir()
    elif content == "a file":
        path.write_text("x")
    with pytest.raises(DeltaIllegalArgumentException, match="is no checkpoint of a stream") as raised:
        StreamCheckpoint(str(path))
    assert raised.value.getErrorClass() == "DELTA_NOT_A_STREAM_CHECKPOINT"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it begins with ''"),
        ("v1", "it ends after its first line"),
        ("v3\n{}\n-", "version 3 of its format"),
        ("v0\n{}\n-", "it begins with 'v0'"),
        ("v2\n{}\n-", "line 3 has no name"),
        (OFFSET, "it begins with '"),
        ("v1\n{}", "it has no offset"),
        (ENTRY[:-20], "its line 3 is cut off"),
        (f"v2\n{{}}\ns:{OFFSET[:-20]}", "its line 3 is cut off"),
    ],
)
def test_an_entry_that_cannot_be_read(tmp_path: Path, text: str, reason: str) -> None:
    found = StreamCheckpoint(checkpoint(tmp_path, {4: text}))
    _corrupt(lambda: found.offsets(4), f"{tmp_path}/offsets/4", reason)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    found = StreamCheckpoint(checkpoint(tmp_path, {4: ENTRY}))
    (tmp_path / "offsets" / "4").write_bytes(b"v1\n\xff\xfe")
    _corrupt(lambda: found.offsets(4), f"{tmp_path}/offsets/4", "no text in UTF-8")


def test_an_entry_that_is_not_there(tmp_path: Path) -> None:
    found = StreamCheckpoint(checkpoint(tmp_path, {4: ENTRY}))
    _corrupt(lambda: found.offsets(3), f"{tmp_path}/offsets/3", "the end of batch 3 is not recorded")


@pytest.mark.parametrize("text", ["", "{}", '{"id":7}', "[]"])
def test_metadata_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)
    _corrupt(lambda: StreamCheckpoint(str(tmp_path)), f"{tmp_path}/metadata", "the query's id")


def test_an_offset_of_a_delta_table_that_cannot_be_read(tmp_path: Path) -> None:
    entry = ENTRY.replace('"sourceVersion":1', '"sourceVersion":4')
    found = StreamCheckpoint(checkpoint(tmp_path, {0: entry})).offsets(0)
    with pytest.raises(DeltaIllegalStateException, match="Unsupported format"):
        found.delta_offset("0")


def _corrupt(read: Callable[[], object], file: str, reason: str) -> None:
    with pytest.raises(DeltaIllegalStateException) as raised:
        read()
    assert raised.value.getErrorClass() == "DELTA_CORRUPT_STREAM_CHECKPOINT"
    assert raised.value.file == file
    assert reason in str(raised.value)
