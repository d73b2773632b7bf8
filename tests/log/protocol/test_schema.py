from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from deltaflow.errors import (
    CorruptLogError,
    DeltaError,
    SchemaError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from deltaflow.log import (
    Metadata,
    as_nullable,
    check_append_schema,
    check_partitioning,
    check_writable_schema,
    schema_from_string,
    schema_to_string,
)
from deltaflow.log.protocol.column_mapping import table_schema
from deltaflow.log.protocol.schema import READS_VOID

NESTED = T.StructType(
    [
        T.StructField("id", T.LongType(), False, {"comment": "key"}),
        T.StructField("price", T.DecimalType(38, 18)),
        T.StructField("tags", T.MapType(T.StringType(), T.ArrayType(T.DateType(), False), False)),
        T.StructField("place", T.StructType([T.StructField("lat", T.DoubleType(), False)])),
        T.StructField("at", T.TimestampType()),
        T.StructField("local", T.TimestampNTZType()),
    ]
)


def one(data_type: T.DataType, name: str = "c", metadata: dict[str, str] | None = None) -> T.StructType:
    return T.StructType(
        [T.StructField("id", T.LongType()), T.StructField(name, data_type, True, metadata or {})]
    )


def test_a_schema_survives_its_string() -> None:
    assert schema_from_string(schema_to_string(NESTED)) == NESTED


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"long"', '{"type":"array"}'])
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(CorruptLogError, match="schema"):
        schema_from_string(text, table="/t")


def test_an_unknown_type_is_named() -> None:
    text = schema_to_string(one(T.LongType())).replace('"long"', '"hyperlong"')
    with pytest.raises(UnsupportedFeatureError, match="hyperlong"):
        schema_from_string(text)


def test_a_collation_that_pyspark_does_not_know_is_named_by_its_column() -> None:
    metadata = {"__COLLATIONS": {"a": "icu.UNICODE_CI.75.1"}}
    field = {"name": "a", "type": "string", "nullable": True, "metadata": metadata}
    with pytest.raises(UnsupportedFeatureError, match=r"in column a: \S"):
        schema_from_string(json.dumps({"type": "struct", "fields": [field]}))
    with pytest.raises(UnsupportedFeatureError, match=r"does not know: \S"):
        schema_from_string('{"type": "struct", "fields": [3]}')


def test_a_user_defined_type_is_not_imported() -> None:
    udt = {"type": "udt", "pyClass": "antigravity.Nothing", "sqlType": "long", "class": "x"}
    field = {
        "name": "a",
        "type": {"type": "array", "elementType": udt, "containsNull": True},
        "nullable": True,
    }
    text = json.dumps({"type": "struct", "fields": [field | {"metadata": {}}]})
    with pytest.raises(UnsupportedFeatureError, match="user-defined"):
        schema_from_string(text)


WRONG_METADATA = [
    *({name: value} for name in ("delta.invariants", "comment") for value in (5, {}, [], None)),
    {"__CHAR_VARCHAR_TYPE_STRING": 5},
    {"CURRENT_DEFAULT": True},
    {"delta.generationExpression": ["id"]},
    {"delta.columnMapping.id": "1"},
    {"delta.columnMapping.physicalName": 1},
    {"delta.typeChanges": {}},
    {"delta.typeChanges": ["long"]},
    {"x": 10**40},
    {"x": [1, "a"]},
    {"x": [[1], [2]]},
    {"x": {"y": {"z": -(2**64)}}},
    "metadata",
    [1],
]


@pytest.mark.parametrize("metadata", WRONG_METADATA, ids=str)
def test_metadata_of_a_column_that_nobody_understands(metadata: object) -> None:
    inner = {"name": "b", "type": "long", "nullable": True, "metadata": metadata}
    struct = {"type": "struct", "fields": [inner]}
    outer = {"name": "a", "type": struct, "nullable": True, "metadata": {}}
    with pytest.raises(CorruptLogError, match=r"metadata of column a\.b") as error:
        schema_from_string(json.dumps({"type": "struct", "fields": [outer]}), table="/t", version=3)
    assert (error.value.table, error.value.version, error.value.column) == ("/t", 3, "a.b")


def test_metadata_of_a_column_of_others_are_kept() -> None:
    known = {"comment": "", "x": [1, 2], "y": None, "z": {"a": [{"b": 2.5}, {}], "c": [], "d": True}}
    schema = T.StructType([T.StructField("a", T.LongType(), True, known)])
    assert schema_from_string(schema_to_string(schema)).fields[0].metadata == known


def test_new_tables_have_nullable_columns_and_keep_their_metadata() -> None:
    nullable = as_nullable(NESTED)
    assert nullable["id"].nullable
    assert nullable["id"].metadata == {"comment": "key"}
    assert nullable["tags"].dataType == T.MapType(T.StringType(), T.ArrayType(T.DateType(), True), True)
    assert nullable["place"].dataType == T.StructType([T.StructField("lat", T.DoubleType())])
    check_append_schema(NESTED, nullable)


def test_order_case_nullability_and_metadata_do_not_matter_to_an_append() -> None:
    data = T.StructType([T.StructField(f.name.upper(), f.dataType) for f in reversed(NESTED.fields)])
    check_append_schema(NESTED, data)


@pytest.mark.parametrize(
    ("data", "difference"),
    [
        (
            T.StructType([T.StructField("id", T.LongType())]),
            r"column c \(struct<a:int>\) is missing in the data",
        ),
        (
            T.StructType([*one(T.LongType()).fields]),
            "column c is struct<a:int> in the table and bigint in the data",
        ),
        (
            one(T.StructType([T.StructField("a", T.LongType())])),
            "column c.a is int in the table and bigint in the data",
        ),
        (
            one(T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.LongType())])),
            r"column c.b \(bigint\) is not in the table",
        ),
    ],
)
def test_another_schema_is_refused_and_both_are_shown(data: T.StructType, difference: str) -> None:
    table = one(T.StructType([T.StructField("a", T.IntegerType())]))
    with pytest.raises(SchemaMismatchError, match=difference) as raised:
        check_append_schema(table, data, table="/t")
    assert isinstance(raised.value, AnalysisException)
    message = str(raised.value)
    assert table.treeString().strip() in message
    assert data.treeString().strip() in message
    assert "/t" in message


