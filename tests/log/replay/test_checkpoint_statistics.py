"""Statistics that stay in a checkpoint until somebody asks for them, whatever becomes of the checkpoint."""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from deltaflow.errors import CorruptLogError
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log import delta_log as log_module
from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.store import LocalLogStore
from tests.log.checkpoints import CHECKPOINT_LAYOUTS, write_checkpoint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("at", TimestampType()),
        StructField("day", DateType()),
        StructField("s", StructType([StructField("name", StringType())])),
    ]
)
COLUMNS = [("id",), ("at",), ("day",), ("s", "name")]
META_DATA = meta_data(schema=SCHEMA)


def stats(number: int) -> str:
    def values(of: int) -> dict[str, Any]:
        day = f"2024-01-{of % 28 + 1:02}"
        return {"id": of, "at": f"{day}T01:02:03.456Z", "day": day, "s": {"name": f'n"{of}'}}

    nulls = {"id": number % 3, "at": 0, "day": 1, "s": {"name": 2}}
    bounds = {"minValues": values(number), "maxValues": values(number + 1), "nullCount": nulls}
    return json.dumps({"numRecords": number + 10, **bounds}, separators=(",", ":"))


def file(number: int, **fields: Any) -> dict[str, Any]:
    return add(f"f{number}", stats=None if number % 7 == 6 else stats(number), **fields)


def told(snapshot: Snapshot, files: pa.Table | None = None) -> dict[str, str | None]:
    """The statistics of files by their paths."""
    files = snapshot.with_stats(snapshot.files if files is None else files)
    return dict(zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True))


def columns(statistics: FileStatistics) -> list[Any]:
    found: list[Any] = [statistics.num_records.to_pylist(), statistics.has_tight_bounds]
    for path in COLUMNS:
        column = statistics.column(path)
        assert column is not None
        found += [values.to_pylist() for values in (column.low, column.high, column.null_count)]
    return found


def check(snapshot: Snapshot, expected: dict[str, str | None]) -> None:
    """The same statistics as by the texts alone: of all files, and of some in any order, as text and in
    columns."""
    chance = random.Random(1)
    for count in (len(expected), 5, 1, 0):
        rows = list(range(snapshot.num_files))
        if count < len(rows):
            chance.shuffle(rows)
        files = snapshot.files.take(pa.array(rows[:count], pa.int64()))
        texts = told(snapshot, files)
        assert texts == {path: expected[path] for path in files["path"].to_pylist()}
        by_text = pa.table(
            {
                "stats": pa.chunked_array([list(texts.values())], pa.string()),
                "deletion_vector": files["deletion_vector"],
            }
        )
        whole = snapshot.statistics_of(files)
        for one_in in (2, 10):
            mask = pa.array([chance.random() < 1 / one_in for _ in range(files.num_rows)], pa.bool_())
            expected_part = columns(FileStatistics(by_text.filter(mask), SCHEMA))
            assert columns(snapshot.statistics_of(files).of(mask)) == expected_part
            assert columns(whole.of(mask)) == expected_part
        assert columns(whole) == columns(FileStatistics(by_text, SCHEMA))
        assert columns(whole.of(mask)) == expected_part


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    return HandWrittenTable(tmp_path / "t")


def log_of(table: HandWrittenTable) -> DeltaLog:
    return DeltaLog(LocalLogStore(), table.path)


def a_table(table: HandWrittenTable, layout: str = "classic") -> dict[str, str | None]:
    """A checkpoint of version 0, and two commits; the statistics of its files by their paths."""
    table.commit(0, protocol(), META_DATA, *map(file, range(30)))
    actions = [protocol(), META_DATA, *map(file, range(30)), remove("gone")]
    write_checkpoint(table, 0, actions, layout)
    again = json.dumps({"numRecords": 1}, separators=(",", ":"))
    table.commit(1, remove("f3"), remove("f29"), add("f5", stats=again), file(40))
    table.commit(2, file(3), file(41))
    left = [number for number in [*range(29), 40, 41] if number % 7 != 6]
    return {
        **{f"f{number}": None for number in (6, 13, 20, 27, 41)},
        **{f"f{n}": stats(n) for n in left},
        "f5": again,
    }


