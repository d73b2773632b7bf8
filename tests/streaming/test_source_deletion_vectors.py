"""Streams out of tables with deletion vectors: the rows that are left, and changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from deltaflow.streaming.operating.lag import lag
from deltaflow.streaming.operating.restart_plan import plan_restart
from tests.deletion_vectors import mark_deleted, paths
from tests.streaming.test_continued_streams import STREAMS, Begun

pytestmark = pytest.mark.spark
OF_FEATURES = STREAMS.parent / "features" / "streams"
OUTCOMES = ["no option", "skipChangeCommits", "ignoreChanges", "ignoreDeletes"]


@pytest.mark.parametrize("option", OUTCOMES)
def test_a_stream_of_delta_spark_goes_on(streams: Any, tmp_path: Path, option: str) -> None:
    """From the middle of a snapshot, every file of which has a vector."""
    begun = Begun("dv-in-snapshot", tmp_path, OF_FEATURES)
    outcome = begun.entry["outcome"][option]
    [run] = outcome["runs"]
    found: list[dict[str, Any]] = []

    def note(batch: Any, number: int) -> None:
        rows = [list(row) for row in batch.collect()]
        if rows:
            found.append({"batch": number, "columns": batch.columns, "rows": sorted(rows, key=json.dumps)})

    query = streams.foreach(streams.read(begun.source, **outcome["options"]), begun.checkpoint, note)
    if run["error"] is None:
        streams.ended(query)
    else:
        with pytest.raises(StreamingQueryException) as raised:
            streams.ended(query)
        assert run["error"] in str(raised.value)
    expected = [
        {**batch, "rows": sorted(batch["rows"], key=json.dumps)} for batch in run["batches"] if batch["rows"]
    ]
    if run["error"] is not None:
        # delta-spark looks at all commits before its first new batch: here the rest of the snapshot comes.
        [rest] = found[len(expected) :]
        [*_, all_batches] = begun.entry["outcome"]["skipChangeCommits"]["runs"]
        assert rest["rows"] == sorted(all_batches["batches"][1]["rows"], key=json.dumps)
        found.remove(rest)
    assert found == expected


@pytest.fixture
def marked(streams: Any, table: str) -> str:
    """A table with the ids 0 to 9 and 10 to 19; in the first file 0 to 2 are deleted in version 2."""
    streams.append(table, 0, 10)
    [first] = paths(table)
    streams.append(table, 10, 20)
    mark_deleted(table, {first: [0, 1, 2]})
    return table


def test_one_batch_has_a_file_with_two_vectors(streams: Any, marked: str, checkpoint: str) -> None:
    marks = {path: [*range(5)] for path in paths(marked) if _has_vector(marked, path)}
    mark_deleted(marked, marks, is_inline=True)
    source = streams.read(marked, startingVersion=2, ignoreChanges=True)
    batches = streams.batches(source, checkpoint)
    assert batches == {0: sorted([*range(3, 10), *range(5, 10)])}


def _has_vector(table: str, path: str) -> bool:
    from deltaflow.log import DeltaLog

    files = DeltaLog.for_table(table).snapshot().files
    rows = dict(zip(files["path"].to_pylist(), files["deletion_vector"].to_pylist(), strict=True))
    return rows[path] is not None


@pytest.mark.parametrize("files", [1, 100])
@pytest.mark.sampled(2)
def test_the_initial_snapshot_and_commits(streams: Any, marked: str, checkpoint: str, files: int) -> None:
    """A commit that moves rows only (dataChange is false) is none for a stream; rows are counted as live."""
    source = streams.read(marked, maxFilesPerTrigger=files)
    found = streams.batches(source, checkpoint)
    assert sorted(id_ for ids in found.values() for id_ in ids) == [*range(3, 20)]
    again = {path: [*range(4)] for path in paths(marked) if _has_vector(marked, path)}
    mark_deleted(marked, again, data_change=False)
    streams.append(marked, 20, 22)
    assert streams.batches(source, checkpoint) == {len(found): [20, 21]}
    mark_deleted(marked, {path: [*range(5)] for path in again})
    for options in ({}, {"ignoreDeletes": True}):
        failing = streams.read(marked, **options)
        query = streams.foreach(failing, checkpoint, lambda batch, _: batch.collect())
        with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
            streams.ended(query)
    skipped = streams.batches(streams.read(marked, skipChangeCommits=True), checkpoint)
    assert [id_ for ids in skipped.values() for id_ in ids] == []


def test_a_batch_that_was_planned_is_read_again(streams: Any, marked: str, checkpoint: str) -> None:
    """Another run lists its files anew; progress counts rows of the one scan."""
    source = streams.read(marked)
    assert streams.batches(source, checkpoint) == {0: [*range(3, 20)]}
    for commit in Path(checkpoint, "commits").iterdir():
        commit.unlink()
    query = streams.ended(streams.foreach(source, checkpoint, lambda batch, _: batch.collect()))
    assert query.lastProgress["numInputRows"] > 0
    assert streams.batches(source, checkpoint) == {}


def test_rows_of_a_limit_and_of_a_plan_are_live_ones(
    streams: Any, marked: str, checkpoint: str, tmp_path: Path
) -> None:
    # The second file begins after 7 rows, of which the first one has 10 with those that are deleted.
    one_batch = streams.batches(streams.read(marked, maxRowsPerTrigger=8), checkpoint)
    assert {number: len(ids) for number, ids in one_batch.items()} == {0: 17}
    for commit in Path(checkpoint, "commits").iterdir():
        commit.unlink()
    replay = plan_restart(checkpoint, tables=[marked]).batch
    assert replay is not None
    assert (replay.is_replay, replay.rows) == (True, 17)

    plain = [path for path in paths(marked) if not _has_vector(marked, path)]
    mark_deleted(marked, dict.fromkeys(plain, range(6)))
    other = str(tmp_path / "other")
    both = streams.batches(streams.read(marked, maxFilesPerTrigger=1), other)
    assert {number: len(ids) for number, ids in both.items()} == {0: 7, 1: 4}
    Path(other, "commits", "1").unlink()
    [source] = lag(other, tables=[marked]).sources
    assert (source.files, source.rows) == (1, 4)