@pytest.mark.parametrize(
    ("table", "data"),
    [
        (T.ArrayType(T.LongType()), T.ArrayType(T.IntegerType())),
        (T.MapType(T.StringType(), T.LongType()), T.MapType(T.LongType(), T.LongType())),
        (T.MapType(T.StringType(), T.LongType()), T.MapType(T.StringType(), T.StringType())),
        (T.DecimalType(10, 2), T.DecimalType(12, 2)),
        (T.StringType(), T.NullType()),
        (T.TimestampType(), T.TimestampNTZType()),
    ],
)
def test_types_are_compared_in_depth(table: T.DataType, data: T.DataType) -> None:
    with pytest.raises(SchemaMismatchError):
        check_append_schema(one(table), one(data))


def test_data_with_the_same_name_twice() -> None:
    data = T.StructType([*one(T.LongType()).fields, T.StructField("C", T.LongType())])
    with pytest.raises(SchemaMismatchError, match="differ only in case"):
        check_append_schema(one(T.LongType()), data)


def test_partition_columns_get_their_names_from_the_schema() -> None:
    assert check_writable_schema(one(T.DateType()), ["C"]) == ["c"]
    assert check_writable_schema(one(T.DateType())) == []


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        (["none"], "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (["c", "id"], "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"),
        (["c", "C"], "DELTA_DUPLICATE_COLUMNS_FOUND"),
    ],
)
def test_partition_columns_that_do_not_fit(columns: list[str], code: str) -> None:
    with pytest.raises(SchemaError) as raised:
        check_writable_schema(one(T.DateType()), columns)
    assert raised.value.error_class == code


@pytest.mark.parametrize("name", ["none", "C"])
def test_partition_columns_that_the_schema_of_the_log_lacks(name: str) -> None:
    found = Metadata(id="", schema_string=schema_to_string(one(T.DateType())), partition_columns=[name])
    with pytest.raises(CorruptLogError, match=f"the partition column {name}"):
        table_schema(found, table="t")


