"""CREATE, REPLACE and DROP of tables by name: what the log and Spark's catalog have of them afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaError,
    DeltaIllegalArgumentException,
    DeltaUnsupportedOperationException,
    SchemaError,
)
from deltaflow.log import DeltaLog, Snapshot
from tests.conftest import Settings
from tests.tables import actions, load, rows_by_deltalake

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]

Sql = Callable[..., list[tuple[Any, ...]]]
Log = Callable[[str], Snapshot]
ANALYSIS = DeltaAnalysisException
UNSUPPORTED = DeltaUnsupportedOperationException


@pytest.fixture
def sql(spark: SparkSession, database: Path) -> Sql:
    """Runs a statement in the test's database, {path} in it being a path with nothing there."""
    return lambda statement: [
        tuple(row) for row in spark.sql(statement.format(path=database / "path")).collect()
    ]


@pytest.fixture
def log(database: Path) -> Log:
    """The newest snapshot of a managed table, or of the table at {path}."""
    return lambda name: DeltaLog.for_table(str(database / name)).snapshot()


def test_a_table_is_what_its_statement_says(sql: Sql, log: Log, database: Path) -> None:
    sql(
        "CREATE TABLE t (id BIGINT NOT NULL COMMENT 'a key', p STRING, c CHAR(3), n STRUCT<x: INT>) "
        "USING delta PARTITIONED BY (p) COMMENT 'all of it' "
        "TBLPROPERTIES ('delta.appendOnly' = 'true', 'mine' = '1')"
    )
    table = log("t")
    assert table.schema.simpleString() == "struct<id:bigint,p:string,c:string,n:struct<x:int>>"
    assert not table.schema["id"].nullable
    assert table.schema["id"].metadata == {"comment": "a key"}
    assert table.schema["p"].nullable
    assert list(table.partition_columns) == ["p"]
    assert table.metadata.description == "all of it"
    assert table.metadata.configuration == {"delta.appendOnly": "true", "mine": "1"}
    assert table.files.num_rows == 0
    (info,) = actions(str(database / "t"), "commitInfo", 0)
    assert info["operation"] == "CREATE TABLE"
    assert info["operationParameters"] == {
        "isManaged": "true",
        "description": "all of it",
        "partitionBy": '["p"]',
        "clusterBy": "[]",
        "properties": '{"mine":"1","delta.appendOnly":"true"}',
    }


TABLE = {
    "isManaged": "true",
    "description": None,
    "partitionBy": "[]",
    "clusterBy": "[]",
    "properties": "{}",
}
AS_SELECT = "AS SELECT 1 AS id"


@pytest.mark.parametrize(
    ("statements", "operation", "is_blind", "parameters"),
    [
        (["CREATE TABLE t (id INT) USING delta"], "CREATE TABLE", True, {}),
        (["CREATE OR REPLACE TABLE t (id INT) USING delta"], "CREATE OR REPLACE TABLE", True, {}),
        ([f"CREATE TABLE t USING delta {AS_SELECT}"], "CREATE TABLE AS SELECT", True, {}),
        (
            [f"CREATE OR REPLACE TABLE t USING delta {AS_SELECT}"],
            "CREATE OR REPLACE TABLE AS SELECT",
            False,
            {},
        ),
        (
            [
                "CREATE TABLE t (id INT) USING delta",
                "REPLACE TABLE t USING delta COMMENT 'c' TBLPROPERTIES ('DELTA.APPENDONLY' = 'false') "
                + AS_SELECT,
            ],
            "REPLACE TABLE AS SELECT",
            False,
            {"description": "c", "properties": '{"delta.appendOnly":"false"}'},
        ),
        (
            [
                "CREATE TABLE t (id INT) USING delta",
                "REPLACE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p)",
            ],
            "REPLACE TABLE",
            False,
            {"partitionBy": '["p"]'},
        ),
    ],
)
@pytest.mark.sampled(3)
def test_a_commit_says_of_its_statement_what_delta_spark_says(
    sql: Sql,
    database: Path,
    statements: list[str],
    operation: str,
    is_blind: bool,
    parameters: dict[str, Any],
) -> None:
    for statement in statements:
        sql(statement)
    (info,) = actions(str(database / "t"), "commitInfo", len(statements) - 1)
    assert (info["operation"], info["isBlindAppend"]) == (operation, is_blind)
    assert info["operationParameters"] == TABLE | parameters


