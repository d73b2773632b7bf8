"""A table whose first commit has a metaData without a schema, as pipelines of other engines write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltaflow import DeltaTable
from deltaflow.errors import SchemaMismatchError
from tests.tables import edit_commit, ids, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]


def _remove_schema_of_first_commit(path: str) -> None:
    def edit(action: dict[str, Any]) -> None:
        if "metaData" in action:
            del action["metaData"]["schemaString"]
            action["metaData"]["partitionColumns"] = []

    edit_commit(path, edit)


@pytest.fixture
def empty(spark: SparkSession, tmp_path: Path) -> str:
    """A table of one commit, which has no schema."""
    path = str(tmp_path / "empty")
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta")
    _remove_schema_of_first_commit(path)
    return path


@pytest.fixture
def later(spark: SparkSession, tmp_path: Path) -> str:
    """A table whose version 1 sets a schema with NOT NULL, and partitioning; version 2 adds rows."""
    path = str(tmp_path / "later")
    columns = "(id BIGINT NOT NULL, p INT) USING delta PARTITIONED BY (p)"
    properties = "TBLPROPERTIES ('delta.logRetentionDuration' = '9 days')"
    spark.sql(f"CREATE TABLE delta.`{path}` {columns}")
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{path}` {columns} {properties}")
    _remove_schema_of_first_commit(path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1), (2, 2)")
    return path


def test_it_has_no_columns_until_a_commit_gives_it_some(spark: SparkSession, empty: str) -> None:
    frame = load(spark, empty)
    assert frame.columns == []
    assert frame.count() == 0
    assert spark.sql(f"DESCRIBE DETAIL delta.`{empty}`").first()["numFiles"] == 0
    assert DeltaTable.forPath(spark, empty).history().count() == 1


def test_a_write_gives_it_columns_with_merge_schema(spark: SparkSession, empty: str) -> None:
    write = spark.range(3).write.format("delta").mode("append")
    with pytest.raises(SchemaMismatchError):
        write.save(empty)
    write.option("mergeSchema", "true").save(empty)
    assert ids(load(spark, empty)) == [0, 1, 2]


def test_a_batch_reads_the_version_that_has_a_schema(spark: SparkSession, later: str) -> None:
    assert ids(load(spark, later)) == [1, 2]
    first = spark.read.format("delta").option("versionAsOf", 0).load(later)
    assert (first.columns, first.count()) == ([], 0)
    assert DeltaTable.forPath(spark, later).detail().first()["partitionColumns"] == ["p"]
    assert [row.version for row in DeltaTable.forPath(spark, later).history().collect()] == [2, 1, 0]


@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
@pytest.mark.sampled(2)
def test_a_stream_reads_it_from_the_first_version_on(
    spark: SparkSession, later: str, tmp_path: Path, start: dict[str, Any]
) -> None:
    copy = str(tmp_path / "copy")
    stream = spark.readStream.format("delta").options(**start).load(later)
    for _ in range(2):
        writer = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(copy)
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        spark.sql(f"INSERT INTO delta.`{later}` VALUES (3, 1)")
    assert ids(load(spark, copy)) == [1, 2, 3]
