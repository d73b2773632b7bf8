"""saveAsTable, insertInto, INSERT and writeTo: every write into a table by name is one commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, NumberFormatException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, when

from deltaflow.errors import DeltaError, DeltaUnsupportedOperationException, SchemaMismatchError
from deltaflow.log import DeltaLog, Snapshot
from tests.tables import actions, tuples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]

Log = Callable[[str], Snapshot]


@pytest.fixture
def log(database: Path) -> Log:
    return lambda name: DeltaLog.for_table(str(database / name)).snapshot()


@pytest.fixture
def t(spark: SparkSession, database: Path) -> str:
    """A table (id BIGINT, p STRING) partitioned by p with the rows (0, a), (1, b), (2, a)."""
    spark.sql("CREATE TABLE t (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (0, 'a'), (1, 'b'), (2, 'a')")
    return "t"


def of(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "id BIGINT, p STRING")


def test_save_as_table_in_its_modes(spark: SparkSession, database: Path, log: Log) -> None:
    def save(mode: str, value: int) -> None:
        of(spark, (value, "a")).write.format("delta").partitionBy("p").mode(mode).saveAsTable("t")

    save("errorifexists", 1)
    assert list(log("t").partition_columns) == ["p"]
    with pytest.raises(AnalysisException, match="already exists"):
        save("errorifexists", 2)
    save("ignore", 3)
    assert tuples(spark.table("t")) == [(1, "a")]
    save("append", 4)
    assert tuples(spark.table("t")) == [(1, "a"), (4, "a")]
    before = log("t")
    save("overwrite", 5)
    assert tuples(spark.table("t")) == [(5, "a")]
    assert (log("t").table_id, log("t").version) == (before.table_id, before.version + 1)


def test_save_as_table_overwrites_columns_that_need_the_mapping(
    spark: SparkSession, database: Path, log: Log
) -> None:
    """Their names are those of the table that exists, whatever is said of one that does not."""
    spark.sql(
        "CREATE TABLE t (`a b` INT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    before = log("t")
    frame = spark.sql("SELECT 3 AS `a b`, 'x' AS p")
    for options in ({"replaceWhere": "p = 'x'"}, {"partitionOverwriteMode": "dynamic"}):
        frame.write.format("delta").mode("overwrite").options(**options).saveAsTable("t")
        assert tuples(spark.table("t")) == [(2, "y"), (3, "x")]
    for options in ({}, {"overwriteSchema": "true"}):
        frame.write.format("delta").mode("overwrite").options(**options).partitionBy("p").saveAsTable("t")
        assert tuples(spark.table("t")) == [(3, "x")]
    assert log("t").table_id == before.table_id
    with pytest.raises(DeltaError) as refused:
        frame.write.format("delta").mode("overwrite").saveAsTable("new")
    assert refused.value.error_class == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    assert not spark.catalog.tableExists("new")


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("materialized", [False, True])
@pytest.mark.sampled(4)
def test_a_column_that_is_selected_twice(
    spark: SparkSession, database: Path, mapping: str, materialized: bool
) -> None:
    """Once for a column of the files, and once for a partition column."""
    spark.sql("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y'").write.format("delta").saveAsTable("source")
    properties = f"'delta.columnMapping.mode' = '{mapping}', 'delta.enableChangeDataFeed' = 'true'"
    if materialized:
        properties += ", 'delta.enableMaterializePartitionColumnsFeature' = 'true'"
    spark.sql(
        "CREATE TABLE t (q STRING, a INT, b STRING, p STRING) USING delta PARTITIONED BY (p, q) "
        f"TBLPROPERTIES ({properties})"
    )
    wanted = [("x", 1, "x", "x"), ("y", 2, "y", "y")]

    def check(*more: tuple[Any, ...]) -> None:
        assert tuples(spark.table("t")) == sorted([*wanted, *more])
        spark.sql("DELETE FROM t")

    twice = "SELECT b, a, b, b FROM source"
    spark.sql(f"INSERT INTO t {twice}")
    check()
    for statement in (
        f"INSERT OVERWRITE t {twice}",
        "INSERT INTO t PARTITION (p, q) SELECT b, a, b, b FROM source",
        f"INSERT INTO t REPLACE WHERE a > 0 {twice}",
        "INSERT INTO t SELECT b, max(a), b, b FROM source GROUP BY b",
        f"INSERT INTO t SELECT * FROM ({twice}) AS s(q, a, b, p)",
        "INSERT INTO t SELECT b AS b, a, b AS b, b AS b FROM source",
        "INSERT INTO t SELECT q.b, q.a, r.b, r.b FROM source q JOIN source r ON q.b = r.b",
        f"INSERT INTO t {twice} WHERE a = 1 UNION ALL {twice} WHERE a = 2",
    ):
        spark.sql(statement)
        check()
    spark.sql("INSERT INTO t PARTITION (p = 'z', q) SELECT b, a, b FROM source")
    assert tuples(spark.table("t")) == [("x", 1, "x", "z"), ("y", 2, "y", "z")]
    spark.sql("DELETE FROM t")
    frame = spark.table("source").selectExpr("b", "a", "b", "b")
    frame.write.format("delta").insertInto("t")
    frame.write.format("delta").insertInto("t")
    check(*wanted)
    frame.write.format("delta").mode("overwrite").insertInto("t")
    frame.toDF("q", "a", "b", "p").write.format("delta").mode("append").saveAsTable("t")
    check(*wanted)
    frame.toDF("q", "a", "b", "p").writeTo("t").append()
    spark.sql("ALTER TABLE t ADD CONSTRAINT c CHECK (a < 9)")
    spark.sql(f"INSERT INTO t {twice}")
    check(*wanted)


def test_a_partition_column_that_is_the_only_one(spark: SparkSession, database: Path) -> None:
    """Every column of the files is a copy of it."""
    spark.sql("CREATE TABLE t (a INT, b INT) USING delta PARTITIONED BY (b)")
    spark.sql("INSERT INTO t SELECT id, id FROM (SELECT int(id) AS id FROM range(2))")
    assert tuples(spark.table("t")) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("mode", ["errorifexists", "append", "overwrite", "ignore"])
def test_save_as_table_makes_a_table_at_a_path(spark: SparkSession, database: Path, mode: str) -> None:
    of(spark, (1, "a")).write.format("delta").mode(mode).option("path", str(database / "path")).saveAsTable(
        "t"
    )
    assert tuples(spark.table("t")) == tuples(spark.table(f"delta.`{database}/path`")) == [(1, "a")]
    spark.sql("DROP TABLE t")
    assert tuples(spark.table(f"delta.`{database}/path`")) == [(1, "a")]


def test_save_as_table_takes_the_options_of_save(spark: SparkSession, t: str, log: Log) -> None:
    frame = of(spark, (7, "b"))
    frame.write.format("delta").mode("overwrite").option("replaceWhere", "p = 'b'").saveAsTable(t)
    assert tuples(spark.table(t)) == [(0, "a"), (2, "a"), (7, "b")]
    wider = frame.withColumn("n", col("id") + 1)
    with pytest.raises(SchemaMismatchError, match="mergeSchema"):
        wider.write.format("delta").mode("append").saveAsTable(t)
    wider.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(t)
    assert spark.table(t).columns == ["id", "p", "n"]
    with pytest.raises(SchemaMismatchError, match="overwriteSchema"):
        frame.selectExpr("p AS id").write.format("delta").mode("overwrite").saveAsTable(t)
    new = frame.selectExpr("id AS q", "p AS r").write.format("delta").mode("overwrite").partitionBy("r")
    new.option("overwriteSchema", "true").option("userMetadata", "anew").saveAsTable(t)
    assert (spark.table(t).columns, list(log(t).partition_columns)) == (["q", "r"], ["r"])
    with pytest.raises(Exception, match="do not match the existing table"):
        frame.selectExpr("id AS q", "p AS r").write.format("delta").mode("append").partitionBy(
            "q"
        ).saveAsTable(t)


def test_save_as_table_overwrites_partitions_of_the_data(spark: SparkSession, t: str) -> None:
    write = of(spark, (9, "a")).write.format("delta").mode("overwrite")
    write.option("partitionOverwriteMode", "dynamic").saveAsTable(t)
    assert tuples(spark.table(t)) == [(1, "b"), (9, "a")]


def test_a_table_of_another_format_stays_what_it_is(spark: SparkSession, database: Path) -> None:
    of(spark, (1, "a")).write.format("parquet").saveAsTable("other")
    with pytest.raises(DeltaError) as refused:
        of(spark, (2, "b")).write.format("delta").mode("overwrite").saveAsTable("other")
    assert refused.value.error_class == "DELTA_NOT_A_DELTA_TABLE"
    with pytest.raises(AnalysisException, match="format"):
        of(spark, (2, "b")).write.format("delta").mode("append").saveAsTable("other")
    with pytest.raises(DeltaError) as refused:
        spark.sql("CREATE OR REPLACE TABLE other USING delta AS SELECT 1 AS a")
    assert refused.value.error_class == "DELTA_NOT_A_DELTA_TABLE"
    assert tuples(spark.table("other")) == [(1, "a")]


def test_a_delta_table_is_not_replaced_by_one_of_another_format(spark: SparkSession, t: str) -> None:
    """Spark would drop the table with its history."""
    with pytest.raises(DeltaUnsupportedOperationException):
        of(spark, (2, "b")).write.mode("overwrite").saveAsTable(t)
    with pytest.raises(AnalysisException, match="format"):
        of(spark, (2, "b")).write.mode("append").saveAsTable(t)
    assert len(tuples(spark.table(t))) == 3


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO t VALUES (5, 'c')", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t SELECT 5, 5", [(0, "a"), (1, "b"), (2, "a"), (5, "5")]),
        ("INSERT INTO t VALUES ('5', 'c')", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t (p, id) VALUES ('c', 5)", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t (id) VALUES (5)", [(0, "a"), (1, "b"), (2, "a"), (5, None)]),
        ("INSERT INTO t BY NAME SELECT 'c' AS P, 5 AS ID", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t PARTITION (p = 'c') VALUES (5)", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t PARTITION (p) VALUES (5, 'c')", [(0, "a"), (1, "b"), (2, "a"), (5, "c")]),
        ("INSERT INTO t REPLACE WHERE p = 'a' SELECT 5, 'a'", [(1, "b"), (5, "a")]),
        ("INSERT INTO t REPLACE WHERE id > 0 AND p <=> 'b' SELECT 5, 'b'", [(0, "a"), (2, "a"), (5, "b")]),
        ("INSERT OVERWRITE t VALUES (5, 'c')", [(5, "c")]),
        ("INSERT OVERWRITE t BY NAME SELECT 'c' AS p, 5 AS id", [(5, "c")]),
        ("INSERT OVERWRITE t PARTITION (p = 'a') VALUES (5)", [(1, "b"), (5, "a")]),
        ("INSERT OVERWRITE t PARTITION (p = 'a') SELECT id + 5 FROM range(0)", [(1, "b")]),
        ("INSERT OVERWRITE t SELECT id, upper(p) FROM delta.`{path}` WHERE id > 0", [(1, "B"), (2, "A")]),
    ],
)
@pytest.mark.sampled(3)
def test_insert(spark: SparkSession, database: Path, t: str, log: Log, statement: str, expected: Any) -> None:
    before = log(t)
    statement = statement.format(path=database / "t")
    spark.sql(statement)
    assert tuples(spark.table(t)) == expected
    assert (log(t).table_id, log(t).version) == (before.table_id, before.version + 1)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (5)",
        "INSERT INTO t VALUES (5, 'c', 1)",
        "INSERT INTO t VALUES (array(5), 'c')",
        "INSERT INTO t BY NAME SELECT 'c' AS p, 5 AS key",
        "INSERT INTO t REPLACE WHERE p = 'a' SELECT 5, 'b'",
        "INSERT OVERWRITE t PARTITION (p = 'a') VALUES (5, 'a')",
    ],
)
@pytest.mark.sampled(3)
def test_an_insert_that_does_not_fit(spark: SparkSession, t: str, log: Log, statement: str) -> None:
    with pytest.raises(AnalysisException if "REPLACE" not in statement else DeltaError):
        spark.sql(statement)
    assert log(t).version == 1


def test_a_text_that_is_no_number(spark: SparkSession, t: str, log: Log) -> None:
    rows = spark.sql("SELECT 'five' AS id, 'c' AS p")
    for write in (
        rows.write.insertInto,
        rows.write.format("delta").mode("append").saveAsTable,
        lambda t: rows.writeTo(t).append(),
    ):
        with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
            write(t)
    assert log(t).version == 1


@pytest.fixture
def dynamic(setting: Any) -> None:
    setting("spark.sql.sources.partitionOverwriteMode", "dynamic")


@pytest.mark.usefixtures("dynamic")
def test_insert_overwrite_of_dynamic_partitions(spark: SparkSession, t: str, database: Path) -> None:
    spark.sql("INSERT OVERWRITE t VALUES (5, 'a'), (6, 'c')")
    assert tuples(spark.table(t)) == [(1, "b"), (5, "a"), (6, "c")]
    of(spark, (7, "c")).write.insertInto(t, overwrite=True)
    assert tuples(spark.table(t)) == [(1, "b"), (5, "a"), (7, "c")]
    parameters = actions(str(database / "t"), "commitInfo")[0]["operationParameters"]
    assert parameters["isDynamicPartitionOverwrite"] in (True, "true")
    of(spark, (8, "d")).writeTo(t).overwrite(col("id") > 5)  # whatever the setting is
    assert tuples(spark.table(t)) == [(1, "b"), (5, "a"), (8, "d")]


def test_conditions_of_every_kind_replace_rows(spark: SparkSession, database: Path, setting: Any) -> None:
    spark.sql(
        "CREATE TABLE odd (`a.b` INT, `true` BOOLEAN, `order` INT) USING delta PARTITIONED BY (`true`, `a.b`)"
    )
    spark.sql("INSERT INTO odd VALUES (1, true, 1), (2, false, 2), (3, false, 3)")
    spark.sql("INSERT OVERWRITE odd PARTITION (`true` = true, `a.b` = 1) VALUES (5)")
    assert tuples(spark.table("odd").select("order")) == [(2,), (3,), (5,)]
    setting("spark.sql.ansi.enforceReservedKeywords", "true")
    spark.sql("INSERT INTO odd REPLACE WHERE `true` = true AND `order` % 2 = 1 VALUES (7, true, 7)")
    assert tuples(spark.table("odd").select("order")) == [(2,), (3,), (7,)]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (r"p LIKE 'a\\%' ESCAPE '!'", ["TRUE", "a%", "b"]),
        (r"p ILIKE 'A\\%' ESCAPE '!'", ["TRUE", "a%", "b"]),
        ("(p LIKE 'a%') = (id < 1)", ["a%"]),
        ("(id < 1) = (p ILIKE 'TRUE%')", ["TRUE", "a\\b"]),
        ("p LIKE ANY ('a%', 'b')", ["TRUE"]),
        ("p NOT LIKE ALL ('a%', 'b')", ["a%", "a\\b", "b"]),
    ],
)
@pytest.mark.sampled(4)
def test_patterns_replace_the_rows_that_they_name(
    spark: SparkSession, database: Path, condition: str, left: list[str]
) -> None:
    spark.sql("CREATE TABLE patterns (id BIGINT, p STRING) USING delta")
    of(spark, (0, "a\\b"), (1, "a%"), (2, "b"), (3, "TRUE")).write.insertInto("patterns")
    spark.sql(f"INSERT INTO patterns REPLACE WHERE {condition} SELECT * FROM patterns WHERE false")
    assert sorted(row.p for row in spark.table("patterns").collect()) == left


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("at BETWEEN TIMESTAMP'2020-11-01T01:30:00-08:00' AND TIMESTAMP'2021-01-01T00:00:00Z'", [1, 3]),
        ("nvl(at, TIMESTAMP'2020-11-01T01:30:00-08:00') = TIMESTAMP'2020-11-01T01:30:00-08:00'", [1]),
        ("nvl(`true`, false)", [2, 3]),
        ("nullif(id, 2) IS NULL", [1, 3]),
        ("nullif(`true`, false) IS NULL", [1]),
        ("extract(YEAR FROM at) = 2020", [3]),
    ],
)
def test_functions_that_stand_for_others_replace_the_rows_that_they_name(
    spark: SparkSession, database: Path, setting: Any, condition: str, left: list[int]
) -> None:
    setting("spark.sql.session.timeZone", "America/Los_Angeles")
    spark.sql("CREATE TABLE instants (id INT, at TIMESTAMP, `true` BOOLEAN) USING delta")
    first, second = "TIMESTAMP'2020-11-01T01:30:00-07:00'", "TIMESTAMP'2020-11-01T01:30:00-08:00'"
    spark.sql(f"INSERT INTO instants VALUES (1, {first}, true), (2, {second}, false), (3, NULL, NULL)")
    spark.sql(f"INSERT INTO instants REPLACE WHERE {condition} SELECT * FROM instants WHERE false")
    assert sorted(row.id for row in spark.table("instants").collect()) == left


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("s.B = 2", [1, 3]),
        ("array(CAST(text AS TIMESTAMP_LTZ))[0] = TIMESTAMP_LTZ'2020-11-01T09:30:00Z'", [2, 3]),
    ],
)
def test_conditions_on_fields_replace_the_rows_that_they_name(
    spark: SparkSession, database: Path, setting: Any, condition: str, left: list[int]
) -> None:
    setting("spark.sql.session.timeZone", "America/Los_Angeles")
    setting("spark.sql.timestampType", "TIMESTAMP_NTZ")
    part = "named_struct('a', 2, 'b', CAST(id AS INT))"
    rows = spark.range(1, 4).selectExpr("id", f"{part} AS s", "'2020-11-01T01:30:00-08:00' AS text")
    rows.withColumn("text", when(col("id") == 1, col("text"))).writeTo("fields").using("delta").create()
    spark.sql(f"INSERT INTO fields REPLACE WHERE {condition} SELECT * FROM fields WHERE false")
    assert sorted(row.id for row in spark.table("fields").collect()) == left


def test_a_condition_on_a_column_named_like_a_variable(spark: SparkSession, database: Path) -> None:
    rows = spark.range(3).withColumnRenamed("id", "${x}")
    rows.writeTo("named").using("delta").tableProperty("delta.columnMapping.mode", "name").create()
    rows.where("false").writeTo("named").overwrite(col("${x}") > 0)
    assert spark.table("named").collect() == [(0,)]


def test_insert_with_schema_evolution(spark: SparkSession, t: str) -> None:
    statement = "INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 5 AS id, 'new' AS more"
    if spark.version < "4.2":
        pytest.skip("Spark has this since 4.2")
    spark.sql(statement)
    assert tuples(spark.table(t).where("id = 5")) == [(5, None, "new")]


def test_insert_into_goes_by_position(spark: SparkSession, t: str) -> None:
    of(spark, (5, "c")).toDF("p", "other").write.insertInto(t)
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (2, "a"), (5, "c")]
    of(spark, (6, "c")).write.format("delta").insertInto(t, overwrite=True)
    assert tuples(spark.table(t)) == [(6, "c")]
    spark.table(t).write.insertInto(t)
    assert tuples(spark.table(t)) == [(6, "c"), (6, "c")]


@pytest.mark.long
def test_fields_of_structs_go_by_name_if_all_fits_without_a_cast(
    spark: SparkSession, database: Path, log: Log
) -> None:
    spark.sql("CREATE TABLE s (id INT, st STRUCT<x: INT, y: INT>, p STRING) USING delta PARTITIONED BY (p)")
    other = spark.sql("SELECT 1 AS id, array(named_struct('y', 5, 'x', 4))[0] AS st, 'a' AS p")
    other.createOrReplaceTempView("other")
    spark.sql("INSERT INTO s SELECT * FROM other")
    spark.sql("INSERT OVERWRITE s PARTITION (p = 'a') SELECT id, st FROM other")
    spark.sql("INSERT INTO s REPLACE WHERE p = 'b' SELECT id, st, 'b' AS p FROM other")
    other.write.insertInto("s")
    spark.sql("INSERT INTO s SELECT 2 AS id, named_struct('y', 5L, 'x', 4) AS st, 'a' AS p")  # needs a cast
    spark.sql("INSERT INTO s VALUES (3, named_struct('y', 5, 'x', 4), 'a')")  # has other names
    found = spark.table("s").select("id", "st.x", "st.y")
    assert tuples(found) == [(1, 4, 5), (1, 4, 5), (1, 4, 5), (2, 5, 4), (3, 5, 4)]
    version = log("s").version
    for st in ("named_struct('y', 5)", "named_struct('z', 5L)"):
        with pytest.raises(DeltaError) as raised:
            spark.sql(f"INSERT INTO s SELECT 4 AS id, {st} AS st, 'a' AS p")
        assert raised.value.getCondition() == "DELTA_INSERT_COLUMN_ARITY_MISMATCH"
    assert log("s").version == version


def test_write_to(spark: SparkSession, t: str, log: Log) -> None:
    table_id = log(t).table_id
    of(spark, (5, "c")).select("p", "id").writeTo(t).append()
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (2, "a"), (5, "c")]
    of(spark, (6, "c")).writeTo(t).overwritePartitions()
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (2, "a"), (6, "c")]
    of(spark, (2, "it's")).writeTo(t).overwrite(
        (col("p") == "a") & col("id").isin(0, 2) | (col("p") == "it's")
    )
    assert tuples(spark.table(t)) == [(1, "b"), (2, "it's"), (6, "c")]
    of(spark, (0, "z")).writeTo(t).overwrite(col("id") >= 0)
    assert tuples(spark.table(t)) == [(0, "z")]
    wider = of(spark, (1, "z")).withColumn("n", col("id"))
    wider.writeTo(t).option("mergeSchema", "true").append()
    assert spark.table(t).columns == ["id", "p", "n"]
    assert (log(t).table_id, log(t).version) == (table_id, 6)


def test_write_to_with_an_overwrite_mode(spark: SparkSession, t: str) -> None:
    writer = of(spark, (5, "a")).writeTo(t).option("partitionOverwriteMode", "dynamic")
    writer.overwrite(lit(True))
    assert tuples(spark.table(t)) == [(1, "b"), (5, "a")]
    with pytest.raises(DeltaError, match="DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"):
        writer.overwrite(col("p") == "a")
    for name in ("replaceWhere", "REPLACEWHERE"):
        with pytest.raises(DeltaUnsupportedOperationException, match="option replaceWhere"):
            of(spark, (6, "b")).writeTo(t).option(name, "id >= 0").overwrite(col("p") == "b")
    assert tuples(spark.table(t)) == [(1, "b"), (5, "a")]


def test_write_to_makes_and_replaces_tables(spark: SparkSession, database: Path, log: Log) -> None:
    frame = of(spark, (1, "a"))
    with pytest.raises(AnalysisException, match="cannot be found"):
        frame.writeTo("t").using("delta").replace()
    writer = frame.writeTo("t").using("delta").partitionedBy(col("p")).tableProperty("a", "b")
    writer.option("mergeSchema", "true").option("delta.appendOnly", "false").create()
    table = log("t")
    assert list(table.partition_columns) == ["p"]
    assert table.metadata.configuration == {"a": "b", "delta.appendOnly": "false"}
    with pytest.raises(AnalysisException, match="already exists"):
        frame.writeTo("t").using("delta").create()
    frame.selectExpr("id AS x").writeTo("t").using("delta").replace()
    assert (log("t").table_id, log("t").schema.names) == (table.table_id, ["x"])
    frame.writeTo("t").using("delta").tableProperty("delta.appendOnly", "true").createOrReplace()
    assert (log("t").version, log("t").schema.names) == (2, ["id", "p"])
    frame.writeTo("u").using("delta").createOrReplace()
    assert tuples(spark.table("u")) == tuples(spark.table("t")) == [(1, "a")]


IN_SUBQUERIES = {
    "NOT EXISTS": "INSERT INTO {t} SELECT id, 'n' FROM s "
    "WHERE NOT EXISTS (SELECT 1 FROM {t} AS x WHERE x.id = s.id)",
    "IN": "INSERT INTO {t} SELECT id + 3, 'n' FROM s WHERE id IN (SELECT id FROM {t} WHERE id < 2)",
    "IN of a view": "INSERT INTO {t} SELECT id + 3, 'n' FROM s "
    "WHERE id IN (SELECT id FROM seen WHERE id < 2)",
    "scalar": "INSERT INTO {t} (p, id) SELECT 'n', (SELECT max(id) + 1 FROM {t}) + id FROM s WHERE id < 2",
    "lateral": "INSERT INTO {t} SELECT y.id + 3, 'n' FROM s, "
    "LATERAL (SELECT id FROM {t} AS x WHERE x.id = s.id) y WHERE s.id < 2",
    "an older version": "INSERT INTO {t} SELECT id, 'n' FROM s "
    "WHERE id NOT IN (SELECT id FROM {t} VERSION AS OF 1)",
    "options": "INSERT INTO {t} SELECT id, 'n' FROM s "
    "WHERE id > 2 AND id NOT IN (SELECT id FROM {t} WITH (versionAsOf = 0))",
    "REPLACE WHERE": "INSERT INTO {t} REPLACE WHERE p = 'n' SELECT id, 'n' FROM s "
    "WHERE id NOT IN (SELECT id FROM {t})",
}


@pytest.mark.parametrize("statement", IN_SUBQUERIES.values(), ids=IN_SUBQUERIES)
@pytest.mark.parametrize("by_path", [False, True], ids=["by name", "by path"])
@pytest.mark.sampled(5)
def test_a_subquery_reads_the_target(
    spark: SparkSession, t: str, database: Path, statement: str, by_path: bool
) -> None:
    name = f"delta.`{database / t}`" if by_path else t
    spark.range(5).createOrReplaceTempView("s")
    spark.sql(f"SELECT * FROM {name}").createOrReplaceTempView("seen")
    spark.sql(statement.format(t=name))
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (2, "a"), (3, "n"), (4, "n")]


def test_a_subquery_reads_the_target_by_every_door(spark: SparkSession, t: str) -> None:
    spark.sql("INSERT OVERWRITE t SELECT id + 10, 'a' FROM range(3) WHERE id IN (SELECT id FROM t)")
    assert tuples(spark.table(t)) == [(10, "a"), (11, "a"), (12, "a")]
    selected = "SELECT id + 20 AS id, 'b' AS p FROM range(13) WHERE id IN (SELECT id FROM t)"
    spark.sql(selected).writeTo(t).append()
    assert tuples(spark.table(t)) == [(10, "a"), (11, "a"), (12, "a"), (30, "b"), (31, "b"), (32, "b")]
    another = spark.newSession()
    another.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    another.sql("DELETE FROM t WHERE id < 30 AND id IN (SELECT id FROM t)")
    another.sql("INSERT INTO t SELECT max(id) + 1, 'c' FROM range(40) WHERE id IN (SELECT id FROM t)")
    assert tuples(spark.table(t)) == [(30, "b"), (31, "b"), (32, "b"), (33, "c")]


def test_a_statement_reads_the_target_beside_its_subquery(spark: SparkSession, t: str) -> None:
    if spark.version.startswith("4.0."):
        pytest.skip("Spark 4.0 takes the target for a view if the statement reads it in FROM")
    spark.sql("INSERT INTO t SELECT max(id) + 1, 'c' FROM t HAVING max(id) = (SELECT max(id) FROM t)")
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (2, "a"), (3, "c")]


def test_writes_into_a_path(spark: SparkSession, database: Path) -> None:
    by_path = f"delta.`{database}/a path%20`"
    spark.sql(f"CREATE TABLE {by_path} USING delta AS SELECT 1L AS id, 'a' AS p")
    spark.sql(f"INSERT INTO {by_path} VALUES (2, 'b')")
    of(spark, (3, "c")).writeTo(by_path).append()
    of(spark, (4, "d")).write.insertInto(by_path)
    of(spark, (5, "e")).write.format("delta").mode("append").saveAsTable(by_path)
    assert tuples(spark.table(by_path)) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    of(spark, (6, "f")).write.format("delta").mode("overwrite").saveAsTable(by_path)
    assert tuples(spark.table(by_path)) == [(6, "f")]
    with pytest.raises(AnalysisException, match="cannot be found"):
        spark.sql(f"INSERT INTO delta.`{database}/nothing` VALUES (1)")
    assert not (database / "nothing").exists()


@pytest.mark.long
def test_inserts_in_statements_of_other_shapes(spark: SparkSession, t: str, log: Log, database: Path) -> None:
    spark.sql("CREATE TABLE u USING delta AS SELECT * FROM t WHERE id < 2")
    spark.sql("INSERT OVERWRITE t SELECT id + 10, p FROM u WHERE id = 1")
    spark.sql("WITH c AS (SELECT 5 AS x, 'c' AS y) INSERT INTO t SELECT * FROM c")
    spark.sql("INSERT INTO t TABLE u")
    spark.sql("EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?, ?)' USING 6, 'd'")
    assert tuples(spark.table(t)) == [(0, "a"), (1, "b"), (11, "b"), (5, "c"), (6, "d")]

    def both(batch: DataFrame, number: int) -> None:
        batch.write.format("delta").mode("append").saveAsTable("u")
        batch.writeTo(f"{database.name}.u").append()

    stream = spark.readStream.table("u").writeStream.foreachBatch(both).trigger(availableNow=True)
    stream.option("checkpointLocation", str(database / "checkpoint")).start().awaitTermination()
    assert len(tuples(spark.table("u"))) == 6
    spark.sql("EXPLAIN INSERT OVERWRITE u VALUES (1, 'a')")
    spark.sql("EXPLAIN CREATE OR REPLACE TABLE u USING delta AS SELECT 1 AS a")
    assert log("u").version == 2
