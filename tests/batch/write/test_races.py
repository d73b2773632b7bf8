"""Concurrent writers in threads of one process and in separate processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltaflow.errors import ConcurrentAppendException, DeltaConcurrentModificationException
from deltaflow.log.observer import set_observer
from tests.tables import actions, commit_info, ids, load, versions

pytestmark = pytest.mark.spark


class Before:
    """An observer that runs `action` once, in the middle of the first write, between files and commit."""

    def __init__(self, action):
        self.action = action

    def __call__(self, point, facts):
        if point == "files written" and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.fixture
def before_commit():
    def set_to(action):
        set_observer(Before(action))

    yield set_to
    set_observer(None)


def test_appends_of_threads(spark, table):
    def append(number):
        spark.range(number, number + 1).write.format("delta").mode("append").save(table)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(append, range(18)))
    assert ids(load(spark, table)) == list(range(18))
    assert versions(table) == list(range(18))


def test_an_append_that_loses_goes_next(spark, table, before_commit):
    write = spark.range(1).write.format("delta").mode("append")
    write.save(table)
    before_commit(lambda: write.save(table))
    spark.range(5, 6).write.format("delta").mode("append").save(table)
    assert ids(load(spark, table)) == [0, 0, 5]
    assert versions(table) == [0, 1, 2]


def test_appends_that_create_one_table(spark, table, before_commit):
    before_commit(lambda: spark.range(1).write.format("delta").mode("append").save(table))
    spark.range(5, 6).write.format("delta").mode("append").save(table)
    assert ids(load(spark, table)) == [0, 5]
    assert actions(table, "metaData", 1) == actions(table, "protocol", 1) == []


@pytest.mark.parametrize("mode", ["errorifexists", "ignore", "overwrite"])
def test_a_write_that_needs_that_there_is_no_table(spark, table, before_commit, mode):
    before_commit(lambda: spark.range(1).write.format("delta").save(table))
    with pytest.raises(DeltaConcurrentModificationException, match="created") as caught:
        spark.range(5, 6).write.format("delta").mode(mode).save(table)
    assert table in str(caught.value)
    assert ids(load(spark, table)) == [0]
    assert versions(table) == [0]


@pytest.mark.parametrize("rival", ["append", "overwrite"])
def test_an_overwrite_that_loses(spark, table, before_commit, rival):
    spark.range(3).write.format("delta").save(table)
    before_commit(lambda: spark.range(7, 8).write.format("delta").mode(rival).save(table))
    with pytest.raises(ConcurrentAppendException, match="full scan of the table") as caught:
        spark.range(5, 6).write.format("delta").mode("overwrite").save(table)
    assert caught.value.version == 1
    assert ids(load(spark, table)) == ([0, 1, 2, 7] if rival == "append" else [7])
    assert versions(table) == [0, 1]


def test_an_append_next_to_an_overwrite(spark, table, before_commit):
    spark.range(3).write.format("delta").save(table)
    before_commit(lambda: spark.range(7, 8).write.format("delta").mode("overwrite").save(table))
    spark.range(5, 6).write.format("delta").mode("append").save(table)
    assert ids(load(spark, table)) == [5, 7]


def test_a_table_of_another_schema_that_came_first(spark, table, before_commit):
    other = spark.range(1).selectExpr("cast(id as string) as id")
    before_commit(lambda: other.write.format("delta").mode("append").save(table))
    with pytest.raises(DeltaConcurrentModificationException, match="column id is string in the table"):
        spark.range(5, 6).write.format("delta").mode("append").save(table)
    assert versions(table) == [0]


def test_an_interrupted_writer_leaves_no_commit(spark, table, before_commit):
    """An error of a callback, even KeyboardInterrupt, ends the write before its commit."""
    spark.range(1).write.format("delta").save(table)

    def interrupt():
        raise KeyboardInterrupt

    before_commit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        spark.range(5, 6).write.format("delta").mode("append").save(table)
    assert versions(table) == [0]
    assert ids(load(spark, table)) == [0]


APPENDING = """
import sys
import deltaflow

