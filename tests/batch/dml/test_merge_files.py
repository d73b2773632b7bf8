"""How many files a MERGE into a partitioned table writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.tables import actions, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]

_SETTING = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"


@pytest.mark.parametrize("clauses", ["all", "inserts"])
@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.sampled(4)
def test_one_file_for_each_partition(
    spark: SparkSession, table: str, settings: Callable[..., Any], clauses: str, gathers: bool
) -> None:
    rows = spark.range(100).selectExpr("id", "id % 5 AS p", "'old' AS v")
    rows.repartition(1).write.format("delta").partitionBy("p").save(table)
    spark.range(80, 130).selectExpr("id", "id % 5 AS p", "'new' AS v").repartition(3).createOrReplaceTempView(
        "s"
    )
    update = "" if clauses == "inserts" else "WHEN MATCHED THEN UPDATE SET *"
    with settings({_SETTING: str(gathers), "spark.sql.files.maxPartitionBytes": "1000"}):
        spark.sql(
            f"MERGE INTO delta.`{table}` t USING s ON t.id = s.id {update} WHEN NOT MATCHED THEN INSERT *"
        )
    adds = actions(table, "add")
    assert {add["partitionValues"]["p"] for add in adds} == set("01234")
    assert (len(adds) == 5) is gathers or clauses == "inserts"
    assert load(spark, table).count() == 130


@pytest.mark.long
def test_rows_beyond_a_size_are_cut_up(spark: SparkSession, table: str) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id LONG, p LONG) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.targetFileSize' = '20kb')"
    )
    rows = spark.range(40_000).selectExpr("id", "0L AS p").repartition(4)
    rows.write.format("delta").mode("append").save(table)
    rows.createOrReplaceTempView("s")
    spark.sql(f"MERGE INTO delta.`{table}` t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -t.id")
    assert len(actions(table, "remove")) == 4
    assert len(actions(table, "add")) > 1
