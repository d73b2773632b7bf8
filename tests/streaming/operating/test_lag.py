"""How far a stream is behind, and how long until what it needs is deleted; all but one test need no JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pytest

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.log.maintenance.log_cleanup import clean_up
from deltaflow.store import LocalLogStore
from deltaflow.streaming import SourceLag, StreamLag, lag
from deltaflow.streaming.source_options import source_options
from deltaflow.streaming.stream_records import SourceRecord, record_source
from tests.streaming.operating.situations import METADATA, Stopped, offset
from tests.streaming.source_tables import SourceTable
from tests.tables import set_time, write_commit

DAY_MS = 86_400_000
START_MS = 20_000 * DAY_MS + 3_600_000
"""An hour after a midnight."""


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path, None)


def measured(stopped: Stopped, now_ms: int = START_MS, **options: Any) -> SourceLag:
    [found] = lag(stopped.checkpoint, tables=[stopped.path], options=options, clock=lambda: now_ms).sources
    assert found.error is None
    return found


def behind(found: SourceLag) -> tuple[int | None, ...]:
    return found.versions, found.files, found.bytes, found.rows, found.seconds


def test_inside_of_the_snapshot(stopped: Stopped) -> None:
    set_time(stopped.source.commit_file(0), START_MS - 50_999)
    stopped.commits(2)
    stopped.ended(offset(0, 0, initial=True))
    size = stopped.source.size
    found = measured(stopped)
    assert behind(found) == (3, 4, sum(size(number) for number in range(1, 5)), 8, 50)
    assert (found.version, found.index, found.is_initial_snapshot, found.newest_version) == (0, 0, True, 2)


def test_inside_of_a_commit(stopped: Stopped) -> None:
    stopped.source.commit([10], [11, 12], [13], time_ms=START_MS - 20_000)
    stopped.commits(1)
    stopped.ended(offset(1, 1), offset(2), planned=1)
    size = stopped.source.size
    found = measured(stopped)
    assert behind(found) == (2, 2, size(5) + size(6), 3, 20)


def test_nothing_is_left(stopped: Stopped) -> None:
    stopped.ended(offset(1))
    assert behind(measured(stopped)) == (0, 0, 0, 0, 0)


def test_options_that_bound_what_is_read(stopped: Stopped) -> None:
    stopped.source.commit([10], remove=("f000.parquet",))
    stopped.commits(2)
    stopped.ended(offset(1))
    assert measured(stopped).files == 3
    assert measured(stopped, skipChangeCommits=True).files == 2
    assert measured(stopped, endingVersion=2).files == 2
    with pytest.raises(DeltaIllegalArgumentException, match="endingVersion"):
        measured(stopped, endingVersion="x")


def test_before_the_first_batch_is_done(stopped: Stopped) -> None:
    stopped.commits(2)
    assert measured(stopped).files == 5
    assert measured(stopped, startingVersion=2).files == 1
    assert measured(stopped, startingVersion="latest").files == 0
    # A batch that is planned says with which version the stream began.
    stopped.ended(offset(0, 1, initial=True), planned=1)
    found = measured(stopped)
    assert (found.version, found.is_initial_snapshot, found.files) == (0, True, 5)


def test_rows_that_are_not_known(stopped: Stopped) -> None:
    add = stopped.source.file([1]) | {"dataChange": True, "stats": None}
    write_commit(stopped.path, 1, {"add": add})
    stopped.ended(offset(1))
    found = measured(stopped)
    assert (found.files, found.rows) == (1, None)


@pytest.mark.spark
@pytest.mark.long
def test_the_progress_says_the_same(streams: Any, table: str, checkpoint: str) -> None:
    """`lag` after each batch of a real stream, by what the stream recorded."""
    source = SourceTable(table, [0, 1], [2], [3, 4, 5])
    source.commit([6], [7])
    source.commit(remove=("f000.parquet",))
    source.commit([8], data_change=False)
    source.commit([9])
    for options in ({"startingVersion": 0}, {}, {"startingVersion": 0, "sourceFilter": "id > 4"}):
        path = f"{checkpoint}-{len(options)}"
        frame = streams.read(table, maxFilesPerTrigger=1, ignoreDeletes=True, **options)
        query = streams.ended(streams.foreach(frame, path, lambda rows, _: rows.collect()))
        told = [json.loads(progress.json) for progress in query.recentProgress]
        batches = {progress["batchId"]: progress["sources"][0]["metrics"] for progress in told}
        assert len(batches) > 3
        for batch in sorted(batches, reverse=True):
            streams.forget_all_but(path, batch)
            [found] = lag(path).sources
            assert found.error is None
            assert found.rows is not None
            assert [str(found.versions), str(found.files), str(found.bytes)] == [
                batches[batch][name]
                for name in ("versionsBehind", "numFilesOutstanding", "numBytesOutstanding")
            ]


# ------------------------------------------------------------------------------------- headroom


def versions_left(path: str, now_ms: int) -> list[int]:
    """The commits that are there after the clean-up of the log at a time."""
    log = DeltaLog(LocalLogStore(), path, clock=lambda: now_ms)
    clean_up(log._files, log.snapshot())
    return log.commit_versions()


@pytest.mark.parametrize("checkpoint_at", [3, 5])
def test_the_log_is_cleaned_up_at_the_promised_time(stopped: Stopped, checkpoint_at: int) -> None:
    stopped.commits(checkpoint_at)
    for version in range(stopped.source.next_version):
        set_time(stopped.source.commit_file(version), START_MS + version * DAY_MS)
    deltalake.DeltaTable(stopped.path).create_checkpoint()
    last = stopped.source.next_version - 1
    stopped.ended(offset(2, 0))
    [headroom] = measured(stopped, START_MS).headroom
    assert (headroom.version, headroom.file, headroom.is_gone) == (2, None, False)
    ends_ms = START_MS + round(headroom.seconds * 1000)
    # The limit is a midnight.
    assert ends_ms == START_MS - 3_600_000 + (last + 1) * DAY_MS + 30 * DAY_MS
    assert versions_left(stopped.path, ends_ms - 1) == list(range(last + 1))
    assert versions_left(stopped.path, ends_ms) == [last]
    [headroom] = lag(stopped.checkpoint, tables=[stopped.path], clock=lambda: ends_ms).sources[0].headroom
    assert headroom.is_gone
    assert "the commit of version 2 is deleted already" in str(headroom)


def test_the_log_without_a_later_checkpoint(stopped: Stopped) -> None:
    """The newest version could be one at any time; if the stream is there, nothing is in danger."""
    stopped.commits(2)
    for version in range(3):
        set_time(stopped.source.commit_file(version), START_MS + version * DAY_MS)
    stopped.ended(offset(1))
    [headroom] = measured(stopped).headroom
    assert headroom.seconds == (3 * DAY_MS - 3_600_000 + 30 * DAY_MS) / 1_000
    stopped.ended(offset(2))
    assert measured(stopped).headroom == ()


@pytest.mark.parametrize(
    ("name", "value", "days"),
    [("delta.logRetentionDuration", "interval 3 days", 5), ("delta.enableExpiredLogCleanup", "false", None)],
)
def test_the_tables_properties_say_when(tmp_path: Path, name: str, value: str, days: int | None) -> None:
    table = SourceTable(str(tmp_path / "t"), [0], **{name.replace(".", "_"): value})
    table.commit([1])
    table.commit([2])
    for version in range(3):
        set_time(table.commit_file(version), START_MS - 3_600_000)
    stopped = Stopped(tmp_path, None)
    stopped.path = table.path
    stopped.ended(offset(1))
    found = [headroom.seconds for headroom in measured(stopped, START_MS - 3_600_000).headroom]
    assert found == ([] if days is None else [pytest.approx(4 * 86_400, abs=86_400)])


def removed(stopped: Stopped, *paths: str, time_ms: int) -> None:
    """Commits that files are removed without a change of data."""
    actions = [
        {"remove": {"path": path, "deletionTimestamp": time_ms, "dataChange": False}} for path in paths
    ]
    write_commit(stopped.path, stopped.source.next_version, *actions)
    set_time(stopped.source.commit_file(stopped.source.next_version), time_ms)
    stopped.source.next_version += 1


def vacuumed(path: str, now_ms: int) -> list[str]:
    """What a vacuum with the table's retention would delete at a time."""
    log = DeltaLog(LocalLogStore(), path, clock=lambda: now_ms)
    return sorted(log.plan_vacuum(7 * DAY_MS).files["path"].to_pylist())


