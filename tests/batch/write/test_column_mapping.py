"""Tables with column mapping, through every door that writes; RENAME and DROP COLUMN.

The fixture `table` compares the rows with those of the independent reader, and each file with its statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog
from deltaflow.log.protocol.column_mapping import ID, PHYSICAL_NAME
from deltaflow.tables import DeltaTable
from tests.mapped_tables import MappedTable
from tests.tables import (
    actions,
    every_action,
    latest_version,
    load,
    read_commit,
    rows,
    rows_by_deltalake,
    tuples,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]
MODE = "delta.columnMapping.mode"
Ids = dict[tuple[str, ...], int]


def frame(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr(
        "id",
        "concat('t', id) AS `a,b`",
        "named_struct('x y', id, 'l', array(named_struct('e', id * 2))) AS s",
        "concat('p ', id % 2) AS `the part`",
    )


def mapped(spark: SparkSession, path: str, mode: str) -> str:
    """A table of twenty rows in two commits; its name in SQL."""
    frame(spark, 0, 10).write.format("delta").partitionBy("the part").option(MODE, mode).save(path)
    frame(spark, 10, 20).write.format("delta").mode("append").save(path)
    return f"delta.`{path}`"


def columns_of(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Physical path and id of every column of a schema's JSON."""
    if not isinstance(schema, dict):
        return
    for field in schema.get("fields", ()):
        inside = (*path, field["metadata"][PHYSICAL_NAME])
        yield inside, field["metadata"][ID]
        yield from columns_of(field["type"], inside)
    for inner in ("elementType", "keyType", "valueType"):
        yield from columns_of(schema.get(inner), path)


