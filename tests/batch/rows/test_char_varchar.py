"""The types of columns with CHAR and VARCHAR, as declared and as the log keeps them."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from deltaflow.batch.rows.char_varchar import with_char_as_string, with_declared_types
from deltaflow.errors import CorruptLogError
from deltaflow.log.protocol.schema import CHAR_VARCHAR, char_length


def struct(*fields):
    return T.StructType([T.StructField(name, data_type, *more) for name, data_type, *more in fields])


NESTED = struct(
    ("plain", T.DecimalType(3, 1), False),
    ("odd <:`>,name", struct(("x", T.CharType(2), True, {"comment": "an x"}))),
    ("m", T.MapType(T.VarcharType(1), T.ArrayType(T.CharType(3), False), False)),
)


@pytest.mark.parametrize("data_type", [T.CharType(3), T.VarcharType(4), T.ArrayType(T.CharType(1)), NESTED])
def test_what_was_declared_is_found_again(data_type):
    declared = struct(("id", T.IntegerType(), False), ("c", data_type, True, {"comment": "a comment"}))
    kept = with_char_as_string(declared)
    assert "char" not in kept.json().replace(CHAR_VARCHAR, "").replace(kept["c"].metadata[CHAR_VARCHAR], "")
    assert with_declared_types(kept) == declared


def test_the_text_is_as_spark_reads_it():
    kept = with_char_as_string(struct(("c", NESTED)))
    assert kept["c"].metadata[CHAR_VARCHAR] == (
        "struct<plain:decimal(3,1),`odd <:``>,name`:struct<x:char(2)>,m:map<varchar(1),array<char(3)>>>"
    )


def test_text_of_other_writers_has_names_without_quotes():
    data_type = struct(("a-b", T.StringType()), ("c", T.StringType()))
    text = {CHAR_VARCHAR: "struct<a-b:char(2),c:string>"}
    [field] = with_declared_types(T.StructType([T.StructField("s", data_type, True, text)])).fields
    assert field.dataType == struct(("a-b", T.CharType(2)), ("c", T.StringType()))
    assert field.metadata == {}


@pytest.mark.parametrize("text", ["struct<a:string>", "struct<", "", "map<string,string>", "`" * 99])
def test_another_type_than_the_columns_is_refused(text):
    data_type = struct(("a", T.StringType()), ("b", T.StringType()), ("c", T.StringType()))
    with pytest.raises(CorruptLogError, match=r"Column c is struct<a:string,b:string,c:string>"):
        with_declared_types(struct(("c", data_type, True, {CHAR_VARCHAR: text})))


def test_a_length_that_no_type_has_is_no_length():
    field = T.StructField("c", T.StringType(), True, {CHAR_VARCHAR: f"char({'9' * 5_000})"})
    assert char_length(field) is None
    assert with_declared_types(T.StructType([field]))["c"].dataType == T.StringType()
