"""Merging the data's schema into the table's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from deltaflow.errors import SchemaError, SchemaMismatchError
from deltaflow.log import (
    check_append_schema,
    merge_schemas,
    schema_from_string,
    schema_to_string,
)

ATOMS: list[T.DataType] = [
    T.ByteType(),
    T.ShortType(),
    T.IntegerType(),
    T.LongType(),
    T.StringType(),
    T.DecimalType(10, 2),
    T.NullType(),
]


def struct(*fields: T.StructField | tuple[str, T.DataType]) -> T.StructType:
    return T.StructType(
        [field if isinstance(field, T.StructField) else T.StructField(*field) for field in fields]
    )


def test_new_columns_come_last_and_nullable_in_nested_structs_too() -> None:
    table = struct(
        T.StructField("id", T.LongType(), False, {"comment": "key"}),
        ("place", struct(("lat", T.DoubleType()))),
        ("tags", T.ArrayType(struct(("a", T.StringType())), False)),
        ("by", T.MapType(T.StringType(), struct(("v", T.LongType())), False)),
    )
    data = struct(
        T.StructField("new", struct(T.StructField("x", T.LongType(), False)), False, {"comment": "n"}),
        ("PLACE", struct(("lon", T.DoubleType()), ("LAT", T.DoubleType()))),
        ("by", T.MapType(T.StringType(), struct(("w", T.LongType())))),
        ("tags", T.ArrayType(struct(("b", T.StringType())))),
    )
    assert merge_schemas(table, data) == struct(
        T.StructField("id", T.LongType(), False, {"comment": "key"}),
        ("place", struct(("lat", T.DoubleType()), ("lon", T.DoubleType()))),
        ("tags", T.ArrayType(struct(("a", T.StringType()), ("b", T.StringType())), False)),
        ("by", T.MapType(T.StringType(), struct(("v", T.LongType()), ("w", T.LongType())), False)),
        T.StructField("new", struct(("x", T.LongType())), True, {"comment": "n"}),
    )


@pytest.mark.parametrize(
    ("table", "data", "merged"),
    [
        (T.ByteType(), T.ShortType(), T.ShortType()),
        (T.ByteType(), T.IntegerType(), T.IntegerType()),
        (T.ShortType(), T.IntegerType(), T.IntegerType()),
        (T.IntegerType(), T.ByteType(), T.IntegerType()),
        (T.ShortType(), T.ByteType(), T.ShortType()),
        (T.NullType(), T.StringType(), T.StringType()),
        (T.StringType(), T.NullType(), T.StringType()),
        (T.NullType(), struct(("a", T.LongType())), struct(("a", T.LongType()))),
        (T.ArrayType(T.NullType()), T.ArrayType(T.LongType()), T.ArrayType(T.LongType())),
        (T.DecimalType(10, 2), T.DecimalType(10, 2), T.DecimalType(10, 2)),
        (T.MapType(T.ByteType(), T.ByteType()), T.MapType(T.ShortType(), T.IntegerType()),
         T.MapType(T.ShortType(), T.IntegerType())),
    ],
)  # fmt: skip
def test_types_that_grow(table: T.DataType, data: T.DataType, merged: T.DataType) -> None:
    assert merge_schemas(struct(("c", table)), struct(("c", data))) == struct(("c", merged))


@pytest.mark.parametrize(
    ("table", "data", "difference"),
    [
        (T.IntegerType(), T.LongType(), "column c is int in the table and bigint in the data"),
        (T.FloatType(), T.DoubleType(), "column c is float in the table and double in the data"),
        (T.DecimalType(10, 2), T.DecimalType(12, 2), r"column c is decimal\(10,2\) in the table and decimal"),
        (T.StringType(), T.BinaryType(), "column c is string"),
        (T.DateType(), T.TimestampType(), "column c is date"),
        (T.TimestampType(), T.TimestampNTZType(), "column c is timestamp in"),
        (struct(("a", T.LongType())), T.LongType(), r"column c is struct<a:bigint>"),
        (struct(("a", T.LongType())), struct(("A", T.StringType())), "column c.a is bigint"),
        (T.ArrayType(T.LongType()), T.ArrayType(T.StringType()), "column c.element is bigint"),
        (
            T.MapType(T.StringType(), T.LongType()),
            T.MapType(T.LongType(), T.LongType()),
            "column c.key is string",
        ),
    ],
)
def test_other_types_are_refused_and_both_schemas_are_shown(
    table: T.DataType, data: T.DataType, difference: str
) -> None:
    ours, theirs = struct(("id", T.LongType()), ("c", table)), struct(("c", data), ("new", T.LongType()))
    with pytest.raises(SchemaMismatchError, match=difference) as raised:
        merge_schemas(ours, theirs, table="/t")
    message = str(raised.value)
    assert raised.value.error_class == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert ours.treeString().strip() in message
    assert theirs.treeString().strip() in message
    assert "/t" in message


def test_every_conflict_is_told() -> None:
    table = struct(("a", T.LongType()), ("b", T.LongType()))
    data = struct(("a", T.StringType()), ("b", T.DateType()))
    with pytest.raises(SchemaMismatchError, match=r"(?s)column a is .*column b is "):
        merge_schemas(table, data)


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (struct(("a", T.LongType()), ("A", T.LongType())), "a, A"),
        (struct(("s", struct(("x", T.LongType()), ("X", T.LongType())))), r"s\.x, s\.X"),
        (struct(("s", T.ArrayType(struct(("x", T.LongType()), ("X", T.LongType()))))), r"s\.element\.x"),
    ],
)
def test_columns_that_differ_only_in_case_are_refused(data: T.StructType, columns: str) -> None:
    with pytest.raises(SchemaError, match=columns) as raised:
        merge_schemas(struct(("id", T.LongType())), data)
    assert raised.value.error_class == "DELTA_DUPLICATE_COLUMNS_FOUND"


def test_a_mismatch_names_the_option_only_where_it_would_do() -> None:
    table = struct(("id", T.LongType()))
    more, other = struct(("id", T.LongType()), ("new", T.LongType())), struct(("id", T.StringType()))
    option = 'option("mergeSchema", "true")'
    with pytest.raises(SchemaMismatchError) as raised:
        check_append_schema(table, more, merge_option=option)
    assert option in str(raised.value)
    for data, given_option in ((more, None), (other, option)):
        with pytest.raises(SchemaMismatchError) as raised:
            check_append_schema(table, data, merge_option=given_option)
        assert "mergeSchema" not in str(raised.value)


NAMES = st.sampled_from(["a", "B", "c d", "é"])


def _structs(data_types: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.StructType]:
    fields = st.builds(
        T.StructField, NAMES, data_types, st.booleans(), st.just({}) | st.just({"comment": "x"})
    )
    return st.lists(fields, max_size=3, unique_by=lambda field: field.name.lower()).map(T.StructType)


DATA_TYPES: st.SearchStrategy[T.DataType] = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        _structs(inner)
        | st.builds(T.ArrayType, inner, st.booleans())
        | st.builds(T.MapType, inner, inner, st.booleans())
    ),
    max_leaves=5,
)
SCHEMAS = _structs(DATA_TYPES)


@given(schema=SCHEMAS)
def test_a_schema_survives_its_string(schema: T.StructType) -> None:
    assert schema_from_string(schema_to_string(schema)) == schema


@given(schema=SCHEMAS)
def test_a_schema_merged_with_itself_stays(schema: T.StructType) -> None:
    assert merge_schemas(schema, schema) == schema


@given(table=SCHEMAS, data=SCHEMAS)
def test_what_was_merged_takes_both_and_changes_no_more(table: T.StructType, data: T.StructType) -> None:
    try:
        merged = merge_schemas(table, data)
    except SchemaMismatchError:
        return
    assert merged.names[: len(table.names)] == table.names
    assert merge_schemas(merged, data) == merged
    assert merge_schemas(merged, table) == merged
    both = {name.lower() for name in (*table.names, *data.names)}
    assert {name.lower() for name in merged.names} == both
