"""Columns of type void: the log has them, data files do not, and readers see nulls."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from deltaflow import DeltaTable
from deltaflow.errors import SchemaError, SchemaMismatchError
from deltaflow.log import DeltaLog
from deltaflow.log.protocol.schema import READS_VOID
from tests.tables import actions, load, tuples

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_open_handles"),
    pytest.mark.skipif(not READS_VOID, reason="this Spark reads no column of type void"),
]

FRAME = "SELECT {} AS id, null AS v, named_struct('a', 1, 'n', null) AS s"


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def made(spark: SparkSession, table: str) -> str:
    spark.sql(FRAME.format("1L")).write.format("delta").save(table)
    return table


def test_files_lack_them(spark: SparkSession, made: str) -> None:
    assert DeltaLog.for_table(made).snapshot().schema.simpleString() == (
        "struct<id:bigint,v:void,s:struct<a:int,n:void>>"
    )
    [file] = Path(made).glob("*.parquet")
    assert pq.read_schema(file).names == ["id", "s"]
    assert [field.name for field in pq.read_schema(file).field("s").type] == ["a"]
    assert tuples(load(spark, made).select("id", "v", "s.*")) == [(1, None, 1, None)]


def test_every_door_keeps_them(spark: SparkSession, made: str, tmp_path: Path) -> None:
    spark.sql(f"INSERT INTO delta.`{made}` {FRAME.format('2L')}")
    spark.sql("SELECT 3L AS id").write.format("delta").mode("append").save(made)
    spark.sql("SELECT 4L AS id").write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id LONG").parquet(str(tmp_path / "source")).writeStream.format("delta")
    stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(
        made
    ).awaitTermination()
    spark.sql(f"UPDATE delta.`{made}` SET id = id + 10 WHERE id < 3")
    spark.sql(
        f"MERGE INTO delta.`{made}` t USING (SELECT 3L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = 13"
    )
    DeltaTable.forPath(spark, made).optimize().executeCompaction()
    spark.sql(f"DELETE FROM delta.`{made}` WHERE id = 4")
    found = [(row[0], row[1], row[3]) for row in tuples(load(spark, made).select("id", "v", "s.*"))]
    assert found == [(11, None, None), (12, None, None), (13, None, None)]
    assert load(spark, made).where("v IS NULL").count() == 3


def test_a_merged_schema_gives_them_a_type(spark: SparkSession, made: str) -> None:
    frame = spark.sql("SELECT 2L AS id, 'x' AS v").write.format("delta").mode("append")
    with pytest.raises(SchemaMismatchError):
        frame.save(made)
    frame.option("mergeSchema", "true").save(made)
    assert tuples(load(spark, made).select("id", "v", "s.*")) == [(1, None, 1, None), (2, "x", None, None)]


def test_a_merge_adds_them(spark: SparkSession, table: str) -> None:
    spark.sql("SELECT 1L AS id").write.format("delta").save(table)
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{table}` t USING (SELECT 1L AS id, null AS n) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    frame = load(spark, table)
    assert frame.schema.simpleString() == "struct<id:bigint,n:void>"
    assert [tuple(row) for row in frame.collect()] == [(1, None)]


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ("null AS v", "DELTA_CANNOT_WRITE_EMPTY_SCHEMA"),
        ("1 AS id, named_struct('n', null) AS s", "DELTA_CANNOT_WRITE_EMPTY_SCHEMA"),
        ("1 AS id, array(null) AS v", "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE"),
        (
            "1 AS id, map('k', named_struct('a', 1, 'n', null)) AS v",
            "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
        ),
    ],
)
def test_what_cannot_be_written(spark: SparkSession, table: str, columns: str, condition: str) -> None:
    with pytest.raises(SchemaError, match=condition):
        spark.sql(f"SELECT {columns}").write.format("delta").save(table)
    assert not Path(table).exists()


def test_no_partition_column(spark: SparkSession, table: str) -> None:
    with pytest.raises(SchemaError, match="DELTA_INVALID_PARTITION_COLUMN_TYPE"):
        spark.sql("SELECT 1 AS id, null AS v").write.format("delta").partitionBy("v").save(table)


def test_statistics_count_nulls(made: str) -> None:
    [add] = actions(made, "add")
    assert json.loads(add["stats"])["nullCount"]["v"] == 1