@pytest.mark.parametrize("data_type", [T.NullType(), T.ArrayType(T.LongType()), NESTED["place"].dataType])
def test_partition_columns_of_unfit_types(data_type: T.DataType) -> None:
    is_void_refused = isinstance(data_type, T.NullType) and not READS_VOID
    condition = "DELTA_UNSUPPORTED_DATA_TYPES" if is_void_refused else "DELTA_INVALID_PARTITION_COLUMN_TYPE"
    with pytest.raises(DeltaError, match=condition):
        check_writable_schema(one(data_type), ["c"])


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "{", "}", "(", ")", "a\nb", "a\tb", "a=b", ""])
def test_characters_that_column_names_may_not_have(name: str) -> None:
    nested = T.ArrayType(T.StructType([T.StructField(name, T.LongType())]))
    for schema in (one(T.LongType(), name), one(nested)):
        with pytest.raises(SchemaError, match="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"):
            check_writable_schema(schema)


@pytest.mark.parametrize("name", ["a.b", "a-b", "ü", "a%b", "a/b", "`"])
def test_characters_that_column_names_may_have(name: str) -> None:
    assert check_writable_schema(one(T.LongType(), name)) == []


def test_columns_that_differ_only_in_case() -> None:
    nested = T.StructType([T.StructField("a", T.LongType()), T.StructField("A", T.LongType())])
    for schema in (one(T.LongType(), "ID"), one(nested), one(T.MapType(T.StringType(), nested))):
        with pytest.raises(SchemaError, match="DELTA_DUPLICATE_COLUMNS_FOUND"):
            check_writable_schema(schema)


def test_no_columns() -> None:
    """A table may get its columns later, but it cannot be partitioned by what it lacks."""
    assert check_writable_schema(T.StructType([])) == []
    with pytest.raises(SchemaError, match="day"):
        check_writable_schema(T.StructType([]), ["day"])


@pytest.mark.parametrize(
    ("data_type", "name"),
    [
        (T.DayTimeIntervalType(), "interval day to second"),
        (T.YearMonthIntervalType(), "interval year to month"),
        (T.CalendarIntervalType(), "interval"),
        (T.CharType(3), "char(3)"),
        (T.VarcharType(3), "varchar(3)"),
        (T.StringType("UNICODE_CI"), "string collate UNICODE_CI"),
        *((getattr(T, found)(), found[:-4].lower()) for found in ("TimeType",) if hasattr(T, found)),
        *(
            (getattr(T, found)(4326), found[:-4].lower())
            for found in ("GeometryType", "GeographyType")
            if hasattr(T, found)
        ),
    ],
)
def test_types_whose_writing_is_not_settled_are_refused_by_name_and_path(
    data_type: T.DataType, name: str
) -> None:
    for schema, path in (
        (one(data_type), "c"),
        (one(T.MapType(T.StringType(), T.StructType([T.StructField("x", data_type)]))), "c.value.x"),
    ):
        with pytest.raises(UnsupportedFeatureError) as raised:
            check_writable_schema(schema)
        assert f"column {path} " in str(raised.value)
        assert name in str(raised.value)
        assert raised.value.column == path


@pytest.mark.skipif(not READS_VOID, reason="this Spark reads no column of type void")
def test_void_is_written_outside_of_arrays_and_maps() -> None:
    check_writable_schema(T.StructType([T.StructField("id", T.LongType()), T.StructField("v", T.NullType())]))
    for data_type in (T.ArrayType(T.NullType()), T.MapType(T.StringType(), one(T.NullType()))):
        with pytest.raises(SchemaError, match="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE") as raised:
            check_writable_schema(T.StructType([T.StructField("s", one(data_type))]))
        assert raised.value.column == "s.c"


def test_other_types_are_written() -> None:
    data_types = [
        T.BooleanType(),
        T.ByteType(),
        T.ShortType(),
        T.IntegerType(),
        T.FloatType(),
        T.DoubleType(),
        T.DecimalType(38, 0),
        T.StringType(),
        T.BinaryType(),
        T.DateType(),
        T.TimestampType(),
        T.TimestampNTZType(),
        T.ArrayType(T.ArrayType(T.StringType())),
        T.MapType(T.StringType(), NESTED["place"].dataType),
    ]
    assert (
        check_writable_schema(
            T.StructType([T.StructField(f"c{i}", data_type) for i, data_type in enumerate(data_types)])
        )
        == []
    )


def test_partitioning_must_be_the_tables() -> None:
    check_partitioning(["a", "b"], ["A", "b"])
    for given in (["b", "a"], ["a"], []):
        with pytest.raises(SchemaError, match="Partition columns do not match"):
            check_partitioning(["a", "b"], given)
