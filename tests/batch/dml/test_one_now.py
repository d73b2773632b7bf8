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


def test_replace_where(spark: SparkSession, moments: str) -> None:
    new = spark.sql("SELECT -1L AS id, current_timestamp() - INTERVAL 1 DAY AS at")
    new.write.format("delta").mode("overwrite").option("replaceWhere", PASSED).save(moments)
    metrics = commit_info(moments)["operationMetrics"]
    assert 0 < int(metrics["numDeletedRows"]) == ROWS + 1 - load(spark, moments).count()
