"""The calls of the store for one micro-batch, and the backlog in the progress; without a JVM."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from deltaflow.streaming import source as streaming_source
from deltaflow.streaming.admission import Limits
from deltaflow.streaming.backlog import Backlog
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.source import DeltaSource, files_of_batch
from deltaflow.streaming.source_options import source_options
from tests.streaming.source_tables import SourceTable

LOOK_AHEAD = 8


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each method of the store was called."""
    counts: Counter[str] = Counter()
    for name in ("list_from", "status", "read", "open"):
        real = getattr(LocalLogStore, name)

        def counted(store: LocalLogStore, *arguments: Any, _real: Any = real, _name: str = name) -> Any:
            counts[_name] += 1
            return _real(store, *arguments)

        monkeypatch.setattr(LocalLogStore, name, counted)
    return counts


def reading(table: SourceTable, **options: str) -> Reading:
    log = DeltaLog.for_table(table.path, with_files=False)
    newest = log.snapshot()
    checked = source_options(options, {})
    return Reading(log, newest.table_id, newest.version, newest.schema, (), checked)


class Trigger:
    """Makes Spark's calls of a source for one micro-batch after another."""

    def __init__(self, reading: Reading) -> None:
        self.source = DeltaSource(reading)
        self.limits = reading.options.limits()
        self.offset: str | None = None

    def __call__(self) -> list[str]:
        """The paths of the files of the next batch; empty if there is no new commit."""
        start = self.offset
        self.offset = self.source.latest_offset(start, Limits(**self.limits)).json()
        if self.offset == start:
            return []
        [batch] = self.source.batch(start, self.offset)
        paths = files_of_batch(json.loads(batch.scan)).files["path"].to_pylist()
        self.source.metrics(self.offset)
        return [path.removesuffix(".parquet") for path in paths]


def test_a_trigger_looks_at_the_log_once_and_reads_each_new_commit_once(
    tmp_path: Path, asked: Counter[str]
) -> None:
    table = SourceTable(str(tmp_path), [0])
    trigger = Trigger(reading(table))
    assert trigger() == ["f000"]
    for number in range(1, 4):
        table.commit([number])
        asked.clear()
        assert trigger() == [f"f00{number}"]
        # The known version, the new one and those that might follow it: no listing.
        assert asked == {"status": 2 + LOOK_AHEAD, "read": 1}
    asked.clear()
    assert trigger() == []
    assert asked == {"status": 1 + LOOK_AHEAD}


def test_a_time_to_end_at_costs_one_listing_a_trigger_with_commits(
    tmp_path: Path, asked: Counter[str]
) -> None:
    table = SourceTable(str(tmp_path), [0])
    plain = reading(table)
    trigger = Trigger(replace(plain, options=replace(plain.options, ending_timestamp_ms=2**42)))
    assert trigger() == ["f000"]
    table.commit([1])
    asked.clear()
    assert trigger() == ["f001"]
    assert asked == {"status": 2 + LOOK_AHEAD, "read": 1, "list_from": 1}
    asked.clear()
    assert trigger() == []
    assert asked == {"status": 1 + LOOK_AHEAD}


def test_a_stream_that_is_behind_reads_what_it_admits_alone(tmp_path: Path, asked: Counter[str]) -> None:
    table = SourceTable(str(tmp_path), [0])
    for number in range(1, 40):
        table.commit([number])
    behind = Trigger(reading(table, startingVersion="0", maxFilesPerTrigger="3"))
    assert behind() == ["f000", "f001", "f002"]
    asked.clear()
    assert behind() == ["f003", "f004", "f005"]
    # The commit after the limit is read, to see that the batch ends before it. The progress has counted the
    # rest.
    assert asked == {"status": 1 + LOOK_AHEAD + 4, "read": 4}


def test_the_initial_snapshot_is_read_once(tmp_path: Path, asked: Counter[str]) -> None:
    table = SourceTable(str(tmp_path), *([number] for number in range(6)))
    table.commit([6])
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    first = Trigger(reading(table, maxFilesPerTrigger="2"))
    asked.clear()
    assert first() == ["f000", "f001"]
    assert asked["open"] == 1
    asked.clear()
    assert [first(), first(), first()] == [["f002", "f003"], ["f004", "f005"], ["f006"]]
    assert asked == {"status": 3 * (1 + LOOK_AHEAD)}
    # After the snapshot none of it is kept.
    first()
    assert first.source._initial is None


