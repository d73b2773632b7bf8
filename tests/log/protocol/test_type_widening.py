"""Type widening: which types grow, how schemas record it, and what statistics of the narrow type say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.file_rows import DELETION_VECTOR
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.partition_values import typed_values
from deltaflow.log.protocol.data_types import transformed
from deltaflow.log.protocol.type_widening import (
    TYPE_CHANGES,
    can_widen,
    has_type_changes,
    with_type_changes,
    without_type_changes,
)
from tests.log.hand_written import HandWrittenTable, meta_data, protocol

LADDER = ["byte", "short", "integer", "long"]


def type_of(name: str) -> T.DataType:
    field = {"name": "c", "type": name, "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"fields": [field]}).fields[0].dataType


WIDENED = {
    *((low, high) for i, low in enumerate(LADDER) for high in LADDER[i + 1 :]),
    *((low, high) for low in LADDER[:3] for high in ("double", "decimal(10,0)", "decimal(12,2)")),
    *((low, "decimal(20,0)") for low in LADDER),
    ("float", "double"),
    ("date", "timestamp_ntz"),
    *(("decimal(5,2)", high) for high in ("decimal(6,2)", "decimal(6,3)", "decimal(12,2)")),
    ("decimal(6,2)", "decimal(12,2)"),
    *(("decimal(9,0)", high) for high in ("decimal(10,0)", "decimal(12,2)", "decimal(20,0)")),
    *(("decimal(10,0)", high) for high in ("decimal(12,2)", "decimal(20,0)")),
}
"""The pairs of PROTOCOL.md among the types of the test."""


def test_which_types_grow() -> None:
    names = {*LADDER, "float", "double", "date", "timestamp", "timestamp_ntz", "string", "boolean"}
    names |= {"decimal(5,2)", "decimal(6,2)", "decimal(6,3)", "decimal(9,0)", "decimal(10,0)"}
    names |= {"decimal(12,2)", "decimal(20,0)"}
    found = {(one, other) for one in names for other in names if can_widen(type_of(one), type_of(other))}
    assert found == WIDENED


def nested(atom: T.DataType) -> T.StructType:
    inner = T.StructType([T.StructField("f", atom)])
    return T.StructType(
        [
            T.StructField("c", atom, False, {"comment": "x"}),
            T.StructField("l", T.ArrayType(atom)),
            T.StructField("m", T.MapType(atom, T.ArrayType(atom))),
            T.StructField("s", T.ArrayType(inner)),
            T.StructField("t", T.StringType()),
        ]
    )


def test_a_change_is_recorded_at_the_nearest_field_of_a_struct() -> None:
    short, integer, long = (nested(each()) for each in (T.ShortType, T.IntegerType, T.LongType))
    once = with_type_changes(integer, short)
    first = {"fromType": "short", "toType": "integer"}
    assert once["c"].metadata == {"comment": "x", TYPE_CHANGES: [first]}
    assert once["l"].metadata == {TYPE_CHANGES: [{**first, "fieldPath": "element"}]}
    assert once["m"].metadata[TYPE_CHANGES] == [
        {**first, "fieldPath": "key"},
        {**first, "fieldPath": "value.element"},
    ]
    assert once["s"].metadata == once["t"].metadata == {}
    assert once["s"].dataType.elementType["f"].metadata == {TYPE_CHANGES: [first]}
    assert not once["c"].nullable
    # The next one goes to the end, and what readers see has none.
    grown = transformed(once, atomic=lambda own: T.LongType() if isinstance(own, T.IntegerType) else own)
    assert isinstance(grown, T.StructType)
    twice = with_type_changes(grown, once)
    assert twice["c"].metadata[TYPE_CHANGES] == [first, {"fromType": "integer", "toType": "long"}]
    assert has_type_changes(twice)
    assert without_type_changes(twice) == long
    assert with_type_changes(twice, twice) == twice


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({"fromType": "byte", "toType": "decimal(10, 0)"}, True),
        ({"fromType": "date", "toType": "timestamp_ntz", "fieldPath": "element"}, True),
        ({"fromType": "char(3)", "toType": "varchar(5)"}, True),
        ({"fromType": "long", "toType": "long", "tableVersion": 3}, True),
        ({"fromType": "string", "toType": "long"}, False),
        ({"fromType": "long", "toType": "integer"}, False),
        ({"fromType": "brand_new", "toType": "long"}, False),
        ({"toType": "long"}, False),
    ],
    ids=str,
)
def test_readers_check_every_recorded_change(table: HandWrittenTable, change: Any, is_read: bool) -> None:
    features = ["typeWidening"]
    schema = T.StructType([T.StructField("id", T.LongType(), True, {TYPE_CHANGES: [change]})])
    table.commit(0, protocol(3, 7, readerFeatures=features, writerFeatures=features), meta_data())
    table.commit(1, meta_data(schema=schema))
    log = table.log()
    if is_read:
        assert log.snapshot().version == 1
        return
    with pytest.raises(UnsupportedFeatureError, match=r"Field id(\.element)? was changed from") as refused:
        log.snapshot()
    assert refused.value.error_class == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
    assert log.snapshot_at(0).version == 0


def test_statistics_of_the_narrow_type_hide_no_row() -> None:
    # 0.1 as a float is more than 0.1, and a writer says 0.1 of it.
    changes = {TYPE_CHANGES: [{"fromType": "float", "toType": "double"}]}
    schema = T.StructType([T.StructField("d", T.DoubleType(), True, changes)])
    stats = '{"numRecords":1,"minValues":{"d":0.1},"maxValues":{"d":0.1},"nullCount":{"d":0}}'
    files = pa.table(
        {
            "stats": pa.chunked_array([[stats]]),
            "deletion_vector": pa.chunked_array([pa.nulls(1, DELETION_VECTOR)]),
        }
    )
    predicate = {"op": "=", "column": ["d"], "type": "double"}

    def matches(value: float, of: T.StructType) -> bool:
        return may_match({**predicate, "value": str(value)}, FileStatistics(files, of)).to_pylist() == [True]

    assert matches(0.10000000149011612, schema)
    assert matches(0.1, schema)
    assert not matches(0.10001, schema)
    plain = without_type_changes(schema)
    assert not matches(0.10000000149011612, plain)


@pytest.mark.parametrize(
    ("text", "data_type", "same"),
    [
        ("1.50", T.DecimalType(8, 4), "1.5000"),
        ("3", T.DoubleType(), "3.0"),
        ("3", T.DecimalType(12, 2), "3.00"),
        ("2020-01-02", T.TimestampNTZType(), "2020-01-02 00:00:00"),
    ],
)
def test_partition_values_keep_the_text_of_the_narrow_type(
    text: str, data_type: T.DataType, same: str
) -> None:
    values = typed_values(pa.array([text, same]), data_type)
    assert values[0] == values[1]
    assert values[0].is_valid
