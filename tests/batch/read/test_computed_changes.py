"""Changes between versions of tables without a change data feed: computeUpdates and netChanges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.tables import DeltaTable
from tests.tables import latest_version, load, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

CHANGES = {"readChangeFeed": "true", "computeUpdates": "id"}
STATEMENTS = (
    "INSERT INTO {0} SELECT id, id % 2 AS p, id AS v FROM range(0, 8, 1, 2)",
    "UPDATE {0} SET v = -1 WHERE id IN (1, 4)",
    "UPDATE {0} SET v = v WHERE id = 2",
    "OPTIMIZE {0}",
    "DELETE FROM {0} WHERE id = 3",
    "MERGE INTO {0} t USING (SELECT explode(array(3L, 4L, 5L, 20L)) AS id) s ON t.id = s.id "
    "WHEN MATCHED AND t.id = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = t.v - 1 "
    "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 1, 100)",
    "UPDATE {0} SET p = 1 - p WHERE id = 0",
    "UPDATE {0} SET v = NULL WHERE id = 7",
    "DELETE FROM {0} WHERE p = 1",
)
KINDS = {
    "plain": "",
    "partitioned, with a feed": "PARTITIONED BY (p) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "with vectors, mapped": (
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'id')"
    ),
}


def changes(spark: SparkSession, path: str, start: int, end: int, **options: str) -> DataFrame:
    return load(spark, path, **CHANGES, startingVersion=start, endingVersion=end, **options)


def told(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.drop("_commit_timestamp").collect())


def differences(before: dict[int, Any], after: dict[int, Any], version: int) -> Counter[tuple[Any, ...]]:
    """The change rows between two states of a table."""
    found: Counter[tuple[Any, ...]] = Counter()
    for id_ in before.keys() | after.keys():
        old, new = before.get(id_), after.get(id_)
        if old is None or new is None:
            found[(*(old or new), "insert" if old is None else "delete", version)] += 1
        elif old != new:
            found[(*old, "update_preimage", version)] += 1
            found[(*new, "update_postimage", version)] += 1
    return found


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] * (not kind.endswith("mapped"))) for kind in KINDS]
)
def test_every_range(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, p BIGINT, v BIGINT) USING delta {KINDS[kind]}")
    for statement in STATEMENTS:
        spark.sql(statement.format(f"delta.`{path}`"))
    last = latest_version(path)
    assert last == len(STATEMENTS)
    states = [
        {row.id: tuple(row) for row in load(spark, path, versionAsOf=v).collect()} for v in range(last + 1)
    ]
    every = [Counter()] + [differences(states[v - 1], states[v], v) for v in range(1, last + 1)]
    assert every[3] == every[4] == Counter()  # rows that were written again without a change
    assert sum(every[5].values()) == 1
    for start, end in ((0, last), (5, 6)):
        wanted = sum(every[start : end + 1], Counter())
        assert told(changes(spark, path, start, end)) == wanted
    frame = changes(spark, path, 0, last)
    assert frame.where("_change_type = 'delete' AND _commit_version = 5").select("id").collect() == [(3,)]
    assert frame.where("v IS NULL").count() == 2
    # Net changes: those between the state before the range and the one after it.
    for start, end in ((1, last), (3, 4), (5, 7)):
        net = changes(spark, path, start, end, netChanges="true")
        wanted = differences(states[start - 1], states[end], -1)
        assert Counter((*row[:-1], -1) for row in told(net).elements()) == wanted
    net = changes(spark, path, 2, 6, netChanges="true").where("id = 4")
    assert {row._commit_version for row in net.collect()} == {6}


def test_rows_are_compared_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = (
        "SELECT id, map('b', id, 'a', 2L) AS m, map('k', array(1)) AS n, double('NaN') AS f, "
        "named_struct('x', id, 'y', array(named_struct('z', id))) AS s, CAST('ab' AS BINARY) AS b, "
        "'x' AS `k-1`, 1 AS `data`, struct(timestamp_micros(0) AS t, map('k', 1) AS m) AS w, "
        "array(map(X'01', map('a', 1, 'b', 2))) AS o FROM range(4)"
    )
    write(spark.sql(rows), path)
    write(spark.sql(rows.replace("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)")), path, "overwrite")
    write(
        spark.sql(rows).selectExpr(
            "id",
            "IF(id = 0, map('a', 2L), m) AS m",
            "IF(id = 1, map('k', array(2)), n) AS n",
            "f",
            "IF(id = 2, named_struct('x', id, 'y', array(named_struct('z', 9L))), s) AS s",
            "b",
            "`k-1`",
            "`data`",
            "IF(id = 3, struct(timestamp_micros(1) AS t, w.m AS m), w) AS w",
            "o",
        ),
        path,
        "overwrite",
    )
    frame = changes(spark, path, 1, 2)
    kinds = ["update_postimage", "update_preimage"]
    # Columns and fields that a query does not ask for are compared, too.
    found = frame.select("id", "_change_type").orderBy("id", "_change_type").collect()
    assert found == [(id_, kind) for id_ in range(4) for kind in kinds]
    assert frame.select("s.x", "_commit_version").distinct().count() == 4
    by_two = load(spark, path, **{**CHANGES, "computeUpdates": "`K-1`, ID"}, startingVersion=1)
    assert told(by_two.select("id", "_commit_timestamp")) == told(frame.select("id", "_commit_timestamp"))
    assert frame.join(spark.range(2), "id").count() == 4


def test_every_door_and_what_is_refused(spark: SparkSession, tmp_path: Path, database: Path) -> None:
    path = str(tmp_path / "table")
    write(spark.range(3).selectExpr("id", "map(id, id) AS m"), path)
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{path}'")
    DeltaTable.forPath(spark, path).delete("id = 1")
    reader = spark.read.options(**CHANGES, startingVersion=1)
    for frame in (reader.table("t"), reader.format("delta").load(path)):
        assert [row.id for row in frame.collect()] == [1]
    for option, error in {
        "": DeltaIllegalArgumentException,
        "nothing": DeltaAnalysisException,
        "id.x": DeltaAnalysisException,
        "m": DeltaIllegalArgumentException,
        "id, ID": DeltaIllegalArgumentException,
        "id,,": DeltaIllegalArgumentException,
    }.items():
        with pytest.raises(error):
            load(spark, path, **{**CHANGES, "computeUpdates": option}, startingVersion=0)
    with pytest.raises(DeltaIllegalArgumentException, match="netChanges"):
        load(spark, path, readChangeFeed="true", netChanges="true", startingVersion=0)
    with pytest.raises(Exception, match="DELTA_CDC_START_VERSION_AFTER_LATEST"):
        load(spark, path, **CHANGES, startingVersion=9)
    reserved = str(tmp_path / "reserved")
    write(spark.range(1).withColumnRenamed("id", "_Commit_Version"), reserved)
    with pytest.raises(Exception, match="DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"):
        load(spark, reserved, readChangeFeed="true", computeUpdates="_commit_version", startingVersion=0)
    # Keys that do not tell rows apart.
    write(spark.sql("SELECT 7L AS id, map(0L, 0L) AS m UNION ALL SELECT 7L, map(1L, 0L)"), path)
    assert told(changes(spark, path, 0, 1).select("id", "_commit_timestamp"))
    with pytest.raises(Exception, match=r"DELTA_CHANGE_KEYS_NOT_UNIQUE.*columns id, which"):
        changes(spark, path, 0, 2).collect()