def test_a_vacuum_deletes_at_the_promised_time(stopped: Stopped) -> None:
    stopped.commits(3)
    for file in Path(stopped.path).rglob("*.*"):
        set_time(file, START_MS - DAY_MS)
    removed(stopped, "f000.parquet", time_ms=START_MS)  # has been read
    removed(stopped, "f004.parquet", "f003.parquet", time_ms=START_MS + DAY_MS)
    removed(stopped, "f005.parquet", time_ms=START_MS + 2 * DAY_MS)
    stopped.ended(offset(1))
    by_vacuum = [headroom for headroom in measured(stopped).headroom if headroom.by == "vacuum"]
    [headroom] = by_vacuum
    assert (headroom.version, headroom.file, headroom.is_gone) == (1, "f003.parquet", False)
    ends_ms = START_MS + round(headroom.seconds * 1_000)
    assert vacuumed(stopped.path, ends_ms) == ["f000.parquet"]
    assert vacuumed(stopped.path, ends_ms + 1) == ["f000.parquet", "f003.parquet", "f004.parquet"]
    assert "f003.parquet of version 1 may be deleted by a vacuum in 8 d" in str(
        lag(stopped.checkpoint, tables=[stopped.path], clock=lambda: START_MS)
    ).replace("\n", "")
    Path(stopped.path, "f003.parquet").unlink()
    assert "is deleted already" in str(lag(stopped.checkpoint, tables=[stopped.path]).headroom)


