"""Where a stream begins and ends: by version, by time, and after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from deltaflow.streaming.source import DeltaSource
from tests.streaming.source_tables import SourceTable, metadata_action, read_failure, read_ids
from tests.tables import ids, set_time

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_704_067_200_000  # 2024-01-01 00:00:00 UTC


def hourly(path: str) -> SourceTable:
    """Versions 0 to 3, each with the row of its number, one in each hour from new year on."""
    table = SourceTable(path, [0])
    set_time(table.commit_file(0), NEW_YEAR_MS)
    for version in (1, 2, 3):
        table.commit([version], time_ms=NEW_YEAR_MS + version * HOUR_MS)
    return table


@pytest.mark.covers("startingVersion", "DELTA_VERSION_NOT_FOUND")
def test_starting_version(streams: Any, table: str, tmp_path: Path) -> None:
    source = hourly(table)
    assert read_ids(streams, source, tmp_path / "2", startingVersion="2") == [2, 3]
    # With the same checkpoint the option has no effect any more.
    source.commit([4])
    assert read_ids(streams, source, tmp_path / "2", startingVersion="0") == [4]
    error = read_failure(streams, source, tmp_path / "9", startingVersion="9")
    assert (error.code, error.state) == ("DELTA_VERSION_NOT_FOUND", "22003")
    assert "Cannot time travel Delta table to version 9. Available versions: [0, 4]." in error.message


@pytest.mark.covers("startingVersion", "DELTA_VERSION_NOT_FOUND")
def test_a_starting_version_that_was_cleaned_up(streams: Any, table: str, tmp_path: Path) -> None:
    import deltalake

    source = hourly(table)
    deltalake.DeltaTable(table).create_checkpoint()
    source.commit([4])
    source.commit_file(0).unlink()
    source.commit_file(1).unlink()
    error = read_failure(streams, source, tmp_path / "1", startingVersion="1")
    assert (error.code, error.state) == ("DELTA_VERSION_NOT_FOUND", "22003")
    assert "Available versions: [2, 4]" in error.message
    # The snapshot of this version can no longer be built, but its commit can be read.
    assert read_ids(streams, source, tmp_path / "2", startingVersion="2") == [2, 3, 4]


@pytest.mark.covers("startingVersion")
def test_latest_is_what_comes_after_the_start(streams: Any, table: str, checkpoint: str) -> None:
    """The first batch is empty and records the start, so that a crash or the end of the run loses nothing."""
    source = hourly(table)
    attempts: list[list[int]] = []

    def fail_at_first(batch: Any, _: int) -> None:
        attempts.append([row.id for row in batch.collect()])
        if len(attempts) == 1:
            raise ValueError("fails at first")

    frame = streams.read(table, startingVersion="latest")
    with pytest.raises(StreamingQueryException, match="fails at first"):
        streams.ended(streams.foreach(frame, checkpoint, fail_at_first))
    source.commit([4])
    streams.ended(streams.foreach(frame, checkpoint, fail_at_first))
    assert attempts == [[], [], [4]]
    source.commit([5])
    assert read_ids(streams, source, checkpoint, startingVersion="latest") == [5]


@pytest.mark.covers("startingTimestamp")
@pytest.mark.parametrize(
    ("zone", "timestamp", "first"),
    [
        ("UTC", "2024-01-01", 0),
        ("UTC", "2024-01-01 00:00:00.001", 1),
        ("UTC", "2024-01-01T01:00:00Z", 1),
        ("UTC", "2024-01-01 01:30:00", 2),
        ("UTC", "2024-01-01 03:00:00", 3),
        ("UTC", "1999-01-01", 0),
        ("Asia/Tokyo", "2024-01-01 10:00:00", 1),
        ("America/New_York", "2023-12-31 21:00:00", 2),
    ],
)
@pytest.mark.sampled(3)
def test_starting_timestamp(
    streams: Any, setting: Any, table: str, checkpoint: str, zone: str, timestamp: str, first: int
) -> None:
    source = hourly(table)
    setting("spark.sql.session.timeZone", zone)
    assert read_ids(streams, source, checkpoint, STARTINGTIMESTAMP=timestamp) == list(range(first, 4))


@pytest.mark.covers("startingTimestamp", "startingVersion")
@pytest.mark.covers("DELTA_TIMESTAMP_INVALID", "DELTA_TIMESTAMP_GREATER_THAN_COMMIT")
@pytest.mark.covers("DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET", "endingVersion", "endingTimestamp")
def test_bounds_that_are_none(streams: Any, table: str, checkpoint: str) -> None:
    source = hourly(table)
    for options, code, state, said in (
        ({"startingTimestamp": "soon"}, "DELTA_TIMESTAMP_INVALID", "42816", "timestamp ('soon') cannot"),
        ({"endingTimestamp": "late"}, "DELTA_TIMESTAMP_INVALID", "42816", "timestamp ('late') cannot"),
        (
            {"startingTimestamp": "2024-01-01 03:00:00.001"},
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            "42816",
            "2024-01-01 03:00:00.001",
        ),
        (
            {"startingTimestamp": "2999-01-01"},
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            "42816",
            "The provided timestamp (2999-01-01 00:00:00",
        ),
        (
            {"startingTimestamp": "2024-01-01", "startingVersion": "0"},
            "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
            "42613",
            "Please either provide 'startingVersion' or 'startingTimestamp'",
        ),
        (
            {"endingTimestamp": "2024-01-01", "endingVersion": "0"},
            "DELTA_MULTIPLE_CDC_BOUNDARY",
            "42614",
            "endingTimestamp or endingVersion",
        ),
        (
            {"startingVersion": "2", "endingVersion": "1"},
            "DELTA_ILLEGAL_OPTION",
            "42616",
            "must not be before the version 2 with which the stream starts",
        ),
    ):
        error = read_failure(streams, source, checkpoint, **options)
        assert (error.code, error.state) == (code, state)
        assert said in error.message


@pytest.mark.covers("startingTimestamp", "startingVersion", "changeDataFeed.timestampOutOfRange.enabled")
@pytest.mark.parametrize("start", [{"startingTimestamp": "2024-01-01 04:00:00"}, {"startingVersion": "4"}])
def test_a_start_that_is_still_to_come(
    streams: Any, setting: Any, table: str, checkpoint: str, start: dict[str, str]
) -> None:
    source = hourly(table)
    setting("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", "true")
    assert read_ids(streams, source, checkpoint, **start) == []
    source.commit([4], time_ms=NEW_YEAR_MS + 5 * HOUR_MS)
    assert read_ids(streams, source, checkpoint, **start) == [4]


@pytest.mark.covers("startingVersion", "startingTimestamp")
@pytest.mark.parametrize(
    "start", [{}, {"startingVersion": "1"}, {"startingTimestamp": "2024-01-01 01:00:00"}]
)
def test_the_first_batch_again_after_a_crash(
    streams: Any, table: str, checkpoint: str, start: dict[str, str]
) -> None:
    """Spark knows only the end of the batch. It begins at the option's version, or with the snapshot."""
    source = hourly(table)
    attempts: list[list[int]] = []

    def fail(batch: Any, _: int) -> None:
        attempts.append(ids(batch))
        raise ValueError("always")

    frame = streams.read(table, **start)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="always"):
            streams.ended(streams.foreach(frame, checkpoint, fail))
        source.commit([source.next_version])
    first = list(range(4)) if not start else [1, 2, 3]
    assert attempts == [first, first]
    assert read_ids(streams, source, checkpoint, **start) == [*first, 4, 5]


