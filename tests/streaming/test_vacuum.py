"""VACUUM with checkpoints of streams: it refuses what would break one of them."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from tests.streaming.test_continued_streams import Begun, continued
from tests.tables import data_files, load

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _unchecked(setting: Any) -> None:
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")


def compact(spark: Any, path: str) -> None:
    """Rewrites all files as one, without a change of data, which streams ignore."""
    frame = load(spark, path).coalesce(1)
    frame.write.format("delta").mode("overwrite").option("dataChange", "false").save(path)


def refused(spark: Any, path: str, checkpoint: str, **options: Any) -> str:
    """The message of a vacuum that is refused, and deletes nothing."""
    before, versions = data_files(path), len(list(Path(path, "_delta_log").iterdir()))
    with pytest.raises(DeltaUnsupportedOperationException) as raised:
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[checkpoint], **options)
    assert raised.value.getErrorClass() == "DELTA_VACUUM_BREAKS_STREAM"
    assert (data_files(path), len(list(Path(path, "_delta_log").iterdir()))) == (before, versions)
    assert checkpoint in str(raised.value)
    return str(raised.value)


class Stopped:
    """A stream of ours over three commits of two files each, stopped after `batches` batches of one file."""

    def __init__(self, streams: Any, folder: Path, batches: int) -> None:
        self.streams = streams
        self.source, self.checkpoint = str(folder / "source"), str(folder / "checkpoint")
        for start in (0, 10, 20):
            streams.append(self.source, start, start + 10, files=2)
        self.run()
        streams.forget_all_but(self.checkpoint, batches - 1)

    def run(self) -> list[int]:
        """The ids that come in further batches."""
        found = self.streams.batches(self.streams.read(self.source, maxFilesPerTrigger=1), self.checkpoint)
        return sorted(number for batch in found.values() for number in batch)


def check_that_it_would_break(spark: Any, streams: Any, folder: Path, **options: Any) -> None:
    """Vacuums the table of a copied stream without its checkpoint."""
    copy = shutil.copytree(folder, folder.with_name("broken"))
    DeltaTable.forPath(spark, str(copy / "source")).vacuum(0)
    frame = streams.read(str(copy / "source"), **options)
    message = streams.failed(streams.write(frame, str(copy / "sink of its own"), str(copy / "checkpoint")))
    assert "FILE_NOT_EXIST" in message


@pytest.mark.long
def test_inside_the_initial_snapshot(spark: Any, streams: Any, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    stopped = Stopped(streams, folder, batches=2)
    compact(spark, stopped.source)
    for options in ({}, {"dryRun": True}, {"lite": True}):
        message = refused(spark, stopped.source, stopped.checkpoint, **options)
        assert "the snapshot that it begins with, of version 2" in message
        assert "1 more" in message  # four files are left, and three are named
    check_that_it_would_break(spark, streams, folder, maxFilesPerTrigger=1)
    assert len(stopped.run()) == 20
    DeltaTable.forPath(spark, stopped.source).vacuum(0, checkpoints=[stopped.checkpoint])
    assert len(data_files(stopped.source)) == 1
    streams.append(stopped.source, 100, 103)
    assert stopped.run() == [100, 101, 102]


@pytest.mark.long
def test_the_files_that_it_has_read_of_the_snapshot_may_go(spark: Any, streams: Any, tmp_path: Path) -> None:
    stopped = Stopped(streams, tmp_path, batches=6)
    streams.forget_all_but(stopped.checkpoint, 4)
    compact(spark, stopped.source)
    message = refused(spark, stopped.source, stopped.checkpoint)
    assert message.count(".parquet") == 1
    assert len(stopped.run()) == 5


def test_in_the_middle_of_a_commit(spark: Any, streams: Any, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    source, checkpoint = str(folder / "source"), str(folder / "checkpoint")
    streams.append(source, 0, 10)

    def run() -> list[int]:
        found = streams.batches(streams.read(source, maxFilesPerTrigger=1), checkpoint)
        return sorted(number for batch in found.values() for number in batch)

    assert run() == list(range(10))
    for start in (10, 20):
        streams.append(source, start, start + 10, files=3)
    assert run() == list(range(10, 30))
    last = max(streams.offsets(checkpoint))
    compact(spark, source)
    streams.forget_all_but(checkpoint, last - 3)
    assert "the commit of version 2" in refused(spark, source, checkpoint)
    streams.forget_all_but(checkpoint, last - 4)
    message = refused(spark, source, checkpoint)
    assert "the commit of version 1" in message
    assert message.count(".parquet") == 1
    check_that_it_would_break(spark, streams, folder, maxFilesPerTrigger=1)
    rest = run()
    assert 10 < len(rest) < 15
    assert rest == list(range(30))[-len(rest) :]
    DeltaTable.forPath(spark, source).vacuum(0, checkpoints=[checkpoint])
    assert len(data_files(source)) == 1
    assert run() == []


def test_what_a_stream_does_not_need_may_go_while_it_is_on_its_way(
    spark: Any, streams: Any, tmp_path: Path
) -> None:
    source, checkpoint = str(tmp_path / "source"), str(tmp_path / "checkpoint")
    streams.append(source, 0, 10, files=2)
    compact(spark, source)
    streams.append(source, 10, 20)
    frame = streams.read(source, maxFilesPerTrigger=1)
    streams.batches(frame, checkpoint)
    streams.forget_all_but(checkpoint, 0)
    DeltaTable.forPath(spark, source).vacuum(0, checkpoints=[checkpoint])
    assert len(data_files(source)) == 2
    assert sum(map(len, streams.batches(frame, checkpoint).values())) == 10


@pytest.mark.long
def test_a_first_batch_that_was_planned_and_not_finished(spark: Any, streams: Any, tmp_path: Path) -> None:
    """Only the options tell where the stream began."""
    for options, ids in (({}, range(20)), ({"startingVersion": 1}, range(10, 20))):
        folder = tmp_path / str(len(options))
        source, checkpoint = str(folder / "source"), str(folder / "checkpoint")
        streams.append(source, 0, 10)
        streams.append(source, 10, 20)
        frame = streams.read(source, **options)
        streams.batches(frame, checkpoint)
        streams.forget_last_batch(checkpoint)
        streams.forget_all_but(checkpoint, 0)
        assert streams.offsets(checkpoint).keys() == {0}
        compact(spark, source)
        refused(spark, source, checkpoint)
        assert streams.batches(frame, checkpoint)[0] == list(ids)
        DeltaTable.forPath(spark, source).vacuum(0, checkpoints=[checkpoint])
        assert len(data_files(source)) == 1


@pytest.mark.parametrize("name", ["source-in-snapshot", "source-in-commit"])
def test_streams_of_delta_spark(spark: Any, streams: Any, tmp_path: Path, name: str) -> None:
    begun = Begun(name, tmp_path)
    table = DeltaTable.forPath(spark, begun.source)
    compact(spark, begun.source)
    done = streams.offsets(begun.checkpoint)[begun.entry["last_offset"]["batch"] - 1]
    version = json.loads(done[0])["reservoirVersion"]
    assert f"of version {version}, and" in refused(spark, begun.source, begun.checkpoint)
    check_that_it_would_break(spark, streams, begun.folder, **begun.entry["options"])
    assert continued(streams, begun, **begun.entry["options"]) == begun.entry["next_batches"]
    table.vacuum(0, checkpoints=[begun.checkpoint])
    assert len(data_files(begun.source)) == 1


@pytest.mark.long
def test_checkpoints_of_other_tables_are_passed_over(
    spark: Any, streams: Any, tmp_path: Path, caplog: Any
) -> None:
    stopped = Stopped(streams, tmp_path / "other", batches=2)
    path = str(tmp_path / "table")
    streams.append(path, 0, 10)
    compact(spark, path)
    with caplog.at_level(logging.WARNING, "deltaflow.log.streams.stream_needs"):
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[stopped.checkpoint])
    assert [stopped.checkpoint in message and path in message for message in caplog.messages] == [True]
    assert len(data_files(path)) == 1


def test_one_of_several_sources_reads_the_table(spark: Any, streams: Any, tmp_path: Path) -> None:
    source, other, checkpoint = (str(tmp_path / name) for name in ("source", "other", "checkpoint"))
    for path in (other, source):
        streams.append(path, 0, 10)
    frame = streams.read(other).union(streams.read(source))
    streams.batches(frame, checkpoint)
    streams.append(source, 10, 20)
    streams.append(other, 10, 20)
    compact(spark, source)
    compact(spark, other)
    assert "version 1" in refused(spark, source, checkpoint)
    assert sum(map(len, streams.batches(frame, checkpoint).values())) == 20
    for path in (other, source):
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[checkpoint])
        assert len(data_files(path)) == 1


@pytest.mark.parametrize("content", ["nothing", "empty", "table"])
def test_a_directory_that_is_no_checkpoint(spark: Any, streams: Any, tmp_path: Path, content: str) -> None:
    path = str(tmp_path / "table")
    streams.append(path, 0, 10)
    compact(spark, path)
    (tmp_path / "empty").mkdir()
    before = data_files(path)
    with pytest.raises(DeltaIllegalArgumentException, match="no checkpoint of a stream"):
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[str(tmp_path / content)])
    assert data_files(path) == before


def test_a_checkpoint_without_batches_needs_nothing(spark: Any, streams: Any, tmp_path: Path) -> None:
    path, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"
    streams.append(path, 0, 10)
    compact(spark, path)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"7"}')
    DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[str(checkpoint)])
    assert len(data_files(path)) == 1


def test_an_offset_that_cannot_be_read_stops_it(spark: Any, streams: Any, tmp_path: Path) -> None:
    stopped = Stopped(streams, tmp_path, batches=1)
    compact(spark, stopped.source)
    [file] = [file for file in Path(stopped.checkpoint, "offsets").iterdir() if file.name == "0"]
    file.write_text(file.read_text().replace('"sourceVersion":1', '"sourceVersion":4'))
    with pytest.raises(DeltaIllegalStateException, match="Unsupported format"):
        DeltaTable.forPath(spark, stopped.source).vacuum(0, checkpoints=[stopped.checkpoint])
    assert len(data_files(stopped.source)) == 7


def test_the_offsets_of_named_sources(spark: Any, streams: Any, tmp_path: Path) -> None:
    """The second version of Spark's offset log has the names of the sources before the offsets."""
    stopped = Stopped(streams, tmp_path, batches=2)
    compact(spark, stopped.source)
    for file in Path(stopped.checkpoint, "offsets").iterdir():
        if file.name.isdecimal():
            _, metadata, offset = file.read_text().splitlines()
            file.write_text(f"v2\n{metadata}\nevents:{offset}")
    refused(spark, stopped.source, stopped.checkpoint)


def test_a_checkpoint_in_the_tables_directory(spark: Any, streams: Any, tmp_path: Path) -> None:
    """In the table's directory its files count as old files, unless its name makes them hidden."""
    path, sink = str(tmp_path / "table"), str(tmp_path / "sink")
    streams.append(path, 0, 10)
    for name in ("_checkpoint", "my checkpoint"):
        checkpoint = f"{path}/{name}"
        streams.copy(streams.read(path), f"{sink} {name}", checkpoint)
    DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[f"{path}/_checkpoint"], dryRun=True)
    for given in (checkpoint, f"file:{checkpoint}/"):
        assert "lies in the table's directory" in refused(spark, path, given)
    assert Path(checkpoint, "metadata").exists()
