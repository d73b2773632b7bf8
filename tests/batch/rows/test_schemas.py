"""Schemas: which appends fit, and a round trip of every type."""

from __future__ import annotations

import datetime as dt
import os
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltaflow.errors import SchemaError, SchemaMismatchError, UnsupportedFeatureError
from tests.tables import data_files, load, rows, rows_by_deltalake

pytestmark = pytest.mark.spark


def test_every_writable_type_comes_back(spark, table):
    schema = """i int, b byte, s short, l bigint, f float, d double, t boolean, str string, bin binary,
        d52 decimal(5,2), d3818 decimal(38,18), d380 decimal(38,0), day date, ts timestamp,
        arr array<string>, m map<string,int>, st struct<x:int,y:struct<z:string,w:array<int>>>,
        arrst array<struct<a:int,b:string>>, mapst map<int,struct<a:double>>, arrarr array<array<date>>"""
    first = [
        *(-(2**31), -128, -32768, -(2**63), -1.5e38, 5e-324, True, "", b"", Decimal("-999.99")),
        *(Decimal("-12345678901234567890.123456789012345678"), Decimal(-(10**38) + 1), dt.date(1, 1, 1)),
        *(dt.datetime(1, 1, 1, tzinfo=UTC), [], {}, (None, (None, None)), [], {}, []),
    ]
    last = [
        *(2**31 - 1, 127, 32767, 2**63 - 1, 3.4e38, 1.7976931348623157e308, False, "é😀" * 40, b"\x00\xff"),
        *(Decimal("999.99"), Decimal("0.000000000000000001"), Decimal(10**38 - 1), dt.date(9999, 12, 31)),
        *(dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), ["a", None], {"k": None, "": 1}),
        *(
            (1, ("z", [1, None])),
            [(1, "x"), None, (None, None)],
            {7: (0.5,), 8: None},
            [[dt.date(2024, 2, 29)], []],
        ),
    ]
    data = spark.createDataFrame([first, last, [None] * len(first)], schema).coalesce(1)
    data.write.format("delta").save(table)
    read = load(spark, table)
    assert read.schema == data.schema
    assert rows(read) == rows(data) == rows_by_deltalake(table)
    equal = [F.count_if(F.col(f"a.{name}") == F.col(f"b.{name}")).alias(name) for name in data.columns[:14]]
    assert set(read.alias("a").crossJoin(data.alias("b")).select(*equal).first()) == {2}


def test_floats_that_are_no_numbers(spark, table):
    values = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0]
    data = spark.createDataFrame([(v, v) for v in values], "d double, f float")
    data.coalesce(1).write.format("delta").save(table)
    for value in values[1:4]:
        spark.createDataFrame([(value, value)], "d double, f float").write.format("delta").mode(
            "append"
        ).save(table)
    read = load(spark, table)
    assert read.where("isnan(d)").count() == 1
    assert read.where("d > 1").count() == 3
    assert read.where("f = 0").count() == 3


def test_timestamps_are_microseconds_in_every_zone(spark, table, settings):
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = spark.createDataFrame(
        [
            (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),),
            (dt.datetime(2024, 3, 10, 10, 30, tzinfo=UTC),),
        ],
        "ts timestamp",
    ).coalesce(1)
    for zone in ("America/Los_Angeles", "Asia/Kolkata", "UTC"):
        with settings({"spark.sql.session.timeZone": zone}):
            data.write.format("delta").mode("append").save(table)
            assert rows(load(spark, table).distinct()) == rows(data)
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") != "TIMESTAMP_MICROS"
    for file in data_files(table):
        assert pq.read_schema(Path(table, file)).field("ts").type == pa.timestamp("us", "UTC")
        assert pq.read_metadata(Path(table, file)).row_group(0).column(0).statistics.has_min_max


REFUSED = {
    "string collate UTF8_LCASE": "'a' collate UTF8_LCASE",
    "time": "time'12:00:00'",
    "interval day": "interval '1' day",
    "interval year": "interval '1' year",
    "interval": "make_interval(1)",
}


