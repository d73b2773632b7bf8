"""Type widening: rows of files with the narrow type, by every door, and what makes a type grow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.errors import DeltaAnalysisException, DeltaError, DeltaUnsupportedOperationException
from deltaflow.tables import DeltaTable
from tests.deletion_vectors import mark_deleted
from tests.tables import actions, commit_info, load, tuples, versions, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

WIDENS = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"
GROWS = {
    "b": ("TINYINT", "BIGINT"),
    "s": ("SMALLINT", "INT"),
    "n": ("INT", "DOUBLE"),
    "i": ("INT", "DECIMAL(14,4)"),
    "l": ("BIGINT", "DECIMAL(20,0)"),
    "f": ("FLOAT", "DOUBLE"),
    "d": ("DATE", "TIMESTAMP_NTZ"),
    "e": ("DECIMAL(5,2)", "DECIMAL(30,10)"),
}
"""Columns with their types before and after."""
PATHS = {"st.x": "st", "ar.element": "ar", "ma.key": "ma", "ma.value": "ma", "dp.element.y.value": "dp"}
"""Nested fields that grow from INT to BIGINT, with their columns."""
NESTED = (
    "st STRUCT<x: INT, z: STRING>, ar ARRAY<INT>, ma MAP<INT, INT>, dp ARRAY<STRUCT<y: MAP<STRING, INT>>>"
)


def narrow_row(i: int) -> str:
    values = [f"CAST({i} AS {GROWS[c][0]}) {c}" for c in "bsnil"]
    values += [f"CAST({i}.1 AS FLOAT) f", f"DATE'2020-01-0{i}' d", f"CAST({i}.25 AS DECIMAL(5,2)) e"]
    values += [f"named_struct('x', {i}, 'z', 'a') st", f"array({i}, {i}) ar", f"map({i}, {i}) ma"]
    return f"{i}L id, " + ", ".join([*values, f"array(named_struct('y', map('k', {i}))) dp"])


def wide_row(i: int) -> str:
    values = [f"CAST({i} AS {GROWS[c][1]}) {c}" for c in "bsnil"]
    # A value of a narrow float is the double next to it.
    values += [f"CAST(CAST({i}.1 AS FLOAT) AS DOUBLE) f", f"TIMESTAMP_NTZ'2020-01-0{i} 00:00:00' d"]
    values += [f"CAST({i}.25 AS {GROWS['e'][1]}) e", f"named_struct('x', {i}L, 'z', 'a') st"]
    values += [f"array({i}L, {i}L) ar", f"map({i}L, {i}L) ma", f"array(named_struct('y', map('k', {i}L))) dp"]
    return f"{i}L id, " + ", ".join(values)


def new_row(i: int) -> str:
    """A row that no narrow type holds."""
    big = 5_000_000_000 + i
    values = [f"{big}L b", f"{70_000 + i} s", f"{i}.5D n", f"CAST({i}.0625 AS DECIMAL(14,4)) i"]
    values += [f"CAST('1234567890123456789{i}' AS DECIMAL(20,0)) l", f"{i}.123456789D f"]
    values += [f"TIMESTAMP_NTZ'2020-01-0{i} 01:02:03' d", f"CAST({i}.0123456789 AS DECIMAL(30,10)) e"]
    values += [f"named_struct('x', {big}L, 'z', 'a') st", f"array({big}L) ar", f"map({big}L, {big}L) ma"]
    return f"{i}L id, " + ", ".join([*values, f"array(named_struct('y', map('k', {big}L))) dp"])


def widened(spark: SparkSession, path: str, **properties: str) -> str:
    """A table with narrow rows 1 and 2 in version 1, of which each column grows, and the new row 3."""
    columns = ", ".join(f"{name} {low}" for name, (low, _) in GROWS.items())
    given = ", ".join([WIDENS, *(f"'{name}' = '{value}'" for name, value in properties.items())])
    table = f"delta.`{path}`"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, {columns}, {NESTED}) USING delta TBLPROPERTIES ({given})")
    write(spark.sql(f"SELECT {narrow_row(1)} UNION ALL SELECT {narrow_row(2)}"), path)
    changes = [f"{name} TYPE {high}" for name, (_, high) in GROWS.items()]
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN {', '.join(changes)}")
    for nested in PATHS:
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN {nested} TYPE BIGINT")
    spark.sql(f"INSERT INTO {table} SELECT {new_row(3)}")
    return path


def schema_of(path: str) -> dict[str, Any]:
    for version in reversed(versions(path)):
        for metadata in actions(path, "metaData", version):
            return {field["name"]: field for field in json.loads(metadata["schemaString"])["fields"]}
    raise AssertionError("no metadata")


@pytest.mark.parametrize("mode", ["none", "name", "id"])
@pytest.mark.sampled(3)
def test_rows_of_narrow_files_by_every_reader(
    spark: SparkSession, tmp_path: Path, settings: Any, mode: str
) -> None:
    path = widened(spark, str(tmp_path / "t"), **{"delta.columnMapping.mode": mode})
    fields = schema_of(path)
    change = {"fromType": "integer", "toType": "long"}
    assert fields["b"]["metadata"]["delta.typeChanges"] == [{"fromType": "byte", "toType": "long"}]
    assert fields["ma"]["metadata"]["delta.typeChanges"] == [
        {**change, "fieldPath": "key"},
        {**change, "fieldPath": "value"},
    ]
    [inner] = fields["dp"]["type"]["elementType"]["fields"]
    assert inner["metadata"]["delta.typeChanges"] == [{**change, "fieldPath": "value"}]
    # None of it is visible: neither of the mapping nor of the changes.
    assert {name for field in load(spark, path).schema for name in field.metadata} == set()
    wanted = tuples(
        spark.sql(f"SELECT {wide_row(1)} UNION ALL SELECT {wide_row(2)} UNION ALL SELECT {new_row(3)}")
    )
    before = tuples(spark.sql(f"SELECT {narrow_row(1)} UNION ALL SELECT {narrow_row(2)}"))
    for vectorized in ("true", "false"):
        with settings({"spark.sql.parquet.enableVectorizedReader": vectorized}):
            rows = load(spark, path)
            assert tuples(rows) == wanted
            assert tuples(load(spark, path, versionAsOf=1)) == before
            assert load(spark, path, versionAsOf=1).schema["b"].dataType.simpleString() == "tinyint"
            # Filters that files and row groups are chosen by.
            found = rows.collect()
            # The first round looks at every column.
            for name in [*GROWS, "st.x"] if (mode, vectorized) == ("none", "true") else ["b", "st.x"]:
                for row in found[::2]:
                    value = row.st.x if name == "st.x" else row[name]
                    matching = rows.where(rows[name] == value).select("id").collect()
                    assert [each.id for each in matching] == [row.id], name
                    assert [each.id for each in rows.where(rows[name] < value).collect()] == [
                        each.id for each in found if (each.st.x if name == "st.x" else each[name]) < value
                    ], name
    assert rows.count() == 3
    assert rows.selectExpr("min(b)", "max(b)", "max(s)").first() == (1, 5_000_000_003, 70_003)
    # Beside a deletion vector, too.
    [narrow] = load(spark, path, versionAsOf=1).inputFiles()
    mark_deleted(path, {Path(narrow).name: [0]})
    for vectorized in ("true", "false"):
        with settings({"spark.sql.parquet.enableVectorizedReader": vectorized}):
            assert tuples(load(spark, path)) == wanted[1:]
            assert [row.id for row in load(spark, path).where("b <= 2 AND n >= 1").collect()] == [2]


def doors_of_rows(spark: SparkSession, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What rewrites files, and leaves the rows as they are."""
    table = f"delta.`{path}`"
    yield "update", lambda: spark.sql(f"UPDATE {table} SET s = s WHERE id = 1")
    yield (
        "merge",
        lambda: spark.sql(
            f"MERGE INTO {table} t USING (SELECT 2L AS k) ON t.id = k WHEN MATCHED THEN UPDATE SET n = t.n"
        ),
    )
    yield "delete", lambda: spark.sql(f"DELETE FROM {table} WHERE id = 7")
    yield "optimize", lambda: spark.sql(f"OPTIMIZE {table}")


