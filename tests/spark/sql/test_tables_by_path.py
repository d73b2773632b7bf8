"""Queries of a table by its path see the schema that it has now, however the path is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.tables import load, tuples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

FORMS = pytest.mark.parametrize(
    ("format_name", "folder"), [("delta", "lower"), ("delta", "Upper Ä"), ("DELTA", "lower")]
)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, format_name: str, folder: str) -> tuple[str, str]:
    """The path of a table that this session has read, and its name."""
    path = str(tmp_path / folder)
    name = f"{format_name}.`{path}`"
    spark.sql("SELECT 1 AS i").write.format("delta").save(path)
    assert tuples(spark.sql(f"SELECT * FROM {name}")) == tuples(spark.table(name)) == [(1,)]
    return path, name


@FORMS
@pytest.mark.parametrize("is_own", [True, False], ids=["this session", "another one"])
@pytest.mark.sampled(3)
def test_columns_that_came_since(spark: SparkSession, table: tuple[str, str], is_own: bool) -> None:
    path, name = table
    writer = spark if is_own else spark.newSession()
    writer.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN n INT")
    writer.sql(f"UPDATE delta.`{path}` SET n = i * 10")
    assert tuples(spark.table(name)) == tuples(spark.sql(f"SELECT n FROM {name}").selectExpr("1", "n"))
    spark.sql(f"CREATE TABLE delta.`{path}-copy` USING delta AS SELECT * FROM {name}")
    spark.sql(f"MERGE INTO {name} t USING {name} s ON t.i = s.n WHEN NOT MATCHED THEN INSERT *")
    spark.sql(f"INSERT OVERWRITE {name} BY NAME SELECT * FROM {name} WHERE i > 0")
    assert tuples(load(spark, f"{path}-copy")) == [(1, 10)]
    assert tuples(load(spark, path)) == [(1, 10), (1, 10)]
    assert spark.readStream.table(name).columns == ["i", "n"]


@FORMS
def test_columns_of_other_types_and_names(spark: SparkSession, table: tuple[str, str]) -> None:
    path, name = table
    new = spark.sql("SELECT 'a' AS j, 2 AS p")
    new.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("p").save(path)
    assert tuples(spark.sql(f"SELECT j, p FROM {name}")) == [("a", 2)]


@FORMS
def test_another_table_in_its_place(spark: SparkSession, table: tuple[str, str]) -> None:
    path, name = table
    shutil.rmtree(path)
    spark.range(3).write.format("delta").save(path)
    assert spark.sql(f"SELECT id FROM {name}").count() == 3
