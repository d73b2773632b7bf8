"""Decides which changes of a column's type need no rewrite of a file (delta-spark's SchemaUtils)."""

from __future__ import annotations

from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, with_inner_fields
from deltaflow.log.protocol.schema_reading import Path, dotted, obstacle_to_reading
from deltaflow.log.protocol.type_widening import can_widen

_NESTED: tuple[tuple[type[T.DataType], str], ...] = (
    (T.StructType, "DELTA_CANNOT_UPDATE_STRUCT_FIELD"),
    (T.ArrayType, "DELTA_CANNOT_UPDATE_ARRAY_FIELD"),
    (T.MapType, "DELTA_CANNOT_UPDATE_MAP_FIELD"),
)


def check_change(old: T.DataType, new: T.DataType, path: Path, table: str, *, may_widen: bool) -> bool:
    """Whether ALTER COLUMN may give a column the new type; a wider one, if the table `may_widen` types.

    DELTA_CANNOT_UPDATE_… for nested types, whose parts are changed by their own paths.
    """
    if old == new:
        return True
    for nested_type, error_class in _NESTED:
        if isinstance(old, nested_type):
            name = dotted(path)
            raise DeltaAnalysisException(
                error_class=error_class, table_name=table, field_name=name, table=table, column=name
            )
    return _fits(old, new) or (may_widen and can_widen(old, new))


def obstacle_to_change(old: T.DataType, new: T.DataType, path: Path, *, may_widen: bool) -> str | None:
    """The reason why data of the old type cannot be read as the new one; None if it can be."""
    return obstacle_to_reading(
        new,
        old,
        path,
        fits=lambda data, reader: _fits(data, reader) or (may_widen and can_widen(data, reader)),
        by_name=str.lower,
        may_add_columns=True,
    )


def replaced(old: T.DataType, new: T.DataType) -> T.DataType:
    """The new type, in which the old columns keep their names, and their metadata except for new comments."""
    if not have_one_shape(old, new):
        return new
    by_name = {field.name.lower(): field for field in inner_fields(old)}
    return with_inner_fields(
        new, [_replaced_field(by_name.get(field.name.lower()), field) for field in inner_fields(new)]
    )


def _replaced_field(old: T.StructField | None, new: T.StructField) -> T.StructField:
    if old is None:
        return new
    metadata = {**old.metadata, **new.metadata}
    return T.StructField(old.name, replaced(old.dataType, new.dataType), new.nullable, metadata)


def _fits(old: T.DataType, new: T.DataType) -> bool:
    match old, new:
        case T.NullType(), _:
            return True
        case T.CharType() | T.VarcharType(), T.VarcharType():
            return old.length <= new.length
        case T.CharType() | T.VarcharType(), T.StringType():
            return True
    return old == new