def test_narrow_files_are_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    path = widened(spark, str(tmp_path / "t"))
    table, wanted = f"delta.`{path}`", tuples(load(spark, path))
    first = load(spark, path, versionAsOf=1)
    for door, call in doors_of_rows(spark, path):
        call()
        assert tuples(load(spark, path)) == wanted, door
    clone = str(tmp_path / "clone")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {table} VERSION AS OF {versions(path)[-1]}")
    assert tuples(load(spark, clone)) == wanted
    DeltaTable.forPath(spark, path).restoreToVersion(1)
    assert tuples(load(spark, path)) == tuples(first)
    assert load(spark, path).schema == first.schema
    # The log in which it was narrow is written on: the value fits its type again.
    spark.sql(f"INSERT INTO {table} SELECT {narrow_row(4)}")
    assert load(spark, path).where("b = 4Y").count() == 1


def sql_insert(spark: SparkSession, path: str, rows: DataFrame, folder: Path) -> None:
    rows.createOrReplaceTempView("wider")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM wider")


def merge(spark: SparkSession, path: str, rows: DataFrame, folder: Path) -> None:
    rows.createOrReplaceTempView("wider")
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING wider w ON t.id = w.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def stream(spark: SparkSession, path: str, rows: DataFrame, folder: Path) -> None:
    rows.write.format("delta").save(str(folder / "source"))
    source = spark.readStream.format("delta").load(str(folder / "source"))
    writer = source.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    writer.option("mergeSchema", "true").trigger(availableNow=True).start(path).awaitTermination()


