"""Streams whose checkpoints were changed go on as the change has promised, into real tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError

from deltaflow.cli import main
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    VersionNotFoundError,
)
from deltaflow.log import DeltaLog
from deltaflow.log.streams.checkpoint import UNFINISHED, StreamCheckpoint
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rebuilding import plan_rebuilding
from deltaflow.log.streams.rewind import plan_adoption, plan_rewind
from deltaflow.streaming import plan_restart
from deltaflow.streaming.operating.obstacles import EDIT_INTERRUPTED
from tests.streaming.test_continued_streams import Begun
from tests.tables import commit_info, versions

pytestmark = pytest.mark.spark


@pytest.fixture
def other(tmp_path: Path) -> str:
    """A second table to read."""
    return str(tmp_path / "other")


def filled(streams: Any, table: str, *, commits: int = 4) -> None:
    """Each commit has ten ids."""
    for number in range(commits):
        streams.append(table, 10 * number, 10 * number + 10)


def epochs(table: str) -> list[int]:
    """The batch ids in the log of a table that one stream writes."""
    return [int(commit_info(table, version)["operationParameters"]["epochId"]) for version in versions(table)]


def test_a_rewound_stream_reads_from_the_version_on(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    filled(streams, table)
    query = streams.copy(streams.read(table, maxFilesPerTrigger=1), sink, checkpoint)
    before = epochs(sink)
    # Hadoop's checksum of a batch that somebody has removed by hand would refuse the new file.
    next_batch = max(streams.offsets(checkpoint)) + 1
    Path(checkpoint, "offsets", f".{next_batch}.crc").write_bytes(b"crc\0not one")
    edit = plan_rewind(checkpoint, table, version=2, sink=sink)
    assert not Path(checkpoint, "offsets", str(next_batch)).exists()
    backup = edit.apply()
    assert backup is not None
    assert StreamCheckpoint(backup).newest_done == max(before)
    streams.append(table, 40, 50)
    plan = plan_restart(checkpoint, options={"maxFilesPerTrigger": 1})
    assert plan.obstacles == ()
    assert plan.batch is not None
    again = streams.copy(streams.read(table, maxFilesPerTrigger=1), sink, checkpoint)
    assert plan.batch.batch_id == epochs(sink)[len(before)]
    assert again.id == query.id
    assert streams.ids(sink) == sorted([*range(50), *range(20, 40)])
    new = epochs(sink)[len(before) :]
    # The table skips the numbers of batches that it has: all of them are new.
    assert min(new) > max(before)
    assert new == sorted(set(new))
    # It goes on as if nothing had been.
    streams.append(table, 50, 60)
    streams.copy(streams.read(table), sink, checkpoint)
    assert streams.ids(sink)[-10:] == list(range(50, 60))


def test_a_rewind_to_a_time(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    filled(streams, table)
    streams.copy(streams.read(table), sink, checkpoint)
    file = Path(table, "_delta_log", f"{2:020}.json")
    time_ms = int(file.stat().st_mtime * 1000)
    for timestamp_ms, first in ((time_ms, 2), (time_ms - 3_600_000, 0)):
        files = plan_rewind(checkpoint, table, timestamp_ms=timestamp_ms).files
        text = next(text for place, text in files.items() if place.startswith("offsets/"))
        assert json.loads(text.splitlines()[2])["reservoirVersion"] == first
    with pytest.raises(DeltaIllegalArgumentException, match="cannot skip"):
        plan_rewind(checkpoint, table, timestamp_ms=time_ms + 3_600_000)


def test_what_a_rewind_refuses(streams: Any, table: str, other: str, sink: str, checkpoint: str) -> None:
    filled(streams, table)
    streams.append(other, 100, 110)
    both = streams.read(table).union(streams.read(other))
    streams.copy(both, sink, checkpoint)
    with pytest.raises(DeltaIllegalArgumentException, match="Name the source"):
        plan_rewind(checkpoint, table, version=1)
    with pytest.raises(DeltaUnsupportedOperationException, match="was made anew"):
        plan_rewind(checkpoint, table, version=1, source="1")
    with pytest.raises(DeltaIllegalArgumentException, match="cannot skip"):
        plan_rewind(checkpoint, table, version=4, source="0")
    with pytest.raises(VersionNotFoundError, match="Available commits"):
        plan_rewind(checkpoint, table, version=9, source="0")
    DeltaLog.for_table(table).checkpoint()
    commit = Path(table, "_delta_log", f"{1:020}.json")
    commit.rename(commit.with_suffix(".away"))
    with pytest.raises(VersionNotFoundError, match=r"\[0, 0\], \[2, 3\]"):
        plan_rewind(checkpoint, table, version=0, source="0")
    commit.with_suffix(".away").rename(commit)
    # Only one of the two sources goes back, also if a batch is planned whose rows may be written.
    assert streams.forget_last_batch(checkpoint) == 0
    with pytest.raises(DeltaUnsupportedOperationException, match="name the table that it writes"):
        plan_rewind(checkpoint, table, version=2, source="0")
    plan_rewind(checkpoint, table, version=2, source="0", sink=sink).apply()
    streams.append(other, 110, 120)
    streams.copy(streams.read(table).union(streams.read(other)), sink, checkpoint)
    assert streams.ids(sink) == sorted([*range(40), *range(20, 40), *range(100, 120)])


@pytest.mark.long
def test_a_source_that_occurs_twice(streams: Any, table: str, other: str, sink: str, checkpoint: str) -> None:
    """Spark numbers the places of a source, and has one folder for all of them."""
    filled(streams, table, commits=2)
    streams.append(other, 100, 103)

    def run() -> None:
        tracked = {"schemaTrackingLocation": f"{checkpoint}/schema", "startingVersion": 0}
        twice = streams.read(table, **tracked)
        streams.copy(twice.union(twice).union(streams.read(other, **tracked)), sink, checkpoint)

    run()
    rows = [*range(20), *range(20), *range(100, 103)]
    assert streams.ids(sink) == sorted(rows)
    streams.append(other, 103, 104)
    plan = plan_restart(checkpoint)
    assert plan.obstacles == ()
    assert plan.batch is not None
    assert [step.files for step in plan.batch.sources] == [0, 0, 1]
    run()
    rows.append(103)
    for source, path, again in (("0", table, [*range(10, 20)] * 2), ("2", other, [103])):
        line = ["offsets", "rewind", checkpoint, "--version", "1", "--source", source, "--yes"]
        result = CliRunner().invoke(main, line, env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        assert f"Source {source} reads {path} again" in result.output.replace("\n", " ")
        run()
        rows += again
        assert streams.ids(sink) == sorted(rows)


def test_a_stream_that_runs_is_left_alone(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    filled(streams, table)
    streams.copy(streams.read(table), sink, checkpoint)
    edit = plan_rewind(checkpoint, table, version=1)
    streams.append(table, 40, 50)
    streams.copy(streams.read(table), sink, checkpoint)
    before = sorted(Path(checkpoint).rglob("*"))
    with pytest.raises(DeltaIllegalStateException, match="is running"):
        edit.apply()
    assert sorted(Path(checkpoint).rglob("*")) == before


def test_a_fork_goes_on_beside_the_first(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    filled(streams, table)
    query = streams.copy(streams.read(table), sink, checkpoint)
    # The last batch is in the table, and Spark's record of it is lost.
    last = streams.forget_last_batch(checkpoint)
    target, other_sink = str(tmp_path / "fork"), str(tmp_path / "second")
    with pytest.raises(DeltaUnsupportedOperationException, match=f"Batch {last} is planned"):
        plan_fork(checkpoint, target)
    assert plan_fork(checkpoint, target, sink=sink).apply() is None
    with pytest.raises(DeltaIllegalArgumentException, match="There are files"):
        plan_fork(checkpoint, target, sink=sink)
    streams.append(table, 40, 50)
    assert plan_restart(target, sink=other_sink).obstacles == ()
    second = streams.copy(streams.read(table), other_sink, target)
    assert second.id != query.id
    assert streams.ids(other_sink) == list(range(40, 50))
    assert streams.copy(streams.read(table), sink, checkpoint).id == query.id
    assert streams.ids(sink) == list(range(50))


def test_a_rewind_that_was_killed_is_refused_and_made_again(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    filled(streams, table)
    streams.copy(streams.read(table, maxFilesPerTrigger=1), sink, checkpoint)
    edit = plan_rewind(checkpoint, table, version=2, sink=sink)
    edit.apply()
    # As a kill leaves it before the last file is written.
    Path(checkpoint, list(edit.files)[-1]).unlink()
    assert "doesn't exist" in streams.failed(streams.write(streams.read(table), sink, checkpoint))
    assert [found.condition for found in plan_restart(checkpoint).obstacles] == [EDIT_INTERRUPTED]
    shown = CliRunner().invoke(main, ["offsets", "show", checkpoint])
    assert "A change was interrupted" in shown.output
    again = plan_rewind(checkpoint, table, version=2, sink=sink)
    assert list(again.files) == list(edit.files)
    again.apply()
    assert plan_restart(checkpoint).obstacles == ()
    streams.copy(streams.read(table), sink, checkpoint)
    assert streams.ids(sink) == sorted([*range(40), *range(20, 40)])


def test_a_fork_that_was_killed_is_refused_and_made_again(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    filled(streams, table)
    streams.copy(streams.read(table), sink, checkpoint)
    target, other_sink = str(tmp_path / "fork"), str(tmp_path / "second")
    plan_fork(checkpoint, target).apply()
    # As a kill leaves it before the file is replaced.
    Path(target, "metadata").write_bytes(UNFINISHED + b"killed")
    streams.append(table, 40, 50)
    with pytest.raises(Py4JJavaError, match="Unrecognized token 'unfinished'"):
        streams.write(streams.read(table), other_sink, target)
    with pytest.raises(DeltaIllegalStateException, match="is not whole"):
        plan_restart(target)
    plan_fork(checkpoint, target).apply()
    streams.copy(streams.read(table), other_sink, target)
    assert streams.ids(other_sink) == list(range(40, 50))


def test_a_fork_has_the_state(streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path) -> None:
    filled(streams, table)

    def total() -> Any:
        return streams.read(table).groupBy().count()

    streams.copy(total(), sink, checkpoint, mode="complete")
    with pytest.raises(DeltaUnsupportedOperationException, match="keeps state"):
        plan_rewind(checkpoint, table, version=1)
    with pytest.raises(DeltaUnsupportedOperationException, match="keeps state"):
        plan_adoption(checkpoint, table)
    target, other_sink = str(tmp_path / "fork"), str(tmp_path / "second")
    plan_fork(checkpoint, target).apply()
    streams.append(table, 40, 50)
    streams.copy(total(), other_sink, target, mode="complete")
    assert [row["count"] for row in streams.spark.read.format("delta").load(other_sink).collect()] == [50]
    with pytest.raises(DeltaUnsupportedOperationException, match="output mode Complete"):
        plan_rebuilding(str(tmp_path / "rebuilt"), sink)


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.sampled(2)
def test_a_table_that_was_made_anew_is_adopted(
    streams: Any, table: str, sink: str, checkpoint: str, version: int | None
) -> None:
    filled(streams, table)
    streams.copy(streams.read(table), sink, checkpoint)
    with pytest.raises(DeltaUnsupportedOperationException, match="already: its id is the same"):
        plan_adoption(checkpoint, table)
    shutil.rmtree(table)
    for number in (100, 110, 120):
        streams.append(table, number, number + 10)
    failure = streams.failure(streams.write(streams.read(table), sink, checkpoint))
    assert failure.code == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
    before = epochs(sink)
    # The checkpoint names the table, so that the command need not.
    line = [
        "offsets",
        "adopt",
        checkpoint,
        "--yes",
        *([] if version is None else ["--version", str(version)]),
    ]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    plan = plan_restart(checkpoint)
    assert plan.obstacles == ()
    assert plan.batch is not None
    assert plan.batch.batch_id > max(before) + 2
    streams.append(table, 130, 140)
    streams.copy(streams.read(table, maxFilesPerTrigger=1), sink, checkpoint)
    assert streams.ids(sink) == [*range(40), *range(100 if version is None else 110, 140)]
    assert min(epochs(sink)[len(before) :]) > max(before)


def test_a_lost_checkpoint_is_rebuilt(
    streams: Any, table: str, other: str, sink: str, checkpoint: str
) -> None:
    filled(streams, table)
    streams.append(other, 100, 110)

    def both() -> Any:
        return streams.read(table, maxFilesPerTrigger=1).union(streams.read(other))

    query = streams.copy(both(), sink, checkpoint)
    before = epochs(sink)
    shutil.rmtree(checkpoint)
    plan_rebuilding(checkpoint, sink).apply()
    streams.append(table, 40, 50)
    assert streams.copy(both(), sink, checkpoint).id == query.id
    assert streams.ids(sink) == [*range(50), *range(100, 110)]
    assert epochs(sink)[len(before) :] == [max(before) + 1]
    # Of several queries somebody has to name one.
    streams.copy(streams.read(other), sink, f"{checkpoint}2")
    shutil.rmtree(checkpoint)
    with pytest.raises(DeltaUnsupportedOperationException, match="Several queries"):
        plan_rebuilding(checkpoint, sink)
    plan_rebuilding(checkpoint, sink, query_id=query.id).apply()
    assert StreamCheckpoint(checkpoint).newest_done == max(before) + 1


def test_what_cannot_be_rebuilt(streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path) -> None:
    streams.append(sink, 0, 1)
    with pytest.raises(DeltaUnsupportedOperationException, match="has no commit of a query"):
        plan_rebuilding(checkpoint, sink)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 7}\n')
    files = streams.spark.readStream.schema("id bigint").json(str(folder))
    streams.copy(files, sink, checkpoint)
    shutil.rmtree(checkpoint)
    with pytest.raises(DeltaUnsupportedOperationException, match="the list of the files"):
        plan_rebuilding(checkpoint, sink)
    # State that the commits do not show: Spark itself refuses to go on without it.
    filled(streams, table)
    own, lost = str(tmp_path / "own"), str(tmp_path / "lost")
    streams.copy(streams.read(table).dropDuplicates(["id"]), own, lost)
    shutil.rmtree(lost)
    plan_rebuilding(lost, own).apply()
    streams.append(table, 40, 50)
    query = streams.write(streams.read(table).dropDuplicates(["id"]), own, lost)
    assert "state" in streams.failed(query).lower()
    assert streams.ids(own) == list(range(40))


def test_a_checkpoint_of_delta_spark_is_rewound_forked_and_adopted(streams: Any, tmp_path: Path) -> None:
    begun = Begun("sink-replay", tmp_path)
    # Its last batch is in the table, and the record of it is lost.
    fork, second = str(tmp_path / "fork"), str(tmp_path / "second")
    plan_fork(begun.checkpoint, fork, sink=begun.sink).apply()
    source = streams.ids(begun.source)
    held = streams.ids(begun.sink)
    plan_rewind(begun.checkpoint, begun.source, version=0, sink=begun.sink).apply()
    rows = streams.read(begun.source)
    streams.copy(rows, begun.sink, begun.checkpoint)
    assert streams.ids(begun.sink) == sorted(held + source)
    streams.copy(rows, second, fork)
    assert streams.ids(second) == sorted(set(source) - set(held))
    shutil.rmtree(begun.source)
    streams.spark.range(100, 105).selectExpr("id", "id * 10 AS v").write.format("delta").save(begun.source)
    plan_adoption(fork, begun.source, sink=second).apply()
    streams.copy(streams.read(begun.source), second, fork)
    assert streams.ids(second) == [*sorted(set(source) - set(held)), *range(100, 105)]
