"""Versions by number and by time, as far as the log can rebuild them."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from deltaflow.errors import VersionNotFoundError
from tests.log.checkpoints import write_checkpoint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol
from tests.tables import set_time

IN_COMMIT = {"readerFeatures": [], "writerFeatures": ["inCommitTimestamp"]}
YEAR_1_MS = -62_135_596_800_000
ENABLED = {"delta.enableInCommitTimestamps": "true"}


def files_at(table: HandWrittenTable, *times_ms: int) -> None:
    """One commit for each modification time."""
    for version, time_ms in enumerate(times_ms):
        actions = [protocol(), meta_data()] if version == 0 else [add(f"f{version}")]
        set_time(table.commit(version, *actions), time_ms)


def in_commit(time_ms: int) -> dict[str, dict[str, int]]:
    return {"commitInfo": {"timestamp": time_ms, "inCommitTimestamp": time_ms}}


def test_the_version_at_a_time_is_the_last_before_it(table: HandWrittenTable) -> None:
    files_at(table, 1_000, 2_000, 3_000)
    log = table.log()
    assert [log.version_at_timestamp(time) for time in (1_000, 1_999, 2_000, 2_001, 3_000)] == [0, 0, 1, 1, 2]
    assert log.snapshot_at_timestamp(2_500).files["path"].to_pylist() == ["f1"]


def test_times_that_do_not_rise_are_made_to(table: HandWrittenTable) -> None:
    files_at(table, 5_000, 1_000, 5_000, 9_000)
    log = table.log()
    assert [log.version_at_timestamp(time) for time in (5_000, 5_001, 5_002, 8_999)] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("time", "code"),
    [
        (999, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
        (2_001, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        (YEAR_1_MS - 1, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
        (2**63 - 1, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
    ],
)
def test_a_time_out_of_range_says_the_range(table: HandWrittenTable, time: int, code: str) -> None:
    files_at(table, 1_000, 2_000)
    with pytest.raises(VersionNotFoundError) as raised:
        table.log().version_at_timestamp(time)
    assert isinstance(raised.value, AnalysisException)
    assert raised.value.error_class == code
    assert "versions [0, 1], from 1970-01-01 00:00:01.000+00:00 to 1970-01-01 00:00:02.000+00:00" in str(
        raised.value
    )


def test_the_first_version_since_a_time_out_of_range(table: HandWrittenTable) -> None:
    files_at(table, 1_000, 2_000)
    assert table.log().first_version_since(YEAR_1_MS) == 0
    assert table.log().first_version_since(2**63 - 1, may_be_later=True) == 2


def test_the_first_version_since_a_time_need_not_be_one_that_the_log_can_give(
    table: HandWrittenTable,
) -> None:
    """delta-spark's clean-up deletes old commits whether or not a checkpoint comes right after them."""
    files_at(table, 1_000, 2_000, 3_000, 4_000, 5_000)
    write_checkpoint(table, 4, [protocol(), meta_data(), add("f4")])
    for version in (0, 1):
        (table.log_directory / f"{version:020}.json").unlink()
    log = table.log()
    assert [log.first_version_since(time) for time in (500, 3_000, 3_001, 4_001, 5_000)] == [2, 2, 3, 4, 4]
    with pytest.raises(VersionNotFoundError, match="EARLIER"):
        log.version_at_timestamp(3_500)


@pytest.mark.parametrize("written_ms", [1_500, 9_000])
def test_a_version_of_which_the_checkpoint_alone_is_left(table: HandWrittenTable, written_ms: int) -> None:
    """It can be read, and its commit cannot: streams and change feeds begin with the commit after it."""
    files_at(table, 1_000, 2_000, 3_000)
    (checkpoint,) = write_checkpoint(table, 0, [protocol(), meta_data()])
    set_time(checkpoint, written_ms)
    (table.log_directory / f"{0:020}.json").unlink()
    log = table.log()
    assert [log.first_version_since(time) for time in (500, 1_999, 2_000, 2_001, 3_000)] == [1, 1, 1, 2, 2]
    assert [log.version_at_timestamp(time) for time in (1_999, 2_000, 2_999, 3_000)] == [0, 1, 1, 2]


