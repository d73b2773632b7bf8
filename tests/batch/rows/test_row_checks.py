"""Rules that every written row has to satisfy: NOT NULL, invariants, CHECK constraints, CHAR and VARCHAR."""

from __future__ import annotations

import json

import deltalake
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from deltaflow.errors import DeltaInvariantViolationException, SchemaError, UnsupportedFeatureError
from deltaflow.log import DeltaLog, Metadata, Operation, schema_to_string
from tests.tables import files_below, ids, load, versions, write

pytestmark = pytest.mark.spark


@pytest.fixture
def made(table):
    """Makes an empty table of a schema."""

    def make(schema, partition_by=(), **configuration):
        transaction = DeltaLog.for_table(table).start_transaction()
        transaction.update_metadata(
            Metadata(
                id="test",
                schema_string=schema_to_string(schema),
                partition_columns=list(partition_by),
                configuration=configuration,
            )
        )
        transaction.commit([], Operation("CREATE TABLE"))
        return table

    return make


def struct(*fields):
    return T.StructType([T.StructField(name, data_type, *more) for name, data_type, *more in fields])


def violation(use):
    with pytest.raises(DeltaInvariantViolationException) as caught:
        use()
    assert "\tat org.apache" not in str(caught.value)
    return caught.value


NOT_NULL = struct(
    ("id", T.LongType(), False),
    ("st", struct(("a", T.IntegerType(), False), ("b", T.IntegerType())), True),
    ("arr", T.ArrayType(T.IntegerType(), containsNull=False)),
    (
        "m",
        T.MapType(T.StringType(), T.ArrayType(T.IntegerType(), containsNull=False), valueContainsNull=False),
    ),
    ("p", T.StringType(), False),
)
GOOD = {
    "id": "1L",
    "st": "named_struct('a', 1, 'b', cast(null as int))",
    "arr": "array(1)",
    "m": "map('k', array(1))",
    "p": "'x'",
}


def row(spark, **values):
    return spark.sql("select " + ", ".join(f"{value} as {name}" for name, value in values.items()))


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"id": "cast(null as bigint)"}, "id"),
        ({"st": "named_struct('a', cast(null as int), 'b', 1)"}, "st.a"),
        ({"st": "null"}, "st.a"),
        ({"st": "named_struct('b', 1)"}, "st.a"),
        ({"arr": "array(1, null)"}, "arr"),
        ({"m": "map('k', cast(null as array<int>))"}, "m"),
        ({"m": "map('k', array(1, null))"}, "m"),
        ({"p": "cast(null as string)"}, "p"),
        ({"p": "''"}, "p"),
    ],
)
@pytest.mark.sampled(3)
def test_not_null(spark, made, bad, column):
    table = made(NOT_NULL, partition_by=["p"])
    write(row(spark, **GOOD), table)
    write(row(spark, **{**GOOD, "arr": "null", "m": "null"}), table)
    error = violation(lambda: write(row(spark, **{**GOOD, **bad}), table))
    assert error.getErrorClass() == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert error.getSqlState() == "23502"
    assert f"column: {column}." in str(error)
    assert len(versions(table)) == 3


def test_a_column_that_may_not_be_null_is_missing(spark, made):
    table = made(struct(("id", T.LongType(), False), ("s", T.StringType())))
    before = files_below(table)
    with pytest.raises(SchemaError) as caught:
        write(spark.sql("select 'x' s"), table)
    assert caught.value.getErrorClass() == "DELTA_MISSING_NOT_NULL_COLUMN_VALUE"
    assert (caught.value.table, caught.value.column) == (table, "id")
    assert files_below(table) == before


def test_merging_keeps_not_null_and_overwriting_the_schema_does_not(spark, made):
    table = made(struct(("id", T.LongType(), False)))
    write(spark.sql("select 1L id, 2 new"), table, mergeSchema="true")
    assert not DeltaLog.for_table(table).snapshot().schema["id"].nullable
    violation(lambda: write(spark.sql("select cast(null as bigint) id, 2 new"), table))
    write(spark.sql("select cast(null as bigint) id"), table, "overwrite", overwriteSchema="true")
    assert DeltaLog.for_table(table).snapshot().schema["id"].nullable


def test_check_constraints(spark, made):
    schema = struct(("id", T.LongType()), ("s", T.StringType()), ("st", struct(("x", T.IntegerType()))))
    table = made(
        schema,
        **{
            "delta.constraints.positive": "ID > 0 -- really",
            "delta.constraints.short": "s is null or length(s) between 1 and 3",
            "delta.constraints.nested": "st.x < 10 or st.x is null",
            "delta.constraints.today": "current_date() > date'2000-01-01'",
        },
    )
    write(spark.sql("select 1 id, 'abc' s, named_struct('x', 9) st"), table)
    write(spark.sql("select 2 id"), table)
    for columns, name, values in (
        ("0 id, 'a' s", "positive", ["id : 0"]),
        ("cast(null as int) id, 'a' s", "positive", ["id : null"]),
        ("1 id, 'abcd' s", "short", ["s : abcd"]),
        ("1 id, '' s", "short", ["s : "]),
        ("1 id, named_struct('x', 10) st", "nested", ["st : {10}"]),
    ):
        error = violation(lambda columns=columns: write(spark.sql(f"select {columns}"), table))
        assert error.getErrorClass() == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
        assert error.getSqlState() == "23001"
        assert f"CHECK constraint {name} (" in str(error)
        for value in values:
            assert f"\n - {value}" in str(error)
    assert ids(load(spark, table)) == [1, 2]
    violation(lambda: write(spark.sql("select 0 id"), table, "overwrite", replaceWhere="id = 0"))