def test_save_as_table_that_overwrites_says_so(spark: SparkSession, database: Path) -> None:
    rows = spark.range(3)
    path = str(database / "t")
    for version in range(2):
        rows.write.format("delta").mode("overwrite").saveAsTable("t")
        (info,) = actions(path, "commitInfo", version)
        assert (info["operation"], info["isBlindAppend"]) == ("CREATE OR REPLACE TABLE AS SELECT", False)
        assert info["operationParameters"] == TABLE | {"isV1SaveAsTableOverwrite": True}
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "id < 9").saveAsTable("t")
    (info,) = actions(path, "commitInfo", 2)
    assert info["operation"] == "WRITE"
    assert info["operationParameters"]["predicate"] == "id < 9"


def test_what_describes_a_table_comes_from_its_log(sql: Sql, spark: SparkSession, database: Path) -> None:
    sql(
        "CREATE TABLE t (id BIGINT COMMENT 'a key', p STRING) USING delta PARTITIONED BY (p) "
        "COMMENT 'all of it' TBLPROPERTIES ('mine' = '1')"
    )
    assert sql("DESCRIBE t")[:2] == [("id", "bigint", "a key"), ("p", "string", None)]
    described = {row[0]: row[1] for row in sql("DESCRIBE EXTENDED t")}
    assert (described["Provider"], described["Comment"], described["Type"]) == (
        "delta",
        "all of it",
        "MANAGED",
    )
    assert described["Location"] == f"file:{database}/t"
    assert ("mine", "1") in sql("SHOW TBLPROPERTIES t")
    ((create,),) = sql("SHOW CREATE TABLE t")
    assert "USING delta" in create
    assert "PARTITIONED BY (`p`)" in create
    assert [(c.name, c.isPartition) for c in spark.catalog.listColumns("t")] == [("id", False), ("p", True)]
    assert sql("SHOW COLUMNS IN t") == [("id",), ("p",)]


def test_the_catalog_keeps_the_name_and_the_location_alone(
    sql: Sql, spark: SparkSession, database: Path
) -> None:
    """As delta-spark's entries are, so that nobody trusts a copy of the schema."""
    sql("CREATE TABLE t (id BIGINT, p STRING) USING delta PARTITIONED BY (p) COMMENT 'x'")
    catalog = spark._jsparkSession.sessionState().catalog()
    entry = catalog.externalCatalog().getTable(database.name, "t")
    assert entry.schema().isEmpty()
    assert entry.partitionColumnNames().isEmpty()
    assert entry.properties().isEmpty()
    assert entry.provider().get() == "delta"


def test_a_name_for_a_table_that_is_there(sql: Sql, spark: SparkSession, database: Path) -> None:
    spark.range(3).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").option(
        "delta.appendOnly", "true"
    ).save(str(database / "path"))
    sql("CREATE TABLE bare USING delta LOCATION '{path}'")
    sql(
        "CREATE TABLE full (id BIGINT, p BIGINT) USING delta PARTITIONED BY (p) LOCATION '{path}' "
        "TBLPROPERTIES ('delta.appendOnly' = 'true')"
    )
    sql("CREATE TABLE IF NOT EXISTS bare (other INT) USING delta")
    assert sql("SELECT count(*), sum(id), sum(p) FROM bare JOIN full USING (id, p)") == [(3, 3, 1)]
    assert DeltaLog.for_table(str(database / "path")).latest_version() == 0