def test_in_commit_timestamps_from_the_first_version_on(table: HandWrittenTable) -> None:
    set_time(
        table.commit(0, in_commit(100), protocol(3, 7, **IN_COMMIT), meta_data(configuration=ENABLED)), 9_000
    )
    set_time(table.commit(1, in_commit(200)), 1_000)
    set_time(table.commit(2, in_commit(300)), 500)
    log = table.log()
    assert [log.version_at_timestamp(time) for time in (100, 199, 200, 300)] == [0, 0, 1, 2]
    with pytest.raises(VersionNotFoundError, match="EARLIER"):
        log.version_at_timestamp(99)
    with pytest.raises(VersionNotFoundError, match="GREATER"):
        log.version_at_timestamp(301)


def test_in_commit_timestamps_of_a_version_whose_commit_is_gone(table: HandWrittenTable) -> None:
    table.commit(0, in_commit(100), protocol(3, 7, **IN_COMMIT), meta_data(configuration=ENABLED))
    for version in (1, 2):
        table.commit(version, in_commit(100 * (version + 1)), add(f"f{version}"))
    state = [protocol(3, 7, **IN_COMMIT), meta_data(configuration=ENABLED)]
    (checkpoint,) = write_checkpoint(table, 0, state)
    (table.log_directory / f"{0:020}.json").unlink()
    log = table.log()
    for written_ms, first_ms in ((150, 150), (9_000, 199)):
        set_time(checkpoint, written_ms)
        assert [log.version_at_timestamp(time) for time in (first_ms, 200, 299, 300)] == [0, 1, 1, 2]
        assert log.first_version_since(99) == 1
        for time in (first_ms - 1, 301):
            with pytest.raises(VersionNotFoundError):
                log.version_at_timestamp(time)


def test_in_commit_timestamps_that_were_enabled_later(table: HandWrittenTable) -> None:
    files_at(table, 1_000, 2_000)
    configuration = ENABLED | {
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": "5000",
    }
    table.commit(2, in_commit(5_000), protocol(3, 7, **IN_COMMIT), meta_data(configuration=configuration))
    table.commit(3, in_commit(6_000))
    log = table.log()
    times = (1_000, 2_000, 4_999, 5_000, 5_999, 6_000)
    assert [log.version_at_timestamp(time) for time in times] == [0, 1, 1, 2, 2, 3]


def test_versions_before_a_checkpoint_may_be_gone(table: HandWrittenTable) -> None:
    write_checkpoint(table, 4, [protocol(), meta_data(), add("a")])
    table.commit(5, add("b"))
    table.commit(6, add("c"))
    log = table.log()
    assert log.available_versions() == [4, 5, 6]
    assert [sorted(log.snapshot_at(version).files["path"].to_pylist()) for version in (4, 5)] == [
        ["a"],
        ["a", "b"],
    ]
    for version in (0, 3, 7):
        with pytest.raises(VersionNotFoundError, match=r"Available versions: \[4, 6\]"):
            log.snapshot_at(version)


def test_a_gap_before_a_checkpoint_leaves_versions_on_both_sides(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    table.commit(1, add("b"))
    table.commit(3, add("d"))
    write_checkpoint(table, 4, [protocol(), meta_data(), add("e")])
    log = table.log()
    assert log.snapshot().version == 4
    assert log.snapshot_at(1).num_files == 2
    with pytest.raises(VersionNotFoundError, match=r"Available versions: \[0, 1\], \[4, 4\]"):
        log.snapshot_at(3)


def test_an_older_version_of_a_table_whose_newest_cannot_be_read(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    table.commit(1, protocol(3, 7, readerFeatures=["future"], writerFeatures=["future"]))
    table.write(2, b"{")
    assert table.log().snapshot_at(0).num_files == 1
