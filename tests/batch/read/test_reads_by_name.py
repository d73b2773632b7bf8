"""Reading tables by name and by path in SQL: versions, rivals, other databases and sessions, streams."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaError, DeltaTableNotFoundError, VersionNotFoundError
from deltaflow.log import DeltaLog
from tests.conftest import Settings
from tests.tables import commit_file, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]

Sql = Callable[[str], list[tuple[Any, ...]]]
SCRIPTS = {"spark.sql.scripting.enabled": "true"}


@pytest.fixture
def sql(spark: SparkSession, database: Path) -> Sql:
    """Runs a statement in the test's database, {path} in it being that of the table t."""
    return lambda statement: sorted(
        tuple(row) for row in spark.sql(statement.format(path=database / "t")).collect()
    )


@pytest.fixture
def t(sql: Sql) -> str:
    """A table with three versions: without rows, with id 1, with ids 1 and 2."""
    sql("CREATE TABLE t (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
    sql("INSERT INTO t VALUES (1, 'a')")
    sql("INSERT INTO t VALUES (2, 'b')")
    return "t"


@pytest.mark.parametrize("name", ["t", "delta.`{path}`"])
def test_a_name_is_scanned_as_a_path_is(sql: Sql, t: str, name: str) -> None:
    ((plan,),) = sql(f"EXPLAIN SELECT id FROM {name} WHERE p = 'a' AND id > 0")
    assert "FileScan parquet" in plan
    assert "PartitionFilters: [isnotnull(p" in plan
    assert "ReadSchema: struct<id:bigint>" in plan


@pytest.mark.parametrize("name", ["t", "delta.`{path}`"])
def test_time_travel(sql: Sql, t: str, name: str, database: Path) -> None:
    assert sql(f"SELECT id FROM {name} VERSION AS OF 0") == []
    assert sql(f"SELECT id FROM {name} VERSION AS OF 1") == [(1,)]
    assert sql(f"SELECT id FROM {name} FOR SYSTEM_VERSION AS OF '2'") == [(1,), (2,)]
    count = f"(SELECT count(*) AS n FROM {name}"
    versions = f"{count} VERSION AS OF 0) a, {count} VERSION AS OF 1) b, {count}) c"
    assert sql(f"SELECT a.n, b.n, c.n FROM {versions}") == [(0, 1, 2)]
    committed = next(DeltaLog.for_table(str(database / "t")).commits(1)).timestamp_ms
    moment = datetime.fromtimestamp(committed / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert sql(f"SELECT id FROM {name} TIMESTAMP AS OF '{moment}'") == [(1,)]
    with pytest.raises(VersionNotFoundError):
        sql(f"SELECT * FROM {name} VERSION AS OF 9")
    with pytest.raises(VersionNotFoundError):
        sql(f"SELECT * FROM {name} TIMESTAMP AS OF '2001-01-01'")


@pytest.mark.parametrize("name", ["t", "delta.`{path}`", "DELTA.`{path}`"])
@pytest.mark.sampled(3)
def test_a_time_that_is_computed(
    sql: Sql, spark: SparkSession, t: str, name: str, database: Path, settings: Settings
) -> None:
    for version, days in enumerate((9, 5, 1)):
        moment = time.time() - days * 86_400
        os.utime(commit_file(str(database / "t"), version), (moment, moment))
    four_days_ago = f"{name} TIMESTAMP AS OF current_timestamp() - INTERVAL 4 DAYS"
    for moment in (
        "date_sub(current_date(), 3)",
        "CAST(date_sub(current_date(), 3) AS TIMESTAMP)",
        "CAST(CAST(date_sub(current_date(), 3) AS STRING) AS TIMESTAMP)",
        "TIMESTAMP'2999-01-01' - (TIMESTAMP'2999-01-01' - current_timestamp()) - INTERVAL 3 DAYS",
    ):
        assert sql(f"SELECT id FROM {name} TIMESTAMP AS OF {moment}") == [(1,)], moment
    assert sql(f"SELECT id FROM {four_days_ago}") == [(1,)]
    assert sql(f"SELECT id FROM {name} x WHERE id NOT IN (SELECT id FROM {four_days_ago})") == [(2,)]
    assert sql(f"WITH a AS (SELECT * FROM {four_days_ago}), b AS (TABLE a) SELECT id FROM b") == [(1,)]
    assert sql(f"WITH a AS (WITH c AS (SELECT id FROM {four_days_ago}) TABLE c) TABLE a") == [(1,)]
    ((plan,),) = sql(f"EXPLAIN SELECT * FROM {four_days_ago}")
    assert "FileScan parquet" in plan
    sql(f"CREATE OR REPLACE TEMP VIEW four_days_ago AS SELECT id FROM {four_days_ago}")
    assert sql("TABLE four_days_ago") == [(1,)]
    sql(f"CREATE VIEW kept_view AS SELECT id FROM {four_days_ago}")
    assert sql("TABLE kept_view") == [(1,)]
    sql(f"CACHE TABLE cached AS SELECT id FROM {four_days_ago}")
    assert sql("TABLE cached") == [(1,)]
    sql("DROP VIEW cached")
    with settings(SCRIPTS):
        assert sql(f"BEGIN IF 1 = 1 THEN SELECT id FROM {four_days_ago}; END IF; END") == [(1,)]
    sql(f"CREATE TABLE u USING delta AS SELECT * FROM {four_days_ago}")
    sql(f"INSERT INTO u SELECT id + 1, p FROM {four_days_ago}")
    sql(f"MERGE INTO u USING (SELECT * FROM {four_days_ago}) s ON u.id = s.id WHEN MATCHED THEN DELETE")
    assert sql("SELECT id FROM u") == [(2,)]
    path = name.replace("{path}", str(database / "t"))
    asked = f"SELECT id FROM {path} TIMESTAMP AS OF date_sub(current_date(), :days)"
    if spark.version >= "4.1":
        assert spark.sql(asked, {"days": 3}).collect() == [(1,)]
    assert sql(f'EXECUTE IMMEDIATE "SELECT id FROM {four_days_ago}"') == [(1,)]


def test_a_time_that_cannot_be_computed(sql: Sql, spark: SparkSession, t: str, settings: Settings) -> None:
    with pytest.raises(AnalysisException, match=r"UNRESOLVED_ROUTINE.*`nothing`"):
        sql("SELECT * FROM delta.`{path}` TIMESTAMP AS OF nothing()")
    with pytest.raises(AnalysisException, match="INVALID_TIME_TRAVEL_TIMESTAMP_EXPR"):
        sql("SELECT * FROM delta.`{path}` TIMESTAMP AS OF CAST(rand() AS TIMESTAMP)")
    for refused in ("max(current_timestamp())", "explode(array(current_timestamp()))", "(SELECT now())"):
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
            sql(f"SELECT * FROM delta.`{{path}}` TIMESTAMP AS OF {refused}")
    refused = "SELECT * FROM delta.`{path}` TIMESTAMP AS OF nothing();"
    with settings(SCRIPTS):
        assert sql(f"BEGIN IF 1 = 2 THEN {refused} ELSE SELECT 3; END IF; END") == [(3,)]
        # Spark 4.0 has handlers of other errors only.
        if spark.version >= "4.1":
            handler = "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 4; END;"
            assert sql(f"BEGIN {handler} {refused} END") == [(4,)]


def test_time_travel_by_an_option(spark: SparkSession, sql: Sql, t: str, database: Path) -> None:
    committed = next(DeltaLog.for_table(str(database / "t")).commits(1)).timestamp_ms
    moment = datetime.fromtimestamp(committed / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    for name in ("t", f"delta.`{database / 't'}`"):
        assert spark.read.option("versionAsOf", 1).table(name).collect() == [(1, "a")]
        assert spark.read.option("timestampAsOf", moment).table(name).collect() == [(1, "a")]


def test_a_path_in_sql_names_versions_and_partitions(sql: Sql, t: str) -> None:
    assert sql("SELECT id FROM delta.`{path}@v1`") == [(1,)]
    assert sql("SELECT id, p FROM delta.`{path}/p=b`") == [(2, "b")]
    assert sql("SELECT id, p FROM delta.`{path}/p=b` VERSION AS OF 1") == []
    assert sql("SELECT count(*) FROM delta.`{path}/p=a@v2`") == [(1,)]
    with pytest.raises(VersionNotFoundError):
        sql("SELECT * FROM delta.`{path}@v9`")
    with pytest.raises(DeltaError, match="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS"):
        sql("SELECT * FROM delta.`{path}@v1` VERSION AS OF 1")
    for target in ("{path}@v1", "{path}/p=b"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(f"INSERT OVERWRITE delta.`{target}` VALUES (7, 'b')")


def test_time_travel_has_the_schema_of_its_version(spark: SparkSession, sql: Sql, t: str) -> None:
    sql("CREATE OR REPLACE TABLE t USING delta AS SELECT 'x' AS other")
    assert sql("SELECT t.id, t.p FROM t VERSION AS OF 2 JOIN t AS now ON now.other = 'x'") == [
        (1, "a"),
        (2, "b"),
    ]
    assert spark.read.option("versionAsOf", 2).table("t").columns == ["id", "p"]
    assert spark.table("t").columns == ["other"]


def test_columns_go_by_all_their_names(sql: Sql, t: str, database: Path) -> None:
    name = f"{database.name}.t"
    for table in (name, f"spark_catalog.{name}", f"{name} VERSION AS OF 2"):
        assert sql(f"SELECT t.id, {name}.id, spark_catalog.{name}.id FROM {table} WHERE id = 1") == [
            (1, 1, 1)
        ]


def test_a_read_sees_what_others_committed(spark: SparkSession, sql: Sql, t: str, database: Path) -> None:
    path = str(database / "t")
    frame = spark.table("t")
    assert frame.count() == 2
    deltalake.write_deltalake(path, pa.table({"id": [3], "p": ["c"]}), mode="append")
    assert sql("SELECT count(*) FROM t") == [(3,)]
    assert frame.count() == 3
    wider = pa.table({"id": [4], "p": ["c"], "n": [True]})
    deltalake.write_deltalake(path, wider, mode="append", schema_mode="merge")
    assert sql("SELECT id, n FROM t WHERE p = 'c'") == [(3, None), (4, True)]
    assert spark.table("t").columns == ["id", "p", "n"]
    assert sql("DESCRIBE t")[0] == ("# Partition Information", "", "")
    assert ("n", "boolean", None) in sql("DESCRIBE t")
    sql("INSERT INTO t VALUES (5, 'd', false)")
    deltalake.write_deltalake(
        path, pa.table({"x": [7], "p": ["y"]}), mode="overwrite", schema_mode="overwrite"
    )
    assert sql("SELECT * FROM t") == [(7, "y")]


def test_the_catalogs_copy_of_the_schema_is_never_trusted(
    spark: SparkSession, sql: Sql, t: str, database: Path
) -> None:
    jvm: Any = spark.sparkContext._jvm
    wrong = jvm.org.apache.spark.sql.types.StructType.fromDDL("id STRING, other INT")
    catalog = spark._jsparkSession.sessionState().catalog().externalCatalog()
    catalog.alterTableDataSchema(database.name, "t", wrong)
    assert spark.table("t").schema.simpleString() == "struct<id:bigint,p:string>"
    sql("INSERT INTO t VALUES (3, 'c')")
    assert sql("SELECT * FROM t") == [(1, "a"), (2, "b"), (3, "c")]


def test_views_over_names_and_paths(spark: SparkSession, sql: Sql, t: str) -> None:
    sql("CREATE TEMPORARY VIEW by_name AS SELECT * FROM t")
    sql("CREATE TEMPORARY VIEW by_path AS SELECT * FROM delta.`{path}`")
    sql("CREATE VIEW kept AS SELECT id FROM t WHERE p = 'b'")
    spark.table("t").createOrReplaceTempView("by_frame")
    sql("INSERT INTO t VALUES (3, 'b')")
    for view in ("by_name", "by_path", "by_frame"):
        assert sql(f"SELECT id FROM {view}") == [(1,), (2,), (3,)]
        spark.catalog.dropTempView(view)
    assert sql("SELECT * FROM kept") == [(2,), (3,)]


def test_joins_of_names_paths_and_other_formats(sql: Sql, t: str) -> None:
    sql("CREATE TABLE other USING parquet AS SELECT 1L AS id, 'x' AS q")
    assert sql("SELECT t.id, q FROM t JOIN other USING (id) JOIN delta.`{path}` AS u USING (id)") == [
        (1, "x")
    ]
    assert sql("SELECT id FROM t WHERE id IN (SELECT max(id) FROM t)") == [(2,)]


def test_other_databases_and_sessions(spark: SparkSession, sql: Sql, t: str, database: Path) -> None:
    other = f"{database.name}_other"
    sql(f"CREATE DATABASE {other} LOCATION '{database}/../other'")
    try:
        sql(f"CREATE TABLE {other}.t USING delta AS SELECT 'other' AS x")
        assert sql(f"SELECT x, id FROM {other}.t JOIN t WHERE id = 1") == [("other", 1)]
        session = spark.newSession()
        session.sql(f"INSERT INTO {database.name}.t VALUES (3, 'c')")
        assert session.table(f"{other}.t").columns == ["x"]
        assert sql("SELECT count(*) FROM t") == [(3,)]
    finally:
        sql(f"DROP DATABASE {other} CASCADE")
    assert not (database / ".." / "other" / "t").exists()


@pytest.mark.long
def test_several_threads(spark: SparkSession, sql: Sql, t: str, database: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(3):
                spark.sql(f"INSERT INTO {database.name}.t VALUES ({number * 10 + i}, 'z')")
                assert spark.table(f"{database.name}.t").where(f"id = {number * 10 + i}").count() == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sql("SELECT count(*), count(DISTINCT id) FROM t WHERE p = 'z'") == [(9, 9)]


def test_what_is_cached_by_name_is_read_anew_after_a_write(spark: SparkSession, sql: Sql, t: str) -> None:
    sql("CACHE TABLE t")
    assert sql("SELECT count(*) FROM t") == [(2,)]
    sql("INSERT INTO t VALUES (3, 'c')")
    assert sql("SELECT count(*) FROM t") == [(3,)]
    spark.range(1).selectExpr("id", "'d' AS p").write.format("delta").mode("append").saveAsTable("t")
    assert sql("SELECT count(*) FROM t") == [(4,)]
    sql("UNCACHE TABLE t")


def test_a_path_without_a_table(sql: Sql, database: Path) -> None:
    (database / "t").mkdir(parents=True)
    with pytest.raises(DeltaTableNotFoundError):
        sql("SELECT * FROM delta.`{path}`")
    with pytest.raises(DeltaTableNotFoundError):
        sql("SELECT * FROM delta.`{path}` VERSION AS OF 0")


def test_streams_by_name(spark: SparkSession, sql: Sql, t: str, database: Path) -> None:
    def run(target: str, **options: Any) -> None:
        stream = spark.readStream.option("maxFilesPerTrigger", 1).table("t")
        write = stream.writeStream.format("delta").trigger(availableNow=True).partitionBy("p")
        write.option("checkpointLocation", str(database / f"checkpoint-{target}"))
        write.options(**options).toTable(target).awaitTermination()

    run("made")
    assert sql("SELECT * FROM made") == [(1, "a"), (2, "b")]
    made = DeltaLog.for_table(str(database / "made")).snapshot()
    assert list(made.partition_columns) == ["p"]
    sql("INSERT INTO t VALUES (3, 'c')")
    run("made")
    assert sql("SELECT * FROM made") == [(1, "a"), (2, "b"), (3, "c")]
    assert DeltaLog.for_table(str(database / "made")).snapshot().table_id == made.table_id
    run("external", path=str(database / "elsewhere"))
    sql("DROP TABLE external")
    assert load(spark, str(database / "elsewhere")).count() == 3
    schema = spark.readStream.table(f"delta.`{database}/t`").schema
    assert schema.simpleString() == "struct<id:bigint,p:string>"


def test_spark_does_not_plan_by_figures_of_its_catalog(
    spark: SparkSession, sql: Sql, t: str, database: Path
) -> None:
    sql("ANALYZE TABLES COMPUTE STATISTICS")
    sql("INSERT INTO t VALUES (3, 'c')")
    figures = spark.table("t")._jdf.queryExecution().optimizedPlan().stats()
    assert figures.rowCount().isEmpty()
    assert figures.sizeInBytes() == DeltaLog.for_table(str(database / "t")).snapshot().size_in_bytes
