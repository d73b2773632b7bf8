"""VACUUM: what it deletes and keeps of tables that Spark wrote, what it tells, and whom it meets."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException

from deltaflow import DeltaTable
from deltaflow.batch.commands import vacuum_deletion
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    StoreError,
)
from deltaflow.log import DeltaLog, add_files, remove_files
from deltaflow.log.observer import set_observer
from tests.deletion_vectors import mark_deleted
from tests.tables import (
    actions,
    commit_file,
    data_files,
    every_action,
    ids,
    load,
    rows,
    rows_by_deltalake,
    versions,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]
CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
LOGGING = "spark.databricks.delta.vacuum.logging.enabled"


def write_ids(spark: Any, path: str, start: int, end: int, mode: str = "append", **options: Any) -> None:
    frame = spark.range(start, end, 1, 2).selectExpr("id", "id % 3 AS p")
    frame.write.format("delta").mode(mode).partitionBy("p").options(**options).save(path)


def active(path: str, version: int | None = None) -> set[str]:
    """The files of a version, as the independent reader lists them."""
    files = deltalake.DeltaTable(path, version=version).get_add_actions()
    return {unquote(place) for place in pa.table(files)["path"].to_pylist()}


def days_ago(days: float) -> int:
    return int((time.time() - days * 86_400) * 1_000)


def keep_deleted_files(spark: Any, path: str, interval: str) -> None:
    name = "delta.deletedFileRetentionDuration"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{name}' = 'interval {interval}')")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


@pytest.fixture
def unchecked(setting: Any) -> None:
    setting(CHECK, "false")


@pytest.fixture
def rewritten(spark: Any, path: str) -> str:
    """A table of two versions that have no file in common."""
    write_ids(spark, path, 0, 30)
    write_ids(spark, path, 30, 60, "overwrite")
    return path


def test_by_default_what_the_table_needed_within_seven_days_is_kept(spark: Any, rewritten: str) -> None:
    table = DeltaTable.forPath(spark, rewritten)
    before = data_files(rewritten)
    found = table.vacuum()
    assert (found.columns, found.collect()) == ([], [])
    assert data_files(rewritten) == before
    # Eight days later: the first version was replaced more than seven days ago.
    replaced = commit_file(rewritten, 1)
    text = re.sub('"deletionTimestamp":[0-9]+', f'"deletionTimestamp":{days_ago(8)}', replaced.read_text())
    replaced.write_text(text)
    replaced.with_name(f".{replaced.name}.crc").unlink(missing_ok=True)
    for file in Path(rewritten).rglob("*"):
        os.utime(file, (days_ago(8) / 1_000,) * 2)
    assert table.vacuum().collect() == []
    assert data_files(rewritten) == active(rewritten)
    assert rows(table.toDF()) == rows_by_deltalake(rewritten)
    assert ids(table.toDF()) == list(range(30, 60))


def test_the_same_files_as_deltalake_would_delete(spark: Any, rewritten: str, unchecked: None) -> None:
    Path(rewritten, "p=0", "left behind.parquet").write_bytes(b"x")
    frame = DeltaTable.forPath(spark, rewritten).vacuum(0, dryRun=True)
    found = {row.path.removeprefix("file:"): row.size for row in frame.collect()}
    other = deltalake.DeltaTable(rewritten).vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert {os.path.relpath(place, rewritten) for place in found} >= set(other)
    assert {os.path.relpath(place, rewritten) for place in found} - set(other) <= {"p=0/left behind.parquet"}
    assert found == {place: os.path.getsize(place) for place in found}
    assert frame.dtypes == [("path", "string"), ("size", "bigint")]


def test_files_with_their_checksums_and_emptied_directories_go(
    spark: Any, path: str, unchecked: None, caplog: Any
) -> None:
    write_ids(spark, path, 0, 30)
    spark.range(3, 6).selectExpr("id", "0L AS p").write.format("delta").mode("overwrite").save(path)
    for place in ("_mine", ".hidden"):
        shutil.copytree(Path(path, "p=1"), Path(path, place))
    Path(path, "nothing", "in it").mkdir(parents=True)
    Path(path, "p=2", "notes.txt").write_text("no data")
    os.utime(Path(path, "nothing", "in it"), (1, 1))
    with caplog.at_level(logging.INFO, "deltaflow"):
        DeltaTable.forPath(spark, path).vacuum(0)
    assert data_files(path) - {place for place in data_files(path) if place[0] in "_."} == active(path)
    assert sorted(os.listdir(path)) == [".hidden", "_delta_log", "_mine", "p=0"]
    names = os.listdir(Path(path, "p=0"))
    assert all(name.removeprefix(".").removesuffix(".crc") in names for name in names)
    assert any("Deleted 11 files and directories" in message for message in caplog.messages), caplog.messages


def test_two_commits_tell_of_it(spark: Any, rewritten: str, setting: Any) -> None:
    size = sum(Path(rewritten, place).stat().st_size for place in data_files(rewritten) - active(rewritten))
    setting(CHECK, "false")
    table = DeltaTable.forPath(spark, rewritten)
    table.vacuum(0)
    [start], [end] = actions(rewritten, "commitInfo", 2), actions(rewritten, "commitInfo", 3)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": False,
        "specifiedRetentionMillis": 0,
        "defaultRetentionMillis": 604_800_000,
    }
    assert start["operationMetrics"] == {"numFilesToDelete": "6", "sizeOfDataToDelete": str(size)}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "6", "numVacuumedDirectories": "4"}
    assert (start["isBlindAppend"], end["dataChange"]) == (True, False)
    assert versions(rewritten) == [0, 1, 2, 3]
    setting(CHECK, "true")
    table.vacuum()
    [start] = actions(rewritten, "commitInfo", 4)
    assert start["operationParameters"] == {
        "retentionCheckEnabled": True,
        "defaultRetentionMillis": 604_800_000,
    }
    setting(LOGGING, "false")
    table.vacuum()
    table.vacuum(dryRun=True)
    assert deltalake.DeltaTable(rewritten).version() == 5


@pytest.mark.parametrize(
    ("hours", "code", "text"),
    [
        (167.99, "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT", "at least 168 hours"),
        (-0.5, "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE", "can't be less than 0"),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_a_retention_that_is_not_safe_is_refused(
    spark: Any, rewritten: str, hours: float, code: str, text: str, dry: bool
) -> None:
    before = data_files(rewritten)
    with pytest.raises(DeltaIllegalArgumentException, match=text) as raised:
        DeltaTable.forPath(spark, rewritten).vacuum(hours, dryRun=dry)
    assert raised.value.getErrorClass() == code
    assert data_files(rewritten) == before
    assert deltalake.DeltaTable(rewritten).version() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"retentionHours": "7"},
        {"retentionHours": True},
        {"retentionHours": float("nan")},
        {"retentionHours": float("inf")},
        {"dryRun": 1},
        {"checkpoints": "c"},
    ],
)
@pytest.mark.sampled(3)
def test_arguments_of_wrong_types(spark: Any, rewritten: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        DeltaTable.forPath(spark, rewritten).vacuum(**arguments)


def test_the_tables_own_retention_is_the_least_and_the_default(spark: Any, rewritten: str) -> None:
    keep_deleted_files(spark, rewritten, "0 hours")
    table = DeltaTable.forPath(spark, rewritten)
    assert table.vacuum(0.01, dryRun=True).count() == 0
    assert table.vacuum(0, dryRun=True).count() == table.vacuum(dryRun=True).count() == 6
    table.vacuum()
    assert data_files(rewritten) == active(rewritten)


@pytest.mark.parametrize("name", ["delta.`{}`", "'{}'"])
def test_statements(spark: Any, rewritten: str, setting: Any, name: str) -> None:
    table = name.format(rewritten)
    assert spark.sql(f"VACUUM {table}").collect() == [(f"file:{rewritten}",)]
    with pytest.raises(DeltaIllegalArgumentException, match="at least 168 hours"):
        spark.sql(f"VACUUM {table} RETAIN 1 HOURS").collect()
    setting(CHECK, "false")
    frame = spark.sql(f"VACUUM {table} RETAIN 0 HOURS DRY RUN")
    doomed = data_files(rewritten) - active(rewritten)
    assert frame.columns == ["path"]
    assert {row.path for row in frame.collect()} == {f"file:{rewritten}/{place}" for place in doomed}
    before = len(versions(rewritten))
    spark.sql(f"VACUUM {table} RETAIN 0.5 HOURS")
    assert (
        actions(rewritten, "commitInfo", before)[0]["operationParameters"]["specifiedRetentionMillis"]
        == 1_800_000
    )
    assert doomed < data_files(rewritten)
    spark.sql(f"VACUUM {table} RETAIN :hours HOURS", args={"hours": 0})
    assert data_files(rewritten) == active(rewritten)


@pytest.mark.parametrize(
    "text",
    [
        "FULL LITE",
        "LITE USING INVENTORY (SELECT 'a' AS path)",
        "USING INVENTORY nothing",
        "USING INVENTORY SELECT 1",
        "RETAIN '7' HOURS",
        "RETAIN 7",
        "RETAIN 7 HOURS RETAIN 700 HOURS",
        "DRY RUN DRY RUN",
    ],
)
@pytest.mark.sampled(3)
def test_statements_that_are_refused(spark: Any, rewritten: str, text: str) -> None:
    before = data_files(rewritten)
    with pytest.raises((AnalysisException, ParseException, DeltaUnsupportedOperationException)):
        spark.sql(f"VACUUM delta.`{rewritten}` {text}").collect()
    assert data_files(rewritten) == before


def test_a_statement_on_a_name(spark: Any, database: Path, unchecked: None) -> None:
    spark.range(5).write.format("delta").saveAsTable("t")
    spark.range(7).write.format("delta").mode("overwrite").saveAsTable("t")
    assert len(spark.sql("VACUUM t RETAIN 0 HOURS DRY RUN").collect()) == 2
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert data_files(str(database / "t")) == active(str(database / "t"))
    spark.range(5).write.saveAsTable("other")
    with pytest.raises(AnalysisException):
        spark.sql("VACUUM other").collect()


def history(path: str) -> list[str]:
    return [info["operation"] for info in every_action(path, "commitInfo")]


def test_lite_by_every_door(spark: Any, rewritten: str, unchecked: None, setting: Any) -> None:
    """It finds what the commits removed, and not what was never in the log."""
    table, first = DeltaTable.forPath(spark, rewritten), active(rewritten, 0)
    Path(rewritten, "p=0", "left behind.parquet").write_bytes(b"x")
    named = {f"file:{rewritten}/{place}" for place in first}
    lite = spark.sql(f"VACUUM delta.`{rewritten}` DRY RUN LITE RETAIN 0 HOURS")
    assert {row.path for row in lite.collect()} == named
    frame = table.vacuum(0, dryRun=True, lite=True)
    assert {row.path: row.size for row in frame.collect()} == {
        place: os.path.getsize(place.removeprefix("file:")) for place in named
    }
    setting("spark.databricks.delta.vacuum.lite.enabled", "true")
    assert {row.path for row in table.vacuum(0, dryRun=True).collect()} == named
    full = spark.sql(f"VACUUM delta.`{rewritten}` FULL RETAIN 0 HOURS DRY RUN")
    assert len(full.collect()) == len(named) + 1 == table.vacuum(0, dryRun=True, lite=False).count()
    # Without RETAIN the table's retention holds.
    assert spark.sql(f"VACUUM delta.`{rewritten}` LITE DRY RUN").count() == 0
    [row] = spark.sql(f"VACUUM delta.`{rewritten}` RETAIN 0 HOURS").collect()
    assert row.path == f"file:{rewritten}"
    assert data_files(rewritten) == {*active(rewritten), "p=0/left behind.parquet"}
    assert history(rewritten)[-2:] == ["VACUUM START", "VACUUM END"]
    assert table.vacuum(0, dryRun=True).count() == 0
    table.vacuum(0, lite=False)
    assert data_files(rewritten) == active(rewritten)


def test_lite_without_the_log_that_it_needs(spark: Any, rewritten: str, unchecked: None) -> None:
    before = data_files(rewritten)
    write_ids(spark, rewritten, 60, 90, "overwrite")
    DeltaLog.for_table(rewritten).checkpoint()
    for file in (commit_file(rewritten, 0), *Path(rewritten, "_delta_log").glob(".*0.json.crc")):
        file.unlink()
    for run in (
        lambda: spark.sql(f"VACUUM delta.`{rewritten}` LITE RETAIN 0 HOURS"),
        lambda: DeltaTable.forPath(spark, rewritten).vacuum(0, lite=True, dryRun=True),
    ):
        with pytest.raises(DeltaIllegalStateException, match="Run VACUUM FULL") as raised:
            run()
        assert (raised.value.getErrorClass(), raised.value.getSqlState()) == (
            "DELTA_CANNOT_VACUUM_LITE",
            "55000",
        )
    assert before <= data_files(rewritten)
    # A full one remembers where the next one goes on.
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    write_ids(spark, rewritten, 0, 3, "overwrite")
    spark.sql(f"VACUUM delta.`{rewritten}` LITE RETAIN 0 HOURS")
    assert data_files(rewritten) == active(rewritten)


def test_lite_deletes_deletion_vectors_and_a_failure_is_tried_again(
    spark: Any, rewritten: str, unchecked: None, monkeypatch: Any
) -> None:
    table = DeltaTable.forPath(spark, rewritten)
    spark.sql(f"ALTER TABLE delta.`{rewritten}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.delete("id = 31")
    table.vacuum(0, lite=True)
    assert len(list(Path(rewritten).glob("*.bin"))) == 1
    assert table.toDF().count() == 29
    write_ids(spark, rewritten, 0, 3, "overwrite")
    stuck = min(place for place in data_files(rewritten) - active(rewritten) if place.endswith(".parquet"))
    unlink = os.unlink

    def failing(name: Any, **options: Any) -> None:
        if name == Path(stuck).name:
            raise PermissionError(13, "Permission denied", name)
        unlink(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", failing)
        with pytest.raises(StoreError, match="could not delete 1 others"):
            table.vacuum(0, lite=True)
    assert data_files(rewritten) == {*active(rewritten), stuck}
    table.vacuum(0, lite=True)
    assert data_files(rewritten) == active(rewritten)


INVENTORY = "path STRING, length BIGINT, isDir BOOLEAN, modificationTime BIGINT"


def inventory_of(spark: Any, path: str, *left_out: str) -> Any:
    files = [file for file in Path(path).rglob("*") if str(file.relative_to(path)) not in left_out]
    rows = [
        (f"file:{file}", file.stat().st_size, file.is_dir(), int(file.stat().st_mtime * 1_000))
        for file in files
    ]
    return spark.createDataFrame(rows, INVENTORY)


def test_an_inventory_by_every_door(
    spark: Any, rewritten: str, database: Path, unchecked: None, setting: Any
) -> None:
    table = DeltaTable.forPath(spark, rewritten)
    listed = {row.path for row in table.vacuum(0, dryRun=True).collect()}
    missed = min(active(rewritten, 0))
    inventory = inventory_of(spark, rewritten, missed).selectExpr("*", "1 AS more")
    inventory.write.format("delta").saveAsTable("inventory")
    inventory.createOrReplaceTempView("listed")
    expected = listed - {f"file:{rewritten}/{missed}"}
    for text in ("inventory", "(SELECT * FROM `listed` WHERE (length >= 0))", "`listed`"):
        found = spark.sql(f"VACUUM delta.`{rewritten}` USING INVENTORY {text} RETAIN 0 HOURS DRY RUN")
        assert {row.path for row in found.collect()} == expected
    assert {row.path for row in table.vacuum(0, dryRun=True, inventory=inventory).collect()} == expected
    # An inventory is older than the retention, or nothing of it may go.
    assert table.vacuum(dryRun=True, inventory=inventory).count() == 0
    setting("spark.databricks.delta.vacuum.lite.enabled", "true")
    spark.sql(f"VACUUM delta.`{rewritten}` RETAIN 0 HOURS USING INVENTORY inventory")
    assert data_files(rewritten) == {*active(rewritten), missed}
    # What it has missed, the next one finds.
    table.vacuum(0)
    assert data_files(rewritten) == active(rewritten)
    assert ids(table.toDF()) == list(range(30, 60))


@pytest.mark.parametrize(
    "query", ["SELECT path, isDir FROM v", "SELECT path, length, isDir, CAST(modificationTime AS INT) FROM v"]
)
def test_an_inventory_without_its_columns(spark: Any, rewritten: str, query: str) -> None:
    inventory_of(spark, rewritten).createOrReplaceTempView("v")
    for run in (
        lambda: spark.sql(f"VACUUM delta.`{rewritten}` USING INVENTORY ({query})"),
        lambda: DeltaTable.forPath(spark, rewritten).vacuum(inventory=spark.sql(query)),
    ):
        with pytest.raises(DeltaIllegalArgumentException, match="modificationTime bigint") as raised:
            run()
        assert raised.value.getErrorClass() == "DELTA_INVALID_INVENTORY_SCHEMA"


def test_a_table_by_name(spark: Any, database: Path, unchecked: None) -> None:
    spark.range(5).write.format("delta").saveAsTable("t")
    spark.range(7).write.format("delta").mode("overwrite").saveAsTable("t")
    DeltaTable.forName(spark, "t").vacuum(0)
    assert data_files(str(database / "t")) == active(str(database / "t"))
    assert spark.table("t").count() == 7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(3)
def test_every_version_within_the_retention_reads_as_before(
    spark: Any, path: str, unchecked: None, seed: int
) -> None:
    """A random history, and a retention that begins somewhere in it."""
    choose = random.Random(seed)
    write_ids(spark, path, 0, 6)
    for number in range(7):
        action = choose.choice(["append", "overwrite", "partition", "compact", "restore"])
        if action == "partition":
            frame = spark.range(number, number + 2).selectExpr("id", "1L AS p")
            frame.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(path)
        elif action == "compact":
            frame = load(spark, path).coalesce(1)
            frame.write.format("delta").mode("overwrite").option("dataChange", "false").save(path)
        elif action == "restore":
            again = DeltaLog.for_table(path).snapshot_at(choose.randrange(number + 1))
            transaction = DeltaLog.for_table(path).start_transaction()
            transaction.commit(list(add_files(again.with_stats(again.files))), _restore())
        else:
            write_ids(spark, path, number * 10, number * 10 + 4, action)
    log = DeltaLog.for_table(path)
    times = [log.snapshot_at(version).timestamp_ms for version in log.available_versions()]
    first = choose.randrange(len(times))
    before = {version: rows(read_at(spark, path, version)) for version in range(first, len(times))}
    kept = set().union(*(active(path, version) for version in range(first, len(times))))
    elapsed = time.time() * 1_000 - times[first]
    # A little less than the age of that version's commit.
    DeltaTable.forPath(spark, path).vacuum((elapsed - 0.5) / 3_600_000)
    for version, expected in before.items():
        assert rows(read_at(spark, path, version)) == expected
    young = {place for place in data_files(path) if Path(path, place).stat().st_mtime * 1_000 >= times[first]}
    assert data_files(path) == kept | young


def _restore() -> Any:
    from deltaflow.log import Operation

    return Operation("RESTORE", {})


def read_at(spark: Any, path: str, version: int) -> Any:
    return spark.read.format("delta").option("versionAsOf", version).load(path)


class Once:
    """An observer that acts at the first event with a name."""

    def __init__(self, point: str, action: Any) -> None:
        self.point, self.action = point, action

    def __call__(self, point: str, facts: Any) -> None:
        if point == self.point and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.fixture
def at_commit() -> Any:
    yield lambda action: set_observer(Once("commit prepared", action))
    set_observer(None)


def test_a_file_that_comes_back_while_a_vacuum_runs_stays(
    spark: Any, rewritten: str, unchecked: None, at_commit: Any
) -> None:
    """Another writer restores the first version between the plan and the first deletion."""
    first = DeltaLog.for_table(rewritten).snapshot_at(0)
    files = add_files(first.with_stats(first.files))
    at_commit(lambda: DeltaLog.for_table(rewritten).start_transaction().commit(list(files), _restore()))
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert ids(load(spark, rewritten)) == list(range(60))


def test_a_deletion_vector_that_comes_back_while_a_vacuum_runs_stays(
    spark: Any, rewritten: str, unchecked: None, at_commit: Any
) -> None:
    """Another writer restores a version whose vectors the plan has, and whose data files the table has."""
    log = DeltaLog.for_table(rewritten)
    version = mark_deleted(rewritten, [0])
    expected = ids(load(spark, rewritten))
    spark.sql(f"RESTORE TABLE delta.`{rewritten}` TO VERSION AS OF {version - 1}")
    old, new = log.snapshot_at(version), log.snapshot()
    back = [
        *add_files(old.with_stats(old.files)),
        *remove_files(new.with_stats(new.files), days_ago(0)),
    ]
    at_commit(lambda: log.start_transaction().commit(back, _restore()))
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert ids(load(spark, rewritten)) == expected


def test_a_writer_that_is_at_work_loses_no_file(spark: Any, rewritten: str, at_commit: Any) -> None:
    """Its files are younger than the retention, whatever the log says."""
    keep_deleted_files(spark, rewritten, "1 minute")
    vacuumed = []
    at_commit(lambda: vacuumed.append(DeltaTable.forPath(spark, rewritten).vacuum()))
    write_ids(spark, rewritten, 60, 90)
    assert vacuumed
    assert ids(load(spark, rewritten)) == list(range(30, 90))


def test_two_vacuums_at_once(spark: Any, rewritten: str, unchecked: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(vacuum_deletion, "_FILES_OF_A_TASK", 1)
    both = threading.Barrier(2, timeout=60)
    delete_planned = vacuum_deletion.delete_planned

    def together(*arguments: Any) -> None:
        both.wait()
        delete_planned(*arguments)

    monkeypatch.setattr("deltaflow.batch.commands.vacuum.delete_planned", together)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            DeltaTable.forPath(spark, rewritten).vacuum(0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert data_files(rewritten) == active(rewritten)
    infos = every_action(rewritten, "commitInfo")
    ends = [info for info in infos if info["operation"] == "VACUUM END"]
    deleted = [int(end["operationMetrics"]["numDeletedFiles"]) for end in ends]
    assert (len(deleted), sum(deleted)) == (2, 6)


def test_a_failure_is_told_and_the_rest_goes_on(
    spark: Any, rewritten: str, unchecked: None, monkeypatch: Any
) -> None:
    stuck = min(data_files(rewritten) - active(rewritten))
    unlink = os.unlink

    def failing(name: Any, **options: Any) -> None:
        if name == Path(stuck).name:
            raise PermissionError(13, "Permission denied", name)
        unlink(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", failing)
        with pytest.raises(StoreError, match="could not delete 1 others") as raised:
            DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert stuck in str(raised.value)
    assert raised.value.getErrorClass() == "DELTA_VACUUM_INCOMPLETE"
    assert data_files(rewritten) == {*active(rewritten), stuck}
    [end] = actions(rewritten, "commitInfo", 3)
    assert (end["operation"], end["operationParameters"]) == ("VACUUM END", {"status": "FAILED"})
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert data_files(rewritten) == active(rewritten)


KILLED = """
import os, sys
from deltaflow.batch.commands import vacuum, vacuum_deletion
from deltaflow.store.local_directory import LocalDataDirectory as directory

