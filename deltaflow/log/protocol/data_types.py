"""Data types as trees: structs, arrays and maps all have inner fields, and are read and rebuilt alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import types as T


def inner_fields(data_type: T.DataType) -> list[T.StructField]:
    """The fields of a struct; an array's `element`, a map's `key` and `value`, as fields; else none."""
    match data_type:
        case T.StructType():
            return list(data_type.fields)
        case T.ArrayType():
            return [T.StructField("element", data_type.elementType, data_type.containsNull)]
        case T.MapType():
            return [
                T.StructField("key", data_type.keyType, False),
                T.StructField("value", data_type.valueType, data_type.valueContainsNull),
            ]
    return []


def fields_at(data_type: T.DataType, names: Iterable[str]) -> list[T.StructField] | None:
    """The fields that a path of names, in whatever case, goes through; None where one is missing."""
    path: list[T.StructField] = []
    for name in names:
        fields = data_type.fields if isinstance(data_type, T.StructType) else []
        field = next((field for field in fields if field.name.lower() == name.lower()), None)
        if field is None:
            return None
        path.append(field)
        data_type = field.dataType
    return path


def with_inner_fields(data_type: T.DataType, fields: Sequence[T.StructField]) -> T.DataType:
    """A type of the same shape with these inner fields (see `inner_fields`)."""
    match data_type:
        case T.StructType():
            return T.StructType(list(fields))
        case T.ArrayType():
            [element] = fields
            return T.ArrayType(element.dataType, element.nullable)
        case T.MapType():
            key, value = fields
            return T.MapType(key.dataType, value.dataType, value.nullable)
    return data_type


def has_order(data_type: T.DataType) -> bool:
    """Whether Spark can compare two values of a type."""
    if isinstance(data_type, T.MapType | T.NullType) or data_type.typeName() == "variant":
        return False
    return all(has_order(inner.dataType) for inner in inner_fields(data_type))


EXACT_JSON = {
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
"""Options of Spark's to_json with which different values of a type have different texts: by default it writes
the milliseconds of timestamps alone."""


def is_nested(data_type: T.DataType) -> bool:
    """Whether it is a struct, an array or a map."""
    return isinstance(data_type, T.StructType | T.ArrayType | T.MapType)


def have_one_shape(one: T.DataType, other: T.DataType) -> bool:
    """Whether both are structs, both arrays or both maps: their inner fields then match by name."""
    return is_nested(one) and type(one) is type(other)


def with_type(field: T.StructField, data_type: T.DataType) -> T.StructField:
    """The field with another type."""
    return T.StructField(field.name, data_type, field.nullable, field.metadata)


def transformed(
    data_type: T.DataType,
    *,
    field: Callable[[T.StructField], T.StructField] = lambda unchanged: unchanged,
    atomic: Callable[[T.DataType], T.DataType] = lambda unchanged: unchanged,
) -> T.DataType:
    """The type with each atomic type and each inner field in it replaced, from the innermost outwards."""
    if not is_nested(data_type):
        return atomic(data_type)
    return with_inner_fields(
        data_type,
        [
            field(with_type(inner, transformed(inner.dataType, field=field, atomic=atomic)))
            for inner in inner_fields(data_type)
        ],
    )


def transformed_schema(
    schema: T.StructType,
    *,
    field: Callable[[T.StructField], T.StructField] = lambda unchanged: unchanged,
    atomic: Callable[[T.DataType], T.DataType] = lambda unchanged: unchanged,
) -> T.StructType:
    """As `transformed`, for a whole schema."""
    schema_of_same_shape = transformed(schema, field=field, atomic=atomic)
    assert isinstance(schema_of_same_shape, T.StructType)
    return schema_of_same_shape


def with_metadata(schema: T.StructType, keeps: Callable[[str], bool]) -> T.StructType:
    """The schema, whose fields keep those of their metadata for whose names `keeps` is true."""
    return transformed_schema(
        schema,
        field=lambda field: T.StructField(
            field.name,
            field.dataType,
            field.nullable,
            {name: value for name, value in field.metadata.items() if keeps(name)},
        ),
    )


def types_within(data_type: T.DataType, path: str = "") -> Iterator[tuple[str, T.DataType]]:
    """The type and every type in it, each with its path: the names of inner fields, separated by dots."""
    yield path, data_type
    for inner in inner_fields(data_type):
        yield from types_within(inner.dataType, f"{path}.{inner.name}" if path else inner.name)
