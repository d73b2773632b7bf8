"""File statistics: what a footer proves is there, and no value of a file lies outside its bounds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.log import Metadata, schema_to_string
from deltaflow.log.files import footers
from deltaflow.log.files.footers import collect_statistics
from deltaflow.log.protocol.indexed_columns import check_statistics_columns, indexed_leaves

HIGHEST = "\U0010ffff"
MICROSECONDS = pa.timestamp("us", "UTC")
FIRST_MOMENT_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LAST_MILLISECOND_US = 253_402_300_799_999_000  # 9999-12-31T23:59:59.999Z


def statistics_text(path: Path, schema: StructType, **options: int) -> str:
    [text] = collect_statistics([(str(path), path.stat().st_size)], list(leaves_of(schema)), **options)
    return text


def statistics(path: Path, schema: StructType, **options: int) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(statistics_text(path, schema, **options), parse_float=Decimal)
    return parsed


def indexed(path: Path, schema: StructType, **configuration: str) -> dict[str, Any]:
    """The statistics of a table's file, by the table's properties (without their prefix)."""
    metadata = Metadata(
        id="t",
        schema_string=schema_to_string(schema),
        partition_columns=[],
        configuration={f"delta.{name}": value for name, value in configuration.items()},
    )
    [text] = collect_statistics([(str(path), path.stat().st_size)], indexed_leaves(metadata, "t"))
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def write(path: Path, columns: dict[str, pa.Array], **options: Any) -> Path:
    file = path / "data.parquet"
    pq.write_table(pa.table(columns), file, **options)
    return file


def one_column(path: Path, values: pa.Array, data_type: DataType, **options: Any) -> tuple[Any, Any, Any]:
    """(min, max, nullCount) of a column; None for what is left out."""
    found = statistics(write(path, {"c": values}, **options), StructType().add("c", data_type))
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"].get("c")


# What files hold, read back in full: the oracle of the statistics.


def leaves_of(schema: StructType, parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    for field in schema.fields:
        if isinstance(field.dataType, StructType):
            yield from leaves_of(field.dataType, (*parent, field.name))
        else:
            yield (*parent, field.name), field.dataType


def at(tree: dict[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = tree
    for name in path:
        node = node.get(name) if node is not None else None
    return node


def column_of(table: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [name])
    return column


def comparable(values: pa.ChunkedArray, data_type: DataType) -> list[Any]:
    values = values.drop_null()
    if isinstance(data_type, DateType):
        values = values.cast(pa.int32())
    if isinstance(data_type, TimestampType):
        values = values.cast(MICROSECONDS).cast(pa.int64())
    return list(values.to_pylist())


def comparable_bound(bound: Any, data_type: DataType) -> Any:
    if isinstance(data_type, DateType):
        return pa.scalar(bound).cast(pa.date32()).cast(pa.int32()).as_py()
    if isinstance(data_type, TimestampType):
        return pa.scalar(bound).cast(MICROSECONDS).cast(pa.int64()).as_py()
    if isinstance(data_type, FloatType | DoubleType):
        return float(bound)
    return bound


def assert_statistics_hold(file: Path, schema: StructType) -> None:
    found = statistics(file, schema)
    table = pq.read_table(file)
    assert found["numRecords"] == table.num_rows
    for path, data_type in leaves_of(schema):
        column = column_of(table, path)
        nulls = at(found["nullCount"], path)
        assert nulls is None or nulls == column.null_count, path
        low, high = at(found["minValues"], path), at(found["maxValues"], path)
        if isinstance(data_type, BooleanType | BinaryType | ArrayType | MapType):
            assert low is None
            assert high is None
            continue
        values = comparable(column, data_type)
        if low is not None:
            bound = comparable_bound(low, data_type)
            assert all(bound <= value or value != value for value in values), path
        if high is not None:
            bound = comparable_bound(high, data_type)
            assert all(value <= bound for value in values), path


FLOATS_32 = st.floats(width=32)
COLUMNS: dict[str, tuple[pa.DataType, pa.DataType | None, DataType, st.SearchStrategy[Any]]] = {
    # name: Arrow type, the type its values are drawn as if another, Spark type, values
    "byte": (pa.int8(), None, ByteType(), st.integers(-(2**7), 2**7 - 1)),
    "short": (pa.int16(), None, ShortType(), st.integers(-(2**15), 2**15 - 1)),
    "integer": (pa.int32(), None, IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), None, LongType(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), None, FloatType(), FLOATS_32),
    "double": (pa.float64(), None, DoubleType(), st.floats()),
    "string": (pa.string(), None, StringType(), st.text(max_size=70)),
    "high": (pa.string(), None, StringType(), st.text(f"~\x7fa{HIGHEST}", min_size=28, max_size=70)),
    "date": (pa.date32(), pa.int32(), DateType(), st.integers(-720_000, 2_933_000)),
    "timestamp": (
        MICROSECONDS,
        pa.int64(),
        TimestampType(),
        st.integers(FIRST_MOMENT_US, LAST_MILLISECOND_US),
    ),
    "decimal": (pa.decimal128(9, 2), None, DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "wide": (
        pa.decimal128(38, 18),
        None,
        DecimalType(38, 18),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-18")),
    ),
    "boolean": (pa.bool_(), None, BooleanType(), st.booleans()),
    "binary": (pa.binary(), None, BinaryType(), st.binary(max_size=5)),
}
# Without a maximum: Arrow's footers do not say whether there is a NaN.
PROVEN = ("byte", "short", "integer", "long", "string", "timestamp", "decimal", "wide")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("footers")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_value_lies_outside_and_counts_are_exact(directory: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    arrow_type, drawn_type, data_type, values = COLUMNS[name]
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    array = pa.array(rows, drawn_type or arrow_type).cast(arrow_type)
    absent = pa.array([row is None for row in rows], pa.bool_())
    nested = pa.StructArray.from_arrays([array], names=["v"], mask=absent)
    file = write(directory, {"a": array, "s": nested}, row_group_size=data.draw(st.integers(1, 9)))
    schema = StructType().add("a", data_type).add("s", StructType().add("v", data_type))

    assert_statistics_hold(file, schema)

    found = statistics(file, schema)
    assert found["nullCount"] == {"a": array.null_count, "s": {"v": array.null_count}}
    if name in PROVEN and array.null_count < len(array):
        low, high = found["minValues"], found["maxValues"]
        assert "a" in low
        assert low["s"]["v"] == low["a"]
        assert ("a" in high) or name == "string"


# Single rules.


def test_shape_is_the_protocols_compact_json(tmp_path: Path) -> None:
    file = write(tmp_path, {"a": pa.array([1, None]), "n": pa.array([{"b": {"c": "x"}}, None])})
    inner = StructType().add("b", StructType().add("c", StringType()))
    schema = StructType().add("a", LongType()).add("n", inner)
    assert statistics_text(file, schema) == (
        '{"numRecords":2,"minValues":{"a":1,"n":{"b":{"c":"x"}}},"maxValues":{"a":1,"n":{"b":{"c":"x"}}},'
        '"nullCount":{"a":1,"n":{"b":{"c":1}}}}'
    )


def test_files_keep_their_order(tmp_path: Path) -> None:
    files = []
    for number in range(40):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"a": pa.array([number], pa.int32())}), file)
        files.append((str(file), file.stat().st_size))
    found = collect_statistics(files, [(("a",), IntegerType())])
    assert [json.loads(text)["minValues"]["a"] for text in found] == list(range(40))


def test_no_files_no_statistics() -> None:
    assert collect_statistics([], [(("a",), IntegerType())]) == []


def test_a_file_without_rows(tmp_path: Path) -> None:
    file = write(tmp_path, {"a": pa.array([], pa.int32()), "s": pa.array([], pa.string())})
    schema = StructType().add("a", IntegerType()).add("s", StringType())
    expected = {"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "s": 0}}
    assert statistics(file, schema) == expected


def test_row_groups_of_nulls_only_do_not_cost_the_bounds(tmp_path: Path) -> None:
    values = pa.array([None, None, 5, 3, None, 9], pa.int64())
    assert one_column(tmp_path, values, LongType(), row_group_size=2) == (3, 9, 3)


def test_a_row_group_without_bounds_costs_them_but_not_the_count(tmp_path: Path) -> None:
    values = pa.array(["a", "b", "c" * 5000, None])
    assert one_column(tmp_path, values, StringType(), row_group_size=2) == (None, None, 1)


def test_a_footer_without_statistics_counts_records_and_required_columns(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    fields = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.int32(), nullable=False)])
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, 2], pa.int32())}, schema=fields)
    pq.write_table(table, file, write_statistics=False)
    found = statistics(file, StructType().add("a", IntegerType()).add("b", IntegerType()))
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"b": 0}}


def test_columns_beyond_the_first_leaves_are_left_out(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "s": pa.array([{"a": 1, "b": 2}]),
            "l": pa.array([[1]]),
            "c": pa.array([3]),
            "t": pa.array([{"d": 4, "e": 5}]),
            "z": pa.array([6]),
        },
    )
    long = LongType()
    schema = (
        StructType()
        .add("s", StructType().add("a", long).add("b", long))
        .add("l", ArrayType(long))
        .add("c", long)
        .add("t", StructType().add("d", long).add("e", long))
        .add("z", long)
    )
    five = indexed(file, schema, dataSkippingNumIndexedCols="5")
    assert five["minValues"] == {"s": {"a": 1, "b": 2}, "c": 3, "t": {"d": 4}}
    assert indexed(file, schema, dataSkippingNumIndexedCols="1")["nullCount"] == {"s": {"a": 0}}
    nothing = {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}
    assert indexed(file, schema, dataSkippingNumIndexedCols="0") == nothing
    assert "z" in indexed(file, schema, dataSkippingNumIndexedCols="-1")["minValues"]
    many = write(tmp_path, {f"c{number}": pa.array([number]) for number in range(40)})
    wide = StructType()
    for number in range(40):
        wide.add(f"c{number}", long)
    assert list(indexed(many, wide)["nullCount"]) == [f"c{number}" for number in range(32)]


def test_the_named_columns_have_statistics_and_no_others(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            **{f"c{number}": pa.array([number]) for number in range(40)},
            "s": pa.array([{"A": 1, "b": {"c": 2, "d": b"x"}, "e": 3}]),
            "x.y": pa.array([4]),
        },
    )
    long = LongType()
    inner = StructType().add("c", long).add("d", BinaryType())
    schema = StructType()
    for number in range(40):
        schema.add(f"c{number}", long)
    schema.add("s", StructType().add("A", long).add("b", inner).add("e", long)).add("x.y", long)

    def counted(columns: str) -> Any:
        # They stand before the number of columns.
        return indexed(file, schema, dataSkippingStatsColumns=columns, dataSkippingNumIndexedCols="1")

    assert counted("C39, s.a")["nullCount"] == {"c39": 0, "s": {"A": 0}}
    found = counted("S.b , `x.y`")
    assert found["nullCount"] == {"s": {"b": {"c": 0, "d": 0}}, "x.y": 0}
    assert found["minValues"] == {"s": {"b": {"c": 2}}, "x.y": 4}
    assert counted("")["nullCount"] == {}


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("part", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
        ("s.none", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("id.x", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("blob", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("id, ID", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("s, s.a", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
    ],
)
def test_named_columns_must_be_in_the_table_and_have_an_order(columns: str, code: str) -> None:
    metadata = Metadata(
        id="t",
        schema_string=schema_to_string(
            StructType()
            .add("id", LongType())
            .add("blob", BinaryType())
            .add("s", StructType().add("a", LongType()).add("blob", BinaryType()))
            .add("part", LongType())
        ),
        partition_columns=["part"],
        configuration={"delta.dataSkippingStatsColumns": columns},
    )
    with pytest.raises(DeltaIllegalArgumentException) as raised:
        check_statistics_columns(metadata, "t")
    assert raised.value.error_class == code


@pytest.mark.parametrize(("length", "low", "high"), [(0, None, None), (2, "xa", "xa\x7f"), (9, "xab", "xab")])
def test_the_length_of_cut_strings_is_the_tables(
    tmp_path: Path, length: int, low: str | None, high: str | None
) -> None:
    file = write(tmp_path, {"c": pa.array(["xab"])})
    found = statistics(file, StructType().add("c", StringType()), string_prefix_length=length)
    assert (found["minValues"].get("c"), found["maxValues"].get("c")) == (low, high)


def test_columns_are_found_by_their_whole_exact_name(tmp_path: Path) -> None:
    file = write(tmp_path, {"a.b": pa.array([7]), "a": pa.array([{"b": 1, "B": 2}]), "A": pa.array([3])})
    long = LongType()
    schema = StructType().add("A", long).add("a", StructType().add("B", long).add("b", long)).add("a.b", long)
    assert statistics(file, schema)["minValues"] == {"A": 3, "a": {"B": 2, "b": 1}, "a.b": 7}


def test_columns_missing_in_the_file_are_all_null(tmp_path: Path) -> None:
    file = write(tmp_path, {"a": pa.array([1, 2]), "s": pa.array([{"x": 1}, None])})
    schema = (
        StructType()
        .add("new", StringType())
        .add("s", StructType().add("x", LongType()).add("y", LongType()))
        .add("t", StructType().add("u", LongType()))
    )
    assert statistics(file, schema) == {
        "numRecords": 2,
        "minValues": {"s": {"x": 1}},
        "maxValues": {"s": {"x": 1}},
        "nullCount": {"new": 2, "s": {"x": 1, "y": 2}, "t": {"u": 2}},
    }


def test_arrays_and_maps_have_exact_null_counts(tmp_path: Path) -> None:
    counters = pa.map_(pa.string(), pa.int32())
    file = write(
        tmp_path,
        {
            "full": pa.array([[1], [2, 3]]),
            "hollow": pa.array([[1], []]),
            "absent": pa.array([[1], None]),
            "gap": pa.array([[1], [None]]),
            "m": pa.array([[("k", 1)], [("l", None)]], counters),
            "n": pa.array([[("k", 1)], None], counters),
            "after": pa.array([1, 2]),
        },
    )
    schema = StructType()
    for name in ("full", "hollow", "absent", "gap"):
        schema.add(name, ArrayType(LongType()))
    schema.add("m", MapType(StringType(), IntegerType())).add("n", MapType(StringType(), IntegerType()))
    schema.add("after", LongType())
    found = statistics(file, schema)
    nulls = {"full": 0, "hollow": 0, "absent": 1, "gap": 0, "m": 0, "n": 1, "after": 0}
    assert found["nullCount"] == nulls
    assert found["minValues"] == {"after": 1}


LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=2))
PAIRS = st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("kl"), st.integers(0, 9)), max_size=2))
ROWS_WITH_COLLECTIONS = st.lists(
    st.one_of(st.none(), st.fixed_dictionaries({"l": LISTS, "m": PAIRS, "d": st.lists(LISTS, max_size=2)})),
    min_size=1,
    max_size=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=ROWS_WITH_COLLECTIONS, group=st.integers(1, 9), required=st.booleans())
def test_null_counts_of_nested_collections_are_those_of_the_rows(
    tmp_path: Path, rows: list[dict[str, Any] | None], group: int, required: bool
) -> None:
    numbers = pa.list_(pa.int64())
    arrow = pa.struct(
        [
            pa.field("l", numbers),
            pa.field("m", pa.map_(pa.string(), pa.int64())),
            pa.field("d", pa.list_(numbers)),
        ]
    )
    if required:
        rows = [row for row in rows if row is not None]
    fields = pa.schema([pa.field("s", arrow, nullable=not required)])
    file = tmp_path / f"{uuid.uuid4()}.parquet"
    pq.write_table(pa.table([pa.array(rows, arrow)], schema=fields), file, row_group_size=group)
    of_numbers = ArrayType(LongType())
    columns = StructType().add("l", of_numbers).add("m", MapType(StringType(), LongType()))
    schema = StructType().add("s", columns.add("d", ArrayType(of_numbers)))
    found = statistics(file, schema)["nullCount"].get("s", {})
    expected = {name: sum(row is None or row[name] is None for row in rows) for name in "lmd"}
    assert found == expected


def test_a_footer_without_levels_gives_no_null_count_of_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, {"a": pa.array([[1], None])})
    schema = StructType().add("a", ArrayType(LongType()))
    monkeypatch.setattr(footers, "definition_levels", lambda _: [[None]])
    assert statistics(file, schema)["nullCount"] == {}

    def fails(path: str) -> Any:
        raise ValueError(f"The footer of {path} cannot be understood")

    monkeypatch.setattr(footers, "definition_levels", fails)
    assert statistics(file, schema)["nullCount"] == {}
    assert f"The footer of {file} cannot be understood" in caplog.text


def test_boolean_and_binary_have_counts_only(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([True, None, False]), BooleanType()) == (None, None, 1)
    assert one_column(tmp_path, pa.array([b"a", None, b"b"]), BinaryType()) == (None, None, 1)


def test_a_footer_that_may_hide_nan_gives_no_maximum(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([1.5, math.nan]), DoubleType()) == (Decimal("1.5"), None, 0)
    assert one_column(tmp_path, pa.array([1.5, 2.5]), DoubleType()) == (Decimal("1.5"), None, 0)
    assert one_column(tmp_path, pa.array([math.nan]), DoubleType()) == (None, None, 0)


@pytest.mark.parametrize(
    ("writer", "highest"),
    [
        ("parquet-mr version 1.10.1", 2.5),
        ("parquet-mr version 1.9.0", None),
        ("parquet-mr version 1.8.3", None),
        ("parquet-mr", None),
    ],
)
def test_a_maximum_counts_only_of_a_writer_that_orders_nan(
    tmp_path: Path, writer: str, highest: float | None
) -> None:
    """parquet-mr before 1.10 leaves NaN out of its bounds, as Arrow does, which stands in for it here."""
    schema = StructType().add("c", DoubleType())
    file = write(tmp_path, {"c": pa.array([1.5, math.nan, 2.5])})
    arrow = pq.read_metadata(file).created_by.encode()
    content = file.read_bytes()
    assert content.count(arrow) == 1
    file.write_bytes(content.replace(arrow, writer.encode().ljust(len(arrow))))
    found = statistics(file, schema)
    assert (found["minValues"], found["maxValues"].get("c")) == ({"c": 1.5}, highest)


def test_floats_that_json_cannot_hold_give_no_bound(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([-math.inf, 1.0]), DoubleType())[0] is None
    assert one_column(tmp_path, pa.array([math.inf, 1.0]), DoubleType())[0] == 1


def test_zero_as_a_minimum_is_negative(tmp_path: Path) -> None:
    schema = StructType().add("c", DoubleType())
    assert '"minValues":{"c":-0.0}' in statistics_text(write(tmp_path, {"c": pa.array([0.0, 1.0])}), schema)


def test_a_single_precision_bound_holds_when_read_in_double_precision(tmp_path: Path) -> None:
    low, _, _ = one_column(tmp_path, pa.array([0.3], pa.float32()), FloatType())
    assert float(low) == pa.scalar(0.3, pa.float32()).as_py()


@pytest.mark.parametrize(
    ("longest", "low", "high"),
    [
        ("b" * 32, "b" * 32, "b" * 32),
        ("b" * 33, "b" * 32, "b" * 32 + "\x7f"),
        ("b" * 32 + "\x7f", "b" * 32, "b" * 32 + HIGHEST),
        ("b" * 32 + "é!", "b" * 32, "b" * 32 + HIGHEST),
        ("\U0001f600" * 32, "\U0001f600" * 32, "\U0001f600" * 32),
        ("\U0001f600" * 33, "\U0001f600" * 32, "\U0001f600" * 32 + HIGHEST),
        ("b" * 32 + HIGHEST + "c" * 9, "b" * 32, "b" * 32 + HIGHEST + "\x7f"),
        (HIGHEST * 40, HIGHEST * 32, HIGHEST * 40),
        (HIGHEST * 64, HIGHEST * 32, HIGHEST * 64),
        (HIGHEST * 65, HIGHEST * 32, None),
        ("", "", ""),
    ],
)
def test_strings_are_cut_and_the_maximum_stays_above(
    tmp_path: Path, longest: str, low: str, high: str | None
) -> None:
    assert one_column(tmp_path, pa.array([longest, None]), StringType()) == (low, high, 1)


def test_strings_order_by_code_point(tmp_path: Path) -> None:
    # In UTF-16 the second would be the smaller one.
    values = pa.array(["\uffee", "\U0001f600"])
    assert one_column(tmp_path, values, StringType()) == ("\uffee", "\U0001f600", 0)


def test_strings_that_are_no_text_have_no_bounds(tmp_path: Path) -> None:
    values = pa.array([b"a", b"b\xff"]).cast(pa.string(), safe=False)
    assert one_column(tmp_path, values, StringType()) == ("a", None, 0)


def test_a_collated_string_has_no_bounds(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array(["a", "B"]), StringType("UTF8_LCASE")) == (None, None, 0)


def test_timestamps_are_cut_to_milliseconds_outwards(tmp_path: Path) -> None:
    def bounds(*microseconds: int) -> tuple[Any, Any]:
        low, high, _ = one_column(tmp_path, pa.array(microseconds, MICROSECONDS), TimestampType())
        return low, high

    assert bounds(1_577_836_800_123_000) == ("2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.123Z")
    assert bounds(1_577_836_800_123_456) == ("2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.124Z")
    assert bounds(-1) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")
    assert bounds(FIRST_MOMENT_US, LAST_MILLISECOND_US + 1) == ("0001-01-01T00:00:00.000Z", None)
    assert bounds(FIRST_MOMENT_US - 1, LAST_MILLISECOND_US) == (None, "9999-12-31T23:59:59.999Z")
    assert bounds(-(2**63), 2**63 - 1) == (None, None)


def test_local_timestamps_have_no_zone(tmp_path: Path) -> None:
    values = pa.array([1_577_836_800_123_456], pa.timestamp("us"))
    low, high, _ = one_column(tmp_path, values, TimestampNTZType())
    assert (low, high) == ("2020-01-01T00:00:00.123", "2020-01-01T00:00:00.124")
    in_utc = values.cast(MICROSECONDS)
    assert one_column(tmp_path, in_utc, TimestampNTZType()) == (None, None, 0)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_every_unit_of_timestamps(tmp_path: Path, unit: str) -> None:
    values = pa.array([1_577_836_800_123], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    low, high, _ = one_column(tmp_path, values, TimestampType())
    assert low == high == "2020-01-01T00:00:00.123Z"


def test_timestamps_that_are_no_moments_or_of_the_old_encoding_have_no_bounds(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([1], pa.timestamp("us")), TimestampType()) == (None, None, 0)
    values = pa.array([1], MICROSECONDS)
    low, high, _ = one_column(tmp_path, values, TimestampType(), use_deprecated_int96_timestamps=True)
    assert (low, high) == (None, None)


def test_dates(tmp_path: Path) -> None:
    def bounds(*days: int) -> tuple[Any, Any]:
        low, high, _ = one_column(tmp_path, pa.array(days, pa.int32()).cast(pa.date32()), DateType())
        return low, high

    assert bounds(0, 18_262) == ("1970-01-01", "2020-01-01")
    assert bounds(-719_162, 2_932_896) == ("0001-01-01", "9999-12-31")
    assert bounds(-719_163, 2_932_897) == (None, None)


def test_dates_and_timestamps_in_sparks_hybrid_calendar_have_no_bounds(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    table = pa.table({"d": pa.array([1], pa.int32()).cast(pa.date32()), "t": pa.array([1], MICROSECONDS)})
    schema = StructType().add("d", DateType()).add("t", TimestampType())
    pq.write_table(table, file)
    assert set(statistics(file, schema)["minValues"]) == {"d", "t"}
    for key, value in {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "2.4.8"}.items():
        pq.write_table(table.replace_schema_metadata({key: value}), file)
        assert statistics(file, schema)["minValues"] == {}
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.version": "3.5.1"}), file)
    assert set(statistics(file, schema)["minValues"]) == {"d", "t"}


@pytest.mark.parametrize(
    ("precision", "scale", "low", "high"),
    [
        (5, 0, "-99999", "7"),
        (9, 2, "-1234567.89", "0.05"),
        (18, 4, "-0.0001", "99999999999999.9999"),
        (38, 18, "-99999999999999999999.999999999999999999", "0.000000000000000001"),
        (38, 38, "-0.00000000000000000000000000000000000001", "0." + "9" * 38),
    ],
)
@pytest.mark.parametrize("as_integer", [False, True])
def test_decimals_keep_every_digit(
    tmp_path: Path, precision: int, scale: int, low: str, high: str, as_integer: bool
) -> None:
    values = pa.array([Decimal(low), None, Decimal(high)], pa.decimal128(precision, scale))
    file = write(tmp_path, {"c": values}, store_decimal_as_integer=as_integer)
    text = statistics_text(file, StructType().add("c", DecimalType(precision, scale)))
    assert f'"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}}' in text


def test_a_column_of_another_type_has_no_bounds(tmp_path: Path) -> None:
    unsigned = pa.array([2**32 - 1], pa.uint32())
    assert one_column(tmp_path, unsigned, IntegerType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array(["a"]), IntegerType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array([[1, 2]]), LongType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array([Decimal("1.50")]), DecimalType(3, 1)) == (None, None, 0)
    assert one_column(tmp_path, pa.array([{"x": 1}]), LongType()) == (None, None, None)
    assert one_column(tmp_path, pa.array([1]), StructType().add("x", LongType())) == (None, None, None)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    good = write(tmp_path, {"a": pa.array([1])})
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 but nothing of it PAR1")
    files = [(str(file), file.stat().st_size) for file in (good, bad)]
    with pytest.raises(StoreError, match=r"bad\.parquet") as raised:
        collect_statistics(files, [(("a",), LongType())])
    assert raised.value.file == str(bad)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone\.parquet"):
        collect_statistics([(str(tmp_path / "gone.parquet"), 10)], [(("a",), LongType())])


def test_a_file_of_another_size_than_the_written_one_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, {"a": pa.array([1])})
    with pytest.raises(StoreError, match=r"data\.parquet has \d+ bytes, but its writer reported 12"):
        collect_statistics([(str(file), 12)], [(("a",), LongType())])


def test_an_independent_reader_understands_them(tmp_path: Path) -> None:
    schema = StructType()
    columns: dict[str, pa.Array] = {}
    for name, values, data_type in [
        ("l", pa.array([-(2**63), 2**63 - 1]), LongType()),
        ("d", pa.array([0.0, 1.5]), DoubleType()),
        ("s", pa.array(["é" * 40, "\U0001f600"]), StringType()),
        ("day", pa.array([0, 1], pa.int32()).cast(pa.date32()), DateType()),
        ("t", pa.array([1_001, 2_001], MICROSECONDS), TimestampType()),
        ("n", pa.array([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)), DecimalType(9, 2)),
    ]:
        columns[name] = values
        schema.add(name, data_type)
    file = write(tmp_path, columns)
    add = {
        "path": file.name,
        "partitionValues": {},
        "size": file.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": statistics_text(file, schema),
    }
    metadata = {
        "id": "5f2a2a4e-3f0b-4a55-9d52-7d6d3c2b1a00",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": add}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))

    [found] = pa.table(deltalake.DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()

    assert found["num_records"] == 2
    for name, values in columns.items():
        assert found[f"null_count.{name}"] == 0
        assert found[f"min.{name}"] <= min(values.to_pylist())
        if name != "d":
            assert found[f"max.{name}"] >= max(values.to_pylist())
    assert (found["min.n"], found["max.n"]) == (Decimal("-1.50"), Decimal("2.25"))


# Files of Spark's own writer, made in a process of its own so that no session is shared.

SPARK_SCRIPT = """
import json, sys
from deltaflow.spark.java_home import ensure_java
from pyspark.sql import SparkSession
ensure_java()
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS").getOrCreate())
directory, queries = sys.argv[1], json.loads(sys.argv[2])
for name, query in queries.items():
    rows = spark.sql(query).coalesce(1)
    options = {"parquet.statistics.truncate.length": "256"} if name == "truncated" else {}
    rows.write.options(**options).parquet(f"{directory}/{name}")
    with open(f"{directory}/{name}.schema", "w") as file:
        file.write(rows.schema.json())