def test_a_planned_batch_is_found_again_without_its_files(tmp_path: Path) -> None:
    """In another run of the query, and after too many other batches were planned."""
    table = SourceTable(str(tmp_path), [0], [1], [2])
    table.commit([3], [4])
    source = DeltaSource(reading(table, maxFilesPerTrigger="2", startingVersion="0"))
    start, wanted = None, []
    for files in (["f000", "f001"], ["f002", "f003"], ["f004"]):
        end = source.latest_offset(start, Limits(files=2)).json()
        [batch] = source.batch(start, end)
        wanted.append((json.loads(batch.scan), files))
        start = end
    streaming_source._planned.clear()
    for description, files in wanted:
        found = files_of_batch(description).files["path"].to_pylist()
        assert [path.removesuffix(".parquet") for path in found] == files


def test_the_backlog(tmp_path: Path) -> None:
    table = SourceTable(str(tmp_path), [0], [1], [2])
    table.commit([3], [4], time_ms=50_000)
    table.commit([5], remove=("f000.parquet",), time_ms=60_000)
    table.commit([6], time_ms=70_000)
    table.commit([7], data_change=False, time_ms=80_000)

    def left(options: dict[str, str], *, batches: int, files: int) -> dict[str, int]:
        what = reading(table, **options)
        source = DeltaSource(what)
        source._backlog = Backlog(what, clock=lambda: 100_999)
        offset = None
        for _ in range(batches):
            offset = source.latest_offset(offset, Limits(files=files)).json()
        return {name: int(value) for name, value in source.metrics(offset).items()}

    size = table.size
    started = {"startingVersion": "0", "ignoreChanges": "true"}
    assert left(started, batches=1, files=4) == {
        "numFilesOutstanding": 3,
        "numBytesOutstanding": size(4) + size(5) + size(6),
        "versionsBehind": 4,
        "secondsBehind": 50,
    }
    assert left(started, batches=2, files=3) == {
        "numFilesOutstanding": 1,
        "numBytesOutstanding": size(6),
        "versionsBehind": 2,
        "secondsBehind": 30,
    }
    assert left({"startingVersion": "0", "skipChangeCommits": "true"}, batches=1, files=5) == {
        "numFilesOutstanding": 1,
        "numBytesOutstanding": size(6),
        "versionsBehind": 2,
        "secondsBehind": 30,
    }
    assert left(started, batches=3, files=3) == dict.fromkeys(
        ("numFilesOutstanding", "numBytesOutstanding", "versionsBehind", "secondsBehind"), 0
    )
    # A stream with an end is done there.
    ended = {"startingVersion": "0", "endingVersion": "1"}
    assert left(ended, batches=1, files=4) == {
        "numFilesOutstanding": 1,
        "numBytesOutstanding": size(4),
        "versionsBehind": 1,
        "secondsBehind": 50,
    }
    assert set(left(ended, batches=2, files=4).values()) == {0}
    # Inside the snapshot: files 1 to 7 without the first, which was removed.
    assert left({}, batches=1, files=5) == {
        "numFilesOutstanding": 2,
        "numBytesOutstanding": size(6) + size(7),
        "versionsBehind": 1,
        "secondsBehind": 20,
    }


def test_the_default_number_of_files_is_for_queries_without_a_limit() -> None:
    nothing = {"files": None, "bytes": None, "rows": None}
    assert source_options({}, {}).limits() == nothing | {"files": 1000}
    assert source_options({"maxBytesPerTrigger": "2k"}, {}).limits() == nothing | {"bytes": 2048}
    assert source_options({"maxRowsPerTrigger": "9"}, {}).limits() == nothing | {"rows": 9}


def test_files_without_statistics_take_all_the_rows_that_are_left(tmp_path: Path) -> None:
    table = SourceTable(str(tmp_path), [0], [1], [2])
    text = table.commit_file(0).read_text().splitlines()
    add = json.loads(text[-2])
    add["add"]["stats"] = None
    table.commit_file(0).write_text("\n".join([*text[:-2], json.dumps(add), text[-1]]) + "\n")
    rows = Trigger(reading(table, maxRowsPerTrigger="10"))
    assert [rows(), rows()] == [["f000", "f001"], ["f002"]]