def append(spark: SparkSession, path: str, rows: DataFrame, folder: Path) -> None:
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)


def overwrite(spark: SparkSession, path: str, rows: DataFrame, folder: Path) -> None:
    rows.write.format("delta").mode("overwrite").option("mergeSchema", "true").save(path)


DOORS = [append, overwrite, sql_insert, merge, stream]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.sampled(4)
def test_a_type_grows_by_every_door_that_evolves_schemas(
    spark: SparkSession, tmp_path: Path, settings: Any, door: Callable[..., None]
) -> None:
    path = str(tmp_path / "t")
    columns = "id BIGINT, n SMALLINT, s STRUCT<a: INT, b: BIGINT>, l ARRAY<FLOAT>"
    for place in (path, path + "-as-it-is"):
        properties = "" if place != path else f"TBLPROPERTIES ({WIDENS})"
        spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {properties}")
        spark.sql(f"INSERT INTO delta.`{place}` VALUES (1, 1S, named_struct('a', 1, 'b', 1L), array(1F))")
    # `b` would become narrower: it stays.
    wider = "named_struct('a', 2L, 'b', 2) AS s, array(2.5D) AS l"
    rows = spark.sql(f"SELECT 2L AS id, 100000L AS n, {wider}")
    with settings({"spark.databricks.delta.schema.autoMerge.enabled": str(door is sql_insert).lower()}):
        door(spark, path, rows, tmp_path)
        fits = spark.sql(f"SELECT 2L AS id, 2L AS n, {wider}")
        (tmp_path / "again").mkdir()
        door(spark, path + "-as-it-is", fits, tmp_path / "again")
    found = load(spark, path)
    assert found.schema.simpleString() == (
        "struct<id:bigint,n:bigint,s:struct<a:bigint,b:bigint>,l:array<double>>"
    )
    fields = schema_of(path)
    assert fields["n"]["metadata"]["delta.typeChanges"] == [{"fromType": "short", "toType": "long"}]
    assert fields["l"]["metadata"]["delta.typeChanges"] == [
        {"fromType": "float", "toType": "double", "fieldPath": "element"}
    ]
    new = (2, 100000, (2, 2), [2.5])
    assert tuples(found) == ([new] if door is overwrite else [(1, 1, (1, 1), [1.0]), new])
    # A table that does not allow it keeps its types, and the values are cast.
    kept = load(spark, path + "-as-it-is")
    assert kept.schema.simpleString() == (
        "struct<id:bigint,n:smallint,s:struct<a:int,b:bigint>,l:array<float>>"
    )
    assert tuples(kept.where("id = 2")) == [(2, 2, (2, 2), [2.5])]


def test_partition_columns_grow(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, p DECIMAL(4,2), d DATE) USING delta PARTITIONED BY (p, d) "
        f"TBLPROPERTIES ({WIDENS})"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 1.5, DATE'2020-01-01'), (2, 2.5, NULL)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN p TYPE DECIMAL(8,4), d TYPE TIMESTAMP_NTZ")
    spark.sql(f"INSERT INTO {table} VALUES (3, 1.5, TIMESTAMP_NTZ'2020-01-01 00:00:00'), (4, 1.2345, NULL)")
    assert [add["partitionValues"] for add in actions(path, "add")] != []
    rows = load(spark, path)
    assert sorted(row.id for row in rows.where("p = 1.5").collect()) == [1, 3]
    assert sorted(row.id for row in rows.where("d = TIMESTAMP_NTZ'2020-01-01 00:00:00'").collect()) == [1, 3]
    assert rows.select("p").distinct().count() == 3
    spark.sql(f"UPDATE {table} SET id = id + 10 WHERE p = 1.5")
    spark.sql(f"OPTIMIZE {table} WHERE p = 2.5")
    spark.sql(f"DELETE FROM {table} WHERE p = 2.5")
    # The old text of a partition's value and the new one are one partition.
    new = spark.sql(
        "SELECT 20L AS id, CAST(1.5 AS DECIMAL(8,4)) AS p, TIMESTAMP_NTZ'2020-01-01 00:00:00' AS d"
    )
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    assert sorted(row.id for row in load(spark, path).collect()) == [4, 20]