def test_a_vacuum_and_the_snapshot_of_the_start(stopped: Stopped) -> None:
    removed(stopped, "f000.parquet", "f001.parquet", time_ms=START_MS)
    stopped.ended(offset(0, 0, initial=True))
    [headroom] = [found for found in measured(stopped).headroom if found.by == "vacuum"]
    assert (headroom.version, headroom.file, headroom.seconds) == (0, "f001.parquet", 7 * 86_400)


def test_files_whose_tombstone_has_expired(stopped: Stopped) -> None:
    """Nothing says any more when they were removed: they may go at once."""
    stopped.commits(1)
    removed(stopped, "f003.parquet", time_ms=1)
    deltalake.DeltaTable(stopped.path).create_checkpoint()
    stopped.ended(offset(1))
    [headroom] = [found for found in measured(stopped).headroom if found.by == "vacuum"]
    assert headroom.seconds < 0
    assert "may be deleted by a vacuum now" in str(headroom)


# ------------------------------------------------------------------------------------- what is wrong


def test_a_table_that_the_checkpoint_does_not_name(stopped: Stopped) -> None:
    stopped.ended(offset(1))
    [found] = lag(stopped.checkpoint).sources
    assert found.error is not None
    assert "[DELTA_STREAM_TABLE_UNKNOWN]" in found.error
    assert "tables=[...]" in found.error
    assert "rebuilt" in found.error


def test_an_adopted_table_that_the_query_reads_in_two_places(stopped: Stopped) -> None:
    """The record of the source has the id of the earlier table as long as the stream has not run."""
    metadata_path = f"{stopped.checkpoint}/sources/0"
    record_source(metadata_path, SourceRecord(stopped.path, "earlier", source_options({}, {})))
    stopped.ended(f"{offset(1)}\n{offset(1)}")
    found = lag(stopped.checkpoint).sources
    assert [(source.table, source.error) for source in found] == [(stopped.path, None)] * 2


def test_a_table_that_was_created_anew(stopped: Stopped) -> None:
    stopped.ended(offset(1, reservoirId="another"))
    [found] = lag(stopped.checkpoint, tables=[stopped.path]).sources
    assert found.error is not None
    assert "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE]" in found.error


def test_sources_of_other_formats_beside_tables_in_any_order(tmp_path: Path) -> None:
    stopped = Stopped(tmp_path, None)
    other = SourceTable(str(tmp_path / "other"), [7], table_id="table-2")
    other.commit([8])
    stopped.ended('{"topic":{"0":23}}\n' + offset(1) + "\n" + offset(1, reservoirId="table-2"))
    found = lag(stopped.checkpoint, tables=[other.path, stopped.path])
    assert [source.table for source in found.sources] == [None, stopped.path, other.path]
    assert [source.files for source in found.sources] == [None, 0, 1]
    assert "does not read a Delta table" in str(found.sources[0].error)


def test_named_sources(stopped: Stopped) -> None:
    stopped.commits(1)
    stopped.ended(offset(1))
    Path(stopped.checkpoint, "offsets", "0").write_text(f"v2\n{METADATA}\nevents:{offset(1)}")
    found = measured(stopped)
    assert (found.source, found.files) == ("events", 1)


def test_a_directory_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DeltaIllegalArgumentException, match="no checkpoint of a stream"):
        lag(str(tmp_path))


def test_it_is_json(stopped: Stopped) -> None:
    stopped.commits(1)
    stopped.ended(offset(1))
    found = lag(stopped.checkpoint, tables=[stopped.path])
    assert msgspec.json.decode(msgspec.json.encode(found), type=StreamLag) == found


def test_it_starts_no_jvm_and_loads_no_sink(stopped: Stopped) -> None:
    stopped.ended(offset(1))
    program = (
        "import sys; from deltaflow.streaming import lag; from pyspark import SparkContext\n"
        f"assert lag({stopped.checkpoint!r}, tables=[{stopped.path!r}]).sources[0].files == 0\n"
        "assert SparkContext._gateway is None\n"
        "assert not {'deltaflow.streaming.sink', 'deltaflow.streaming.source'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_table_that_the_stream_does_not_read_is_refused(streams: Any, tmp_path: Path) -> None:
    stopped = Stopped(tmp_path, streams)
    stopped.commits()
    stopped.ended(offset(1))
    other = SourceTable(f"{stopped.path}-2", [7], table_id="table-2")
    with pytest.raises(
        DeltaIllegalArgumentException, match=rf"reads no table at {other.path}\. .*{stopped.path}"
    ):
        lag(stopped.checkpoint, tables=[stopped.path, other.path])