def bounds_of(statistics: FileStatistics) -> list[Any]:
    column = statistics.column(("id",))
    assert column is not None
    return column.low.to_pylist()


def test_few_files_are_read_alone_and_from_all_if_those_are_known(table: HandWrittenTable) -> None:
    a_table(table)
    of_few, of_all = log_of(table).snapshot().statistics, log_of(table).snapshot().statistics
    few = pc.is_in(log_of(table).snapshot().files["path"], pa.array(["f8", "f21"])).combine_chunks()
    assert bounds_of(of_few.of(few)) == [8, 21]
    half = pa.array([number % 2 == 0 for number in range(len(of_all))])
    in_half = bounds_of(of_all.of(half))
    for file in table.log_directory.iterdir():
        file.unlink()
    assert set(bounds_of(of_few)) == {None}
    assert bounds_of(of_all.of(few)) == [8, 21]
    assert bounds_of(of_all)[::2] == in_half


@pytest.mark.parametrize("layout", CHECKPOINT_LAYOUTS)
def test_every_file_gets_its_own(table: HandWrittenTable, layout: str) -> None:
    expected = a_table(table, layout)
    check(log_of(table).snapshot(), expected)


@pytest.mark.parametrize("as_json", ["true", "false"])
@pytest.mark.parametrize("parts", ["0", "7"])
@pytest.mark.sampled(2)
def test_of_our_own_checkpoints(
    table: HandWrittenTable, as_json: str, parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltaflow.log.maintenance.checkpoint_writer._ROWS_PER_GROUP", 4)
    monkeypatch.setattr("deltaflow.log.maintenance.checkpoint_writer._FILES_WITH_STATISTICS", 9)
    expected = a_table(table)
    configuration = {"delta.checkpoint.writeStatsAsJson": as_json}
    table.commit(3, meta_data(schema=SCHEMA, configuration=configuration))
    before = log_of(table).snapshot()
    log_of(table).checkpoint({"spark.databricks.delta.checkpoint.partSize": parts} if parts != "0" else {})
    for version in range(4):
        table.log_directory.joinpath(f"{version:020}.json").unlink()
    table.commit(4, file(50))
    snapshot = log_of(table).snapshot()
    texts = {path: text and json.loads(text) for path, text in told(snapshot).items()}
    wanted = {path: text and json.loads(text) for path, text in expected.items()}
    if as_json == "true":
        assert texts == {**wanted, "f50": json.loads(stats(50))}
    order = pc.index_in(snapshot.files["path"], value_set=before.files["path"].combine_chunks())
    known = snapshot.files.filter(order.is_valid())
    by_path = before.files.take(order.drop_null())
    assert columns(snapshot.statistics_of(known)) == columns(before.statistics_of(by_path))
    # A second checkpoint is made of the statistics of the first.
    log_of(table).checkpoint()
    assert columns(log_of(table).snapshot().statistics) == columns(snapshot.statistics)


@pytest.mark.parametrize("place", ["commit", "checkpoint", "checkpoint alone"])
def test_names_that_pyarrow_takes_for_paths(table: HandWrittenTable, place: str) -> None:
    """ ".x" is no path to the column x, and "[0]" none to the first one."""
    names = ["x", ".x", "[0]"]
    fields = [StructField(name, LongType()) for name in names]
    schema = StructType([*fields, StructField("s", StructType(fields))])
    values = {"x": 1, ".x": 20, "[0]": 300}
    bounds = {**values, "s": {name: -value for name, value in values.items()}}
    text = json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {}})
    as_json = str(place == "checkpoint").lower()
    configuration = {"delta.checkpoint.writeStatsAsJson": as_json}
    table.commit(0, protocol(), meta_data(schema=schema, configuration=configuration), add("f", stats=text))
    if place != "commit":
        log_of(table).checkpoint()
    for paths in (
        [("x",), (".x",)],
        [(name,) for name in names],
        [("s", ".x")],
        [("s", name) for name in names],
    ):
        statistics = log_of(table).snapshot().statistics
        statistics.load(paths)
        for path in paths:
            column = statistics.column(path)
            assert column is not None
            expected = values[path[-1]] * (-1 if path[0] == "s" else 1)
            assert (column.low.to_pylist(), column.high.to_pylist()) == ([expected], [expected]), path