@pytest.mark.covers("startingTimestamp", "startingVersion", "changeDataFeed.timestampOutOfRange.enabled")
@pytest.mark.parametrize("start", [{"startingTimestamp": "2024-01-01 05:00:00"}, {"startingVersion": "4"}])
def test_the_first_batch_again_of_a_start_that_was_still_to_come(
    streams: Any, setting: Any, table: str, checkpoint: str, start: dict[str, str]
) -> None:
    """At the restart the table has reached the version or time of the option. The batch is still empty."""
    source = hourly(table)
    setting("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", "true")
    assert read_ids(streams, source, checkpoint, **start) == []
    assert streams.forget_last_batch(checkpoint) == 0
    for hour in (4, 5, 6):
        source.commit([hour], time_ms=NEW_YEAR_MS + hour * HOUR_MS)
    found = streams.batches(streams.read(table, **start), checkpoint)
    assert [ids for _, ids in sorted(found.items())] == [[], [4, 5, 6]]


@pytest.mark.covers("startingTimestamp", "startingVersion")
@pytest.mark.parametrize("start", [{"startingTimestamp": "2024-01-01 04:00:00"}, {"startingVersion": "4"}])
def test_a_start_that_arrives_as_the_last_version_of_a_run_is_fixed(
    streams: Any, table: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch, start: dict[str, str]
) -> None:
    """The start is after the last version of this run, so the next run reads it."""
    source = hourly(table)
    prepare = DeltaSource.prepare_for_available_now

    def prepare_before_the_commit(self: DeltaSource) -> None:
        prepare(self)
        if source.next_version == 4:
            source.commit([4], time_ms=NEW_YEAR_MS + 4 * HOUR_MS)

    monkeypatch.setattr(DeltaSource, "prepare_for_available_now", prepare_before_the_commit)
    assert read_ids(streams, source, checkpoint, **start) == []
    assert read_ids(streams, source, checkpoint, **start) == [4]


