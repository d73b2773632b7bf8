"""Whether rows of one schema can be read as rows of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import types as T

from deltaflow.log.protocol.column_mapping import keeps_names
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, types_within
from deltaflow.log.protocol.type_widening import keeps_values

Path = Sequence[str]


def can_read(
    reader: T.DataType,
    data: T.DataType,
    *,
    may_omit_columns: bool = False,
    may_add_columns: bool = False,
    takes_any_nulls: bool = False,
) -> bool:
    """Whether data of one schema can be read by the other one, with the same names of columns.

    See `obstacle_to_reading`.
    """
    obstacle = obstacle_to_reading(
        reader,
        data,
        may_omit_columns=may_omit_columns,
        may_add_columns=may_add_columns,
        takes_any_nulls=takes_any_nulls,
    )
    return obstacle is None


def can_read_removed(schema: T.StructType, before: T.StructType) -> bool:
    """Whether the schema of a change data feed can read rows that its first version has removed, of the
    schema `before`. Columns that the feed lacks are left out; none may be another one of the same name."""
    if not keeps_names(before, schema):
        return False
    obstacle = obstacle_to_reading(
        schema,
        before,
        fits=keeps_values,
        may_omit_columns=True,
        may_add_columns=True,
        takes_any_nulls=True,
    )
    return obstacle is None


def obstacle_to_reading(
    reader: T.DataType,
    data: T.DataType,
    path: Path = (),
    *,
    fits: Callable[[T.DataType, T.DataType], bool] = lambda data, reader: data == reader,
    by_name: Callable[[str], str] = lambda name: name,
    may_omit_columns: bool = False,
    may_add_columns: bool = False,
    takes_any_nulls: bool = False,
) -> str | None:
    """Why data of the type `data` cannot be read as the type `reader`, in words; None if it can be.

    Columns are compared by their names as `by_name` makes them, atomic types by `fits`. The reader may leave
    columns of the data out, or have more columns that take nulls, where that is allowed. A nullable
    column is read only by a nullable one, unless nullability does not count (`takes_any_nulls`).
    """
    if not have_one_shape(reader, data):
        if fits(data, reader):
            return None
        return f"changing data type of {dotted(path)} from {data.simpleString()} to {reader.simpleString()}"
    omitted = {by_name(field.name): field for field in inner_fields(data)}
    for field in inner_fields(reader):
        inside = (*path, field.name)
        before = omitted.pop(by_name(field.name), None)
        if before is None:
            if not may_add_columns:
                return f"adding column {dotted(inside)}"
            if not takes_any_nulls and not all(new.nullable for new in fields_within(field)):
                return f"adding non-nullable column {dotted(inside)}"
            continue
        if before.nullable and not field.nullable and not takes_any_nulls:
            return f"tightening nullability of {dotted(inside)}"
        obstacle = obstacle_to_reading(
            field.dataType,
            before.dataType,
            inside,
            fits=fits,
            by_name=by_name,
            may_omit_columns=may_omit_columns,
            may_add_columns=may_add_columns,
            takes_any_nulls=takes_any_nulls,
        )
        if obstacle is not None:
            return obstacle
    if not omitted or may_omit_columns:
        return None
    names = ", ".join(field.name for field in omitted.values())
    return f"dropping column(s) [{names}]" + (f" from {dotted(path)}" if path else "")


def fields_within(field: T.StructField) -> list[T.StructField]:
    """The field itself, and the fields of all structs within its type."""
    structs = [found for _, found in types_within(field.dataType) if isinstance(found, T.StructType)]
    return [field, *(inner for struct in structs for inner in struct.fields)]


def dotted(path: Path) -> str:
    """A path as it is in messages and in the history (Spark's UnresolvedAttribute.name)."""
    return ".".join(f"`{name}`" if "." in name else name for name in path)
