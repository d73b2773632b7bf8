"""Reads of missing files, Spark's metadata of files, and Spark's cache of tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from deltaflow.errors import ConcurrentAppendException, StoreError
from tests.plans import executed_plan
from tests.tables import actions, load, write_commit

pytestmark = pytest.mark.spark


@pytest.fixture
def with_a_file_gone(spark, tmp_path):
    """A table of three files, whose first was deleted behind the log's back, and the name of that file."""
    path = tmp_path / "a table"
    spark.range(0, 9, 1, 3).write.format("delta").save(str(path))
    gone = min(path.glob("*.parquet"))
    gone.unlink()
    return path, gone


@pytest.mark.parametrize(
    "use",
    [
        lambda frame, _: frame.collect(),
        lambda frame, _: frame.orderBy(F.desc("id")).toArrow(),
        lambda frame, path: frame.write.format("delta").save(f"{path} copy"),
        lambda frame, path: frame.write.parquet(f"{path} parquet"),
        lambda frame, _: frame.alias("a").join(F.broadcast(frame.alias("b")), "id").collect(),
    ],
    ids=["collect", "arrow", "delta", "parquet", "broadcast"],
)
def test_a_file_that_is_gone(spark, with_a_file_gone, use):
    path, gone = with_a_file_gone
    with pytest.raises(StoreError) as caught:
        use(load(spark, path), path)
    error = caught.value
    assert error.getCondition() == "DELTA_FILE_NOT_FOUND_DETAILED"
    assert (error.table, error.version) == (str(path), 0)
    for text in (str(gone), "version 0", "VACUUM", str(path)):
        assert text in str(error)


def test_a_parquet_file_that_is_gone_is_none_of_ours(spark, tmp_path):
    spark.range(3).write.parquet(str(tmp_path / "p"))
    frame = spark.read.parquet(str(tmp_path / "p"))
    for file in (tmp_path / "p").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="FAILED_READ_FILE") as caught:
        frame.collect()
    assert not isinstance(caught.value, StoreError)


def test_files_that_spark_is_told_to_ignore(spark, with_a_file_gone):
    path, _ = with_a_file_gone
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    assert len(load(session, path).collect()) == 6
    assert load(session, path).count() == 6  # and not what the log tells
    reader = spark.read.format("delta").option("ignoreMissingFiles", True)
    assert len(reader.load(str(path)).collect()) == reader.load(str(path)).count() == 6
    with pytest.raises(StoreError):
        load(spark, path).collect()


def test_what_spark_tells_of_a_file(spark, table):
    spark.range(0, 6, 1, 1).repartitionByRange(2, "id").write.format("delta").save(table)
    rows = load(spark, table).select(
        "id",
        "_metadata.file_path",
        "_metadata.file_name",
        "_metadata.file_size",
        "_metadata.row_index",
        F.input_file_name().alias("name"),
    )
    for row in rows.collect():
        file = Path(row.file_path.removeprefix("file://").removeprefix("file:"))
        assert row.file_path.startswith("file:")
        assert row.name.removeprefix("file://").removeprefix("file:") == str(file)
        assert (file.name, file.stat().st_size, file.parent) == (row.file_name, row.file_size, Path(table))
        assert row.row_index == row.id % 3
    assert rows.where("_metadata.row_index = 2").count() == 2
    [name] = load(spark, table).where("id = 0").select("_metadata.file_name").first()
    assert load(spark, table).where(F.col("_metadata.file_name") == name).count() == 3


@pytest.fixture
def cached(spark, table):
    """A cached frame of two rows."""
    spark.range(0, 2, 1, 2).write.format("delta").save(table)
    frame = load(spark, table)
    frame.cache()
    assert frame.count() == 2
    yield frame
    spark.catalog.clearCache()


def from_cache(frame):
    return "InMemoryTableScan" in executed_plan(frame)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_refreshes_what_is_cached(spark, table, cached, mode):
    filtered = load(spark, table).where("id > 0")
    assert from_cache(filtered)
    spark.range(5, 8).write.format("delta").mode(mode).save(table)
    expected = 5 if mode == "append" else 3
    assert (cached.count(), load(spark, table).count()) == (expected, expected)
    assert from_cache(load(spark, table))
    assert load(spark, table).where("id > 0").count() == expected - (mode == "append")


def commit_of_another_process(table):
    """Adds a copy of the table's first file, of one row, as a new version."""
    add, *_ = actions(table, "add", 0)
    shutil.copy2(Path(table, add["path"]), Path(table, "copy.parquet"))
    write_commit(table, 1, {"add": {**add, "path": "copy.parquet"}})


def test_the_cache_holds_what_it_was_filled_with(spark, table, cached):
    commit_of_another_process(table)
    assert cached.count() == 2
    spark.catalog.refreshByPath(table)
    assert (cached.count(), load(spark, table).count()) == (3, 3)
    cached.unpersist()
    assert not from_cache(load(spark, table))
    assert load(spark, f"{table}@v0").count() == 2


def test_a_cached_view(spark, table):
    spark.range(2).write.format("delta").save(table)
    load(spark, table).createOrReplaceTempView("cached_view")
    spark.sql("CACHE TABLE cached_view")
    try:
        assert spark.sql("SELECT count(*) AS n FROM cached_view").first().n == 2
        spark.range(3).write.format("delta").mode("append").save(table)
        assert spark.sql("SELECT count(*) AS n FROM cached_view").first().n == 5
        spark.sql("REFRESH TABLE cached_view")
        assert spark.table("cached_view").count() == 5
        assert spark.catalog.isCached("cached_view")
    finally:
        spark.sql("UNCACHE TABLE cached_view")


def test_a_cached_table_by_name(spark, table):
    spark.range(2).write.format("delta").save(table)
    spark.sql(f"CREATE TABLE cached_by_name USING delta LOCATION '{table}'")
    try:
        spark.sql("CACHE TABLE cached_by_name")
        assert spark.table("cached_by_name").count() == 2
        spark.sql("INSERT INTO cached_by_name VALUES (7)")
        assert spark.table("cached_by_name").count() == 3
        spark.range(8, 9).write.format("delta").mode("append").save(table)
        assert (spark.table("cached_by_name").count(), load(spark, table).count()) == (4, 4)
        spark.catalog.refreshTable("cached_by_name")
        assert spark.catalog.isCached("cached_by_name")
        assert "In-memory table" in executed_plan(spark.table("cached_by_name"))
        assert spark.table("cached_by_name").count() == 4
    finally:
        spark.sql("DROP TABLE cached_by_name")


def test_an_overwrite_by_a_cached_frame_of_its_own_table(spark, table, cached):
    cached.where("id > 0").write.format("delta").mode("overwrite").save(table)
    assert [row.id for row in cached.collect()] == [1]


@pytest.mark.parametrize("of", ["rows", "subquery"])
def test_an_overwrite_by_a_cached_frame_loses_to_what_came_since(spark, table, cached, of):
    commit_of_another_process(table)
    cached.createOrReplaceTempView("cached_before")
    frame = cached.where("id > 0").groupBy("id").count().select("id")
    if of == "subquery":
        frame = spark.sql("SELECT id FROM range(9) WHERE id IN (SELECT id FROM cached_before)")
    with pytest.raises(ConcurrentAppendException, match="Version 1"):
        frame.write.format("delta").mode("overwrite").save(table)
    spark.catalog.refreshByPath(table)
    cached.where("id > 0").write.format("delta").mode("overwrite").save(table)
    assert [row.id for row in cached.collect()] == [1]
