"""Type widening: columns whose type has grown, and whose older files have the narrow one (PROTOCOL.md, "Type
Widening").

The schema records each change in the metadata of the nearest struct field. Spark's Parquet reader, and
statistics and partition values here, read the values of older files as the type of today.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import types as T

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.protocol.data_types import (
    have_one_shape,
    inner_fields,
    is_nested,
    types_within,
    with_inner_fields,
    with_metadata,
)
from deltaflow.log.protocol.schema import schema_from_string

TYPE_CHANGES: Final = "delta.typeChanges"
"""In a field's metadata: the changes of its type, oldest first."""
_INTEGERS: Final[tuple[type[T.DataType], ...]] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_STRINGS = (T.StringType, T.CharType, T.VarcharType)


def can_widen(narrow: T.DataType, wide: T.DataType) -> bool:
    """Whether a column may get the type `wide` in place of `narrow`; neither is nested.

    The types of a change differ, so equal types are none.
    """
    if narrow == wide:
        return False
    is_small = isinstance(narrow, T.ByteType | T.ShortType | T.IntegerType)
    match narrow, wide:
        case T.FloatType(), T.DoubleType():
            return True
        case T.DateType(), T.TimestampNTZType():
            return True
        case _, T.DoubleType():
            return is_small
        case T.DecimalType(), T.DecimalType():
            return _holds(wide, narrow.precision, narrow.scale)
        case _, T.DecimalType():
            return (is_small and _holds(wide, 10, 0)) or (
                isinstance(narrow, T.LongType) and _holds(wide, 20, 0)
            )
    if type(narrow) in _INTEGERS and type(wide) in _INTEGERS:
        return _INTEGERS.index(type(narrow)) < _INTEGERS.index(type(wide))
    return False


def _holds(decimal: T.DecimalType, precision: int, scale: int) -> bool:
    """Whether the decimal has room for all values with so many digits."""
    return decimal.scale >= scale and decimal.precision - decimal.scale >= precision - scale


def fits_widened(data: T.DataType, column: T.DataType) -> bool:
    """Whether files of the first type are read as the second: it is the same, or was widened to it."""
    return data == column or can_widen(data, column)


def keeps_values(data: T.DataType, column: T.DataType) -> bool:
    """Whether a column of the second type keeps every value of the first as it is."""
    return isinstance(data, T.NullType) or fits_widened(data, column)


def has_type_changes(schema: T.StructType) -> bool:
    """Whether the schema records a change of a type."""
    return any(TYPE_CHANGES in field.metadata for field in _fields(schema))


def without_type_changes(schema: T.StructType) -> T.StructType:
    """The schema without the record of changed types."""
    if not has_type_changes(schema):
        return schema
    return with_metadata(schema, lambda name: name != TYPE_CHANGES)


def with_type_changes(new: T.StructType, old: T.StructType) -> T.StructType:
    """The schema `new`, in which each field records how its type has grown since `old`.

    Fields are the same if their names are, regardless of case.
    """
    recorded = _recorded(new, old)
    assert isinstance(recorded, T.StructType)
    return recorded


def _recorded(new: T.DataType, old: T.DataType | None) -> T.DataType:
    if not is_nested(new) or old is None or not have_one_shape(new, old):
        return new
    before = {field.name.lower(): field.dataType for field in inner_fields(old)}
    fields = []
    for field in inner_fields(new):
        narrow = before.get(field.name.lower())
        metadata = field.metadata
        if isinstance(new, T.StructType) and narrow is not None:
            changes = list(_changes(narrow, field.dataType, ()))
            if changes:
                metadata = {**metadata, TYPE_CHANGES: [*metadata.get(TYPE_CHANGES, ()), *changes]}
        fields.append(T.StructField(field.name, _recorded(field.dataType, narrow), field.nullable, metadata))
    return with_inner_fields(new, fields)


def _changes(old: T.DataType, new: T.DataType, path: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The changes of one struct field's type, arrays and maps included; structs within keep their own."""
    if isinstance(new, T.ArrayType | T.MapType) and have_one_shape(old, new):
        for before, after in zip(inner_fields(old), inner_fields(new), strict=True):
            yield from _changes(before.dataType, after.dataType, (*path, after.name))
    elif can_widen(old, new):
        change = {"fromType": _name(old), "toType": _name(new)}
        yield {**change, "fieldPath": ".".join(path)} if path else change


def check_type_changes(schema_string: str | None, table: str, version: int | None) -> None:
    """UnsupportedFeatureError (DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA) if the schema records a change that
    the protocol does not have: older files could not be read."""
    if TYPE_CHANGES not in (schema_string or ""):
        return
    schema = schema_from_string(schema_string, table=table, version=version)
    for path, data_type in types_within(schema):
        for field in data_type.fields if isinstance(data_type, T.StructType) else ():
            for change in field.metadata.get(TYPE_CHANGES, ()):
                if not _is_known(change):
                    column = ".".join([*([path] if path else []), field.name])
                    raise UnsupportedFeatureError(
                        error_class="DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
                        features=["typeWidening"],
                        field_name=".".join(
                            [column, *([str(change["fieldPath"])] if "fieldPath" in change else [])]
                        ),
                        from_type=str(change.get("fromType")),
                        to_type=str(change.get("toType")),
                        table=table,
                        version=version,
                        column=column,
                    )


def _is_known(change: Any) -> bool:
    types = [_type(change.get(name)) for name in ("fromType", "toType")]
    narrow, wide = types
    if narrow is None or wide is None:
        return False
    # Some writers record changes of CHAR and VARCHAR, which are strings in files.
    return fits_widened(narrow, wide) or all(isinstance(each, _STRINGS) for each in types)


def _type(name: Any) -> T.DataType | None:
    """The atomic type of this name in the log; None for any other."""
    field = {"name": "c", "type": name, "nullable": True, "metadata": {}}
    try:
        return T.StructType.fromJson({"fields": [field]}).fields[0].dataType
    except Exception:  # PySpark's parser raises exceptions of any class.
        return None


def _name(data_type: T.DataType) -> str:
    return str(data_type.jsonValue())


def _fields(schema: T.StructType) -> Iterator[T.StructField]:
    for _, data_type in types_within(schema):
        if isinstance(data_type, T.StructType):
            yield from data_type.fields


def was_float(schema: T.StructType, path: tuple[str, ...]) -> bool:
    """Whether the column at this path, or a nested field, is a double that was a float once."""
    data_type: T.DataType = schema
    changes: list[dict[str, str]] = []
    for name in path:
        if not isinstance(data_type, T.StructType) or name not in data_type.names:
            return False
        changes = data_type[name].metadata.get(TYPE_CHANGES, [])
        data_type = data_type[name].dataType
    return isinstance(data_type, T.DoubleType) and any(
        change.get("fromType") == "float" and "fieldPath" not in change for change in changes
    )