def later_checkpoint(table: HandWrittenTable, numbers: list[int] | None = None) -> None:
    """A checkpoint of version 0 in the place of the other: its rows are in another order."""
    (old,) = table.log_directory.glob("*.checkpoint.parquet")
    old.unlink()
    files = [*map(file, numbers or reversed(range(30)))]
    write_checkpoint(table, 0, [protocol(), META_DATA, *files])


def test_a_checkpoint_that_another_writer_replaces(table: HandWrittenTable) -> None:
    expected = a_table(table)
    snapshot = log_of(table).snapshot()
    later_checkpoint(table)
    check(snapshot, expected)


@pytest.mark.parametrize("layout", CHECKPOINT_LAYOUTS)
def test_a_checkpoint_that_goes_while_the_log_has_the_version(table: HandWrittenTable, layout: str) -> None:
    expected = a_table(table, layout)
    log = log_of(table)
    snapshot = log.snapshot()
    for name in table.log_directory.glob("*.checkpoint*"):
        name.unlink()
    shutil.rmtree(table.log_directory / "_sidecars", ignore_errors=True)
    check(snapshot, expected)
    # Later versions do not look for it again.
    table.commit(3, file(60))
    newer = log.snapshot()
    assert not newer.has_lost_statistics
    check(newer, {**expected, "f60": stats(60)})