@pytest.mark.covers("endingVersion", "endingTimestamp")
@pytest.mark.parametrize(
    "end", [{"endingVersion": "1"}, {"endingTimestamp": "2024-01-01 01:59:59"}, {"ENDINGVERSION": "+1"}]
)
def test_a_stream_with_an_end(streams: Any, table: str, tmp_path: Path, end: dict[str, str]) -> None:
    source = hourly(table)
    assert read_ids(streams, source, tmp_path / "from the snapshot", **end) == [0, 1]
    assert read_ids(streams, source, tmp_path / "from a version", startingVersion="1", **end) == [1]
    source.commit([4], time_ms=NEW_YEAR_MS + 4 * HOUR_MS)
    assert read_ids(streams, source, tmp_path / "from a version", startingVersion="1", **end) == []
    # A later end goes on.
    assert read_ids(streams, source, tmp_path / "from a version", endingVersion="3") == [2, 3]


@pytest.mark.covers("endingVersion", "endingTimestamp")
@pytest.mark.parametrize("end", [{"endingVersion": "4"}, {"endingTimestamp": "2024-01-01 04:30:00"}])
def test_an_end_that_is_still_to_come(streams: Any, table: str, checkpoint: str, end: dict[str, str]) -> None:
    source = hourly(table)
    assert read_ids(streams, source, checkpoint, **end) == [0, 1, 2, 3]
    source.commit([4], time_ms=NEW_YEAR_MS + 4 * HOUR_MS)
    source.commit([5], time_ms=NEW_YEAR_MS + 5 * HOUR_MS)
    assert read_ids(streams, source, checkpoint, **end) == [4]


@pytest.mark.covers("endingTimestamp", "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION")
def test_an_end_in_a_log_that_was_cleaned_up(streams: Any, table: str, tmp_path: Path) -> None:
    """The commits are read of which the log can no longer give the state, and a stream at its end is done."""
    import deltalake

    source = hourly(table)
    checkpoint, end = tmp_path / "checkpoint", {"endingTimestamp": "2024-01-01 01:30:00"}
    deltalake.DeltaTable(table).create_checkpoint()
    source.commit([4], time_ms=NEW_YEAR_MS + 4 * HOUR_MS)
    source.commit_file(0).unlink()
    assert read_ids(streams, source, checkpoint, startingVersion="1", **end) == [1]
    source.commit_file(1).unlink()
    assert read_ids(streams, source, checkpoint, startingVersion="1", **end) == []
    error = read_failure(streams, source, tmp_path / "from the snapshot", **end)
    assert error.code == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"


@pytest.mark.covers("endingTimestamp")
@pytest.mark.parametrize("since", [{}, {"startingVersion": "0"}])
def test_an_end_where_clocks_differ(streams: Any, table: str, checkpoint: str, since: dict[str, str]) -> None:
    """The time of a version is later than that of the one before, whatever the times of their files are."""
    source = hourly(table)
    source.commit([4], time_ms=NEW_YEAR_MS + HOUR_MS + 1)
    end = {"endingTimestamp": "2024-01-01 01:30:00"}
    assert read_ids(streams, source, checkpoint, **since, **end) == [0, 1]
    source.commit([5], time_ms=NEW_YEAR_MS + 5 * HOUR_MS)
    assert read_ids(streams, source, checkpoint, **since, **end) == []


@pytest.mark.covers("endingVersion", "readChangeFeed")
@pytest.mark.parametrize("feed", ["false", "true"])
def test_what_comes_after_the_end_stops_no_stream(
    streams: Any, table: str, checkpoint: str, feed: str
) -> None:
    """A stream at its end is done, whatever the table has become since."""
    source = SourceTable(table, [0], delta_enableChangeDataFeed="true")
    source.commit([1])
    options = {"readChangeFeed": feed, "endingVersion": "1"}
    assert read_ids(streams, source, checkpoint, **options) == [0, 1]
    source.commit(metaData=metadata_action())  # without the feed
    wide = {"name": "id", "type": "string", "nullable": True, "metadata": {}}
    source.commit(metaData=metadata_action(wide), remove=("f000.parquet", "f001.parquet"))
    assert read_ids(streams, source, checkpoint, **options) == []
