"""Defaults of columns: rows that leave a column out get them, and so does the word DEFAULT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.batch.ddl import column_defaults
from deltaflow.errors import DeltaInvariantViolationException, MetadataChangedException
from deltaflow.tables import DeltaTable
from tests.tables import edit_commit, load, tuples, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.tables import Action

pytestmark = pytest.mark.spark

ALLOWED = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table without rows, partitioned by a column with a default."""
    path = str(tmp_path / "t")
    spark.sql(
        f"""CREATE TABLE delta.`{path}` (
            id INT, s STRING DEFAULT 'it\\'s', n INT NOT NULL DEFAULT 1 + 2, p STRING DEFAULT 'x'
        ) USING delta PARTITIONED BY (p) {ALLOWED}"""
    )
    return path


def test_nothing_is_logged_of_the_word(
    spark: SparkSession, path: str, logged_by_pyspark: pytest.LogCaptureFixture
) -> None:
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a', 1, 'y')")
    spark.sql(f"UPDATE delta.`{path}` SET s = DEFAULT, n = n + 1")
    assert tuples(load(spark, path)) == [(1, "it's", 2, "y")]
    assert [r.levelname for r in logged_by_pyspark.records] == []


def test_rows_that_leave_columns_out(spark: SparkSession, path: str, tmp_path: Path) -> None:
    name, one = f"delta.`{path}`", spark.createDataFrame([(0,)], "id INT")
    for i, statement in enumerate(
        [
            "INSERT INTO @ (id) VALUES (#)",
            "INSERT INTO @ VALUES (#, DEFAULT, default, DEFAULT)",
            "INSERT INTO @ (n, id) VALUES (DEFAULT, #)",
            "INSERT INTO @ BY NAME SELECT # AS id",
            "MERGE INTO @ t USING (SELECT # AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
            "MERGE INTO @ t USING (SELECT # AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, s, n) VALUES (s.id, DEFAULT, DEFAULT)",
        ]
    ):
        spark.sql(statement.replace("@", name).replace("#", str(i)))
    one.selectExpr("6 AS id").write.format("delta").mode("append").save(path)
    one.selectExpr("7 AS id").writeTo(name).append()
    source = str(tmp_path / "source")
    one.selectExpr("8 AS id").write.format("delta").save(source)
    stream = spark.readStream.format("delta").load(source).writeStream.format("delta")
    writer = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start(path).awaitTermination()
    assert tuples(load(spark, path)) == [(i, "it's", 3, "x") for i in range(9)]
    one.selectExpr("9 AS id", "null AS s").write.format("delta").mode("overwrite").save(path)
    assert tuples(load(spark, path)) == [(9, None, 3, "x")]


def test_rows_that_are_changed(spark: SparkSession, path: str) -> None:
    name = f"delta.`{path}`"
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', 8, 'y'), (2, 'b', 8, 'y'), (3, 'c', 8, 'y')")
    spark.sql(f"UPDATE {name} SET s = DEFAULT, id = DEFAULT WHERE id = 1")
    DeltaTable.forPath(spark, path).update("id = 2", {"n": "DEFAULT"})
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 3 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = default, p = DEFAULT"
    )
    assert tuples(load(spark, path)) == sorted(
        [(None, "it's", 8, "y"), (2, "b", 3, "y"), (3, "it's", 8, "x")], key=repr
    )


