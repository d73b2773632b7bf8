"""What Spark has cached of a table is read anew after a write, whatever the door and the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from deltaflow.tables import DeltaTable
from tests.tables import ids, load

pytestmark = pytest.mark.spark

FRAMES: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "the table": lambda spark, path: load(spark, path),
    "with an option": lambda spark, path: load(spark, path, ignoreMissingFiles=True),
    "by another spelling": lambda spark, path: load(spark, f"file:{path}/../table/"),
    "some rows": lambda spark, path: load(spark, path).where("id >= 0"),
    "joined to itself": lambda spark, path: load(spark, path).join(load(spark, path).distinct(), "id"),
    "in a subquery": lambda spark, path: spark.range(9).where(f"id IN (SELECT id FROM delta.`{path}`)"),
}
DOORS: dict[str, Callable[[SparkSession, str], Any]] = {
    "save": lambda spark, path: spark.range(3, 5).write.format("delta").mode("append").save(path),
    "INSERT": lambda spark, path: spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (3), (4)"),
    "writeTo": lambda spark, path: (
        spark.range(3, 5).writeTo(f"delta.`{path}`").option("mergeSchema", "true").append()
    ),
    "MERGE": lambda spark, path: spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM range(3, 5)) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    ),
    "DeltaTable": lambda spark, path: DeltaTable.forPath(spark, path).update("id < 2", {"id": "id + 3"}),
}
LEFT = {"DeltaTable": [2, 3, 4]}


@pytest.fixture(autouse=True)
def no_cache(spark: SparkSession) -> Iterator[None]:
    yield
    spark.catalog.clearCache()


def read(frames: dict[str, DataFrame]) -> dict[str, list[int]]:
    """The ids by new queries over the frames: a frame that has run keeps its plan, as ever in Spark."""
    return {name: ids(frame.select("id")) for name, frame in frames.items()}


def is_cached(frame: DataFrame) -> bool:
    manager = frame.sparkSession._jsparkSession.sharedState().cacheManager()
    return bool(manager.lookupCachedData(frame._jdf).isDefined())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("widened", [False, True], ids=["", "after a column was added"])
@pytest.mark.sampled(5)
def test_after_a_write(spark: SparkSession, table: str, door: str, widened: bool) -> None:
    spark.range(3).write.format("delta").save(table)
    cached = {name: frame(spark, table).cache() for name, frame in FRAMES.items()}
    assert read(cached) == {name: [0, 1, 2] for name in FRAMES}
    if widened:
        spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN x INT")
    DOORS[door](spark, table)
    left = LEFT.get(door, [0, 1, 2, 3, 4])
    assert read(cached) == dict.fromkeys(FRAMES, left)
    assert is_cached(cached["the table"]) is not widened


def test_a_version_that_was_asked_for_stays(spark: SparkSession, table: str) -> None:
    spark.range(3).write.format("delta").save(table)
    cached = load(spark, table, versionAsOf=0).cache()
    assert cached.count() == 3
    DOORS["save"](spark, table)
    assert is_cached(cached)


def test_a_frame_that_can_be_read_no_more_fails_no_write(spark: SparkSession, table: str) -> None:
    spark.range(3).selectExpr("id", "id AS x").write.format("delta").save(table)
    cached = load(spark, table).cache()
    other = cached.join(spark.range(2), "id").cache()
    assert (cached.count(), other.count()) == (3, 2)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.columnMapping.mode = 'name')")
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN x")
    DOORS["save"](spark, table)
    assert ids(load(spark, table)) == [0, 1, 2, 3, 4]
    for frame in (cached, other):
        with pytest.raises(AnalysisException, match="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"):
            frame.count()


FEEDS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "a load": lambda spark, path: load(spark, path, readChangeFeed=True, startingVersion=0),
    "SQL": lambda spark, path: spark.sql(f"SELECT * FROM table_changes_by_path('{path}', 0)"),
    "computed": lambda spark, path: load(
        spark, path, readChangeFeed=True, startingVersion=0, computeUpdates="id"
    ),
    "in a subquery": lambda spark, path: spark.range(9).where(
        f"id IN (SELECT id FROM table_changes_by_path('{path}', 0))"
    ),
}


@pytest.mark.parametrize("door", ["save", "INSERT", "writeTo", "MERGE"])
@pytest.mark.sampled(4)
def test_change_rows_up_to_now(spark: SparkSession, table: str, door: str) -> None:
    spark.range(3).write.format("delta").option("delta.enableChangeDataFeed", "true").save(table)
    cached = {name: feed(spark, table).cache() for name, feed in FEEDS.items()}
    ended = load(spark, table, readChangeFeed=True, startingVersion=0, endingVersion=0).cache()
    assert read(cached | {"ended": ended}) == {name: [0, 1, 2] for name in [*FEEDS, "ended"]}
    DOORS[door](spark, table)
    assert read(cached) == {name: [0, 1, 2, 3, 4] for name in FEEDS}
    assert ids(ended.select("id")) == [0, 1, 2]
    assert is_cached(ended)