delete = directory.delete
def killed(*arguments):
    delete(*arguments)
    os._exit(9)
directory.delete = killed
vacuum_deletion._FILES_OF_A_TASK = 1
settings = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
log, kept, plan = vacuum._plan(sys.argv[1], 0, settings, (), vacuum.in_directory)
vacuum._delete(log, kept, plan, settings)
"""


def test_a_vacuum_that_is_killed_is_run_again(spark: Any, rewritten: str, unchecked: None) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, rewritten], check=False, capture_output=True, text=True
    )
    assert killed.returncode == 9, killed.stderr
    assert active(rewritten) < data_files(rewritten)
    assert actions(rewritten, "commitInfo")[0]["operation"] == "VACUUM START"
    assert load(spark, rewritten).count() == 30
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert data_files(rewritten) == active(rewritten)


def test_a_breakdown_ends_it_with_a_commit_that_says_so(
    spark: Any, rewritten: str, unchecked: None, monkeypatch: Any
) -> None:
    def broken(*arguments: Any) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(vacuum_deletion, "_delete_files", broken)
    with pytest.raises(MemoryError, match="none left"):
        DeltaTable.forPath(spark, rewritten).vacuum(0)
    [end] = actions(rewritten, "commitInfo")
    assert (end["operation"], end["operationParameters"]) == ("VACUUM END", {"status": "FAILED"})


def test_nothing_outside_of_the_table_goes(
    spark: Any, rewritten: str, unchecked: None, tmp_path: Path
) -> None:
    """Links out of it, a table below it and one beside it whose files it refers to."""
    beside, below = str(tmp_path / "beside"), f"{rewritten}/archive"
    for other in (beside, below):
        write_ids(spark, other, 0, 9)
        write_ids(spark, other, 0, 9, "overwrite")
    outside = tmp_path / "outside"
    shutil.copytree(Path(rewritten, "p=0"), outside)
    Path(rewritten, "p=9").symlink_to(outside)
    Path(rewritten, "link.parquet").symlink_to(next(outside.glob("*.parquet")))
    before = [data_files(place) for place in (beside, below, str(outside))]
    DeltaTable.forPath(spark, rewritten).vacuum(0)
    assert [data_files(place) for place in (beside, below, str(outside))] == before
    assert Path(rewritten, "p=9").is_symlink()
    own = {place for place in data_files(rewritten) if not place.startswith(("archive/", "p=9", "link"))}
    assert own == active(rewritten)


def test_a_shallow_clone_and_its_source(spark: Any, rewritten: str, unchecked: None, tmp_path: Path) -> None:
    """The clone's vacuum leaves the source's files alone, whatever the clone has done to them."""
    clone, source = str(tmp_path / "clone"), data_files(rewritten)
    DeltaTable.forPath(spark, rewritten).clone(clone, isShallow=True)
    write_ids(spark, clone, 100, 103)
    DeltaTable.forPath(spark, clone).vacuum(0)
    assert load(spark, clone).count() == 33
    write_ids(spark, clone, 0, 3, "overwrite")
    DeltaTable.forPath(spark, clone).vacuum(0)
    assert data_files(clone) == active(clone)
    assert data_files(rewritten) == source
