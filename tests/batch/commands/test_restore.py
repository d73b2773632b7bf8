"""RESTORE: what comes back, what it reports, what it refuses, and with what it conflicts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.batch.commands import restore
from deltaflow.errors import (
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    DeltaUnsupportedOperationException,
    PostCommitHookError,
    StoreError,
    VersionNotFoundError,
)
from deltaflow.log import DeltaLog, Protocol
from deltaflow.log.observer import set_observer
from tests.tables import actions, commit_file, ids, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]
COLUMNS = (
    "table_size_after_restore",
    "num_of_files_after_restore",
    "num_removed_files",
    "num_restored_files",
    "removed_files_size",
    "restored_files_size",
)
LOS_ANGELES = {
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
}


@pytest.fixture(autouse=True)
def no_observer_left() -> Iterator[None]:
    yield
    set_observer(None)


def append_two(spark: SparkSession, path: str, first: int, *extra: str, **options: str) -> None:
    """A file with the ids `first` and `first` + 1."""
    rows = spark.range(first, first + 2, 1, 1).selectExpr("id", *extra)
    rows.write.format("delta").options(**options).mode("append").save(path)


def test_the_files_of_a_version_come_back(spark: SparkSession, table: str) -> None:
    for first in (0, 10, 20):
        append_two(spark, table, first)
    [a], [b], [c] = (actions(table, "add", version) for version in range(3))
    delta = DeltaTable.forPath(spark, table)
    cached = load(spark, table).cache()
    assert cached.count() == 6
    frame = delta.restoreToVersion(0)
    assert tuple(frame.columns) == COLUMNS
    assert [tuple(row) for row in frame.collect()] == [(a["size"], 1, 2, 0, b["size"] + c["size"], 0)]
    assert ids(load(spark, table)) == [0, 1]
    assert cached.count() == 2
    cached.unpersist()
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "RESTORE"
    assert info["operationParameters"] == {"version": 0, "timestamp": None}
    assert info["operationMetrics"] == {
        "tableSizeAfterRestore": str(a["size"]),
        "numOfFilesAfterRestore": "1",
        "numRemovedFiles": "2",
        "numRestoredFiles": "0",
        "removedFilesSize": str(b["size"] + c["size"]),
        "restoredFilesSize": "0",
    }
    assert info["isBlindAppend"] is False
    assert actions(table, "metaData") == actions(table, "protocol") == []
    # What was the newest version is one like any other.
    append_two(spark, table, 30)
    [row] = delta.restoreToVersion(2).collect()
    assert (row.num_removed_files, row.num_restored_files) == (1, 2)
    assert actions(table, "add") == [b, c]
    assert ids(load(spark, table)) == [0, 1, 10, 11, 20, 21]


def test_odd_names_and_partitions(spark: SparkSession, table: str) -> None:
    for name in ("a b%", "x=y/z", "ü"):
        rows = spark.range(3).selectExpr("id", f"'{name}' p")
        rows.write.format("delta").partitionBy("p").mode("append").save(table)
    spark.range(1).selectExpr("id", "'new' p").write.format("delta").mode("overwrite").save(table)
    DeltaTable.forPath(spark, table).restoreToVersion(2)
    counts = load(spark, table).groupBy("p").count().collect()
    assert {row.p: row["count"] for row in counts} == {"a b%": 3, "x=y/z": 3, "ü": 3}


def test_metadata_comes_back(spark: SparkSession, table: str) -> None:
    append_two(spark, table, 0)
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('k' = 'v', 'delta.logRetentionDuration' = '9 days')"
    )
    append_two(spark, table, 10, "'x' s", mergeSchema="true")
    DeltaTable.forPath(spark, table).restoreToVersion(0)
    snapshot = DeltaLog.for_table(table).snapshot()
    assert snapshot.metadata == DeltaLog.for_table(table).snapshot_at(0).metadata
    assert load(spark, table).columns == ["id"]
    DeltaTable.forPath(spark, table).restoreToVersion(2)
    snapshot = DeltaLog.for_table(table).snapshot()
    assert snapshot.metadata.configuration == {"k": "v", "delta.logRetentionDuration": "9 days"}
    assert load(spark, table).columns == ["id", "s"]
    assert actions(table, "protocol") == []


@pytest.mark.parametrize("may_downgrade", ["false", "true"])
def test_the_protocol_is_kept(spark: SparkSession, table: str, setting: Any, may_downgrade: str) -> None:
    """What later versions need to be read stays, unless the session says otherwise."""
    append_two(spark, table, 0)
    before = DeltaLog.for_table(table).snapshot().protocol
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported')")
    upgraded = DeltaLog.for_table(table).snapshot().protocol
    assert upgraded != before == Protocol(min_reader_version=1, min_writer_version=2)
    setting("spark.databricks.delta.restore.protocolDowngradeAllowed", may_downgrade)
    DeltaTable.forPath(spark, table).restoreToVersion(0)
    restored = DeltaLog.for_table(table).snapshot().protocol
    assert restored == (before if may_downgrade == "true" else upgraded)


def test_the_newest_version_is_left_as_it_is(spark: SparkSession, table: str) -> None:
    append_two(spark, table, 0)
    frame = DeltaTable.forPath(spark, table).restoreToVersion(0)
    assert tuple(frame.columns) == COLUMNS
    assert frame.collect() == []
    assert DeltaLog.for_table(table).latest_version() == 0


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_a_version_that_is_not_there(spark: SparkSession, table: str, version: int) -> None:
    append_two(spark, table, 0)
    append_two(spark, table, 10)
    with pytest.raises(VersionNotFoundError, match=r"Available versions: \[0, 1\]") as raised:
        DeltaTable.forPath(spark, table).restoreToVersion(version)
    assert raised.value.getCondition() == "DELTA_CANNOT_RESTORE_TABLE_VERSION"
    assert DeltaLog.for_table(table).latest_version() == 1


def test_timestamps(spark: SparkSession, table: str, setting: Any) -> None:
    for version, day in enumerate((1, 3, 5)):
        append_two(spark, table, version * 10)
        moment = datetime(2024, 1, day, 12, tzinfo=UTC).timestamp()
        os.utime(commit_file(table, version), (moment, moment))
    delta = DeltaTable.forPath(spark, table)
    message = "The provided timestamp ('05/04/1999') cannot be converted to a valid timestamp."
    with pytest.raises(DeltaIllegalArgumentException, match=re.escape(message)):
        delta.restoreToTimestamp("05/04/1999")
    for timestamp, condition in {
        "2024-01-01": "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
        "2024-01-05 12:00:01": "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
        "someday": "DELTA_TIMESTAMP_INVALID",
    }.items():
        with pytest.raises((VersionNotFoundError, DeltaIllegalArgumentException)) as raised:
            delta.restoreToTimestamp(timestamp)
        assert raised.value.getCondition() == condition
    assert delta.restoreToTimestamp("2024-01-05 12:00:00").collect() == []
    setting("spark.sql.session.timeZone", "America/New_York")
    # 12:00 in UTC is 07:00 there.
    delta.restoreToTimestamp("2024-01-03 07:00:00")
    assert ids(load(spark, table)) == [0, 1, 10, 11]
    [info] = actions(table, "commitInfo")
    assert info["operationParameters"] == {"version": None, "timestamp": "2024-01-03 07:00:00"}
    delta.restoreToTimestamp("2024-01-02")
    assert ids(load(spark, table)) == [0, 1]


def test_missing_files_are_named(spark: SparkSession, tmp_path: Path, setting: Any) -> None:
    path = str(tmp_path / "a table")
    append_two(spark, path, 0)
    append_two(spark, path, 10)
    gone = Path(path, str(DeltaLog.for_table(path).snapshot_at(0).files["path"][0]))
    kept = next(file for file in Path(path).glob("*.parquet") if file != gone)
    spark.range(1).write.format("delta").mode("overwrite").save(path)
    gone.unlink()
    delta = DeltaTable.forPath(spark, path)
    with pytest.raises(StoreError) as raised:
        delta.restoreToVersion(1)
    assert str(gone) in str(raised.value)
    assert str(kept) not in str(raised.value)
    assert DeltaLog.for_table(path).latest_version() == 2
    setting("spark.sql.files.ignoreMissingFiles", "true")
    [row] = delta.restoreToVersion(1).collect()
    assert row.num_restored_files == 2
    assert ids(load(spark, path)) == [10, 11]


def test_what_fails_after_the_commit_says_that_it_stands(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_two(spark, table, 0)
    spark.range(5, 6).write.format("delta").mode("overwrite").save(table)
    look = restore.absent

    def absent(paths: list[str]) -> list[str]:
        if DeltaLog.for_table(table).latest_version() == 2:
            raise StoreError("The storage is gone.")
        return look(paths)

    monkeypatch.setattr(restore, "absent", absent)
    with pytest.raises(
        PostCommitHookError, match=r"Version 2 of .* is committed, but .*storage is gone"
    ) as raised:
        DeltaTable.forPath(spark, table).restoreToVersion(0)
    assert (raised.value.table, raised.value.version) == (table, 2)
    assert ids(load(spark, table)) == [0, 1]


def test_what_only_appends_is_not_taken_back(spark: SparkSession, table: str) -> None:
    append_two(spark, table, 0)
    append_two(spark, table, 10)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    delta = DeltaTable.forPath(spark, table)
    with pytest.raises(DeltaUnsupportedOperationException) as raised:
        delta.restoreToVersion(0)
    assert raised.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    # Where nothing is removed, it is only the property that goes.
    delta.restoreToVersion(1)
    assert DeltaLog.for_table(table).snapshot().metadata.configuration == {}


@pytest.mark.parametrize("rival", ["append", "optimize", "properties"])
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.sampled(3)
def test_any_commit_meanwhile_is_a_conflict(spark: SparkSession, table: str, rival: str, level: str) -> None:
    append_two(spark, table, 0, **{"delta.isolationLevel": level})
    for first in (10, 20):
        append_two(spark, table, first)
    delta = DeltaTable.forPath(spark, table)

    def interfere(point: str, facts: dict[str, Any]) -> None:
        if point != "commit prepared":
            return
        set_observer(None)
        match rival:
            case "append":
                append_two(spark, table, 30)
            case "optimize":
                delta.optimize().executeCompaction()
            case _:
                spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('k' = 'v')")

    set_observer(interfere)
    with pytest.raises(DeltaConcurrentModificationException) as raised:
        delta.restoreToVersion(0)
    if (rival, level) == ("append", "WriteSerializable"):
        # No rule forbids it, and yet it is not tried again: the rows would outlive the restore.
        assert isinstance(raised.value, ConcurrentWriteException)
    assert DeltaLog.for_table(table).latest_version() == 3


@pytest.mark.long
def test_streams_afterwards(spark: SparkSession, table: str, tmp_path: Path) -> None:
    """The files that a restore removes end a stream that was not told to pass over changes."""
    append_two(spark, table, 0)
    append_two(spark, table, 10)
    delta = DeltaTable.forPath(spark, table)

    def stream(name: str, **options: Any) -> list[int]:
        reader = spark.readStream.format("delta").options(**options).load(table)
        writer = reader.writeStream.format("delta").option(
            "checkpointLocation", str(tmp_path / f"check {name}")
        )
        query = writer.trigger(availableNow=True).start(str(tmp_path / name))
        query.awaitTermination()
        return ids(load(spark, str(tmp_path / name)))

    assert stream("strict") == stream("lenient", skipChangeCommits=True) == [0, 1, 10, 11]
    delta.restoreToVersion(0)
    append_two(spark, table, 20)
    assert stream("lenient", skipChangeCommits=True) == [0, 1, 10, 11, 20, 21]
    with pytest.raises(Exception, match="DELTA_SOURCE_IGNORE_DELETE"):
        stream("strict")
    # A restore that only adds files is news to a stream: rows that were removed come again.
    delta.restoreToVersion(3)
    assert delta.restoreToVersion(1).collect()[0].num_restored_files == 1
    assert stream("lenient", ignoreChanges=True) == [0, 1, 10, 10, 11, 11, 20, 21]


def test_arguments(spark: SparkSession, table: str) -> None:
    append_two(spark, table, 0)
    delta = DeltaTable.forPath(spark, table)
    with pytest.raises(ValueError, match="version needs to be an int"):
        delta.restoreToVersion("0")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp needs to be a string"):
        delta.restoreToTimestamp(0)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["path", "text", "name"])
@pytest.mark.sampled(2)
def test_by_sql(spark: SparkSession, table: str, database: Path, by: str) -> None:
    for version in range(3):
        append_two(spark, table, version * 10)
        moment = datetime(2024, 1, 1 + version, tzinfo=UTC).timestamp()
        os.utime(commit_file(table, version), (moment, moment))
    name = {"path": f"delta.`{table}`", "text": f"'{table}'", "name": "restored_by_name"}[by]
    if by == "name":
        spark.sql(f"CREATE TABLE restored_by_name USING delta LOCATION '{table}'")
    frame = spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    assert tuple(frame.columns) == COLUMNS
    assert [row.num_removed_files for row in frame.collect()] == [1]
    assert ids(load(spark, table)) == [0, 1, 10, 11]
    spark.sql(f"RESTORE {name} TIMESTAMP AS OF '2024-01-01 12:00:00'")
    assert ids(load(spark, table)) == [0, 1]
    spark.sql(f"RESTORE TABLE {name} VERSION AS OF '2'")
    assert ids(load(spark, table)) == [0, 1, 10, 11, 20, 21]
    with pytest.raises(VersionNotFoundError):
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 99").collect()


def test_a_time_that_clocks_show_twice(
    spark: SparkSession, table: str, tmp_path: Path, settings: Callable[..., Any]
) -> None:
    """In Los Angeles it was 01:30 at 08:30 and at 09:30 UTC."""
    for version in range(3):
        append_two(spark, table, version * 10)
        moment = datetime(2020, 11, 1, 8 + version, 10, tzinfo=UTC).timestamp()
        os.utime(commit_file(table, version), (moment, moment))
    name, time = f"delta.`{table}`", "TIMESTAMP'2020-11-01 09:30:00Z'"
    with settings(LOS_ANGELES):
        assert ids(spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF {time}")) == [0, 1, 10, 11]
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/clone` SHALLOW CLONE {name} TIMESTAMP AS OF {time}")
        assert ids(load(spark, f"{tmp_path}/clone")) == [0, 1, 10, 11]
        spark.sql(f"RESTORE {name} TO TIMESTAMP AS OF {time}")
        assert ids(load(spark, table)) == [0, 1, 10, 11]


def test_changes_up_to_a_time_that_clocks_show_twice(
    spark: SparkSession, table: str, settings: Callable[..., Any]
) -> None:
    name = f"delta.`{table}`"
    with settings(LOS_ANGELES):
        spark.sql(
            f"CREATE TABLE {name} (id LONG) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        for version in range(4):
            if version:
                spark.sql(f"INSERT INTO {name} VALUES ({version})")
            moment = datetime(2020, 11, 1, 7 + version, 10, tzinfo=UTC).timestamp()
            os.utime(commit_file(table, version), (moment, moment))
        end = "TIMESTAMP'2020-11-01 09:30:00Z'"
        assert ids(spark.sql(f"SELECT * FROM table_changes_by_path('{table}', 0, {end})")) == [1, 2]
