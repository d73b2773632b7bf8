"""The schema of a table after a write, and the match of a frame's columns with the table's."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.errors import SchemaError, SchemaMismatchError
from tests.tables import actions, files_below, load, rows, versions, write

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"


def newest_file(table):
    [add] = actions(table, "add")
    return Path(table, add["path"])


def test_an_equal_schema_writes_no_metadata(spark, table):
    data = spark.range(2).selectExpr("id", "named_struct('a', id) st")
    write(data, table)
    for options in ({}, {"mergeSchema": "true"}, {"mode": "overwrite", "overwriteSchema": "true"}):
        write(
            data.selectExpr("ID", "named_struct('A', id) ST") if "mode" not in options else data,
            table,
            **options,
        )
        assert actions(table, "metaData") == actions(table, "protocol") == []
    assert load(spark, table).columns == ["id", "st"]


def test_overwrite_schema(spark, table):
    write(
        spark.range(4).selectExpr("id", "id % 2 p"),
        table,
        partition_by=["p"],
        **{"delta.checkpointInterval": "7"},
    )
    [before] = actions(table, "metaData")
    other = spark.range(3).selectExpr("cast(id as string) id", "id % 3 q", "1.5 x")
    write(other, table, "overwrite", partition_by=["q"], overwriteSchema="true")
    [after] = actions(table, "metaData")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"schemaString", "partitionColumns"}
    assert after["partitionColumns"] == ["q"]
    assert actions(table, "commitInfo")[0]["operationParameters"] == {
        "mode": "Overwrite",
        "partitionBy": '["q"]',
        "canOverwriteSchema": True,
    }
    assert load(spark, table).schema == T.StructType(
        [T.StructField(f.name, f.dataType) for f in other.schema]
    )
    assert load(spark, table).count() == 3
    # Without partitionBy the table has no partitions any more.
    write(other, table, "overwrite", overwriteSchema="true")
    assert actions(table, "metaData")[0]["partitionColumns"] == []
    # In another mode the option has no effect.
    with pytest.raises(SchemaMismatchError, match="column y"):
        write(spark.sql("select 1 y"), table, overwriteSchema="true")


def test_merge_schema(spark, table):
    write(
        spark.sql(
            "select 1 id, named_struct('a', 1) st, array(named_struct('x', 1)) arr, cast(1 as tinyint) b"
        ),
        table,
    )
    more = spark.sql(
        "select 'n' New, 2 ID, array(named_struct('y', 2)) arr, named_struct('B', map('k', 3)) St, 70000 b"
    )
    with pytest.raises(SchemaMismatchError, match="set the option mergeSchema to true") as caught:
        write(more, table)
    for words in (
        "column New (string) is not in the table",
        "column st.B (map<string,int>)",
        "arr.element.y",
    ):
        assert words in str(caught.value)
    write(more, table, mergeSchema="true")
    read = load(spark, table)
    assert read.schema.simpleString() == (
        "struct<id:int,st:struct<a:int,B:map<string,int>>,arr:array<struct<x:int,y:int>>,b:int,New:string>"
    )
    found = {row.id: row for row in read.collect()}
    assert found[1].asDict(True) == {
        "id": 1, "st": {"a": 1, "B": None}, "arr": [{"x": 1, "y": None}], "b": 1, "New": None,
    }  # fmt: skip
    assert found[2].asDict(True) == {
        "id": 2, "st": {"a": None, "B": {"k": 3}}, "arr": [{"x": None, "y": 2}], "b": 70000, "New": "n",
    }  # fmt: skip
    assert actions(table, "commitInfo")[0]["operationParameters"]["canMergeSchema"] is True
    # Columns that the data lacks stay in the table, and are null.
    write(spark.sql("select 3 id"), table, mergeSchema="true")
    assert actions(table, "metaData") == []
    assert [row.New for row in load(spark, table).where("id = 3").collect()] == [None]


def test_merge_schema_in_an_overwrite(spark, table):
    write(spark.sql("select 1 id, 'a' s"), table)
    write(spark.sql("select 2 id, 1 n"), table, "overwrite", mergeSchema="true")
    assert [tuple(row) for row in load(spark, table).collect()] == [(2, None, 1)]


def test_auto_merge(spark, table, setting):
    write(spark.sql("select 1 id"), table)
    setting(AUTO_MERGE, "true")
    write(spark.sql("select 2 id, 'x' s"), table)
    assert load(spark, table).columns == ["id", "s"]
    with pytest.raises(SchemaMismatchError):
        write(spark.sql("select 2 id, 'x' t"), table, mergeSchema="false")


def test_one_error_shows_all_differences(spark, table):
    write(spark.range(2).selectExpr("id", "id % 2 p", "named_struct('a', 1) st"), table, partition_by=["p"])
    before = files_below(table)
    data = spark.sql("select array(1) id, 1L p, named_struct('a', 1, 'b', 2) st, 1 extra")
    with pytest.raises(SchemaMismatchError) as caught:
        write(data, table, "overwrite", partition_by=["extra"])
    assert caught.value.getErrorClass() == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert caught.value.getSqlState() == "22005"
    for words in (
        "column id is bigint in the table and array<int> in the data",
        "column st.b (int) is not in the table",
        "column extra (int) is not in the table",
        "|-- p: long",
        "|-- extra: integer",
        "Given: ['extra']",
        "Table: ['p']",
        "overwriteSchema",
        table,
    ):
        assert words in str(caught.value)
    assert files_below(table) == before


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_casts_by_store_assignment(spark, table, setting, ansi):
    setting("spark.sql.ansi.enabled", ansi)
    setting("spark.sql.session.timeZone", "America/Los_Angeles")
    write(
        spark.sql(
            "select 1L l, cast(1 as tinyint) b, 'x' s, 1.50 d, date'2024-01-01' day, "
            "timestamp'2024-01-01 00:00:00' ts, cast(1 as float) f, "
            "named_struct('a', 1L, 'b', array(map('k', 1L))) st"
        ),
        table,
    )
    write(
        spark.sql(
            "select cast(7 as tinyint) l, 100L b, 12 s, 2 d, timestamp'2024-05-01 23:59:59' day, "
            "date'2024-05-02' ts, 2.5D f, named_struct('B', array(map('k', cast(9 as smallint))), 'A', 8) st"
        ),
        table,
    )
    [row] = load(spark, table).where("l = 7").collect()
    assert tuple(row)[:5] == (7, 100, "12", Decimal("2.00"), dt.date(2024, 5, 1))
    assert load(spark, table).where("ts = timestamp'2024-05-02 00:00:00'").count() == 1
    assert (row.f, row.st.a, row.st.b) == (2.5, 8, [{"k": 9}])
    write(spark.sql("select 2.7D l, 1.239 d"), table)
    assert load(spark, table).where("l = 2").first().d == Decimal("1.24")


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    "value", ["300 b", "-129L b", "1e10D b", "array(named_struct('x', 3000000000L)) arr", "12345.6 d"]
)
@pytest.mark.sampled(3)
def test_values_that_do_not_fit(spark, tmp_path, setting, value, ansi):
    table = str(tmp_path / "t")
    setting("spark.sql.ansi.enabled", ansi)
    write(
        spark.sql("select cast(1 as tinyint) b, array(named_struct('x', 1)) arr, cast(1 as decimal(5,2)) d"),
        table,
    )
    with pytest.raises(
        Exception, match=r"CAST_OVERFLOW_IN_TABLE_INSERT|NUMERIC_VALUE_OUT_OF_RANGE"
    ) as caught:
        write(spark.sql(f"select {value}"), table)
    assert "\tat " not in str(caught.value)
    assert len(versions(table)) == 1


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("int", "'1'"),
        ("boolean", "1"),
        ("int", "true"),
        ("date", "1"),
        ("timestamp", "'2024-01-01'"),
        ("binary", "'x'"),
        ("array<int>", "array('1')"),
        ("map<string,int>", "map('a', 'b')"),
        ("struct<a:int>", "1"),
        ("string", "array(1)"),
    ],
)
@pytest.mark.sampled(3)
def test_types_that_store_assignment_refuses(spark, table, setting, type_name, value):
    write(spark.sql(f"select cast(null as {type_name}) c"), table)
    before = files_below(table)
    with pytest.raises(SchemaMismatchError, match="column c") as caught:
        write(spark.sql(f"select {value} c"), table, mergeSchema="true")
    assert isinstance(caught.value, AnalysisException)
    assert files_below(table) == before


def test_other_policies_of_store_assignment(spark, table, setting):
    write(spark.sql("select 1 i, 1L l, 'a' s"), table)
    setting("spark.sql.storeAssignmentPolicy", "LEGACY")
    write(spark.sql("select '7' i, 2 l, array(1, 2) s"), table)
    spark.sql(f"insert into delta.`{table}` values (9, 9, named_struct('a', 5))")
    setting("spark.sql.storeAssignmentPolicy", "STRICT")
    write(spark.sql("select 8 i, 3 l, 'b' s"), table)
    with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
        write(spark.sql("select 8 i, 3D l"), table)
    found = sorted((row.i, row.s) for row in load(spark, table).collect())
    assert found == [(1, "a"), (7, "[1, 2]"), (8, "b"), (9, "{5}")]


def test_missing_columns_are_null(spark, table):
    write(spark.sql("select 1 id, 'a' s, named_struct('x', 1, 'y', 'b') st, 2 p"), table, partition_by=["p"])
    write(spark.sql("select 3 p, named_struct('Y', 'c') st"), table)
    assert [tuple(row) for row in load(spark, table).where("p = 3").collect()] == [
        (None, None, (None, "c"), 3)
    ]
    stats = json.loads(actions(table, "add")[0]["stats"])
    assert stats["nullCount"] == {"id": 1, "s": 1, "st": {"x": 1, "y": 0}}
    assert pq.read_schema(newest_file(table)).names == ["id", "s", "st"]
    with pytest.raises(SchemaError) as caught:
        write(spark.sql("select 1 id"), table)
    assert caught.value.getErrorClass() == "DELTA_PARTITION_COLUMN_NOT_FOUND"


@pytest.mark.parametrize("policy", ["ANSI", "STRICT"])
def test_nulls_of_no_type(spark, table, setting, policy):
    setting("spark.sql.storeAssignmentPolicy", policy)
    write(spark.sql("select 1 id, 'a' s, named_struct('x', 1) st"), table)
    write(spark.sql("select 2 id, null s, null st"), table)
    spark.sql(f"insert into delta.`{table}` values (3, null, named_struct('x', null))")
    found = sorted((tuple(row) for row in load(spark, table).collect()), key=repr)
    assert found == [(1, "a", (1,)), (2, None, None), (3, None, (None,))]


@pytest.mark.parametrize("case_sensitive", ["true", "false"])
def test_names_keep_the_tables_case(spark, table, setting, case_sensitive):
    setting("spark.sql.caseSensitive", case_sensitive)
    write(spark.sql("select 1 Id, named_struct('Aa', 1) St"), table)
    write(spark.sql("select named_struct('aA', 2L) sT, 2 iD"), table)
    write(spark.sql("select 3 ID, 'x' nEw"), table, mergeSchema="true")
    assert load(spark, table).schema.simpleString() == "struct<Id:int,St:struct<Aa:int>,nEw:string>"
    assert sorted(row.Id for row in load(spark, table).collect()) == [1, 2, 3]


@pytest.mark.parametrize("columns", [["id", "ID"], ["id", "x", "X"]])
def test_columns_of_the_data_that_differ_in_case_alone(spark, table, setting, columns):
    write(spark.sql("select 1 id, 1 x"), table)
    setting("spark.sql.caseSensitive", "true")
    data = spark.createDataFrame([(1,) * len(columns)], ", ".join(f"{name} int" for name in columns))
    for options in ({}, {"mergeSchema": "true"}, {"mode": "overwrite", "overwriteSchema": "true"}):
        with pytest.raises(SchemaError) as caught:
            write(data, table, **options)
        assert caught.value.getErrorClass() == "DELTA_DUPLICATE_COLUMNS_FOUND"


def test_characters_that_a_new_column_may_not_have(spark, table):
    write(spark.sql("select 1 id"), table)
    for options in ({"mergeSchema": "true"}, {"mode": "overwrite", "overwriteSchema": "true"}):
        with pytest.raises(SchemaError) as caught:
            write(spark.sql("select 1 id").withColumn("a b", F.lit(1)), table, **options)
        assert caught.value.getErrorClass() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"


def test_an_empty_schema(spark, table):
    with pytest.raises(AnalysisException) as caught:
        write(spark.range(1).select(), table)
    assert "EMPTY" in (caught.value.getCondition() or "")
    assert not Path(table).exists()


def test_a_new_table_takes_nulls(spark, table):
    schema = T.StructType(
        [
            T.StructField("id", T.LongType(), nullable=False),
            T.StructField("arr", T.ArrayType(T.LongType(), containsNull=False)),
        ]
    )
    write(spark.createDataFrame([(1, [1])], schema), table)
    write(spark.sql("select null id, array(null) arr"), table)
    assert load(spark, table).where("id is null").count() == 1
    assert load(spark, table).schema.simpleString() == "struct<id:bigint,arr:array<bigint>>"


@pytest.mark.parametrize("partition_by", [(), ("ts",)])
def test_timestamps_without_a_zone(spark, table, partition_by):
    data = spark.createDataFrame(
        [(1, dt.datetime(2024, 3, 10, 2, 30, 0, 5)), (2, dt.datetime(1, 1, 1)), (3, None)],
        "id int, ts timestamp_ntz",
    )
    write(data, table, partition_by=partition_by)
    [protocol] = actions(table, "protocol")
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7)
    assert protocol["readerFeatures"] == ["timestampNtz"]
    assert "timestampNtz" in protocol["writerFeatures"]
    write(data, table)
    assert rows(load(spark, table)) == rows(data.union(data))
    assert load(spark, table).where("ts = timestamp_ntz'2024-03-10 02:30:00.000005'").count() == 2


def test_a_column_without_a_zone_comes_with_its_feature(spark, table):
    write(spark.sql("select 1 id"), table)
    write(spark.sql("select 2 id, timestamp_ntz'2024-01-01 00:00:00' ts"), table, mergeSchema="true")
    assert actions(table, "protocol")[0]["readerFeatures"] == ["timestampNtz"]
    assert load(spark, table).where("ts is not null").count() == 1


def test_a_stream_is_cast_and_checked(spark, tmp_path):
    table = str(tmp_path / "t")
    source = str(tmp_path / "source")
    write(spark.range(3).selectExpr("cast(id as int) ID", "'x' s"), source)
    write(
        spark.sql("select 'old' s, 9L id, 1 other where false"),
        table,
        **{"delta.constraints.small": "id < 100"},
    )

    def run():
        stream = spark.readStream.format("delta").load(source).dropDuplicates(["ID"])
        query = (
            stream.writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(table)
        )
        query.awaitTermination()

    run()
    assert sorted((row.s, row.id, row.other) for row in load(spark, table).collect()) == [
        ("x", 0, None),
        ("x", 1, None),
        ("x", 2, None),
    ]
    write(spark.sql("select 100 ID, 'y' s"), source)
    with pytest.raises(Exception, match=r"(?s)DELTA_VIOLATE_CONSTRAINT_WITH_VALUES.*small.*id : 100"):
        run()
    assert load(spark, table).count() == 3