def columns_of_file(fields: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """The same of a file, by the ids of Parquet's fields."""
    for field in fields:
        number = int((field.metadata or {}).get(b"PARQUET:field_id", -1))
        inside = path if number < 0 else (*path, field.name)
        if number >= 0:
            yield inside, number
        if field.type.num_fields:
            yield from columns_of_file([field.type.field(i) for i in range(field.type.num_fields)], inside)


def paths_of(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        yield from paths_of(value, (*path, name)) if isinstance(value, dict) else [(*path, name)]


def check_mapping(path: str) -> None:
    """Every commit names and numbers columns as the protocol asks for."""
    highest, known = 0, {}
    for version in range(latest_version(path) + 1):
        found = {name: action[name] for action in read_commit(path, version) for name in action}
        if "metaData" in found:
            schema = json.loads(found["metaData"]["schemaString"])
            known = dict(columns_of(schema))
            assert len(set(known.values())) == len(known)
            limit = int(found["metaData"]["configuration"]["delta.columnMapping.maxColumnId"])
            assert limit >= max([highest, *known.values()])
            highest = limit
            by_name = {field["name"]: field["metadata"][PHYSICAL_NAME] for field in schema["fields"]}
            partition = {by_name[name] for name in found["metaData"]["partitionColumns"]}
        for add in actions(path, "add", version):
            assert set(add["partitionValues"]) == partition
            stats = json.loads(add["stats"])
            for part in ("minValues", "maxValues", "nullCount"):
                assert set(paths_of(stats[part])) <= set(known)
            file = dict(columns_of_file(pq.read_schema(Path(path, unquote(add["path"])))))
            assert file.items() <= known.items()
            assert {place for place in known if len(place) == 1} - {(name,) for name in partition} == {
                place for place in file if len(place) == 1
            }


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.sampled(2)
def test_every_way_to_write(spark: SparkSession, table: str, mode: str) -> None:
    name = mapped(spark, table, mode)
    assert actions(table, "protocol", 0) == [{"minReaderVersion": 2, "minWriterVersion": 5}]
    assert tuples(load(spark, table)) == tuples(frame(spark, 0, 20))
    spark.sql(f"INSERT INTO {name} SELECT 100, 'c', named_struct('x y', 7, 'l', array()), 'p 0'")
    spark.sql(f"UPDATE {name} SET `a,b` = 'new', s.`x y` = -1 WHERE id < 3")
    spark.sql(f"DELETE FROM {name} WHERE s.`x y` = 5 AND `the part` = 'p 1'")
    assert load(spark, table).where("`a,b` = 'new' AND s.`x y` = -1").count() == 3
    assert load(spark, table).where("id = 5").count() == 0
    # New columns, also in structs: by the option, by MERGE, by ALTER TABLE.
    more = spark.range(200, 202).selectExpr(
        "id", "named_struct('m', 'new') AS s", "'p 1' AS `the part`", "array(map('k', 1)) AS `ne w`"
    )
    more.write.format("delta").option("mergeSchema", "true").mode("append").save(table)
    source = spark.range(0, 2).selectExpr("id", "'p 0' AS `the part`", "'x' AS `extra col`")
    merge = DeltaTable.forPath(spark, table).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (`i;j` INT FIRST, s.n STRING)")
    assert load(spark, table).where("`extra col` = 'x'").count() == 2
    before = load(spark, table).count()
    part = spark.range(300, 302).selectExpr("id", "'p 1' AS `the part`", "'o' AS other")
    part.write.format("delta").mode("overwrite").option("mergeSchema", "true").option(
        "replaceWhere", "id >= 200"
    ).save(table)
    assert load(spark, table).count() == before
    assert tuples(load(spark, table).where("other = 'o'").select("id")) == [(300,), (301,)]
    spark.sql(f"OPTIMIZE {name} ZORDER BY (id)")
    assert load(spark, table).count() == before
    spark.range(400, 401).selectExpr("id", "'p 1' AS `the part`").write.format("delta").mode(
        "overwrite"
    ).option("partitionOverwriteMode", "dynamic").save(table)
    assert tuples(load(spark, table).where("`the part` = 'p 1'").select("id")) == [(400,)]
    assert sum(add["partitionValues"] == {} for add in every_action(table, "add")) == 0
    check_mapping(table)
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    assert tuples(load(spark, table)) == tuples(frame(spark, 0, 20))
    # What keeps its type keeps its id and its name; a name that comes again after others is new.
    old = dict(columns_of(json.loads(actions(table, "metaData")[0]["schemaString"])))
    other = spark.range(3).selectExpr("id", "1 AS `a,b`", "'z' AS `new c`")
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(table)
    new = dict(columns_of(json.loads(actions(table, "metaData")[0]["schemaString"])))
    assert len(new.items() & old.items()) == 1
    assert not (set(new.values()) - set(old.values())) & set(range(1, max(old.values()) + 1))
    DeltaLog.for_table(table).checkpoint()
    stats = pq.read_table(next(Path(table, "_delta_log").glob("*.checkpoint.parquet")))["add"]
    [parsed] = {tuple(sorted(each["stats_parsed"]["nullCount"])) for each in stats.drop_null().to_pylist()}
    assert parsed == tuple(sorted(place[0] for place in new))


def test_files_have_the_ids_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path, settings: Any
) -> None:
    path = str(tmp_path / "table")
    with settings({"spark.sql.parquet.fieldId.write.enabled": "false"}):
        for start in (0, 1):
            rows_of_file = spark.range(start, start + 1, 1, 1).write.format("delta").mode("append")
            rows_of_file.option(MODE, "id").save(path)
        DeltaTable.forPath(spark, path).optimize().executeCompaction()
    assert tuples(load(spark, path)) == [(0,), (1,)]


def test_a_column_that_has_the_name_of_a_function_is_not_taken_from_a_constraint(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without the column, the constraint would ask who writes the row, the generated column for the day."""
    path = str(tmp_path / "table")
    name = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {name} (user STRING, current_date DATE, y INT GENERATED ALWAYS AS "
        f"(year(current_date)), at TIMESTAMP, other INT) USING delta TBLPROPERTIES ('{MODE}' = 'name')"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT known CHECK (user <> '' AND at < current_timestamp())")
    for clause, what in [
        ("RENAME COLUMN user TO name", "CONSTRAINT"),
        ("DROP COLUMNS other, user", "CONSTRAINT"),
        ("RENAME COLUMN current_date TO day", "GENERATED_COLUMNS"),
        ("DROP COLUMN current_date", "GENERATED_COLUMNS"),
    ]:
        with pytest.raises(DeltaError, match=f"DELTA_{what}_DEPENDENT_COLUMN_CHANGE"):
            spark.sql(f"ALTER TABLE {name} {clause}")
    assert latest_version(path) == 1
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN other TO more")


def test_conditions_on_a_column_whose_name_is_a_keyword(
    spark: SparkSession, tmp_path: Path, settings: Any
) -> None:
    path = str(tmp_path / "table")
    rows = spark.range(3).selectExpr("id AS `order`", "struct(id AS `a.b`, id AS `from`) AS `select`")
    rows.write.format("delta").option(MODE, "name").save(path)
    with settings({"spark.sql.ansi.enforceReservedKeywords": "true"}):
        found = load(spark, path).where("`order` > 0 AND `select`.`from` < 2 AND `select`.`a.b` = 1")
        assert [row.order for row in found.collect()] == [1]


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.sampled(2)
def test_rename_and_drop(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = str(tmp_path / "table")
    name = mapped(spark, table, mode)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id,s.`x y`')")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id >= 0)")
    for clause, error_class in [
        ("RENAME COLUMN id TO other", "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
        ("DROP COLUMN id", "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
        ("RENAME COLUMN s TO ID", "FIELD_ALREADY_EXISTS"),
        ("RENAME COLUMN nothing TO x", "DELTA_COLUMN_NOT_FOUND"),
        ("RENAME COLUMN s.l.element TO x", "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"),
        ("DROP COLUMN s.nothing", "DELTA_COLUMN_NOT_FOUND"),
        ("DROP COLUMN s.l.element.e", "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
        ("DROP COLUMN `the part`", "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"),
    ]:
        before = latest_version(table)
        with pytest.raises(AnalysisException) as refused:
            spark.sql(f"ALTER TABLE {name} {clause}")
        assert refused.value.getCondition() == error_class, clause
        assert latest_version(table) == before
    spark.sql(f"ALTER TABLE {name} DROP COLUMN IF EXISTS nothing")
    assert latest_version(table) == before
    files = every_action(table, "add")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN `a,b` TO c")
    [info] = actions(table, "commitInfo")
    assert (info["operation"], info["operationParameters"]) == (
        "RENAME COLUMN",
        {"oldColumnPath": "a,b", "newColumnPath": "c"},
    )
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s.`x y` TO `y.z`")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s.l.element.e TO f")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN `THE part` TO `p;q`")
    assert actions(table, "metaData")[0]["partitionColumns"] == ["p;q"]
    assert (
        actions(table, "metaData")[0]["configuration"]["delta.dataSkippingStatsColumns"] == "`id`,`s`.`y.z`"
    )
    found = load(spark, table).where("s.`y.z` = 13 AND `p;q` = 'p 1'").select("id", "c", "s.l.f")
    assert tuples(found) == [(13, "t13", [26])]
    spark.sql(f"ALTER TABLE {name} DROP COLUMNS (c, s.`y.z`)")
    [info] = actions(table, "commitInfo")
    assert (info["operation"], info["operationParameters"]) == (
        "DROP COLUMNS",
        {"columns": '["c","s.`y.z`"]'},
    )
    assert actions(table, "metaData")[0]["configuration"]["delta.dataSkippingStatsColumns"] == "`id`"
    assert every_action(table, "add") == files
    # The names are free, and the old values do not come back.
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (c STRING, s.`y.z` BIGINT)")
    assert tuples(load(spark, table).select("c", "s.`y.z`").distinct()) == [(None, None)]
    spark.sql(f"INSERT INTO {name} (id, c, `p;q`) VALUES (50, 'again', 'p 0')")
    spark.sql(f"UPDATE {name} SET c = 'set' WHERE id = 3")
    assert tuples(load(spark, table).where("c IS NOT NULL").select("id", "c")) == [(3, "set"), (50, "again")]
    assert tuples(load(spark, table, versionAsOf=1)) == tuples(frame(spark, 0, 20))
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    check_mapping(table)


def test_the_mapping_of_a_table_that_is_there_begins(spark: SparkSession, table: str) -> None:
    spark.range(5).selectExpr("id", "id * 2 AS a", "'x' AS p").write.format("delta").partitionBy("p").save(
        table
    )
    name = f"delta.`{table}`"
    for clause, error_class in [
        ("RENAME COLUMN a TO b", "DELTA_UNSUPPORTED_RENAME_COLUMN"),
        ("DROP COLUMN a", "DELTA_UNSUPPORTED_DROP_COLUMN"),
        (f"SET TBLPROPERTIES ('{MODE}' = 'id')", "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"),
    ]:
        with pytest.raises(AnalysisException) as refused:
            spark.sql(f"ALTER TABLE {name} {clause}")
        assert refused.value.getCondition() == error_class
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{MODE}' = 'name')")
    assert actions(table, "protocol") == [{"minReaderVersion": 2, "minWriterVersion": 5}]
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN p TO `p p`")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN a")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN a STRING")
    spark.sql(f"INSERT INTO {name} VALUES (7, 'y', 'text')")
    assert tuples(load(spark, table)) == sorted([*((i, "x", None) for i in range(5)), (7, "y", "text")])
    for statement, error_class in [
        (
            f"ALTER TABLE {name} SET TBLPROPERTIES ('{MODE}' = 'id')",
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        ),
        (
            f"GENERATE symlink_format_manifest FOR TABLE {name}",
            "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING",
        ),
    ]:
        with pytest.raises(AnalysisException) as refused:
            spark.sql(statement)
        assert refused.value.getCondition() == error_class


def test_tables_of_statements(spark: SparkSession, tmp_path: Path, database: Path, settings: Any) -> None:
    """CREATE, CREATE AS SELECT, REPLACE, clones, CONVERT, and a default of the session."""
    spark.sql(f"CREATE TABLE one (`a b` BIGINT, c STRING) USING delta TBLPROPERTIES ('{MODE}' = 'id')")
    spark.sql("INSERT INTO one VALUES (1, 'x')")
    create = (
        f"CREATE TABLE IF NOT EXISTS one (`a b` BIGINT, c STRING) USING delta TBLPROPERTIES ('{MODE}' = 'id')"
    )
    spark.sql(create)
    assert tuples(spark.table("one")) == [(1, "x")]
    spark.sql(f"CREATE TABLE two USING delta TBLPROPERTIES ('{MODE}' = 'name') AS SELECT * FROM one")
    spark.sql("CREATE OR REPLACE TABLE one USING delta AS SELECT c, c AS d FROM two")
    assert (tuples(spark.table("one")), tuples(spark.table("two"))) == ([("x", "x")], [(1, "x")])
    spark.sql("CREATE TABLE three SHALLOW CLONE two")
    spark.sql("ALTER TABLE three RENAME COLUMN c TO e")
    spark.sql("INSERT INTO three VALUES (2, 'y')")
    assert tuples(spark.table("three").select("a b", "e")) == [(1, "x"), (2, "y")]
    spark.sql(f"CREATE TABLE four SHALLOW CLONE one TBLPROPERTIES ('{MODE}' = 'name')")
    spark.sql("ALTER TABLE four RENAME COLUMN c TO e")
    assert tuples(spark.table("four").select("e")) == [("x",)]
    spark.range(3).write.parquet(str(tmp_path / "parquet"))
    with settings({"spark.databricks.delta.properties.defaults.columnMapping.mode": "name"}):
        spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/parquet`")
        spark.range(3).selectExpr("id AS `odd, name`").write.format("delta").save(str(tmp_path / "new"))
    assert tuples(load(spark, tmp_path / "parquet")) == tuples(spark.range(3).toDF("id"))
    assert load(spark, tmp_path / "new").columns == ["odd, name"]
    with pytest.raises(AnalysisException) as refused:
        spark.range(1).selectExpr("id AS `odd, name`").write.format("delta").save(str(tmp_path / "plain"))
    assert refused.value.getCondition() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.long
def test_files_of_another_writer_are_rewritten(
    spark: SparkSession, tmp_path: Path, mode: str, settings: Any
) -> None:
    """Also by the reader that is not vectorised, which takes columns by ids from settings of its own."""
    for vectorized in ("true", "false"):
        table = MappedTable(tmp_path / vectorized, mode)
        with settings({"spark.sql.parquet.enableVectorizedReader": vectorized}):
            before = rows(load(spark, table.path))
            spark.sql(f"DELETE FROM delta.`{table.path}` WHERE id = 3")
            spark.sql(f"UPDATE delta.`{table.path}` SET `a,b` = `a,b` + 1000 WHERE id = 7")
            spark.sql(f"OPTIMIZE delta.`{table.path}`")
            kept = [row for row in before if row["id"] != 3]
            for row in kept:
                row["a,b"] += 1000 if row["id"] == 7 else 0
            assert rows(load(spark, table.path)) == sorted(kept, key=repr)
