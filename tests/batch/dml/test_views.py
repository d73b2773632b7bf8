"""DELETE, UPDATE and MERGE through views: a temporary one of a whole table stands for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaUnsupportedOperationException
from tests.tables import latest_version, load, tuples

pytestmark = pytest.mark.spark

WHOLE = {
    "a frame's": lambda spark, path: load(spark, path).createOrReplaceTempView("seen"),
    "a frame's with an alias": lambda spark, path: (
        load(spark, path).alias("t").createOrReplaceTempView("seen")
    ),
    "a query's": "SELECT * FROM {table}",
    "of all columns, in another order": "SELECT v, p, id FROM {table} AS t",
    "of a view": "SELECT * FROM (SELECT id, p, v FROM {table})",
}
PARTS = {
    "some rows": "SELECT * FROM {table} WHERE id > 1",
    "some columns": "SELECT id, v FROM {table}",
    "one column twice": "SELECT id, p, v, v AS w FROM {table}",
    "names exchanged": "SELECT id, p AS v, v AS p FROM {table}",
    "other values": "SELECT id, p, upper(v) AS v FROM {table}",
    "another type": "SELECT CAST(id AS INT) AS id, p, v FROM {table}",
    "an older version": "SELECT * FROM {table} VERSION AS OF 0",
    "two tables": "SELECT * FROM {table} UNION ALL SELECT * FROM {table}",
    "distinct rows": "SELECT DISTINCT * FROM {table}",
    "an older version by a frame": lambda spark, path: load(
        spark, path, versionAsOf=0
    ).createOrReplaceTempView("seen"),
}
STATEMENTS = {
    "DELETE FROM seen WHERE id = 2 OR seen.v = 'd'": [(1, 1, "a"), (3, 1, "c")],
    "DELETE FROM seen AS t WHERE t.p = 1": [(2, 0, "b"), (4, 0, "d")],
    "UPDATE seen SET v = concat(seen.v, '!') WHERE seen.id > 3": [
        (1, 1, "a"),
        (2, 0, "b"),
        (3, 1, "c"),
        (4, 0, "d!"),
    ],
    "MERGE INTO seen USING (SELECT 4L AS id, 7 AS p, 'x' AS v UNION ALL SELECT 5L, 7, 'y') AS s "
    "ON seen.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND seen.p = 1 THEN DELETE": [(2, 0, "b"), (4, 7, "x"), (5, 7, "y")],
}


@pytest.fixture
def seen(spark: SparkSession, table: str) -> Iterator[str]:
    """The table whose rows the view `seen` has."""
    rows = spark.sql("SELECT id, CAST(id % 2 AS INT) AS p, chr(96 + id) AS v FROM range(1, 5)")
    rows.write.format("delta").partitionBy("p").save(table)
    yield table
    for drop in (spark.catalog.dropTempView, spark.catalog.dropGlobalTempView):
        drop("seen")


def make(spark: SparkSession, view: object, path: str) -> None:
    if callable(view):
        view(spark, path)
    else:
        spark.sql(f"CREATE TEMPORARY VIEW seen AS {str(view).format(table=f'delta.`{path}`')}")


@pytest.mark.parametrize("view", WHOLE)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(16)
def test_a_view_of_a_whole_table(spark: SparkSession, seen: str, view: str, statement: str) -> None:
    make(spark, WHOLE[view], seen)
    spark.sql(statement)
    assert tuples(load(spark, seen).select("id", "p", "v")) == STATEMENTS[statement]
    assert tuples(spark.table("seen").select("id", "p", "v")) == STATEMENTS[statement]


@pytest.mark.parametrize("view", PARTS)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(8)
def test_any_other_view(spark: SparkSession, seen: str, view: str, statement: str) -> None:
    make(spark, PARTS[view], seen)
    with pytest.raises(DeltaUnsupportedOperationException, match="It is a view, and not a temporary one"):
        spark.sql(statement)
    assert latest_version(seen) == 0


def test_views_of_all_sessions_and_of_the_catalog(spark: SparkSession, seen: str) -> None:
    load(spark, seen).createOrReplaceGlobalTempView("seen")
    spark.newSession().sql("DELETE FROM global_temp.seen WHERE global_temp.seen.id = 1")
    assert load(spark, seen).count() == 3
    spark.sql(f"CREATE VIEW kept AS SELECT * FROM delta.`{seen}`")
    try:
        with pytest.raises(DeltaUnsupportedOperationException, match="kept"):
            spark.sql("DELETE FROM kept")
    finally:
        spark.sql("DROP VIEW kept")
    assert latest_version(seen) == 1


def test_a_view_made_before_a_column_came(spark: SparkSession, seen: str) -> None:
    load(spark, seen).createOrReplaceTempView("seen")
    spark.sql(f"ALTER TABLE delta.`{seen}` ADD COLUMN w INT")
    spark.sql(
        "MERGE INTO seen USING (SELECT 1L AS id, 9 AS w) s ON seen.id = s.id "
        "WHEN MATCHED THEN UPDATE SET w = s.w"
    )
    assert load(spark, seen).where("w = 9").count() == 1


def test_a_cached_view_is_read_anew(spark: SparkSession, seen: str) -> None:
    load(spark, seen).createOrReplaceTempView("seen")
    spark.catalog.cacheTable("seen")
    for statement, left in zip(reversed(STATEMENTS), (3, 3, 3, 2), strict=True):
        spark.sql(statement)
        found = tuples(spark.table("seen"))
        assert found == tuples(load(spark, seen))
        assert len(found) == left
