"""A write that certainly has no commit leaves no files. If that is not certain, all its files stay."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from deltaflow.errors import CommitOutcomeUnknownError, StoreError
from deltaflow.log import DeltaLog
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.store import LocalLogStore
from tests.tables import files_below, load

pytestmark = pytest.mark.spark


def part_files(table):
    """The names of the data files and of their checksums."""
    return {Path(file).name for file in files_below(table) if "part-" in file}


@pytest.fixture
def written(spark, table):
    """A table with one row; the names of its files."""
    spark.range(1).coalesce(1).write.format("delta").save(table)
    return part_files(table)


def append_three_files(spark, table):
    spark.range(5, 8, 1, 3).write.format("delta").mode("append").save(table)


def test_a_put_that_failed_for_certain_leaves_no_files(spark, table, written, monkeypatch, caplog):
    def fail(self, path, data):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(LocalLogStore, "put_if_absent", fail)
    with pytest.raises(StoreError, match="no space left"):
        append_three_files(spark, table)
    assert part_files(table) == written
    assert f"{table}: a write was not committed; 3 of its 3 files were removed." in caplog.messages


def test_an_unknown_outcome_removes_nothing(spark, tmp_path, monkeypatch, caplog):
    table = str(tmp_path / "unknown")
    spark.range(1).coalesce(1).write.format("delta").save(table)
    put, read = LocalLogStore.put_if_absent, LocalLogStore.read

    def lands_and_fails(self, path, data):
        put(self, path, data)
        monkeypatch.setattr(LocalLogStore, "read", fail)
        raise OSError(5, "input/output error")

    def fail(self, path):
        raise OSError(5, "input/output error")

    monkeypatch.setattr(LocalLogStore, "put_if_absent", lands_and_fails)
    with pytest.raises(CommitOutcomeUnknownError):
        append_three_files(spark, table)
    monkeypatch.setattr(LocalLogStore, "put_if_absent", put)
    monkeypatch.setattr(LocalLogStore, "read", read)
    [said] = [message for message in caplog.messages if "its 3 files stay" in message]
    assert said.count(".parquet") == 3
    assert load(spark, table).count() == 4


def test_what_cannot_be_removed_is_named(spark, tmp_path, monkeypatch, caplog):
    table = str(tmp_path / "stays")
    spark.range(1).coalesce(1).write.format("delta").save(table)
    before = part_files(table)
    unlink = os.unlink

    def refuse(path, *, dir_fd=None):
        if str(path).startswith("part-00001"):
            raise PermissionError(13, "not allowed", path)
        unlink(path, dir_fd=dir_fd)

    def interrupt(point, facts):
        if point == "commit prepared":
            monkeypatch.setattr(os, "unlink", refuse)
            raise RuntimeError("on purpose")

    set_observer(interrupt)
    try:
        with pytest.raises(RuntimeError, match="on purpose"):
            append_three_files(spark, table)
    finally:
        set_observer(None)
    monkeypatch.undo()
    left = {name for name in part_files(table) - before if not name.startswith(".")}
    assert [name[:10] for name in left] == ["part-00001"]
    assert any(
        "could not be removed" in message and left.copy().pop() in message for message in caplog.messages
    )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_task_that_fails_leaves_no_files(spark, table, written, caplog, mode):
    rows = spark.range(1, 10, 1, 1).selectExpr("IF(id = 9, raise_error('on purpose'), id) AS id")
    with caplog.at_level(logging.WARNING), pytest.raises(Exception, match="on purpose"):
        rows.write.format("delta").mode(mode).option("maxRecordsPerFile", 2).save(table)
    assert part_files(table) == written
    assert any(f"{table}: a write failed before its commit" in message for message in caplog.messages)
    assert len(os.listdir(Path(table, "_delta_log"))) <= 2  # one commit, and Hadoop's checksum beside it
    assert dispatcher.open_handles == 0


def test_a_cancelled_write_leaves_neither_a_commit_nor_files(spark, table, written, tmp_path):
    began, ended = tmp_path / "began", tmp_path / "ended"

    @F.udf("long")
    def hold(value):
        if value == 9:
            began.touch()
            while not ended.exists():
                time.sleep(0.01)
        return value

    rows = spark.range(1, 10, 1, 1).select(hold("id").alias("id"))
    writer = rows.write.format("delta").mode("append").option("maxRecordsPerFile", 2)
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(writer.save, table)
        while not began.exists():
            assert not write.done()
            time.sleep(0.01)
        spark.sparkContext.cancelAllJobs()
        error = write.exception(120)
        ended.touch()
    assert "cancelled" in str(error)
    assert DeltaLog.for_table(table).latest_version() == 0
    # The killed task cleans up after itself, a moment after the job has ended.
    while part_files(table) != written:
        time.sleep(0.01)