@pytest.mark.parametrize("default", ["STRING NOT NULL DEFAULT ''", "BINARY NOT NULL DEFAULT x''"])
def test_a_default_that_is_null_as_a_partition_value(
    spark: SparkSession, tmp_path: Path, default: str
) -> None:
    """It may not get past NOT NULL: readers would find null there, or fail."""
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {name} (id INT, p {default}) USING delta PARTITIONED BY (p) {ALLOWED}")
    for statement in (
        f"INSERT INTO {name} (id) VALUES (1)",
        f"INSERT INTO {name} VALUES (1, DEFAULT)",
        f"MERGE INTO {name} t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    ):
        with pytest.raises(DeltaInvariantViolationException, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
            spark.sql(statement)


def test_a_column_named_default_is_a_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql("SELECT 1 AS a, 5 AS `default`").write.format("delta").save(path)
    DeltaTable.forPath(spark, path).update(set={"a": "`default`"})
    assert tuples(load(spark, path)) == [(5, 5)]


def test_defaults_are_given_and_taken_away(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (id INT, x INT, v VARCHAR(2), l ARRAY<INT>) USING delta")
    set_default = f"ALTER TABLE {name} ALTER COLUMN x SET DEFAULT 42"
    with pytest.raises(Exception, match="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"):
        spark.sql(set_default)
    spark.sql(f"ALTER TABLE {name} SET {ALLOWED}")
    spark.sql(set_default)
    spark.sql(f"ALTER TABLE {name} ADD COLUMN y DATE")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN y SET DEFAULT '2024-01-02'")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN v SET DEFAULT 'ab  '")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN l SET DEFAULT array(1, 2)")
    spark.sql(f"INSERT INTO {name} (id) VALUES (1)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN x DROP DEFAULT")
    spark.sql(f"INSERT INTO {name} (id) VALUES (2)")
    assert [
        (row.id, row.x, row.v, row.l, str(row.y)) for row in load(spark, path).orderBy("id").collect()
    ] == [
        (1, 42, "ab", [1, 2], "2024-01-02"),
        (2, None, "ab", [1, 2], "2024-01-02"),
    ]
    assert "CURRENT_DEFAULT" not in load(spark, path).schema["x"].metadata
    before = versions(path)
    for clause, error in {
        "ADD COLUMN z INT DEFAULT 5": "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        "ALTER COLUMN x SET DEFAULT id": "INVALID_DEFAULT_VALUE",
        "ALTER COLUMN x SET DEFAULT (SELECT 1)": "INVALID_DEFAULT_VALUE",
        "ALTER COLUMN x SET DEFAULT array(1)": "INVALID_DEFAULT_VALUE",
        "ALTER COLUMN x SET DEFAULT sum(1)": "INVALID_DEFAULT_VALUE",
        "ALTER COLUMN x SET DEFAULT cast(rand() AS INT)": "INVALID_DEFAULT_VALUE.* is not deterministic",
        "ALTER COLUMN x SET DEFAULT 3000000000": "INVALID_DEFAULT_VALUE.* it does not fit.* stored as int",
        "ALTER COLUMN x SET DEFAULT 'one'": "INVALID_DEFAULT_VALUE.* it does not fit",
        "ALTER COLUMN x SET DEFAULT assert_true(1 = 2)": "INVALID_DEFAULT_VALUE.* Spark cannot compute it",
        "ALTER COLUMN v SET DEFAULT 'abc'": r"INVALID_DEFAULT_VALUE.* does not fit.* stored as varchar\(2\)",
    }.items():
        with pytest.raises(Exception, match=error):
            spark.sql(f"ALTER TABLE {name} {clause}")
    assert versions(path) == before


def test_a_default_that_is_too_long_for_its_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, v VARCHAR(2) DEFAULT 'ab') USING delta {ALLOWED}")

    def lengthen(action: Action) -> None:
        if "metaData" in action:
            action["metaData"]["schemaString"] = action["metaData"]["schemaString"].replace("'ab'", "'abc'")

    edit_commit(path, lengthen)
    one = spark.createDataFrame([(1,)], "id INT")
    with pytest.raises(DeltaInvariantViolationException, match=r"DELTA_EXCEED_CHAR_VARCHAR_LIMIT.*abc"):
        spark.sql(f"INSERT INTO delta.`{path}` (id) VALUES (1)")
    with pytest.raises(DeltaInvariantViolationException, match=r"DELTA_EXCEED_CHAR_VARCHAR_LIMIT.*abc"):
        one.write.format("delta").mode("append").save(path)
    assert load(spark, path).count() == 0


def test_a_column_of_another_type_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default was checked for the column as it was, so it is not given to the one that a rival has made."""
    path = str(tmp_path / "t")
    name = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {name} (id INT, x STRING) USING delta {ALLOWED}")
    check = column_defaults._check

    def check_and_lose(*arguments: Any) -> None:
        check(*arguments)
        rows = spark.sql("SELECT 1 AS id, 2 AS x").write.format("delta").mode("overwrite")
        rows.option("overwriteSchema", "true").save(path)

    monkeypatch.setattr(column_defaults, "_check", check_and_lose)
    with pytest.raises(MetadataChangedException):
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN x SET DEFAULT 'none'")
    spark.sql(f"INSERT INTO {name} (id) VALUES (3)")
    assert tuples(load(spark, path)) == [(1, 2), (3, None)]
