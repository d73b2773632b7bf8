"""Partition values: from Spark's folder names to the log's strings, and from these to Arrow.

Protocol: "Partition Value Serialization".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltaflow.errors import DeltaIllegalStateException, UnsupportedFeatureError
from deltaflow.log.files.text_casts import cast, cast_or_null, dates, instant_texts, instants, local_times
from deltaflow.log.protocol.schema import char_length

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

    `relative_path` is URI-encoded, relative to the table. Spark's writer, with time zone UTC, makes one
    folder for each column of `partition_schema`, in this order (ExternalCatalogUtils, PartitioningUtils);
    DeltaIllegalStateException names a file that lies in other folders.
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


def typed_values(values: pa.StringArray, data_type: DataType, time_zone: str = "UTC") -> pa.Array:
    """The log's partition values of one column as an Arrow array of the column's type.

    An empty string is null for every type. A timestamp without a zone is a local time of `time_zone`, the
    session's, as for Spark's readers. Raises pyarrow.ArrowInvalid for a string that is not of the type and
    UnsupportedFeatureError for a type that cannot be a partition column.
    """
    typed = _typed(_without_empty(values), data_type, time_zone)
    wrong = first_wrong_value(values, typed)
    if wrong is not None:
        raise pa.ArrowInvalid(f"partition value {wrong!r} is no {data_type.simpleString()}")
    return typed


def typed_values_or_null(values: pa.StringArray, data_type: DataType, time_zone: str = "UTC") -> pa.Array:
    """As `typed_values`, with null for a string that is not of the type."""
    values = _without_empty(values)
    try:
        return _typed(values, data_type, time_zone)
    except pa.ArrowInvalid:
        return cast_or_null(values, _arrow_type(data_type))


def canonical_values(values: pa.StringArray, data_type: DataType, time_zone: str) -> pa.StringArray:
    """The values as deltaflow writes them: timestamps as one text for each instant, others unchanged. An
    empty text and one that is not a timestamp become null."""
    if not isinstance(data_type, TimestampType):
        return _without_empty(values)
    return instant_texts(instants(values, time_zone))


def first_wrong_value(values: pa.StringArray, typed: pa.Array) -> str | None:
    """The first of the log's partition values that became null because it is not of the column's type."""
    if typed.null_count <= values.null_count:
        return None
    wrong = values.filter(pc.and_(pc.is_null(typed), pc.not_equal(values, "")))
    return wrong[0].as_py() if len(wrong) else None


def _without_empty(values: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def _typed(values: pa.StringArray, data_type: DataType, time_zone: str) -> pa.Array:
    match data_type:
        case DateType():
            return dates(values)
        case TimestampType():
            return instants(values, time_zone)
        case TimestampNTZType():
            return local_times(values)
    return cast(values, _arrow_type(data_type))


def _arrow_type(data_type: DataType) -> pa.DataType:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    arrow_type = ARROW_TYPES.get(type(data_type))
    if arrow_type is None:
        name = f"partition column of type {data_type.simpleString()}"
        raise UnsupportedFeatureError(f"Cannot read a {name}.", features=(name,))
    return arrow_type


def without_char_padding(values: Any, field: StructField) -> Any:
    """A column's values, an Arrow array or expression, without trailing blanks if the column is CHAR: some
    writers pad such values, and the blanks have no meaning."""
    return values if char_length(field) is None else pc.utf8_rtrim(values, " ")


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
