"""What depends on who calls deltaflow (Callers.java): each caller, and one that asks in the same words.

tests/run runs this on the oldest and on the newest supported PySpark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog
from tests.plans import executed_plan
from tests.tables import ids

pytestmark = pytest.mark.spark

JAVA = Path(__file__).parents[3] / "deltaflow" / "spark" / "java"


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder of the current database: a Delta table `t` and a Parquet table `other`, a row each."""
    folder = tmp_path / "database"
    spark.sql(f"CREATE DATABASE callers LOCATION '{folder}'")
    spark.sql("USE callers")
    spark.sql("CREATE TABLE t (id BIGINT) USING delta TBLPROPERTIES ('delta.appendOnly' = 'false')")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.range(1, 2).write.format("parquet").saveAsTable("other")
    yield folder
    spark.sql("USE default")
    spark.sql("DROP DATABASE callers CASCADE")


def test_no_other_class_looks_at_the_call_stack() -> None:
    looking = [
        file.name for file in JAVA.rglob("*.java") if re.search("StackTrace|StackWalker", file.read_text())
    ]
    assert looking == ["Callers.java"]


def test_a_query_gets_a_relation_that_spark_scans(spark: SparkSession, database: Path) -> None:
    plan = executed_plan(spark.table("t"))
    assert "FileScan parquet" in plan
    with pytest.raises(DeltaError) as missing:
        spark.sql(f"SELECT * FROM delta.`{database}/nowhere`")
    assert missing.value.error_class == "PATH_NOT_FOUND"


def test_a_command_gets_a_table_on_which_spark_runs_no_command_of_its_own(
    spark: SparkSession, database: Path
) -> None:
    with pytest.raises(AnalysisException) as refused:
        spark.catalog.recoverPartitions("t")  # which no parser sees
    assert refused.value.getCondition() == "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"


def test_save_as_table_overwrites_rows_where_other_replacements_make_the_table_anew(
    spark: SparkSession, database: Path
) -> None:
    log = DeltaLog.for_table(str(database / "t"))
    spark.range(5, 6).write.format("delta").mode("overwrite").saveAsTable("t")
    assert ids(spark.table("t")) == [5]
    assert "delta.appendOnly" in log.snapshot().metadata.configuration
    spark.sql("CREATE OR REPLACE TABLE t USING delta AS SELECT 6L AS id")
    assert ids(spark.table("t")) == [6]
    assert "delta.appendOnly" not in log.snapshot().metadata.configuration


def test_save_as_table_replaces_no_table_of_another_format(spark: SparkSession, database: Path) -> None:
    with pytest.raises(DeltaError) as refused:
        spark.range(5, 6).write.format("delta").mode("overwrite").saveAsTable("other")
    assert refused.value.error_class == "DELTA_NOT_A_DELTA_TABLE"
    assert ids(spark.table("other")) == [1]
    spark.sql("INSERT OVERWRITE other VALUES (7)")
    assert ids(spark.table("other")) == [7]


def test_save_as_table_of_another_format_replaces_no_delta_table(spark: SparkSession, database: Path) -> None:
    with pytest.raises(DeltaError, match="another format"):
        spark.range(5, 6).write.format("parquet").mode("overwrite").saveAsTable("t")
    assert ids(spark.table("t")) == [1]
    # Other writes by saveAsTable read a Delta table.
    spark.table("t").write.format("parquet").saveAsTable("copy")
    assert ids(spark.table("copy")) == [1]


def test_a_stream_may_be_given_a_schema_and_a_write_any_name_of_a_partition_column(
    spark: SparkSession, database: Path
) -> None:
    assert spark.readStream.format("delta").schema("id BIGINT").load(str(database / "t")).columns == ["id"]
    path = str(database / "odd")
    spark.range(1, 2).selectExpr("id", "id AS `a-b`").write.format("delta").partitionBy("a-b").save(path)
    assert list(DeltaLog.for_table(path).snapshot().partition_columns) == ["a-b"]