table, first = sys.argv[1], int(sys.argv[2])
spark = deltaflow.session("appending", master="local[1]", config={"spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + 8):
    spark.range(number, number + 1).write.format("delta").mode("append").save(table)
print("done", flush=True)
"""


@pytest.mark.long
def test_appends_of_processes(spark, table, tmp_path):
    errors = tmp_path / "errors"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", APPENDING, table]
    with errors.open("w") as stderr:
        writers = [subprocess.Popen([*command, first], stderr=stderr, **pipes) for first in ("0", "100")]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n", errors.read_text()
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for number in range(200, 204):
            spark.range(number, number + 1).write.format("delta").mode("append").save(table)
        for writer in writers:
            assert writer.stdout.readline() == "done\n", errors.read_text()
    finally:
        for writer in writers:
            writer.stdin.close()
            writer.wait(120)
            writer.stdout.close()
    assert ids(load(spark, table)) == [*range(8), *range(100, 108), *range(200, 204)]
    assert versions(table) == list(range(20))


def test_reads_during_writes(spark, table):
    """Every read sees a whole version."""
    spark.range(10).write.format("delta").save(table)
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append(load(spark, table).count())

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for _ in range(5):
            spark.range(10).write.format("delta").mode("overwrite").save(table)
        stop.set()
        reader.result(120)
    assert set(seen) == {10}


@pytest.mark.parametrize("read", ["rows", "count", "subquery"])
def test_an_overwrite_by_a_frame_of_its_own_table_loses_to_what_came_since_it_was_read(
    spark, table, before_commit, read
):
    spark.range(3).write.format("delta").save(table)
    loaded = load(spark, table)
    spark.range(100, 101).write.format("delta").mode("append").save(table)
    loaded.createOrReplaceTempView("loaded_before")
    frame = {
        "rows": loaded.where("id > 0"),
        "count": loaded.groupBy().count().selectExpr("count AS id"),
        "subquery": spark.sql("SELECT id FROM range(9) WHERE id IN (SELECT id FROM loaded_before)"),
    }[read]
    before_commit(lambda: spark.range(7, 8).write.format("delta").mode("append").save(table))
    with pytest.raises(ConcurrentAppendException, match="Version 2"):
        frame.write.format("delta").mode("overwrite").save(table)
    assert ids(load(spark, table)) == [0, 1, 2, 7, 100]
    loaded.where("id > 0").write.format("delta").mode("overwrite").save(table)
    assert ids(load(spark, table)) == [1, 2, 7, 100]


@pytest.mark.parametrize("linked", [False, True])
def test_an_append_that_reads_its_table_is_not_blind(spark, table, tmp_path, before_commit, linked):
    spark.range(3).write.format("delta").save(table)
    (tmp_path / "link").symlink_to(table)
    loaded = load(spark, str(tmp_path / "link") if linked else table)
    new = spark.range(5).join(loaded, "id", "left_anti")
    new.write.format("delta").mode("append").save(table)
    assert not commit_info(table, 1)["isBlindAppend"]
    before_commit(lambda: spark.range(5, 6).write.format("delta").mode("append").save(table))
    with pytest.raises(ConcurrentAppendException):
        spark.range(9).join(loaded, "id", "left_anti").write.format("delta").mode("append").save(table)
    assert commit_info(table, 2)["isBlindAppend"]
    assert ids(load(spark, table)) == [0, 1, 2, 3, 4, 5]


def test_an_insert_whose_subquery_reads_its_table_is_not_blind(spark, table, before_commit):
    spark.range(3).write.format("delta").save(table)
    name = f"delta.`{table}`"

    def insert(end):
        missing = f"NOT EXISTS (SELECT 1 FROM {name} AS t WHERE t.id = s.id)"
        spark.sql(f"INSERT INTO {name} SELECT id FROM range({end}) AS s WHERE {missing}")

    insert(5)
    assert not commit_info(table, 1)["isBlindAppend"]
    before_commit(lambda: spark.range(5, 6).write.format("delta").mode("append").save(table))
    with pytest.raises(ConcurrentAppendException):
        insert(9)
    assert ids(load(spark, table)) == [0, 1, 2, 3, 4, 5]
    insert(9)
    assert ids(load(spark, table)) == list(range(9))


def test_a_version_of_the_past_may_be_brought_back(spark, table):
    spark.range(3).write.format("delta").save(table)
    spark.range(9).write.format("delta").mode("overwrite").save(table)
    past = spark.read.format("delta").option("versionAsOf", 0).load(table)
    past.write.format("delta").mode("overwrite").save(table)
    assert ids(load(spark, table)) == [0, 1, 2]