REFUSED: list[tuple[str, str, type[DeltaError], str]] = [
    ("", "n TYPE INT", DeltaAnalysisException, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
    (WIDENS, "n TYPE TINYINT", DeltaAnalysisException, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
    (WIDENS, "n TYPE FLOAT", DeltaAnalysisException, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
    (
        "'delta.enableTypeWidening' = 'true'",
        "d TYPE TIMESTAMP_NTZ",
        DeltaUnsupportedOperationException,
        "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
    ),
    (WIDENS, "c TYPE BIGINT", DeltaAnalysisException, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
    (WIDENS, "s.x TYPE BIGINT", DeltaAnalysisException, "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
    (WIDENS, "g TYPE BIGINT", DeltaAnalysisException, "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
    (WIDENS, "h TYPE BIGINT", DeltaAnalysisException, "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
]


def test_what_cannot_grow(spark: SparkSession, tmp_path: Path) -> None:
    columns = "n SMALLINT, d DATE, c INT, s STRUCT<x: INT, y: INT>, g INT, h INT GENERATED ALWAYS AS (g + 1)"
    tables = {}
    for properties in {properties for properties, *_ in REFUSED}:
        path = str(tmp_path / f"t{len(tables)}")
        tables[properties] = path
        listed = f"TBLPROPERTIES ({properties})" if properties else ""
        spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {listed}")
        spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT c CHECK (length('n') > 0 AND `C` < s.x)")
    for properties, change, error_type, code in REFUSED:
        path = tables[properties]
        before = versions(path)
        with pytest.raises(error_type) as refused:
            spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {change}")
        assert refused.value.error_class == code, change
        if "CHANGE_COL_OP" in code:
            advice = "overwriteSchema" if properties else "delta.enableTypeWidening to true"
            assert advice in str(refused.value)
        assert versions(path) == before
    # A text in the constraint is no column, nor is the other field of the struct.
    path = tables[WIDENS]
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN n TYPE INT, s.y TYPE BIGINT")
    for name, sql, code in [
        ("c", "1L AS c", "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"),
        ("g", "1L AS g", "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH"),
    ]:
        writer = spark.sql(f"SELECT {sql}").write.format("delta").mode("append").option("mergeSchema", "true")
        with pytest.raises(DeltaAnalysisException) as refused:
            writer.save(path)
        assert refused.value.error_class == code, name
    assert commit_info(path)["operation"] == "CHANGE COLUMNS"


def test_the_property_brings_the_feature_unless_its_preview_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, preview = str(tmp_path / "t"), str(tmp_path / "p")
    spark.sql(f"CREATE TABLE delta.`{path}` (n INT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    [protocol] = actions(path, "protocol")
    assert protocol["readerFeatures"] == ["typeWidening"]
    assert protocol["minReaderVersion"] == 3
    spark.sql(f"ALTER TABLE delta.`{path}` REPLACE COLUMNS (n BIGINT, m INT)")
    assert load(spark, path).schema.simpleString() == "struct<n:bigint,m:int>"
    # A later version of a frame's table is not read as the narrow type.
    listed = "'delta.feature.typeWidening-preview' = 'supported', 'delta.enableTypeWidening' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{preview}` (n INT) USING delta TBLPROPERTIES ({listed})")
    assert actions(preview, "protocol", 0)[0]["readerFeatures"] == ["typeWidening-preview"]
    with pytest.raises(DeltaAnalysisException, match=r"delta\.enableTypeWidening"):
        spark.sql(f"ALTER TABLE delta.`{preview}` ALTER COLUMN n TYPE BIGINT")
    loaded = load(spark, path)
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN m TYPE BIGINT")
    with pytest.raises(DeltaAnalysisException, match="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"):
        loaded.collect()


def test_the_feature_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    path = widened(spark, str(tmp_path / "t"))
    table, wanted = f"delta.`{path}`", tuples(load(spark, path))
    newest = set(load(spark, path).inputFiles())
    spark.sql(f"ALTER TABLE {table} DROP FEATURE typeWidening")
    assert tuples(load(spark, path)) == wanted
    # The file of wide types stays, and no trace is left but in older versions.
    assert len(newest & set(load(spark, path).inputFiles())) == 1
    [protocol] = actions(path, "protocol")
    assert "typeWidening" not in protocol["readerFeatures"] + protocol["writerFeatures"]
    assert "delta.typeChanges" not in json.dumps(schema_of(path))
    rows = tuples(spark.sql(f"SELECT {narrow_row(1)} UNION ALL SELECT {narrow_row(2)}"))
    assert tuples(load(spark, path, versionAsOf=1)) == rows
