"""autoCompact after batch writes: when it runs, its commit, and a failed rewrite."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.tables import (
    actions,
    commit_file,
    data_files,
    every_action,
    ids,
    load,
    operations,
    rows,
    rows_by_deltalake,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

ENABLED = "spark.databricks.delta.autoCompact.enabled"
METRICS = {
    *("numRemovedFiles", "numRemovedBytes", "p25FileSize", "numDeletionVectorsRemoved", "minFileSize"),
    *("numAddedFiles", "maxFileSize", "p75FileSize", "p50FileSize", "numAddedBytes"),
}


@pytest.fixture(autouse=True)
def due_with_three_files(setting: Any) -> Iterator[None]:
    """A rewrite is due with three small files."""
    setting("spark.databricks.delta.autoCompact.minNumFiles", "3")
    before = dispatcher.open_handles
    yield
    set_observer(None)
    assert dispatcher.open_handles == before


def append_ids(spark: SparkSession, path: str, count: int, **options: Any) -> None:
    """Commits `count` files of one id each."""
    for i in range(count):
        write(spark.range(i, i + 1), path, **options)


def committed_files(path: str) -> set[str]:
    """The data files of all versions."""
    return {add["path"] for add in every_action(path, "add")}


@pytest.mark.parametrize(
    ("option", "of_session", "properties", "compacts"),
    [
        (None, None, {}, False),
        ("true", None, {}, True),
        (None, "true", {}, True),
        (None, "TRUE", {}, True),
        (None, None, {"delta.autoOptimize.autoCompact": "true"}, True),
        (None, None, {"delta.autoOptimize": "true"}, True),
        ("false", "true", {"delta.autoOptimize.autoCompact": "true"}, False),
        ("true", "false", {}, True),
        (None, "false", {"delta.autoOptimize.autoCompact": "true"}, False),
    ],
)
@pytest.mark.sampled(3)
def test_who_asks_for_it(
    spark: SparkSession,
    table: str,
    setting: Any,
    option: str | None,
    of_session: str | None,
    properties: dict[str, str],
    compacts: bool,
) -> None:
    """The write's option outranks the session's setting, which outranks the table's properties."""
    if of_session is not None:
        setting(ENABLED, of_session)
    options = {} if option is None else {"autoCompact": option}
    append_ids(spark, table, 1, **properties, **options)
    append_ids(spark, table, 2, **options)
    assert operations(table) == ["WRITE"] * 3 + ["OPTIMIZE"] * compacts


@pytest.mark.parametrize(
    ("option", "of_session", "message"),
    [
        (
            {"autoCompact": "auto"},
            {},
            "Invalid value 'auto' for option 'autoCompact', must be 'true' or 'false'",
        ),
        ({}, {ENABLED: "auto"}, f"{ENABLED} is 'auto'; it needs to be true or false"),
        (
            {"autoCompact": "true"},
            {"spark.databricks.delta.autoCompact.minNumFiles": "few"},
            "spark.databricks.delta.autoCompact.minNumFiles is 'few'",
        ),
    ],
)
def test_a_wrong_value_is_refused_before_files_are_written(
    spark: SparkSession, tmp_path: Path, setting: Any, option: Any, of_session: Any, message: str
) -> None:
    for name, value in of_session.items():
        setting(name, value)
    with pytest.raises(DeltaIllegalArgumentException, match="autoCompact") as raised:
        write(spark.range(1), str(tmp_path / "t"), **option)
    assert message in str(raised.value)
    assert not (tmp_path / "t").exists()


def test_what_the_commit_says(spark: SparkSession, table: str) -> None:
    append_ids(spark, table, 3, autoCompact="true")
    [info] = actions(table, "commitInfo")
    assert info["operationParameters"] == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": True,
    }
    assert list(info["operationParameters"]) == ["predicate", "zOrderBy", "clusterBy", "auto"]
    assert info["readVersion"] == 2
    assert info["isolationLevel"] == "SnapshotIsolation"
    assert info["isBlindAppend"] is False
    assert info["dataChange"] is False
    [add], removes = actions(table, "add"), actions(table, "remove")
    metrics = info["operationMetrics"]
    assert set(metrics) == METRICS
    assert metrics["numRemovedFiles"] == "3"
    assert metrics["numRemovedBytes"] == str(sum(remove["size"] for remove in removes))
    assert {metrics[name] for name in METRICS if "FileSize" in name} == {str(add["size"])}
    assert metrics["numAddedBytes"] == str(add["size"])
    assert all(remove["dataChange"] is False for remove in removes)
    assert json.loads(add["stats"])["numRecords"] == 3


def test_partitions(spark: SparkSession, table: str, setting: Any) -> None:
    """Values of all types are kept. Partitions with few files, or none of the commit, are not rewritten."""
    setting("spark.sql.session.timeZone", "America/New_York")
    values = "(1, null, null), (2, \"it's\", null), (3, 'a/b=c%', timestamp'2024-01-01 12:00:00.5')"
    frame = spark.sql(f"select * from values {values} t(i, `odd``name`, t)")
    few = spark.sql("select 4 i, 'few' `odd``name`, cast(null as timestamp) t")
    for _ in range(3):
        write(frame, table, partition_by=["odd`name", "t"], autoCompact="false")
    write(few, table, autoCompact="false")
    before = rows(load(spark, table))
    write(frame.where("i > 1"), table, autoCompact="true")
    adds, removes = actions(table, "add"), actions(table, "remove")
    assert operations(table)[-1] == "OPTIMIZE"
    assert {tuple(add["partitionValues"].values()) for add in adds} == {
        ("it's", None),
        ("a/b=c%", "2024-01-01T17:00:00.500000Z"),
    }
    assert len(adds) == 2
    assert len(removes) == 8
    [info] = actions(table, "commitInfo")
    [predicate] = json.loads(info["operationParameters"]["predicate"])
    assert set(predicate.removeprefix("(").removesuffix(")").split(" OR ")) == {
        "(('odd`name <=> cast(it's as string)) AND ('t <=> cast(null as timestamp)))",
        "(('odd`name <=> cast(a/b=c% as string)) AND "
        "('t <=> cast(2024-01-01T17:00:00.500000Z as timestamp)))",
    }
    assert len(rows(load(spark, table))) == len(before) + 2


