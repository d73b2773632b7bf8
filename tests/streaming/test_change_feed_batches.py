"""How a stream of change rows is divided into batches, and its offsets; without a JVM.

The expected batches are those of delta-spark's DeltaSourceCDCSupport.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalStateException
from deltaflow.log import DeltaLog
from deltaflow.streaming.admission import Limits
from deltaflow.streaming.backlog import Backlog
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.source import DeltaSource, files_of_batch, files_of_planned_batch
from deltaflow.streaming.source_options import source_options
from tests.streaming.change_tables import ChangeTable
from tests.tables import set_time


def reading(table: ChangeTable, **options: str) -> Reading:
    log = DeltaLog.for_table(table.path, with_files=False)
    newest = log.snapshot()
    checked = source_options({"readChangeFeed": "true", **options}, {})
    return Reading(log, newest.table_id, newest.version, newest.schema, (), checked, counts_rows=True)


def batches(what: Reading, limits: dict[str, int] | None = None) -> list[tuple[tuple[int, int], int]]:
    """The offset (version, index) and the number of files of each batch up to the end of the table.

    Each batch is listed again from its offsets, as after a restart.
    """
    source, start, found = DeltaSource(what), None, []
    while True:
        source.prepare_for_available_now()
        end = source.latest_offset(start, Limits(**(limits or what.options.limits())))
        if end.json() == start:
            return found
        scans = [json.loads(relation.scan) for relation in source.batch(start, end.json())]
        listed = [path for scan in scans for path in files_of_batch(scan).files["path"].to_pylist()]
        again = files_of_planned_batch(what, start, end.json())["path"].to_pylist()
        assert sorted(listed) == sorted(again)
        found.append(((end.reservoir_version, end.index), len(listed)))
        start = end.json()


BASE = -100


def test_limits_and_offsets(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0], [1], [2])  # version 0: 3 files
    table.record(2, [3], remove=("f000.parquet",))  # 1: 2 change files, whatever is added and removed
    table.commit()  # 2: nothing
    table.mark("f001.parquet", "f002.parquet")  # 3: two files get vectors
    table.take("f003.parquet")  # 4: a file is removed
    table.commit([4], data_change=False)  # 5: nothing that changes data
    table.record(3)  # 6: 3 change files

    def of(**options: str) -> list[tuple[tuple[int, int], int]]:
        return batches(reading(table, startingVersion="0", **options))

    # A commit with cdc actions ends with its last file, and a batch does not pass over what follows.
    assert of(maxFilesPerTrigger="1") == [
        ((0, 0), 1),
        ((0, 1), 1),
        ((1, BASE), 1),
        ((1, 1), 2),
        ((3, BASE), 0),
        ((4, BASE), 2),
        ((5, BASE), 1),
        ((6, BASE), 0),
        ((6, 2), 3),
    ]
    assert of(maxBytesPerTrigger="1b") == of(maxFilesPerTrigger="1")
    # The beginning and the end of a commit with vectors count as files.
    assert of(maxFilesPerTrigger="3") == [
        ((1, BASE), 3),
        ((3, BASE), 2),
        ((4, BASE), 2),
        ((6, BASE), 1),
        ((6, 2), 3),
    ]
    assert of(maxFilesPerTrigger="11") == [((4, BASE), 3 + 2 + 2), ((6, 2), 1 + 3)]
    assert of(maxFilesPerTrigger="10")[:2] == [((3, BASE), 3 + 2), ((6, 2), 2 + 1 + 3)]
    assert of(maxFilesPerTrigger="12")[0] == ((5, BASE), 3 + 2 + 2 + 1)
    assert of() == [((6, 2), 3 + 2 + 2 + 1 + 3)]
    # Rows: the two files with vectors have one change row each. Other files do not tell their rows.
    assert of(maxRowsPerTrigger="4") == [
        ((1, BASE), 3),
        ((1, 1), 2),
        ((5, BASE), 3),
        ((6, BASE), 0),
        ((6, 2), 3),
    ]
    # The initial snapshot, then the commits after it.
    table.commit([5])
    assert batches(reading(table, maxFilesPerTrigger="2"))[-1][0] == (8, BASE)
    # No limit at all, as with the trigger `once`.
    assert batches(reading(table, startingVersion="0"), {"files": None})[0] == ((8, BASE), 12)


def test_a_batch_that_is_full_leaves_a_commit_that_does_not_fit(tmp_path: Path) -> None:
    """And what comes after it."""
    table = ChangeTable(str(tmp_path), [0], [1])
    table.record(2)
    table.commit([2])
    assert batches(reading(table, startingVersion="0", maxFilesPerTrigger="3")) == [
        ((1, BASE), 2),
        ((3, BASE), 3),
    ]
    first = reading(table, startingVersion="1", maxFilesPerTrigger="1")
    assert batches(first) == [((1, 1), 2), ((3, BASE), 1)]


def test_an_end_and_the_times_of_commits(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0])
    set_time(table.commit_file(0), 80_000)
    for number in range(3):
        table.record(1, [number], time_ms=90_000)
    table.mark("f001.parquet", time_ms=95_000)
    what = reading(table, startingVersion="1", endingVersion="3")
    assert batches(what) == [((3, 0), 3)]
    source = DeltaSource(reading(table, startingVersion="1"))
    _, files = source.plan_batch(None, Limits())
    values = [dict(values) for values in files["partition_values"].to_pylist()]
    assert [value["_commit_timestamp"][17:23] for value in values] == ["30.000", "30.001", "30.002", "35.000"]
    assert [value.get("_change_type") for value in values] == [None, None, None, "delete"]
    # In-commit timestamps count where there are some.
    lines = [json.loads(line) for line in table.commit_file(2).read_text().splitlines()]
    lines[0]["commitInfo"]["inCommitTimestamp"] = 7_000
    table.commit_file(2).write_text("".join(json.dumps(line) + "\n" for line in lines))
    set_time(table.commit_file(2), 90_000)
    _, files = DeltaSource(reading(table, startingVersion="1")).plan_batch(None, Limits())
    values = [dict(values) for values in files["partition_values"].to_pylist()]
    assert [value["_commit_timestamp"][17:23] for value in values] == ["30.000", "07.000", "30.002", "35.000"]


def test_the_times_of_commits_where_clocks_differ(tmp_path: Path) -> None:
    """They are those of the batch reader, whatever batch has the commit; the log is listed for the first."""
    table = ChangeTable(str(tmp_path), [0])
    set_time(table.commit_file(0), 100_000)
    for number, time_ms in enumerate((90_000, 20_000, 99_000, 130_000, 40_000), 1):
        table.commit([number], time_ms=time_ms)
    expected = [100_000, 100_001, 100_002, 100_003, 130_000, 130_001]
    log = DeltaLog.for_table(table.path)
    assert list(log.commit_times_ms(0, 5).values()) == expected
    for start in (0, 2, 4):
        source, end = DeltaSource(reading(table, startingVersion=str(start))), None
        for version in range(start, 6):
            end, files = source.plan_batch(end and end.json(), Limits(files=1))
            [values] = map(dict, files["partition_values"].to_pylist())
            assert values["_commit_version"] == str(version)
            told = datetime.fromisoformat(values["_commit_timestamp"])
            assert told.timestamp() * 1_000 == expected[version]
    _, files = DeltaSource(reading(table)).plan_batch(None, Limits())
    assert {dict(values)["_commit_timestamp"] for values in files["partition_values"].to_pylist()} == {
        "1970-01-01T00:02:10.001000Z"
    }


def test_a_merge_that_changed_nothing(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0])
    table.commit([0], remove=("f000.parquet",))
    lines = [json.loads(line) for line in table.commit_file(1).read_text().splitlines()]
    counts = dict.fromkeys(("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0")
    lines[0]["commitInfo"] |= {"operation": "MERGE", "operationMetrics": counts}
    table.commit_file(1).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert batches(reading(table, startingVersion="1")) == [((2, BASE), 0)]


@pytest.mark.parametrize("version", [1, 2])
def test_a_feed_that_is_switched_off(tmp_path: Path, version: int) -> None:
    table = ChangeTable(str(tmp_path), [0])
    table.commit([1])
    on, off = table.metadata, {**table.metadata, "configuration": {}}
    table.commit(metaData=off)
    table.commit(metaData=on)
    table.commit([2])
    assert batches(reading(table, startingVersion="3"))[-1] == ((5, BASE), 1)
    assert batches(reading(table)) == [((5, BASE), 3)]
    with pytest.raises(DeltaAnalysisException) as raised:
        batches(reading(table, startingVersion=str(version)))
    assert raised.value.error_class == "DELTA_MISSING_CHANGE_DATA"
    assert f"[{version}, 4]" in str(raised.value)
    assert "was not recorded for version 2" in str(raised.value)
    # What comes before is not lost, and the batch is not planned again with it.
    source = DeltaSource(reading(table, startingVersion="0", maxFilesPerTrigger="2"))
    assert source.latest_offset(None, Limits(files=2)).position == (2, BASE)
    table.commit(metaData=off)
    table.commit([3])
    with pytest.raises(DeltaAnalysisException, match="DELTA_MISSING_CHANGE_DATA"):
        batches(reading(table))
    # A stream from the version that is still to come is checked when it is there.
    coming = DeltaSource(reading(table, startingVersion="latest"))
    start = coming.latest_offset(None, Limits(files=9)).json()
    assert coming.latest_offset(start, Limits(files=9)).json() == start
    table.commit([4])
    with pytest.raises(DeltaAnalysisException, match="DELTA_MISSING_CHANGE_DATA"):
        coming.latest_offset(start, Limits(files=9))


def test_commits_that_are_lost(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0])
    table.record(1)
    table.commit([1])
    table.record(2)
    stopping, going_on = (
        reading(table, startingVersion="0", failOnDataLoss=value) for value in ("true", "false")
    )
    source = DeltaSource(stopping)
    end = source.latest_offset(None, Limits()).json()
    table.commit_file(2).unlink()
    with pytest.raises(DeltaIllegalStateException, match="DELTA_MISSING_FILES_UNEXPECTED_VERSION"):
        batches(stopping)
    assert batches(going_on) == [((3, 1), 1 + 1 + 2)]
    table.commit_file(3).unlink()
    with pytest.raises(DeltaIllegalStateException, match="DELTA_STREAMING_TRAILING_COMMIT_MISSING"):
        files_of_planned_batch(going_on, None, end)


def test_the_state_of_the_start_is_gone(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0])
    table.commit([1])
    table.commit([2])
    what = reading(table, startingVersion="1")
    lost = reading(table, startingVersion="1", failOnDataLoss="false")
    assert batches(what) == [((3, BASE), 2)]
    table.commit_file(0).unlink()
    with pytest.raises(DeltaIllegalStateException, match="DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"):
        batches(what)
    assert batches(lost) == [((3, BASE), 2)]


def test_the_backlog(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path), [0], [1])
    table.record(2, [2], remove=("f000.parquet",), size=300, time_ms=50_000)
    table.mark("f001.parquet", time_ms=60_000)
    table.take("f002.parquet", time_ms=70_000)

    def left(batches: int, files: int, **options: str) -> list[int]:
        what = reading(table, **options)
        source, offset = DeltaSource(what), None
        source._backlog = Backlog(what, clock=lambda: 100_999)
        for _ in range(batches):
            offset = source.latest_offset(offset, Limits(files=files)).json()
        found = source.metrics(offset)
        names = ("numFilesOutstanding", "numBytesOutstanding", "versionsBehind", "secondsBehind")
        return [int(found[name]) for name in names]

    assert left(1, 2, startingVersion="0") == [5, 600 + 100 + 50, 3, 50]
    assert left(2, 2, startingVersion="0") == [3, 100 + 50, 2, 40]
    assert left(3, 2, startingVersion="0") == [1, 50, 1, 30]
    assert left(4, 2, startingVersion="0") == [0, 0, 0, 0]
    assert left(1, 2, startingVersion="0", skipChangeCommits="true") == [5, 750, 3, 50]
    table.record(1, size=7, time_ms=80_000)
    assert left(5, 2, startingVersion="0") == [0, 0, 0, 0]


def test_errors_of_a_plain_stream_name_the_feed(tmp_path: Path) -> None:
    table = ChangeTable(str(tmp_path / "on"), [0], [1])
    table.commit(remove=("f000.parquet",))
    table.commit([1], remove=("f001.parquet",))
    off = ChangeTable(str(tmp_path / "off"), [0], [1], delta_enableChangeDataFeed="false")
    off.commit(remove=("f000.parquet",))
    off.commit([1], remove=("f001.parquet",))
    off.commit(metaData=table.metadata)
    for found, remedy in (
        (table, "The table records its changes: to read inserted, changed and deleted rows as such, start"),
        (off, f"run ALTER TABLE delta.`{off.path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"),
    ):
        for version, condition in (("1", "IGNORE_DELETE"), ("2", "TABLE_IGNORE_CHANGES")):
            plain = reading(found, startingVersion=version, readChangeFeed="false")
            with pytest.raises(DeltaIllegalStateException, match=f"DELTA_SOURCE_{condition}") as raised:
                DeltaSource(plain).latest_offset(None, Limits())
            assert remedy in str(raised.value)
            assert '.option("readChangeFeed", "true")' in str(raised.value)
            assert f"version {version}." in str(raised.value)
