"""Partition values: from Spark's folder names to the log's strings, from those to Arrow.

Protocol: "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
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
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltaflow.errors import DeltaIllegalStateException, UnsupportedFeatureError

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_HIVE_ESCAPE: Final = re.compile("%([0-9a-fA-F]{2})")
_ESCAPED_BY_HIVE: Final = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_FOLDER_TIMESTAMP: Final = re.compile(r"([+-]?\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?", re.ASCII)
ARROW_TYPES: Final[dict[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampNTZType: pa.timestamp("us"),
    TimestampType: pa.timestamp("us", "UTC"),
}


def partition_values_of(relative_path: str, partition_schema: StructType) -> dict[str, str | None]:
    """The log's partition values of a file that Spark wrote below `col=value/…` folders.

    `relative_path` is URI-encoded, relative to the table; the folders are those of Spark's writer
    with time zone UTC, one a column of `partition_schema` in its order (ExternalCatalogUtils,
    PartitioningUtils). Raises DeltaIllegalStateException, naming the file, where they are not.
    """
    folders = [unquote(folder, errors="strict") for folder in relative_path.split("/")[:-1]]
    found = [_column_and_value(folder) for folder in folders]
    expected = partition_schema.names
    if [name for name, _ in found] != expected or not all("=" in folder for folder in folders):
        raise DeltaIllegalStateException(
            f"Data file {relative_path} does not lie in folders of the partition columns "
            f"[{', '.join(expected)}]: it was not written for this table.",
            file=relative_path,
        )
    return {
        field.name: _serialized(value, field.dataType, relative_path)
        for field, (_, value) in zip(partition_schema.fields, found, strict=True)
    }


def partition_folder(columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """`column=value/…` of a partition with these values of the log, escaped as by Hive and Spark."""
    return "/".join(
        f"{_hive_escaped(name)}={_hive_escaped(values[name] or '') or NULL_FOLDER}" for name in columns
    )


def folder_values(fragment: str) -> dict[str, str | None]:
    """Columns and values of `col=value/…` folders, decoded, as Spark names them (not URI-encoded)."""
    return dict(_column_and_value(folder) for folder in fragment.split("/"))


def typed_values(values: pa.StringArray, data_type: DataType) -> pa.Array:
    """The log's partition values of one column as an Arrow array of the column's type.

    An empty string is null for every type. A timestamp without a zone, which belongs to the zone of
    a writer nobody knows, is read as UTC. Raises pyarrow.ArrowInvalid for a string that is no such
    value and UnsupportedFeatureError for a type that cannot be a partition column.
    """
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    if isinstance(data_type, DecimalType):
        return values.cast(pa.decimal128(data_type.precision, data_type.scale))
    arrow_type = ARROW_TYPES.get(type(data_type))
    if arrow_type is None:
        name = f"partition column of type {data_type.simpleString()}"
        raise UnsupportedFeatureError(f"Cannot read a {name}.", features=(name,))
    if isinstance(data_type, TimestampType):
        zone = pc.if_else(pc.ends_with(values, "Z"), "", "Z")
        values = pc.binary_join_element_wise(values, zone, "")
    return values.cast(arrow_type)


def _column_and_value(folder: str) -> tuple[str, str | None]:
    name, _, value = folder.partition("=")
    return _hive_unescaped(name), None if value == NULL_FOLDER else _hive_unescaped(value)


def _hive_unescaped(text: str) -> str:
    return _HIVE_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)


def _hive_escaped(text: str) -> str:
    return _ESCAPED_BY_HIVE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _serialized(value: str | None, data_type: DataType, relative_path: str) -> str | None:
    if value is None or not isinstance(data_type, TimestampType):
        return value
    # As text, since Spark's years go beyond those of Python's datetime.
    parts = _FOLDER_TIMESTAMP.fullmatch(value)
    if parts is None:
        raise DeltaIllegalStateException(
            f"Data file {relative_path} lies in a folder of timestamp {value!r}, which is not of the form "
            "'yyyy-MM-dd HH:mm:ss[.ffffff]' that Spark writes.",
            file=relative_path,
        )
    day, time, fraction = parts.groups(default="")
    return f"{day}T{time}.{fraction:0<6}Z"
