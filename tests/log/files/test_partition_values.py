"""Partition values: folder names of Spark's writer become the log's strings, those become Arrow values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from deltaflow.errors import DeltaIllegalStateException, UnsupportedFeatureError
from deltaflow.log.files.partition_values import partition_values_of, typed_values

NULL = "__HIVE_DEFAULT_PARTITION__"
# ExternalCatalogUtils of Spark: the characters that its writer escapes in folder names.
ESCAPED_BY_SPARK = {chr(code) for code in range(1, 32)} | set("\"#%'*/:=?\\\x7f{[]^")


def columns(**types: DataType) -> StructType:
    schema = StructType()
    for name, data_type in types.items():
        schema.add(name, data_type)
    return schema


def spark_escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in ESCAPED_BY_SPARK else char for char in text)


def test_a_table_without_partitions() -> None:
    assert partition_values_of("part-0.parquet", StructType()) == {}


def test_values_stay_as_spark_wrote_them() -> None:
    schema = columns(i=IntegerType(), b=BooleanType(), d=DateType(), n=DecimalType(9, 2), f=DoubleType())
    path = "i=-7/b=true/d=2020-01-31/n=1.50/f=1.0E10/part-0.parquet"
    expected = {"i": "-7", "b": "true", "d": "2020-01-31", "n": "1.50", "f": "1.0E10"}
    assert partition_values_of(path, schema) == expected


def test_nulls() -> None:
    schema = columns(a=StringType(), t=TimestampType())
    assert partition_values_of(f"a={NULL}/t={NULL}/part-0.parquet", schema) == {"a": None, "t": None}


def test_the_path_is_decoded_once_and_then_unescaped_once() -> None:
    # What the user wrote was "%20 a%2Fb".
    path = "a=%252520%20a%25252Fb/part-0.parquet"
    assert partition_values_of(path, columns(a=StringType())) == {"a": "%20 a%2Fb"}


def test_a_percent_sign_that_escapes_nothing_stays() -> None:
    assert partition_values_of("a=100%25/x.parquet", columns(a=StringType())) == {"a": "100%"}
    assert partition_values_of("a=%25zz/x.parquet", columns(a=StringType())) == {"a": "%zz"}


def test_column_names_are_escaped_too() -> None:
    schema = StructType().add("a=b", StringType()).add("é %", StringType())
    path = "a%253Db=c%253Dd/%C3%A9%20%2525=1/part-0.parquet"
    assert partition_values_of(path, schema) == {"a=b": "c=d", "é %": "1"}


@given(name=st.text(min_size=1), value=st.text(min_size=1))
def test_any_text_comes_back(name: str, value: str) -> None:
    path = quote(f"{spark_escaped(name)}={spark_escaped(value)}") + "/part-0.parquet"
    schema = StructType().add(name, StringType())
    assert partition_values_of(path, schema) == {name: None if value == NULL else value}


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("2020-01-01 00:00:00", "2020-01-01T00:00:00.000000Z"),
        ("2020-01-01 00:00:00.5", "2020-01-01T00:00:00.500000Z"),
        ("1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z"),
        ("0001-01-01 00:00:00", "0001-01-01T00:00:00.000000Z"),
        ("+10000-01-01 00:00:00", "+10000-01-01T00:00:00.000000Z"),
        ("-0044-03-15 00:00:00", "-0044-03-15T00:00:00.000000Z"),
    ],
)
def test_timestamps_become_utc_in_iso_form(folder: str, value: str) -> None:
    path = quote(f"t={spark_escaped(folder)}/part-0.parquet")
    assert partition_values_of(path, columns(t=TimestampType())) == {"t": value}


def test_a_timestamp_of_another_form_is_refused() -> None:
    path = "t=2020-01-01T00%253A00%253A00Z/part-0.parquet"
    with pytest.raises(DeltaIllegalStateException, match="2020-01-01T00:00:00Z") as raised:
        partition_values_of(path, columns(t=TimestampType()))
    assert raised.value.file == path


@pytest.mark.parametrize("folders", ["", "b=1/", "a=1/b=2/", "b=2/a=1/", "A=1/", "a/", "=1/"])
def test_folders_that_are_not_the_partition_columns_are_refused(folders: str) -> None:
    path = folders + "part-0.parquet"
    with pytest.raises(DeltaIllegalStateException, match="partition columns") as raised:
        partition_values_of(path, columns(a=StringType()))
    assert raised.value.file == path


TYPED: list[tuple[DataType, list[str], list[Any]]] = [
    (StringType(), ["a b", "%"], ["a b", "%"]),
    (ByteType(), ["-128"], [-128]),
    (ShortType(), ["32767"], [32767]),
    (IntegerType(), ["-2147483648"], [-(2**31)]),
    (LongType(), ["9223372036854775807"], [2**63 - 1]),
    (BooleanType(), ["true", "false"], [True, False]),
    (FloatType(), ["1.5", "Infinity"], [1.5, float("inf")]),
    (DoubleType(), ["1.0E10", "-0.0", "-Infinity"], [1e10, -0.0, float("-inf")]),
    (DecimalType(38, 18), ["1.50", "-0.000000000000000001"], [Decimal("1.50"), Decimal("-1E-18")]),
    (DateType(), ["0001-01-01", "9999-12-31"], [date.min, date.max]),
    (
        TimestampType(),
        ["2020-01-01T00:00:00.500000Z", "2020-01-01 00:00:00.5", "2020-01-01 00:00:00"],
        [datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC)] * 2 + [datetime(2020, 1, 1, tzinfo=UTC)],
    ),
]


@pytest.mark.parametrize(("data_type", "texts", "values"), TYPED, ids=lambda value: str(value)[:20])
def test_typed_values(data_type: DataType, texts: list[str], values: list[Any]) -> None:
    found = typed_values(pa.array([*texts, None, ""], pa.string()), data_type)
    assert found.to_pylist() == [*values, None, None]


def test_typed_nan() -> None:
    [value] = typed_values(pa.array(["NaN"]), DoubleType()).to_pylist()
    assert value != value


def test_typed_values_of_nothing() -> None:
    assert typed_values(pa.array([], pa.string()), TimestampType()).type == pa.timestamp("us", "UTC")


def test_a_string_that_is_no_value_of_its_type() -> None:
    with pytest.raises(pa.ArrowInvalid, match="'x'"):
        typed_values(pa.array(["x"]), IntegerType())


def test_a_type_that_cannot_partition() -> None:
    with pytest.raises(UnsupportedFeatureError, match="partition column of type void"):
        typed_values(pa.array(["x"]), NullType())


ODD_TEXT = "".join(sorted(ESCAPED_BY_SPARK)) + " +&;,~é\U0001f600%41"


@pytest.mark.spark
def test_folders_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "a table"
    literal = "unhex('" + ODD_TEXT.encode().hex() + "')"
    query = f"""
        select 1 id, string({literal}) `s =%é`, timestamp'2020-01-01 12:30:00.5' t,
            date'2020-01-31' d, true b, cast(1.5 as decimal(9,2)) n, 1.0E10D f, 127Y y
        union all select 2, '', timestamp'0001-01-01 00:00:00', null, null, null, double('NaN'), null"""
    rows = spark.sql(query).coalesce(1)
    rows.write.partitionBy(*rows.columns[1:]).parquet(str(directory))
    assert spark._jvm is not None
    path = spark._jvm.org.apache.hadoop.fs.Path
    places = directory, *directory.rglob("*.parquet")
    uris = [path(f"file:{place}").toUri().getRawPath() for place in places]
    paths = [uri.removeprefix(f"{uris[0]}/") for uri in uris[1:]]
    schema = StructType().add("s =%é", StringType()).add("t", TimestampType()).add("d", DateType())
    schema.add("b", BooleanType()).add("n", DecimalType(9, 2)).add("f", DoubleType()).add("y", ByteType())
    found = [partition_values_of(path, schema) for path in paths]
    assert all(list(values) == schema.names for values in found)
    assert sorted((tuple(values.values()) for values in found), key=str) == [
        (ODD_TEXT, "2020-01-01T12:30:00.500000Z", "2020-01-31", "true", "1.50", "1.0E10", "127"),
        (None, "0001-01-01T00:00:00.000000Z", None, None, None, "NaN", None),
    ]
