"""Generated columns: computed where rows leave them out, checked where rows give them, by every door."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltaflow.errors import DeltaAnalysisException, DeltaInvariantViolationException
from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests.batch.rows.doors import Write, sql, streamed
from tests.goldens import FEATURES, GOLDENS, needed
from tests.tables import actions, load, rows_by_deltalake, tuples, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

COLUMNS = "id BIGINT, s STRING, day STRING GENERATED ALWAYS AS (concat('d', id % 2)), twice BIGINT"
DEFINITION = f"({COLUMNS} GENERATED ALWAYS AS (id * 2)) USING delta PARTITIONED BY (day)"


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table with generated columns, one of them the partition column, and the row 1."""
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` {DEFINITION}")
    spark.sql(f"INSERT INTO delta.`{path}` (id, s) VALUES (1, 'a')")
    return path


def given(spark: SparkSession, *ids: int) -> DataFrame:
    """Rows that leave the generated columns out."""
    return spark.createDataFrame([(i, "n") for i in ids], "id BIGINT, s STRING").coalesce(1)


def right(spark: SparkSession, path: str) -> list[int]:
    """The ids of the rows, whose generated columns have the right values, by both implementations."""
    found = tuples(load(spark, path))
    assert all((day, twice) == (f"d{i % 2}", 2 * i) for i, _, day, twice in found)
    ids = sorted(row[0] for row in found)
    assert sorted(row["id"] for row in rows_by_deltalake(path)) == ids
    return ids


DOORS: dict[str, Write] = {
    "save": lambda spark, path, rows, _: rows.write.format("delta").mode("append").save(path),
    "save with partitionBy": lambda spark, path, rows, _: (
        rows.write.format("delta").partitionBy("day").mode("append").save(path)
    ),
    "writeTo": lambda spark, path, rows, _: rows.writeTo(f"delta.`{path}`").append(),
    "stream": lambda spark, path, rows, folder: streamed(rows, path, folder),
    "merge schema": lambda spark, path, rows, _: (
        rows.write.format("delta").option("mergeSchema", "true").mode("append").save(path)
    ),
    **{
        name: lambda spark, path, rows, _, statement=statement: sql(spark, path, statement, rows)
        for name, statement in {
            "INSERT with columns": "INSERT INTO @T (s, id) SELECT s, id FROM rows",
            "INSERT BY NAME": "INSERT INTO @T BY NAME SELECT * FROM rows",
            "MERGE INSERT": "MERGE INTO @T t USING rows ON t.id = rows.id "
            "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (rows.id, rows.s)",
            "MERGE INSERT *": "MERGE INTO @T t USING rows ON t.id = rows.id WHEN NOT MATCHED THEN INSERT *",
        }.items()
    },
}
REPLACING: dict[str, Write] = {
    "overwrite": lambda spark, path, rows, _: rows.write.format("delta").mode("overwrite").save(path),
    "dynamic overwrite": lambda spark, path, rows, _: (
        rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    ),
    "replaceWhere": lambda spark, path, rows, _: (
        rows.write.format("delta").mode("overwrite").option("replaceWhere", "day = 'd1'").save(path)
    ),
    "INSERT OVERWRITE": lambda spark, path, rows, _: sql(
        spark, path, "INSERT OVERWRITE @T (id, s) SELECT id, s FROM rows", rows
    ),
}


def test_what_the_table_is(spark: SparkSession, path: str) -> None:
    schema = DeltaLog.for_table(path).snapshot().schema
    expressions = {field.name: field.metadata.get("delta.generationExpression") for field in schema.fields}
    assert expressions == {"id": None, "s": None, "day": "concat('d', id % 2)", "twice": "id * 2"}
    assert not any(field.metadata for field in load(spark, path).schema.fields)
    [protocol] = actions(path, "protocol", 0)
    assert protocol["minWriterVersion"] == 4
    assert right(spark, path) == [1]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(12)
def test_rows_are_added(spark: SparkSession, path: str, tmp_path: Path, door: str) -> None:
    DOORS[door](spark, path, given(spark, 2, 3), tmp_path)
    assert right(spark, path) == [1, 2, 3]
    wrong = given(spark, 5).selectExpr("*", "'d1' AS day", "9L AS twice")
    if "columns" in door or door == "MERGE INSERT":
        return  # these doors name their columns
    with pytest.raises(Exception, match=r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES.*Generated Column"):
        DOORS[door](spark, path, wrong, tmp_path / "wrong")
    correct = wrong.withColumn("twice", wrong.id * 2)
    DOORS[door](spark, path, correct, tmp_path / "correct")
    assert right(spark, path) == [1, 2, 3, 5]


@pytest.mark.parametrize("door", REPLACING)
@pytest.mark.sampled(2)
def test_rows_are_replaced(spark: SparkSession, path: str, tmp_path: Path, door: str) -> None:
    REPLACING[door](spark, path, given(spark, 3, 5), tmp_path)
    assert right(spark, path) == [3, 5]


def test_rows_are_changed(spark: SparkSession, path: str) -> None:
    """What is not set is computed anew; what is set has to be right. Other rows stay as they are."""
    table, name = DeltaTable.forPath(spark, path), f"delta.`{path}`"
    given(spark, 2, 3, 4).write.format("delta").mode("append").save(path)
    spark.sql(f"UPDATE {name} SET id = 11 WHERE id = 1")
    table.update("id = 2", {"id": "12L", "twice": "24L"})
    assert right(spark, path) == [3, 4, 11, 12]
    source = "(SELECT explode(array(3L, 4L, 15L)) AS id) AS s"
    spark.sql(
        f"""MERGE INTO {name} AS t USING {source} ON t.id = s.id
        WHEN MATCHED AND s.id = 3 THEN UPDATE SET id = 13, day = 'd1'
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED THEN INSERT (id, twice) VALUES (s.id, 30)
        WHEN NOT MATCHED BY SOURCE AND t.id = 12 THEN UPDATE SET id = 22"""
    )
    assert right(spark, path) == [11, 13, 15, 22]
    star = spark.sql("SELECT 15L AS id, 'by star' AS s UNION ALL SELECT 16L, 'new'")
    merge = table.alias("t").merge(star.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert right(spark, path) == [11, 13, 15, 16, 22]
    before = versions(path)
    for statement in (
        f"UPDATE {name} SET twice = 5 WHERE id = 11",
        f"MERGE INTO {name} t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET twice = 5",
        f"MERGE INTO {name} t USING {source} ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, twice) VALUES (s.id, 5)",
    ):
        with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
            spark.sql(statement)
    assert versions(path) == before
    spark.sql(f"DELETE FROM {name} WHERE id = 22")
    spark.sql(f"OPTIMIZE {name}")
    table.restoreToVersion(2)
    assert right(spark, path) == [1, 2, 3, 4]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.sampled(2)
def test_they_are_computed_of_what_the_table_stores(
    spark: SparkSession, tmp_path: Path, vectors: bool
) -> None:
    """Of VARCHAR that is cut, of CHAR that is filled up, of empty texts that are null as partition values:
    new values are right by UPDATE and MERGE, too, and rows beside them stay."""
    path = str(tmp_path / "t")
    table = DeltaTable.create(spark).location(path).property("delta.enableDeletionVectors", str(vectors))
    for column, data_type in {"id": "INT", "v": "VARCHAR(3)", "c": "CHAR(4)", "p": "STRING"}.items():
        table.addColumn(column, data_type)
    for column, data_type, expression in (
        ("size", "INT", "length(v)"),
        ("is_ab", "BOOLEAN", "c = 'ab'"),
        ("other", "STRING", "concat(p, '!')"),
        ("day", "STRING", "trim(v)"),
        ("bytes", "BINARY", "cast(trim(v) AS BINARY)"),
        ("code", "CHAR(5)", "v"),
    ):
        table.addColumn(column, data_type, generatedAlwaysAs=expression)
    table.partitionedBy("p", "day", "bytes").execute()
    name, columns = f"delta.`{path}`", "id, v, c, p"
    rest = ("ab  ", None, 3, True, None, "abc", b"abc", "abc  ")
    blank = (0, " ", "x   ", None, 1, False, None, None, None, "     ")
    rows = "(1, 'abc  ', 'ab  ', ''), (0, ' ', 'x', NULL), (2, '', '', 'p')"
    spark.sql(f"INSERT INTO {name} ({columns}) VALUES {rows}")
    spark.sql(f"UPDATE {name} SET v = 'abc   ', c = 'ab   ', p = '' WHERE id = 2")
    spark.sql(f"UPDATE {name} SET id = id WHERE id = 1")
    source = "VALUES (2, 'abc ', 'ab      ', ''), (3, 'abc    ', 'ab ', '')"
    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT * FROM {source} AS s ({columns})) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET v = ' '"""
    )
    assert tuples(load(spark, path)) == [blank, *((i, "abc", *rest) for i in (1, 2, 3))]
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    assert load(spark, path).count() == 3


def test_values_that_are_too_long_for_their_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = DeltaTable.create(spark).location(path).addColumn("s", "STRING")
    for name, data_type in {"v": "VARCHAR(2)", "c": "CHAR(3)"}.items():
        table.addColumn(name, data_type, generatedAlwaysAs="s")
    table.execute()
    spark.sql(f"INSERT INTO delta.`{path}` (s) VALUES ('ab')")
    for statement in (
        "INSERT INTO @T (s) VALUES ('abc')",
        "INSERT INTO @T (s) VALUES ('ab  ')",
        "UPDATE @T SET s = 'abc'",
        "UPDATE @T SET s = 'ab  '",
        "MERGE INTO @T t USING (SELECT 'abc' s) s ON t.s = s.s WHEN NOT MATCHED THEN INSERT (s) VALUES (s.s)",
    ):
        with pytest.raises(DeltaInvariantViolationException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
            spark.sql(statement.replace("@T", f"delta.`{path}`"))
    assert tuples(load(spark, path)) == [("ab", "ab", "ab ")]


def test_rows_are_changed_by_functions_of_python(spark: SparkSession, path: str) -> None:
    spark.udf.register("more", F.udf(lambda i: None if i is None else i + 10, "bigint"))
    spark.udf.register("is_one", F.udf(lambda i: i == 1, "boolean"))
    spark.sql(f"UPDATE delta.`{path}` SET id = more(id) WHERE is_one(id)")
    assert right(spark, path) == [11]
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT id FROM range(2)) s "
        "ON t.id = s.id + 11 AND NOT is_one(t.id) "
        "WHEN MATCHED THEN UPDATE SET id = more(t.id) "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (more(s.id), 'p')"
    )
    assert right(spark, path) == [11, 21]
    spark.sql(f"DELETE FROM delta.`{path}` WHERE is_one(id - 20)")
    assert right(spark, path) == [11]


def test_by_name_and_cloned(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "named")
    spark.sql(f"CREATE TABLE generated_named {DEFINITION} LOCATION '{location}'")
    try:
        given(spark, 2).write.format("delta").mode("append").saveAsTable("generated_named")
        given(spark, 3).write.format("delta").mode("overwrite").saveAsTable("generated_named")
        spark.sql("INSERT INTO generated_named VALUES (4, 'x', 'd0', 8)")
        assert right(spark, location) == [3, 4]
    finally:
        spark.sql("DROP TABLE generated_named")
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, location).clone(clone, isShallow=True)
    given(spark, 5).write.format("delta").mode("append").save(clone)
    assert sorted(row.twice for row in load(spark, clone).collect()) == [6, 8, 10]


def test_rows_of_a_stream_that_do_not_fit_go_to_the_quarantine(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    source, quarantine = str(tmp_path / "source"), str(tmp_path / "quarantine")
    mixed = spark.sql("SELECT 2L AS id, 4L AS twice UNION ALL SELECT 3L, 7L UNION ALL SELECT 4L, 8L")
    mixed.write.format("delta").save(source)
    writer = spark.readStream.format("delta").load(source).writeStream.format("delta")
    options = {"checkpointLocation": str(tmp_path / "checkpoint"), "quarantinePath": quarantine}
    writer.options(**options).trigger(availableNow=True).start(path).awaitTermination()
    assert right(spark, path) == [1, 2, 4]
    [row] = load(spark, quarantine).collect()
    assert row.row.id == 3
    assert "Generated Column" in row.reason


def test_names_conditions_and_types_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    """CHAR is compared as readers see it, and fields of structs, defaults and NOT NULL take part."""
    path = str(tmp_path / "t")
    spark.sql(
        f"""CREATE TABLE delta.`{path}` (
            a INT, c CHAR(3), st STRUCT<x: INT>, d INT DEFAULT 7,
            is_a BOOLEAN NOT NULL GENERATED ALWAYS AS (c = 'a'),
            y INT GENERATED ALWAYS AS (st.x + d), z STRING GENERATED ALWAYS AS (cast(a AS STRING)) COMMENT 'z'
        ) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"""
    )
    rows = spark.sql("SELECT 1 AS a, 'a' AS c, named_struct('x', 2) AS st")
    rows.write.format("delta").mode("append").save(path)
    spark.sql(f"UPDATE delta.`{path}` SET st.x = 5, c = 'b'")
    [row] = load(spark, path).collect()
    assert (row.is_a, row.d, row.y, row.z) == (False, 7, 12, "1")
    with pytest.raises(Exception, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        rows.selectExpr("a", "null AS c").write.format("delta").mode("append").save(path)


@pytest.mark.parametrize(
    ("expression", "error_class"),
    [
        ("nothing + 1", "DELTA_INVALID_GENERATED_COLUMN_REFERENCES"),
        ("twice + 1", "DELTA_INVALID_GENERATED_COLUMN_REFERENCES"),
        ("x + 1", "DELTA_INVALID_GENERATED_COLUMN_REFERENCES"),
        ("cast(rand() AS int)", "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN"),
        ("max(id)", "DELTA_AGGREGATE_IN_GENERATED_COLUMN"),
        ("cast(id AS string)", "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"),
        ("(SELECT 1)", "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"),
    ],
)
@pytest.mark.sampled(3)
def test_expressions_that_no_column_can_have(
    spark: SparkSession, tmp_path: Path, expression: str, error_class: str
) -> None:
    path = str(tmp_path / "t")
    new = DeltaTable.create(spark).location(path).addColumn("id", "int")
    new = new.addColumn("twice", "int", generatedAlwaysAs="id * 2")
    with pytest.raises(DeltaAnalysisException) as refused:
        new.addColumn("x", "int", generatedAlwaysAs=expression).execute()
    assert refused.value.error_class == error_class
    assert not DeltaTable.isDeltaTable(spark, path)


def test_the_builder(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    new = DeltaTable.create(spark).location(path).addColumn("id", "bigint")
    new.addColumn("twice", "bigint", generatedAlwaysAs="id * 2", comment="c").partitionedBy("twice").execute()
    spark.range(3).write.format("delta").mode("append").save(path)
    assert tuples(load(spark, path)) == [(0, 0), (1, 2), (2, 4)]
    assert load(spark, path).schema["twice"].metadata["comment"] == "c"


def test_an_expression_that_ends_with_a_comment(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    new = DeltaTable.create(spark).location(path).addColumn("id", "bigint")
    new = new.addColumn("name", "string", generatedAlwaysAs="cast(id AS string) -- as text")
    new.partitionedBy("name").execute()
    spark.range(1).write.format("delta").mode("append").save(path)
    spark.range(1, 2).selectExpr("id", "'1' AS name").write.format("delta").mode("append").save(path)
    assert tuples(load(spark, path)) == [(0, "0"), (1, "1")]


def test_a_table_that_is_written_anew_keeps_or_loses_them(spark: SparkSession, path: str) -> None:
    copy = f"{path}-copy"
    load(spark, path).write.format("delta").save(copy)
    spark.sql(f"INSERT INTO delta.`{copy}` VALUES (1, 'a', 'other', 7)")
    assert len(tuples(load(spark, copy))) == 2
    frame = load(spark, path).where("id > 0")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a', 'other', 7)")
    assert load(spark, path).count() == 2


@needed
def test_tables_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Its generated columns and defaults are kept by our writes."""
    for name in ("generated-columns", "column-defaults"):
        shutil.copytree(GOLDENS / FEATURES / "tables" / name, tmp_path / name)
    generated, defaults = str(tmp_path / "generated-columns"), str(tmp_path / "column-defaults")
    spark.sql(f"INSERT INTO delta.`{generated}` (id, ts) VALUES (1000, TIMESTAMP'2024-02-29 01:02:03')")
    spark.sql(
        f"UPDATE delta.`{generated}` SET id = 1001, ts = TIMESTAMP'2025-01-01 00:00:00' WHERE id = 1000"
    )
    [row] = load(spark, generated).where("id = 1001").collect()
    assert (str(row.d), row.y, row.twice) == ("2025-01-01", 2025, 2002)
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        spark.sql(f"UPDATE delta.`{generated}` SET y = 1")
    spark.sql(f"INSERT INTO delta.`{defaults}` (id) VALUES (1000)")
    [row] = load(spark, defaults).where("id = 1000").collect()
    assert (row.s, row.n, row.f) == (None, 42, 2.5)
    assert row.d is not None


def test_with_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    """Expressions have the table's names, files others; columns that an expression names stay."""
    path = str(tmp_path / "t")
    name = f"delta.`{path}`"
    spark.sql(
        f"""CREATE TABLE {name} (`a b` INT, c INT DEFAULT 3, x INT GENERATED ALWAYS AS (`a b` + c), z INT)
        USING delta PARTITIONED BY (x) TBLPROPERTIES ('delta.columnMapping.mode' = 'name',
        'delta.feature.allowColumnDefaults' = 'supported')"""
    )
    for statement in (f"INSERT INTO {name} (`a b`) VALUES (1)", f"UPDATE {name} SET c = 5"):
        spark.sql(statement)
    for change in ("RENAME COLUMN c TO d", "DROP COLUMN `a b`"):
        with pytest.raises(DeltaAnalysisException, match="DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"):
            spark.sql(f"ALTER TABLE {name} {change}")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN z TO y")
    spark.sql(f"INSERT INTO {name} (`a b`, y) VALUES (10, 2)")
    assert tuples(load(spark, path)) == [(1, 5, 6, None), (10, 3, 13, 2)]