@pytest.mark.parametrize("type_name", REFUSED)
def test_types_that_are_not_written_are_named(spark, table, type_name):
    if type_name == "time" and spark.version < "4.3":
        pytest.skip("before 4.3 Spark has no TIME, or keeps it from every format")
    frame = spark.range(1).selectExpr("id", f"{REFUSED[type_name]} as odd")
    deep = spark.range(1).selectExpr("id", f"array(named_struct('in', {REFUSED[type_name]})) as outer")
    for refused, column in ((frame, "odd"), (deep, "outer.element.in")):
        with pytest.raises(UnsupportedFeatureError, match=f"of column {column} yet") as caught:
            refused.write.format("delta").save(table)
        assert caught.value.getErrorClass() == "DELTA_UNSUPPORTED_DATA_TYPES"
        assert type_name.split(" ")[0] in str(caught.value).lower()
        assert isinstance(caught.value, AnalysisException)
    assert not os.path.exists(table)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        (["id", "array(s) as s"], "column s is string in the table and array<string> in the data"),
        (["cast(id as string) as id", "s"], "column id is bigint in the table and string in the data"),
        (["id", "s", "1 as extra"], "column extra (int) is not in the table"),
        (["id as other", "s"], "column other (bigint) is not in the table"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.sampled(3)
def test_another_schema_is_refused(spark, table, columns, difference, mode):
    data = spark.range(2).selectExpr("id", "'1' as s")
    data.write.format("delta").save(table)
    before = data_files(table)
    with pytest.raises(SchemaMismatchError) as caught:
        data.selectExpr(*columns).write.format("delta").mode(mode).save(table)
    assert isinstance(caught.value, AnalysisException)
    text = str(caught.value)
    assert difference in text
    table_schema, data_schema = text.split("Data schema:")
    assert "|-- id: long" in table_schema
    assert "|-- s: string" in table_schema
    for name in data.selectExpr(*columns).columns:
        assert f"|-- {name}: " in data_schema
    assert data_files(table) == before


def test_columns_in_another_order_and_case(spark, table):
    data = spark.range(3).selectExpr("id", "concat('s', id) as s", "id % 2 as p", "id * 2 as Twice")
    data.write.format("delta").partitionBy("p").save(table)
    data.selectExpr("id * 2 as TWICE", "id % 2 as P", "concat('s', id) as S", "id as Id").write.format(
        "delta"
    ).mode("append").save(table)
    read = load(spark, table)
    assert read.columns == ["id", "s", "p", "Twice"]
    assert rows(read) == rows(data.union(data))


def test_nested_fields_in_another_case_and_order(spark, table):
    def nested(a, b):
        return spark.range(2).selectExpr(
            f"named_struct('{a}', id, '{b}', concat('v', id)) as st",
            f"array(named_struct('{a}', id, '{b}', 'x')) as arr",
            f"map('k', named_struct('{a}', id, '{b}', 'x')) as m",
        )

    nested("Aa", "bB").write.format("delta").save(table)
    nested("aA", "Bb").write.format("delta").mode("append").save(table)
    read = load(spark, table)
    assert read.schema == nested("Aa", "bB").schema or read.select("st.Aa", "st.bB").count() == 4
    assert sorted(row[0] for row in read.select("st.Aa").collect()) == [0, 0, 1, 1]
    assert sorted(row[0] for row in read.selectExpr("m['k'].bB").collect()) == ["x"] * 4
    swapped = spark.range(7, 8).selectExpr(
        "array(named_struct('bB', 'x', 'Aa', id)) as arr",
        "map('k', named_struct('bB', 'x', 'Aa', id)) as m",
        "named_struct('bB', 'v', 'Aa', id) as st",
    )
    swapped.write.format("delta").mode("append").save(table)
    [row] = load(spark, table).where("st.Aa = 7").collect()
    assert (row.st.bB, row.arr[0].Aa, row.arr[0].bB, row.m["k"].Aa, row.m["k"].bB) == ("v", 7, "x", 7, "x")


def test_names_that_differ_only_in_case(spark, table, settings):
    with settings({"spark.sql.caseSensitive": "true"}):
        for columns in (["id as a", "id as A"], ["id", "named_struct('x', 1, 'X', 2) as st"]):
            with pytest.raises(SchemaError, match="duplicate") as caught:
                spark.range(1).selectExpr(*columns).write.format("delta").save(table)
            assert caught.value.getErrorClass() == "DELTA_DUPLICATE_COLUMNS_FOUND"
    assert not os.path.exists(table)


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a(b)", "a\nb", "a\tb", "a=b"])
@pytest.mark.sampled(3)
def test_characters_that_no_column_may_have(spark, table, name):
    for frame in (
        spark.range(1).withColumn(name, F.lit(1)),
        spark.range(1).select("id", F.struct(F.lit(1).alias(name)).alias("st")),
    ):
        with pytest.raises(SchemaError) as caught:
            frame.write.format("delta").save(table)
        assert caught.value.getErrorClass() == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
        assert repr(name).strip("'") in str(caught.value)
    assert not os.path.exists(table)


def test_a_comment_stays_and_other_metadata_goes(spark, table):
    frame = spark.range(1).select(
        F.col("id").alias("id", metadata={"comment": "the key", "delta.identity.start": 1, "mine": "x"})
    )
    frame.write.format("delta").save(table)
    field = load(spark, table).schema["id"]
    assert field.nullable
    assert field.metadata == {"comment": "the key"}
    frame.write.format("delta").mode("append").save(table)