def test_check_constraints_of_deltalake(spark, tmp_path):
    path = str(tmp_path / "t")
    write(spark.sql("select 1 id, 'x' s"), path)
    deltalake.DeltaTable(path).alter.add_constraint({"small": "id < 10"})
    write(spark.sql("select 9 id"), path)
    violation(lambda: write(spark.sql("select 10 id"), path))
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("expression", ["nope > 1", "id +", "id in (select 1)", "id"])
def test_a_constraint_that_is_none(spark, made, expression):
    table = made(struct(("id", T.LongType())), **{"delta.constraints.odd": expression})
    before = files_below(table)
    with pytest.raises(AnalysisException):
        write(spark.sql("select 1 id"), table)
    assert files_below(table) == before


def test_invariants(spark, made):
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "n > 3"}})}
    table = made(T.StructType([T.StructField("n", T.IntegerType(), True, rule)]))
    write(spark.sql("select 4 n"), table)
    error = violation(lambda: write(spark.sql("select 3 n"), table))
    assert error.getErrorClass() == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert "EXPRESSION(n > 3)" in str(error)
    violation(lambda: spark.sql(f"UPDATE delta.`{table}` SET n = 3"))
    matched = f"MERGE INTO delta.`{table}` t USING (SELECT 4 AS n) s ON t.n = s.n WHEN"
    violation(lambda: spark.sql(f"{matched} MATCHED THEN UPDATE SET n = 2"))
    assert "\n - n : 3" in str(error)


def test_an_invariant_of_an_unknown_form(spark, made):
    rule = {"delta.invariants": json.dumps({"of another form": 1})}
    table = made(T.StructType([T.StructField("n", T.IntegerType(), True, rule)]))
    with pytest.raises(UnsupportedFeatureError, match="invariant of column n"):
        write(spark.sql("select 4 n"), table)


def declared(text):
    return {"__CHAR_VARCHAR_TYPE_STRING": text}


CHARS = T.StructType(
    [
        T.StructField("id", T.IntegerType()),
        T.StructField("v", T.StringType(), True, declared("varchar(3)")),
        T.StructField("c", T.StringType(), True, declared("char(3)")),
        T.StructField(
            "st",
            T.StructType(
                [
                    T.StructField("x", T.StringType()),
                    T.StructField("m", T.MapType(T.StringType(), T.ArrayType(T.StringType()))),
                ]
            ),
            True,
            declared("struct<x:varchar(2),m:map<string,array<char(2)>>>"),
        ),
    ]
)


def test_char_and_varchar(spark, made):
    table = made(CHARS)
    write(
        spark.sql(
            "select 1 id, 'abc' v, 'a' c, named_struct('x', 'ab', 'm', map('key', array('a', null))) st"
        ),
        table,
    )
    write(spark.sql("select 2 id, 'éü日  ' v, 'ab    ' c"), table)
    write(
        spark.sql("select 3 id, 12 v, null c, named_struct('m', map('k', cast(null as array<string>))) st"),
        table,
    )
    found = {row.id: row for row in load(spark, table).collect()}
    assert (found[1].v, found[1].c, found[1].st.x, found[1].st.m) == (
        "abc",
        "a  ",
        "ab",
        {"key": ["a ", None]},
    )
    assert (found[2].v, found[2].c, found[2].st) == ("éü日", "ab ", None)
    assert (found[3].v, found[3].c, found[3].st.asDict()) == ("12", None, {"x": None, "m": {"k": None}})
    for columns, value, limit in (
        ("'abcd' v", "abcd", "length(v) <= 3"),
        ("'abcd' c", "abcd", "length(c) <= 3"),
        ("named_struct('x', 'abc') st", "abc", "length(st) <= 2"),
        ("named_struct('m', map('k', array('a', 'xyz'))) st", "xyz", "length(st) <= 2"),
    ):
        error = violation(lambda columns=columns: write(spark.sql(f"select {columns}"), table))
        assert error.getErrorClass() == "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
        assert f'"{value}"' in str(error)
        assert limit in str(error)


def test_a_frame_of_char_and_varchar_makes_such_a_table(spark, table):
    spark.sql("create table chars (id int, v varchar(3), c char(2)) using parquet")
    try:
        spark.sql("insert into chars values (1, 'a', 'b')")
        write(spark.table("chars"), table)
    finally:
        spark.sql("drop table chars")
    schema = DeltaLog.for_table(table).snapshot().schema
    assert [schema[name].metadata for name in ("v", "c")] == [declared("varchar(3)"), declared("char(2)")]
    violation(lambda: write(spark.sql("select 'long' v"), table))


def test_checks_in_the_partitions_of_a_shuffled_plan(spark, made):
    table = made(
        struct(("id", T.LongType()), ("n", T.LongType(), False)), **{"delta.constraints.c": "id >= 0"}
    )
    small = spark.range(50).selectExpr("id % 5 as k", "id")
    data = (
        small.join(spark.range(5).selectExpr("id as k", "id * 10 as n"), "k").groupBy("id").agg({"n": "max"})
    )
    write(data.toDF("id", "n").repartition(3), table)
    assert load(spark, table).count() == 50
    violation(lambda: write(data.toDF("id", "n").selectExpr("id - 1 as id", "n").orderBy("id"), table))
