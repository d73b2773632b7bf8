"""Which types of columns may become which without rewriting a file (delta-spark's SchemaUtils).

A wider number needs the table feature typeWidening, a dropped column columnMapping: deltaflow has neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException

Path = Sequence[str]
_NESTED: tuple[tuple[type[T.DataType], str], ...] = (
    (T.StructType, "DELTA_CANNOT_UPDATE_STRUCT_FIELD"),
    (T.ArrayType, "DELTA_CANNOT_UPDATE_ARRAY_FIELD"),
    (T.MapType, "DELTA_CANNOT_UPDATE_MAP_FIELD"),
)


def check_change(old: T.DataType, new: T.DataType, path: Path, table: str) -> bool:
    """Whether ALTER COLUMN may give a column the new type.

    DELTA_CANNOT_UPDATE_… for nested types: their parts are changed by their own paths.
    """
    if old == new:
        return True
    for kind, error_class in _NESTED:
        if isinstance(old, kind):
            name = dotted(path)
            raise DeltaAnalysisException(
                error_class=error_class, table_name=table, field_name=name, table=table, column=name
            )
    return _fits(old, new)


def first_obstacle(old: T.DataType, new: T.DataType, path: Path) -> str | None:
    """Why data of the old type cannot be read as the new one, in words; None if it can be."""
    match old, new:
        case T.StructType(), T.StructType():
            return _obstacle_in_struct(old, new, path)
        case T.ArrayType(), T.ArrayType():
            return _tightened(old.containsNull, new.containsNull, path) or first_obstacle(
                old.elementType, new.elementType, (*path, "element")
            )
        case T.MapType(), T.MapType():
            return (
                _tightened(old.valueContainsNull, new.valueContainsNull, path)
                or first_obstacle(old.keyType, new.keyType, (*path, "key"))
                or first_obstacle(old.valueType, new.valueType, (*path, "value"))
            )
    if _fits(old, new):
        return None
    return f"changing data type of {dotted(path)} from {old.simpleString()} to {new.simpleString()}"


def replaced(old: T.DataType, new: T.DataType) -> T.DataType:
    """The new type, in which columns of the old one keep their names and metadata but for new comments."""
    match old, new:
        case T.StructType(), T.StructType():
            by_name = {field.name.lower(): field for field in old.fields}
            return T.StructType(
                [_replaced_field(by_name.get(field.name.lower()), field) for field in new.fields]
            )
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(replaced(old.elementType, new.elementType), old.containsNull)
        case T.MapType(), T.MapType():
            return T.MapType(
                replaced(old.keyType, new.keyType),
                replaced(old.valueType, new.valueType),
                old.valueContainsNull,
            )
    return new


def fields_of(field: T.StructField) -> Iterator[T.StructField]:
    """The field, and all within its type."""
    yield field
    kinds = [field.dataType]
    while kinds:
        match kinds.pop():
            case T.StructType(fields=fields):
                for inner in fields:
                    yield from fields_of(inner)
            case T.ArrayType(elementType=element):
                kinds.append(element)
            case T.MapType(keyType=key, valueType=value):
                kinds += [key, value]


def dotted(path: Path) -> str:
    """A path as messages and the history have it (Spark's UnresolvedAttribute.name)."""
    return ".".join(f"`{name}`" if "." in name else name for name in path)


def _fits(old: T.DataType, new: T.DataType) -> bool:
    match old, new:
        case T.NullType(), _:
            return True
        case T.CharType() | T.VarcharType(), T.VarcharType():
            return old.length <= new.length
        case T.CharType() | T.VarcharType(), T.StringType():
            return True
    return old == new


def _obstacle_in_struct(old: T.StructType, new: T.StructType, path: Path) -> str | None:
    left = {field.name.lower(): field for field in old.fields}
    for field in new.fields:
        before = left.pop(field.name.lower(), None)
        inside = (*path, field.name)
        if before is None:
            if not all(new_field.nullable for new_field in fields_of(field)):
                return f"adding non-nullable column {dotted(inside)}"
            continue
        obstacle = _tightened(before.nullable, field.nullable, inside) or first_obstacle(
            before.dataType, field.dataType, inside
        )
        if obstacle is not None:
            return obstacle
    if not left:
        return None
    names = ", ".join(field.name for field in left.values())
    return f"dropping column(s) [{names}]" + (f" from {dotted(path)}" if path else "")


def _tightened(old: bool, new: bool, path: Path) -> str | None:
    return f"tightening nullability of {dotted(path)}" if old and not new else None


def _replaced_field(old: T.StructField | None, new: T.StructField) -> T.StructField:
    if old is None:
        return new
    metadata = {**old.metadata, **new.metadata}
    return T.StructField(old.name, replaced(old.dataType, new.dataType), new.nullable, metadata)