def test_many_bins_in_several_jobs(spark: SparkSession, table: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("deltaflow.batch.optimize.bin_rewrite._BINS_OF_A_JOB", 2)
    for i in range(3):
        write(
            spark.range(3).selectExpr("id", f"{i} n", "id p"), table, partition_by=["p"], autoCompact="true"
        )
    assert operations(table) == ["WRITE"] * 3 + ["OPTIMIZE"]
    assert len(actions(table, "add")) == 3
    assert len(actions(table, "remove")) == 9
    assert load(spark, table).groupBy("p", "n").count().count() == 9


def test_settings_of_the_session_do_not_get_into_it(spark: SparkSession, table: str, setting: Any) -> None:
    setting("spark.sql.files.maxRecordsPerFile", "1")
    append_ids(spark, table, 3, autoCompact="true", compression="zstd", maxRecordsPerFile="1")
    [add] = actions(table, "add")
    assert add["path"].endswith(".zstd.parquet")


def test_a_table_as_other_types_and_shapes_have_it(spark: SparkSession, table: str) -> None:
    """Nested, null and missing columns come through."""
    frame = spark.sql(
        "select id, named_struct('a', array(id, null), 'm', map('k', struct(id))) s, "
        "cast(id as decimal(38, 3)) d, date'1500-01-01' old, cast(null as binary) b from range(3)"
    )
    for _ in range(3):
        write(frame, table, autoCompact="true")
    assert operations(table)[-1] == "OPTIMIZE"
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    assert rows(load(spark, table)) == rows(frame.union(frame).union(frame))


def rival(at: str, act: Callable[[], None], times: int = 1) -> None:
    """Calls a function when a rewrite reaches a point."""
    left = [times]

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == at and left[0] > 0:
            left[0] -= 1
            act()

    set_observer(observer)


def test_an_append_meanwhile_is_no_conflict(spark: SparkSession, table: str) -> None:
    append_ids(spark, table, 2)
    rival("rewrite files written", lambda: write(spark.range(10, 11), table))
    append_ids(spark, table, 1, autoCompact="true")
    assert operations(table) == ["WRITE"] * 4 + ["OPTIMIZE"]
    assert len(actions(table, "remove")) == 3
    assert ids(load(spark, table)) == [0, 0, 1, 10]


def remove_one(path: str) -> None:
    """Commits the removal of a file of the table."""
    log = DeltaLog.for_table(path)
    transaction = log.start_transaction()
    assert transaction.snapshot is not None
    first = transaction.snapshot.files.slice(0, 1)
    transaction.record_read_of_files(first)
    transaction.commit(remove_files(transaction.snapshot.with_stats(first), 0), Operation("DELETE"))


def test_a_lost_race_is_tried_again(
    spark: SparkSession, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    append_ids(spark, table, 4)
    rival("rewrite files written", lambda: remove_one(table))
    with caplog.at_level(logging.DEBUG, "deltaflow"):
        append_ids(spark, table, 1, autoCompact="true")
    assert operations(table) == ["WRITE"] * 5 + ["DELETE", "OPTIMIZE"]
    assert len(actions(table, "remove")) == 4
    assert ids(load(spark, table)) == [0, 1, 2, 3]
    assert data_files(table) == committed_files(table)
    [record] = [record for record in caplog.records if "lost a race" in record.message]
    assert record.levelno == logging.DEBUG
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_it_gives_way_when_it_always_loses(spark: SparkSession, table: str) -> None:
    append_ids(spark, table, 9)
    rival("rewrite files written", lambda: remove_one(table), times=9)
    append_ids(spark, table, 1, autoCompact="true")
    assert operations(table) == ["WRITE"] * 10 + ["DELETE"] * 3
    assert len(ids(load(spark, table))) == 7
    assert data_files(table) == committed_files(table)


def test_a_missing_file_loses_no_row(
    spark: SparkSession, tmp_path: Path, setting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Even in a session that ignores corrupt files no row is lost because a file cannot be read."""
    path = str(tmp_path / "table")
    setting("spark.sql.files.ignoreMissingFiles", "true")
    append_ids(spark, path, 2)
    hidden = tmp_path / "hidden"
    lost = next(Path(path).glob("*.parquet"))
    lost.rename(hidden)
    append_ids(spark, path, 1, autoCompact="true")
    assert operations(path) == ["WRITE"] * 3
    [record] = [record for record in caplog.records if "autoCompact failed" in record.message]
    assert record.levelno == logging.WARNING
    assert lost.name in record.message
    hidden.rename(lost)
    assert ids(load(spark, path)) == [0, 0, 1]
    assert data_files(path) == committed_files(path)


def test_a_wrong_number_of_rows_is_not_committed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "table")
    append_ids(spark, path, 2)
    commit = commit_file(path, 1)
    commit.write_text(commit.read_text().replace('\\"numRecords\\":1', '\\"numRecords\\":2'))
    DeltaLog._cache.clear()
    append_ids(spark, path, 1, autoCompact="true")
    assert operations(path) == ["WRITE"] * 3
    assert "it keeps 3 rows and drops 0, and these are not all" in caplog.text
    assert "the log says 2 rows, the file has 1" in caplog.text
    assert data_files(path) == committed_files(path)
