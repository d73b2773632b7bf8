"""A condition with the time of now is true of the same rows in all jobs of an operation."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.tables import commit_info, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]

ROWS = 8_000
PASSED = "at < current_timestamp()"


@pytest.fixture
def moments(spark: SparkSession, table: str) -> str:
    """A row for every five milliseconds of the next forty seconds."""
    at = f"current_timestamp() + make_interval(0, 0, 0, 0, 0, 0, id / {ROWS / 40})"
    spark.range(0, ROWS, 1, 2).selectExpr("id", f"{at} AS at").write.format("delta").save(table)
    return table


def test_delete(spark: SparkSession, moments: str) -> None:
    [(deleted,)] = spark.sql(f"DELETE FROM delta.`{moments}` WHERE {PASSED}").collect()
    assert 0 < deleted == ROWS - load(spark, moments).count()


def test_update(spark: SparkSession, moments: str) -> None:
    [(updated,)] = spark.sql(f"UPDATE delta.`{moments}` SET id = -1 WHERE {PASSED}").collect()
    assert 0 < updated == load(spark, moments).where("id < 0").count()


def test_merge(spark: SparkSession, table: str) -> None:
    """Its clauses, its condition and its source have one time."""
    spark.sql("SELECT id, current_timestamp() AS at, '' AS of FROM range(3)").write.format("delta").save(
        table
    )
    source = "(SELECT id, current_timestamp() AS now FROM range(1, 5))"
    spark.sql(
        f"""MERGE INTO delta.`{table}` t USING {source} s ON t.id = s.id AND s.now = current_timestamp()
        WHEN MATCHED AND s.id = 1 AND s.now = (SELECT now()) THEN UPDATE SET at = now(), of = 'first'
        WHEN MATCHED THEN UPDATE SET at = s.now, of = 'second'
        WHEN NOT MATCHED THEN INSERT (id, at, of) VALUES (s.id, current_timestamp(), 'new')
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET at = current_timestamp(), of = 'old'"""
    )
    rows = load(spark, table)
    assert sorted(row.of for row in rows.collect()) == ["first", "new", "new", "old", "second"]
    assert rows.select("at").distinct().count() == 1


def test_replace_where(spark: SparkSession, moments: str) -> None:
    new = spark.sql("SELECT -1L AS id, current_timestamp() - INTERVAL 1 DAY AS at")
    new.write.format("delta").mode("overwrite").option("replaceWhere", PASSED).save(moments)
    metrics = commit_info(moments)["operationMetrics"]
    assert 0 < int(metrics["numDeletedRows"]) == ROWS + 1 - load(spark, moments).count()