def test_a_name_for_a_mapped_table_with_nested_columns(sql: Sql, database: Path) -> None:
    columns = "(id INT, s STRUCT<a: INT COMMENT 'c', b: ARRAY<STRUCT<x: STRING>>>)"
    sql(
        f"CREATE TABLE delta.`{{path}}` {columns} USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    sql(f"CREATE TABLE same {columns} USING delta LOCATION '{{path}}'")
    sql("ALTER TABLE same ALTER COLUMN s.a TYPE BIGINT")
    sql(f"CREATE TABLE wider {columns.replace('a: INT', 'a: BIGINT')} USING delta LOCATION '{{path}}'")
    with pytest.raises(DeltaError) as refused:
        sql(f"CREATE TABLE other {columns.replace('x: ', 'y: ')} USING delta LOCATION '{{path}}'")
    assert refused.value.error_class == "DELTA_CREATE_TABLE_SCHEME_MISMATCH"


@pytest.mark.parametrize(
    ("definition", "error_class"),
    [
        ("(id STRING, p BIGINT) USING delta PARTITIONED BY (p)", "DELTA_CREATE_TABLE_SCHEME_MISMATCH"),
        (
            "(id BIGINT NOT NULL, p BIGINT) USING delta PARTITIONED BY (p)",
            "DELTA_CREATE_TABLE_SCHEME_MISMATCH",
        ),
        ("(id BIGINT, p BIGINT) USING delta", "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING"),
        ("USING delta TBLPROPERTIES ('a' = 'b')", "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY"),
        ("USING delta AS SELECT 1 AS id", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"),
    ],
)
def test_a_name_that_says_otherwise_than_the_table_that_is_there(
    sql: Sql, spark: SparkSession, database: Path, definition: str, error_class: str
) -> None:
    spark.range(3).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(
        str(database / "path")
    )
    first, _, rest = definition.partition("USING delta")
    location = f"{first} USING delta LOCATION '{{path}}' {rest}"
    if "PARTITIONED" in rest or "TBLPROPERTIES" in rest:
        location = f"{first} USING delta {rest} LOCATION '{{path}}'"
    with pytest.raises(DeltaError) as refused:
        sql(f"CREATE TABLE t {location}")
    assert refused.value.error_class == error_class
    assert not spark.catalog.tableExists("t")
    assert DeltaLog.for_table(str(database / "path")).latest_version() == 0


@pytest.mark.parametrize(
    "create",
    [
        lambda spark: spark.sql("CREATE TABLE t (id BIGINT) USING delta LOCATION 'a/table'"),
        lambda spark: spark.sql("CREATE TABLE t USING delta LOCATION 'a/table' AS SELECT 7L AS id LIMIT 0"),
        lambda spark: spark.range(0).write.format("delta").option("path", "a/table").saveAsTable("t"),
        lambda spark: (
            spark.range(0).writeTo("t").using("delta").tableProperty("location", "a/table").create()
        ),
        lambda spark: (
            DeltaTable.create(spark).tableName("t").location("a/table").addColumn("id", "long").execute()
        ),
    ],
    ids=["create", "as select", "saveAsTable", "writeTo", "builder"],
)
def test_a_location_that_is_relative_is_below_the_databases(
    spark: SparkSession, database: Path, tmp_path: Path, monkeypatch: Any, create: Callable[..., Any]
) -> None:
    """It is so for every table in Spark's catalog. What is at the same place below the working directory is
    another table."""
    monkeypatch.chdir(tmp_path)
    spark.range(100, 103).write.format("delta").save(str(tmp_path / "a" / "table"))
    create(spark)
    spark.sql("INSERT INTO t VALUES (1)")
    spark.range(2, 3).write.format("delta").mode("append").option("path", "a/table").saveAsTable("t")
    assert rows_by_deltalake(str(database / "a" / "table")) == [{"id": 1}, {"id": 2}]
    assert spark.table("t").count() == 2
    assert load(spark, str(tmp_path / "a" / "table")).count() == 3
    spark.sql("CREATE OR REPLACE TABLE t USING delta LOCATION 'a/table' AS SELECT 9L AS id")
    spark.sql("CREATE TABLE other USING delta LOCATION 'b/table' AS SELECT 8L AS id")
    assert spark.table("t").collect() == [(9,)]
    spark.sql("ALTER TABLE t SET LOCATION 'b/table'")
    assert spark.table("t").collect() == [(8,)]


@pytest.mark.parametrize(
    ("statement", "error_type", "text"),
    [
        ("CREATE TABLE t USING delta LOCATION '{path}/..'", ANALYSIS, "WITHOUT_TXN_LOG"),
        ("CREATE TABLE t USING delta LOCATION '{path}/..' AS SELECT 1 AS a", ANALYSIS, "NON_EMPTY"),
        ("CREATE TABLE t (a INT) USING delta LOCATION '{path}/..'", ANALYSIS, "NON_EMPTY"),
        ("CREATE OR REPLACE TABLE t (a INT) USING delta LOCATION '{path}/..'", ANALYSIS, "NON_EMPTY"),
        ("CREATE OR REPLACE TABLE t USING delta", ANALYSIS, "SCHEMA_NOT_PROVIDED"),
        ("CREATE TABLE t (a INT DEFAULT 1) USING delta", ANALYSIS, "FEATURE_NOT_ENABLED"),
        ("CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (c)) USING delta", AnalysisException, "name `c`"),
        ("CREATE TABLE t (a INT, b BOOLEAN) USING delta CLUSTER BY (b)", ANALYSIS, "no bounds"),
        ("CREATE TABLE t (a INT, b INT) USING delta CLUSTERED BY (a) INTO 2 BUCKETS",
         UNSUPPORTED, "bucket"),
        ("CREATE TABLE t (a INT, b TIMESTAMP) USING delta PARTITIONED BY (days(b))",
         UNSUPPORTED, "days"),
        ("CREATE TABLE t (a INT) USING delta PARTITIONED BY (a)", SchemaError, "all columns"),
        ("CREATE TABLE t (`a b` INT) USING delta", SchemaError, "invalid character"),
        ("CREATE TABLE t (a INT, A INT) USING delta", AnalysisException, "already exists"),
        ("CREATE TABLE t (a INT) USING delta TBLPROPERTIES ('delta.none' = '1')", ANALYSIS, "Unknown"),
        ("CREATE TABLE t (a INT) USING delta TBLPROPERTIES ('clusteringColumns' = 'a')",
         DeltaIllegalArgumentException, "clusteringColumns"),
        ("CREATE TABLE t USING delta TBLPROPERTIES ('delta.appendOnly' = 'so') AS SELECT 1 AS a",
         DeltaIllegalArgumentException, "appendOnly"),
        ("CREATE TABLE `t t` USING delta AS SELECT 1 AS a", AnalysisException, "not a valid name"),
        ("CREATE TABLE nowhere.t USING delta AS SELECT 1 AS a", AnalysisException, "nowhere"),
        ("CREATE TABLE nowhere.t (a INT) USING delta LOCATION '{path}'", AnalysisException, "nowhere"),
        ("CREATE TABLE delta.`{path}` (a INT) USING delta LOCATION '/other'", ANALYSIS, "two different"),
    ],
)  # fmt: skip
@pytest.mark.sampled(3)
def test_a_table_that_cannot_be_is_refused_before_a_file_is_written(
    sql: Sql, spark: SparkSession, database: Path, statement: str, error_type: type[Exception], text: str
) -> None:
    (database / "other file").touch()
    before = sorted(database.rglob("*"))
    with pytest.raises(error_type, match=text):
        sql(statement)
    assert sorted(database.rglob("*")) == before
    assert not spark.catalog.tableExists("t")


def test_a_table_without_columns_gets_them_from_the_first_rows(
    spark: SparkSession, sql: Sql, log: Log, database: Path
) -> None:
    sql("CREATE TABLE t USING delta COMMENT 'c' TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert log("t").schema.fields == []
    sql("CREATE TABLE IF NOT EXISTS t USING delta")
    assert sql("SELECT * FROM t") == []
    with pytest.raises(SchemaError, match="A metadata mismatch"):
        sql("INSERT INTO t VALUES (1, 2)")
    rows = spark.range(2)
    with pytest.raises(SchemaError, match="doesn't have any columns"):
        rows.select().write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("t")
    assert log("t").version == 0
    rows.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("t")
    assert sorted(sql("SELECT * FROM t")) == [(0,), (1,)]
    assert log("t").metadata.description == "c"
    assert log("t").metadata.configuration == {"delta.enableChangeDataFeed": "true"}
    assert rows_by_deltalake(database / "t") == [{"id": 0}, {"id": 1}]
    # A table of a name that is gone is found again, with and without columns.
    sql("CREATE TABLE u USING delta LOCATION '{path}'")
    sql("DROP TABLE u")
    sql("CREATE TABLE u USING delta LOCATION '{path}'")
    merge = "MERGE WITH SCHEMA EVOLUTION INTO u USING t ON false WHEN NOT MATCHED THEN INSERT *"
    assert sql(merge) == [(2, 0, 0, 2)]
    assert sorted(sql("SELECT id FROM u")) == [(0,), (1,)]
    sql("DROP TABLE u")
    sql("CREATE TABLE u USING delta LOCATION '{path}'")
    assert len(sql("SELECT id FROM u")) == 2
    sql("CREATE TABLE v USING delta")
    sql("ALTER TABLE v ADD COLUMNS (x INT)")
    sql("INSERT INTO v VALUES (7)")
    assert sql("SELECT x FROM v") == [(7,)]


def test_a_stream_begins_a_table_without_columns(
    spark: SparkSession, sql: Sql, database: Path, tmp_path: Path
) -> None:
    sql("CREATE TABLE t USING delta")
    spark.range(3).write.format("delta").save(str(tmp_path / "source"))
    rows = spark.readStream.format("delta").load(str(tmp_path / "source"))
    stream = rows.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.option("mergeSchema", "true").trigger(availableNow=True).toTable("t")
    query.awaitTermination()
    assert sorted(sql("SELECT * FROM t")) == [(0,), (1,), (2,)]


def test_ctas_writes_the_rows_and_the_table_in_one_commit(sql: Sql, log: Log, database: Path) -> None:
    sql(
        "CREATE TABLE t USING delta PARTITIONED BY (p) COMMENT 'c' TBLPROPERTIES ('a' = 'b') "
        "AS SELECT id, id % 2 AS p FROM range(4)"
    )
    table = log("t")
    assert (table.version, list(table.partition_columns)) == (0, ["p"])
    assert (table.metadata.description, table.metadata.configuration) == ("c", {"a": "b"})
    assert actions(str(database / "t"), "commitInfo", 0)[0]["operation"] == "CREATE TABLE AS SELECT"
    assert sorted(sql("SELECT * FROM t")) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    with pytest.raises(AnalysisException, match="already exists"):
        sql("CREATE TABLE t USING delta AS SELECT 1 AS a")
    sql("CREATE TABLE IF NOT EXISTS t USING delta AS SELECT 1 AS a")
    assert log("t").version == 0


@pytest.mark.parametrize("statement", ["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
def test_a_replaced_table_keeps_its_id_and_its_history(sql: Sql, log: Log, database: Path,
                                                       statement: str) -> None:  # fmt: skip
    sql(
        "CREATE TABLE t USING delta PARTITIONED BY (p) COMMENT 'c' TBLPROPERTIES ('a' = 'b') "
        "AS SELECT id, id % 2 AS p FROM range(4)"
    )
    before = log("t")
    sql(f"{statement} t USING delta COMMENT 'new' AS SELECT id + 10 AS x FROM t WHERE id > 1")
    after = log("t")
    assert (after.table_id, after.version) == (before.table_id, 1)
    assert (after.metadata.description, after.metadata.configuration) == ("new", {})
    assert list(after.partition_columns) == []
    assert actions(str(database / "t"), "commitInfo", 1)[0]["operation"] == f"{statement} AS SELECT"
    assert sorted(sql("SELECT x FROM t")) == [(12,), (13,)]
    assert len(sql("SELECT id, p FROM t VERSION AS OF 0")) == 4
    sql(f"{statement} t (y STRING) USING delta")
    assert sql("SELECT y FROM t") == []
    assert (log("t").table_id, log("t").version) == (before.table_id, 2)
    assert actions(str(database / "t"), "commitInfo", 2)[0]["operation"] == statement


@pytest.mark.parametrize("definition", ["(`a b` INT) USING delta", "USING delta AS SELECT 1 AS `a b`"])
def test_a_replaced_table_has_the_sessions_defaults(
    sql: Sql, log: Log, settings: Settings, definition: str
) -> None:
    """As a new one has: a job that makes its table anew each day gets the same table each day."""
    defaults = "spark.databricks.delta.properties.defaults."
    given = {"columnMapping.mode": "name", "enableChangeDataFeed": "true", "checkpointInterval": "5"}
    with settings({defaults + name: value for name, value in given.items()}):
        for version in range(2):
            sql(f"CREATE OR REPLACE TABLE t {definition}")
            found = log("t")
            assert (found.version, found.schema.names) == (version, ["a b"])
            assert {f"delta.{name}": value for name, value in given.items()}.items() <= (
                found.metadata.configuration.items()
            )


def test_replace_needs_a_table_and_create_or_replace_does_not(sql: Sql, log: Log) -> None:
    with pytest.raises(AnalysisException, match="cannot be found"):
        sql("REPLACE TABLE t USING delta AS SELECT 1 AS a")
    sql("CREATE OR REPLACE TABLE t USING delta AS SELECT 1 AS a")
    assert log("t").version == 0
    with pytest.raises(DeltaAnalysisException, match="LOCATION"):
        sql("CREATE OR REPLACE TABLE t USING delta LOCATION '{path}' AS SELECT 1 AS a")


def test_a_failed_query_leaves_the_old_table_or_none(sql: Sql, spark: SparkSession, database: Path) -> None:
    failing = "SELECT CAST(raise_error('on purpose') AS INT) AS a FROM range(2)"
    with pytest.raises(PySparkException, match="on purpose"):
        sql(f"CREATE TABLE t USING delta AS {failing}")
    assert not spark.catalog.tableExists("t")
    assert not DeltaLog.for_table(str(database / "t")).exists()
    sql("CREATE TABLE t USING delta AS SELECT 1 AS a")  # what the failure left does not matter
    with pytest.raises(PySparkException, match="on purpose"):
        sql(f"CREATE OR REPLACE TABLE t USING delta AS {failing}")
    with pytest.raises(PySparkException, match="on purpose"):
        spark.sql(failing).write.format("delta").mode("overwrite").saveAsTable("t")
    assert sql("SELECT * FROM t") == [(1,)]
    assert DeltaLog.for_table(str(database / "t")).latest_version() == 0


def test_drop_removes_the_files_of_a_managed_table_alone(
    sql: Sql, spark: SparkSession, database: Path
) -> None:
    sql("CREATE TABLE managed USING delta AS SELECT 1 AS a")
    sql("CREATE TABLE external USING delta LOCATION '{path}' AS SELECT 1 AS a")
    sql("DROP TABLE managed")
    sql("DROP TABLE external")
    assert not (database / "managed").exists()
    assert load(spark, str(database / "path")).count() == 1
    assert [found for found in spark.catalog.listTables() if not found.isTemporary] == []
    sql("CREATE TABLE managed USING delta AS SELECT 'x' AS b")
    assert sql("SELECT * FROM managed") == [("x",)]
    sql("DROP TABLE managed PURGE")
    assert not (database / "managed").exists()


def test_a_name_that_has_lost_its_table(sql: Sql, spark: SparkSession, database: Path) -> None:
    import shutil

    sql("CREATE TABLE t USING delta AS SELECT 1 AS a")
    shutil.rmtree(database / "t")
    for statement in (
        "SELECT * FROM t",
        "INSERT INTO t VALUES (1)",
        "CREATE OR REPLACE TABLE t (a INT) USING delta",
    ):
        with pytest.raises(DeltaError, match="DROP TABLE"):
            sql(statement)
    sql("DROP TABLE t")
    assert not spark.catalog.tableExists("t")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM {}",
        "SELECT * FROM {} VERSION AS OF 0",
        "INSERT INTO {} VALUES (1)",
        "DELETE FROM {} WHERE id = 1",
        "MERGE INTO {} AS t USING (SELECT 1L AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "CREATE TABLE {} (id BIGINT) USING delta",
        "CREATE OR REPLACE TABLE {} USING delta AS SELECT 1 AS id",
        "CREATE TABLE copy SHALLOW CLONE {}",
        "ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')",
        "DESCRIBE HISTORY {}",
        "DESCRIBE DETAIL {}",
        "OPTIMIZE {}",
        "VACUUM {}",
        "VACUUM 'rel/t'",
        "RESTORE TABLE {} TO VERSION AS OF 0",
    ],
)
@pytest.mark.sampled(5)
def test_a_relative_path_as_a_name_is_told(spark: SparkSession, database: Path, statement: str) -> None:
    """It is refused, as in delta-spark, whose error is about something else."""
    with pytest.raises(DeltaAnalysisException, match=r"delta\.`rel/t` has a relative path.*/rel/t` if"):
        spark.sql(statement.format("delta.`rel/t`")).collect()
    assert not Path("rel").exists()


def test_nor_is_it_a_name_in_python(spark: SparkSession) -> None:
    with pytest.raises(DeltaAnalysisException, match=r"delta\.`rel/t` has a relative path"):
        DeltaTable.forName(spark, "delta.`rel/t`")