"""

LONG_STRINGS = "select repeat('\U0001f600', 5000) a, repeat('b', 5000) b, cast(null as string) c union all "
SPARK_QUERIES = {
    "types": f"""
        select cast(-128 as tinyint) y, cast(-32768 as smallint) h, -2147483648 i,
            -9223372036854775807L - 1 l, cast(0.1 as float) f, -1.5D d, 'é' s,
            date'0001-01-01' day, timestamp'0001-01-01 00:00:00' t, 1.25BD n,
            cast('-99999999999999999999.999999999999999999' as decimal(38,18)) w, true b, X'00' x,
            array(1) a, map('k', 1) m, named_struct('p.q', 1, 'r', named_struct('z', 'in')) st
        union all select 127Y, 32767S, 2147483647, 9223372036854775807L, cast(2.5 as float), 2.5D,
            repeat('\U0001f600', 40), date'9999-12-31', timestamp'2020-01-01 00:00:00.123456', 7.50BD,
            cast('0.000000000000000001' as decimal(38,18)), false, X'FF', array(2), map('l', 2),
            named_struct('p.q', 2, 'r', named_struct('z', '{HIGHEST}'))
        union all select null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null, null""",
    "floats": """
        select 1.0D some_nan, double('NaN') all_nan, -0.0D zero, float('-Infinity') infinite, 3.0D plain
        union all select double('NaN'), double('NaN'), 0.0D, cast(1 as float), 4.0D""",
    "long_strings": LONG_STRINGS + "select 'z', null, null",
    "truncated": LONG_STRINGS + "select 'z', null, null",
    "empty": "select 1 a, 'x' s where false",
}


@pytest.fixture(scope="module")
def spark_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, StructType]]:
    """name of the query -> the file that Spark wrote for it, and its schema."""
    directory = tmp_path_factory.mktemp("spark")
    command = [sys.executable, "-c", SPARK_SCRIPT, str(directory), json.dumps(SPARK_QUERIES)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    files = {}
    for name in SPARK_QUERIES:
        [file] = (directory / name).glob("*.parquet")
        files[name] = file, StructType.fromJson(json.loads((directory / f"{name}.schema").read_text()))
    return files


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK_QUERIES)
def test_statistics_hold_for_files_of_spark(
    spark_files: dict[str, tuple[Path, StructType]], name: str
) -> None:
    assert_statistics_hold(*spark_files[name])


@pytest.mark.spark
def test_every_type_as_spark_writes_it(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    found = statistics(*spark_files["types"])
    assert found["numRecords"] == 3
    assert float(found["minValues"].pop("f")) == pa.scalar(0.1, pa.float32()).as_py()
    assert found["minValues"] == {
        "y": -128,
        "h": -32768,
        "i": -(2**31),
        "l": -(2**63),
        "d": Decimal("-1.5"),
        "s": "é",
        "day": "0001-01-01",
        "t": "0001-01-01T00:00:00.000Z",
        "n": Decimal("1.25"),
        "w": Decimal("-99999999999999999999.999999999999999999"),
        "st": {"p.q": 1, "r": {"z": "in"}},
    }
    assert found["maxValues"] == {
        "y": 127,
        "h": 32767,
        "i": 2**31 - 1,
        "l": 2**63 - 1,
        "f": Decimal("2.5"),
        "d": Decimal("2.5"),
        "s": "\U0001f600" * 32 + HIGHEST,
        "day": "9999-12-31",
        "t": "2020-01-01T00:00:00.124Z",
        "n": Decimal("7.50"),
        "w": Decimal("0.000000000000000001"),
        "st": {"p.q": 2, "r": {"z": HIGHEST}},
    }
    columns = dict.fromkeys((*"yhilfdstnwbxam", "day"), 1)
    assert found["nullCount"] == {**columns, "st": {"p.q": 1, "r": {"z": 1}}}


@pytest.mark.spark
def test_spark_shows_nan_as_the_maximum(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    text = statistics_text(*spark_files["floats"])
    assert '"minValues":{"some_nan":1.0,"zero":-0.0,"plain":3.0}' in text
    assert '"maxValues":{"zero":0.0,"infinite":1.0,"plain":4.0}' in text


@pytest.mark.spark
def test_footers_without_bounds_of_long_strings(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    found = statistics(*spark_files["long_strings"])
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "c": 2}}


@pytest.mark.spark
def test_footers_that_cut_long_strings(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    assert statistics(*spark_files["truncated"]) == {
        "numRecords": 2,
        "minValues": {"a": "z", "b": "b" * 32},
        "maxValues": {"a": "\U0001f600" * 32 + HIGHEST, "b": "b" * 32 + "\x7f"},
        "nullCount": {"a": 0, "b": 1, "c": 2},
    }


@pytest.mark.spark
def test_a_file_without_rows_of_spark(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    expected = {"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "s": 0}}
    assert statistics(*spark_files["empty"]) == expected
