"""Batch reads and writes, SQL and DeltaTable on every file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltaflow.errors import DeltaTableNotFoundError
from deltaflow.tables import DeltaTable
from tests.tables import ids, load, tuples, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2), pytest.mark.usefixtures("interpreted")]

NAMES = ["t", "a b", "p%20q", "ü", "x=1", ""]


def numbers(spark: SparkSession, *bounds: int) -> DataFrame:
    """Rows of `id` and `part`, its remainder by 2."""
    return spark.range(*bounds).selectExpr("id", "id % 2 as part")


def test_append_overwrite_and_versions(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(numbers(spark, 6), path, partition_by=["part"])
    write(numbers(spark, 6, 8), path)
    assert ids(load(spark, path)) == [*range(8)]
    assert ids(load(spark, f"{path}@v0")) == [*range(6)]
    assert ids(load(spark, f"{path}/part=1")) == [1, 3, 5, 7]
    assert len(place.files("t")) == 4
    write(numbers(spark, 2), path, mode="overwrite")
    assert ids(load(spark, path)) == [0, 1]
    assert ids(load(spark, path, versionAsOf=1)) == [*range(8)]
    assert place.versions("t") == [0, 1, 2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(6)
def test_a_table_has_one_log_however_its_path_is_spelled(
    spark: SparkSession, place: Place, name: str
) -> None:
    path = place.path(name)
    write(numbers(spark, 2), path)
    write(numbers(spark, 2, 4), f"{path}/")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, 0)")
    for spelled in (path, f"{path}//", place.path(f"./{name}")):
        assert ids(load(spark, spelled)) == [*range(5)]
    assert place.versions(name or ".") == [0, 1, 2]
    assert DeltaTable.isDeltaTable(spark, path)


def test_overwrites_of_parts(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(numbers(spark, 8), path, partition_by=["part"])
    write(spark.sql("SELECT 11L AS id, 1L AS part"), path, mode="overwrite", replaceWhere="part = 1")
    assert ids(load(spark, path)) == [0, 2, 4, 6, 11]
    write(
        spark.sql("SELECT 12L AS id, 0L AS part"), path, mode="overwrite", replaceWhere="id > 3 AND part = 0"
    )
    assert ids(load(spark, path)) == [0, 2, 11, 12]
    dynamic = {"partitionOverwriteMode": "dynamic"}
    write(spark.sql("SELECT 13L AS id, 1L AS part"), path, mode="overwrite", **dynamic)
    assert ids(load(spark, path)) == [0, 2, 12, 13]


@pytest.mark.sampled(2)
def test_statements_by_path(spark: SparkSession, place: Place) -> None:
    table = f"delta.`{place.path('t')}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, part BIGINT) USING delta PARTITIONED BY (part)")
    spark.sql(f"INSERT INTO {table} SELECT id, id % 2 FROM range(6)")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(f"UPDATE {table} SET id = 40 WHERE id = 4")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT id, id % 2 AS part FROM range(4, 8)) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (name STRING)")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id >= 0)")
    assert ids(spark.sql(f"SELECT * FROM {table}")) == [0, 1, 2, 4, 6, 7, 40]
    assert [row.operation for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()][:2] == [
        "ADD CONSTRAINT",
        "ADD COLUMNS",
    ]
    [detail] = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    assert detail.location == place.path("t") if place.name != "local" else f"file:{place.path('t')}"


def test_tables_of_the_catalog(spark: SparkSession, place: Place, table_name: str) -> None:
    location = place.path("named")
    spark.sql(f"CREATE TABLE {table_name} USING delta LOCATION '{location}' AS SELECT 1L AS id")
    spark.sql(f"INSERT INTO {table_name} VALUES (2)")
    numbers(spark, 3, 4).select("id").write.format("delta").mode("append").saveAsTable(table_name)
    assert ids(spark.table(table_name)) == [1, 2, 3]
    assert ids(load(spark, location)) == [1, 2, 3]
    with pytest.raises(Exception, match="NON_EMPTY_LOCATION"):
        spark.sql(f"CREATE TABLE {table_name}_2 USING delta LOCATION '{place.path('')}' AS SELECT 1L AS id")
    spark.sql(f"DROP TABLE {table_name}")
    assert ids(load(spark, location)) == [1, 2, 3]


def test_methods_of_delta_table(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    made = (
        DeltaTable.create(spark)
        .location(path)
        .addColumn("id", "BIGINT")
        .addColumn("part", "BIGINT")
        .execute()
    )
    write(numbers(spark, 6), path)
    made.delete("id = 0")
    made.update("id = 1", {"id": "10"})
    merge = made.alias("t").merge(numbers(spark, 4, 8).alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"id": "s.id + 100"}).whenNotMatchedInsertAll().execute()
    assert ids(made.toDF()) == [2, 3, 6, 7, 10, 104, 105]
    assert made.history(1).collect()[0].operation == "MERGE"


def test_a_path_without_a_table(spark: SparkSession, place: Place) -> None:
    with pytest.raises(DeltaTableNotFoundError) as raised:
        load(spark, place.path("none"))
    assert raised.value.error_class == "PATH_NOT_FOUND"
    write(numbers(spark, 1), place.path("some/t"))
    with pytest.raises(DeltaTableNotFoundError) as raised:
        load(spark, place.path("some"))
    assert raised.value.error_class == "DELTA_TABLE_NOT_FOUND"


def test_a_write_that_fails_leaves_no_file(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(numbers(spark, 2), path)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (id < 10)")
    before = place.files("t")
    with pytest.raises(Exception, match="small"):
        write(numbers(spark, 9, 12), path)
    assert place.files("t") == before
    write(numbers(spark, 0), path)  # Spark writes a file without rows, which no commit names
    assert place.files("t") == before


def test_checkpoints(spark: SparkSession, place: Place) -> None:
    path = place.path("t")
    write(numbers(spark, 1), path, **{"delta.checkpointInterval": "2"})
    for number in range(1, 5):
        write(numbers(spark, number, number + 1), path)
    names = [name for name in place.names() if name.startswith("t/_delta_log/")]
    assert [name for name in names if name.endswith(".checkpoint.parquet")]
    assert "t/_delta_log/_last_checkpoint" in names
    assert tuples(load(spark, path)) == [(number, number % 2) for number in range(5)]
