"""The statistics of a file by its footer, and what must hold of them for its values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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
    TimestampType,
)

from deltaflow.log import Metadata, schema_to_string
from deltaflow.log.files.footers import collect_statistics
from deltaflow.log.protocol.indexed_columns import indexed_leaves

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


def write_parquet(path: Path, columns: dict[str, pa.Array], **options: Any) -> Path:
    file = path / "data.parquet"
    pq.write_table(pa.table(columns), file, **options)
    return file


def one_column(path: Path, values: pa.Array, data_type: DataType, **options: Any) -> tuple[Any, Any, Any]:
    """(min, max, nullCount) of a column; None for what is left out."""
    found = statistics(write_parquet(path, {"c": values}, **options), StructType().add("c", data_type))
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
