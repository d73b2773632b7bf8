"""Settings of a session that change how Spark plans, writes or reads Parquet: the table stays the same."""

from __future__ import annotations

import datetime as dt
from datetime import UTC
from decimal import Decimal

import pytest

from tests.tables import load, rows, rows_by_deltalake, tuples

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.files.maxRecordsPerFile": "2",
    "spark.sql.maxConcurrentOutputFileWriters": "2",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.sampled(6)
def test_a_setting(spark, table, setting, settings):
    data = spark.createDataFrame(
        [
            (
                number,
                f"0{number % 3}",
                dt.date(1500 + number, 2, 28),
                dt.datetime(1600 + number, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC),
                Decimal(number) / 8,
                [number, None],
                {"k": number},
                (number, "x"),
            )
            for number in range(9)
        ],
        "id int, p string, day date, ts timestamp, dec decimal(9,3), a array<int>, m map<string,int>, "
        "st struct<x:int,y:string>",
    )
    expected = rows(data)
    with settings({setting: SETTINGS[setting]}):
        data.write.format("delta").partitionBy("p").save(table)
        read = load(spark, table)
        assert rows(read) == expected
        assert read.where("p = '01'").count() == read.where("day > '1506-01-01' and st.x > 0").count() == 3
    assert rows(load(spark, table)) == expected
    assert rows_by_deltalake(table) == expected


@pytest.mark.long
def test_names_in_backticks_are_no_patterns(spark, table, setting):
    setting("spark.sql.parser.quotedRegexColumnNames", "true")
    spark.sql(f"CREATE TABLE delta.`{table}` (`a-b` INT, `a.c` VARCHAR(5), abc STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1L, 'x', 'y'), (2L, 'u', 'v')")
    spark.sql(f"OPTIMIZE delta.`{table}` ZORDER BY (`a-b`)")
    assert tuples(load(spark, table)) == [(1, "x", "y"), (2, "u", "v")]
    feed = {"readChangeFeed": "true", "computeUpdates": "`a-b`", "startingVersion": 1}
    changes = load(spark, table, **feed).drop("_commit_version", "_commit_timestamp")
    assert tuples(changes) == [(1, "x", "y", "insert"), (2, "u", "v", "insert")]