def test_of_a_version_that_the_log_has_no_more_nothing_is_known(
    table: HandWrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    a_table(table)
    snapshot = log_of(table).snapshot()
    log_of(table).checkpoint()
    table.commit(3, file(60))
    for name in [*table.log_directory.glob("*0000.*"), *table.log_directory.glob("*0001.*")]:
        name.unlink()
    # Its own version has a checkpoint.
    assert told(snapshot)["f0"] == stats(0)
    other = log_of(table).snapshot_at(2)
    log_of(table).checkpoint()
    for name in [*table.log_directory.glob("*0002.*")]:
        name.unlink()
    predicate = {"op": "=", "column": ["id"], "type": "bigint", "value": -1}
    with caplog.at_level(logging.WARNING):
        assert pc.all(may_match(predicate, other.statistics)).as_py()
    assert "No file is skipped" in caplog.text
    assert other.number_of_rows(other.files) is None
    with pytest.raises(CorruptLogError, match="is missing") as raised:
        other.with_stats(other.files)
    assert any("cannot be made" in note for note in raised.value.__notes__)
    # One file after the other is all the same.
    with pytest.raises(CorruptLogError, match="is missing"):
        other.with_stats(other.files.slice(1, 1))


def test_another_table_in_the_place_of_the_first(table: HandWrittenTable) -> None:
    a_table(table)
    snapshot = log_of(table).snapshot()
    shutil.rmtree(table.log_directory)
    table.log_directory.mkdir()
    table.commit(0, protocol(), meta_data(schema=SCHEMA, table_id="other"))
    table.commit(1, *(add(f"f{number}", stats='{"numRecords":0}') for number in range(50)))
    table.commit(2)
    with pytest.raises(CorruptLogError):
        snapshot.with_stats(snapshot.files)
    assert snapshot.number_of_rows(snapshot.files) is None


def damage(path: Path, column: str) -> None:
    """Turns a byte of each row group's first page of a column."""
    metadata = pq.read_metadata(path)
    content = bytearray(path.read_bytes())
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema == column:
                content[chunk.data_page_offset + 30] ^= 0xFF
                content[chunk.data_page_offset + 1] ^= 0xFF
    path.write_bytes(content)


def test_broken_statistics_are_read_from_elsewhere(table: HandWrittenTable) -> None:
    expected = a_table(table)
    (checkpoint,) = table.log_directory.glob("*.checkpoint.parquet")
    damage(checkpoint, "add.stats")
    check(log_of(table).snapshot(), expected)


def test_statistics_that_would_fill_the_memory_are_unknown(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.commit(1)
    files = [
        add(str(number), stats=json.dumps({"numRecords": 1, "x": "y" * 10_000})) for number in range(300)
    ]
    write_checkpoint(table, 0, [protocol(), META_DATA, *files])
    snapshot = log_of(table).snapshot()
    monkeypatch.setattr("deltaflow.log.replay.checkpoint_budget.MIN_EXPANDED_BYTES", 100_000)
    monkeypatch.setattr("deltaflow.log.replay.checkpoint_budget.MAX_CHECKPOINT_EXPANSION", 10)
    with pytest.raises(CorruptLogError, match="is a small file"):
        snapshot.with_stats(snapshot.files)
    assert snapshot.number_of_rows(snapshot.files) is None


def test_only_the_columns_that_are_asked_for_are_read(table: HandWrittenTable) -> None:
    a_table(table)
    table.commit(3, meta_data(schema=SCHEMA, configuration={"delta.checkpoint.writeStatsAsJson": "false"}))
    log_of(table).checkpoint()
    checkpoint = table.log_directory / f"{3:020}.checkpoint.parquet"
    wanted = log_of(table).snapshot().statistics.column(("id",))
    for name in table.log_directory.glob("*.json"):
        name.unlink()
    for path in ("minValues.at", "maxValues.day", "minValues.s.name"):
        damage(checkpoint, f"add.stats_parsed.{path}")
    snapshot = log_of(table).snapshot()
    assert snapshot.statistics.column(("id",)) == wanted
    with pytest.raises(CorruptLogError):
        snapshot.with_stats(snapshot.files)


def test_files_of_another_snapshot_are_refused(table: HandWrittenTable) -> None:
    a_table(table)
    first, second = (log_of(table).snapshot() for _ in range(2))
    with pytest.raises(RuntimeError, match="not of this snapshot"):
        first.with_stats(second.files)
    newer = first.after([])
    assert told(newer, first.files) == told(first)


def in_memory(snapshot: Snapshot) -> int:
    """The files whose statistics are in memory."""
    texts = snapshot.files["stats_text"]
    return len(texts) - texts.null_count


def test_who_follows_a_log_leaves_statistics_in_its_newer_checkpoints(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_TEXT_BYTES", 3_000)
    log, expected = log_of(table), a_table(table)
    assert told(log.snapshot()) == expected
    most = 0
    for version in range(3, 90):
        table.commit(version, file(100 + version), *([remove("f0")] if version == 50 else []))
        expected[f"f{100 + version}"] = None if (100 + version) % 7 == 6 else stats(100 + version)
        if version == 50:
            del expected["f0"]
        if version % 10 == 0:
            log_of(table).checkpoint()
        most = max(most, in_memory(log.snapshot()))
    # A text has about 200 bytes. Without newer checkpoints 75 of them would be in memory.
    assert 15 <= most <= 25
    check(log.snapshot(), expected)


def test_a_log_without_newer_checkpoints_is_seldom_read_anew(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recording(LocalLogStore):
        reads: ClassVar[list[str]] = []

        def read(self, path: str) -> bytes:
            self.reads.append(Path(path).name)
            return super().read(path)

    monkeypatch.setattr(log_module, "_TEXT_BYTES", 2_000)
    table.commit(0, protocol(), META_DATA)
    log = DeltaLog(Recording(), table.path)
    log.snapshot()
    for version in range(1, 101):
        table.commit(version, file(7 * version))
        log.snapshot()
    check(log.snapshot(), {f"f{7 * version}": stats(7 * version) for version in range(1, 101)})
    # Each time there are twice as many bytes: 2, 4, 8 and 16 thousand.
    assert 2 <= Recording.reads.count(f"{0:020}.json") <= 5


def test_a_log_whose_checkpoint_is_broken_is_followed(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_module, "_TEXT_BYTES", 4 * len(stats(7)) + 100)
    table.commit(0, protocol(), META_DATA)
    log = log_of(table)
    log.snapshot()
    for version in range(1, 5):
        table.commit(version, file(7 * version))
    assert in_memory(log.snapshot()) == 4
    log_of(table).checkpoint()
    for name in table.log_directory.glob("*.checkpoint.parquet"):
        name.write_bytes(b"broken")
    table.commit(5, file(35))
    with caplog.at_level(logging.WARNING):
        for name in table.log_directory.glob(f"{1:020}.*"):
            name.unlink()
        check(log.snapshot(), {f"f{7 * version}": stats(7 * version) for version in range(1, 6)})
    assert "stay in memory" in caplog.text
