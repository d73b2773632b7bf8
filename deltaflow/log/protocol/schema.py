"""Schemas: their JSON, and which of them may be written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql import types as T
from pyspark.version import __version__ as SPARK_VERSION

from deltaflow.errors import CorruptLogError, SchemaError, UnsupportedFeatureError
from deltaflow.log.limits import MAX_SCHEMA_DEPTH
from deltaflow.log.protocol.data_types import is_nested, transformed, types_within
from deltaflow.log.untrusted_json import decode_json

_INVALID_CHARACTERS = frozenset(" ,;{}()\n\t=")
READS_VOID = not SPARK_VERSION.startswith("4.0.")
"""Whether this Spark reads a column of type void, which 4.0 does not."""
READS_SHREDDED_VARIANTS = READS_VOID
"""Whether this Spark reads variants of which files have parts in columns of their own; 4.0 does not."""
_WRITABLE_ATOMS = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.BinaryType,
    T.VariantType,
)
_NO_PARTITION_COLUMNS = (T.StructType, T.ArrayType, T.MapType, T.NullType, T.VariantType)

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's name in a column's metadata for the type that the user declared; the column's own is string."""
GENERATION_EXPRESSION = "delta.generationExpression"
"""In a column's metadata: the SQL by which its values are made of the row's other columns."""
CURRENT_DEFAULT = "CURRENT_DEFAULT"
"""In a column's metadata: the SQL of the value that the column has in new rows that give none."""
_METADATA = {
    "comment": str,
    CHAR_VARCHAR: str,
    CURRENT_DEFAULT: str,
    GENERATION_EXPRESSION: str,
    "delta.columnMapping.id": int,
    "delta.columnMapping.physicalName": str,
    "delta.invariants": str,
    "delta.typeChanges": list,
}
"""The types of what is in the metadata of columns."""


def char_length(field: T.StructField) -> int | None:
    """The length of a column that is declared as CHAR; None for any other."""
    return _length(field, "char")


def varchar_length(field: T.StructField) -> int | None:
    """The length of a column that is declared as VARCHAR; None for any other."""
    return _length(field, "varchar")


def _length(field: T.StructField, kind: str) -> int | None:
    declared = re.fullmatch(rf"{kind}\(([0-9]{{1,9}})\)", field.metadata.get(CHAR_VARCHAR, ""))
    return None if declared is None else int(declared[1])


def schema_to_string(schema: T.StructType) -> str:
    """The schemaString of a schema."""
    return schema.json()


def schema_from_string(
    schema_string: str | None, *, table: str | None = None, version: int | None = None
) -> T.StructType:
    """The schema of a schemaString; without one it has no columns.

    CorruptLogError if it is not a schema, UnsupportedFeatureError for a type that PySpark does not know;
    `table` and `version` are for these errors.
    """
    if schema_string is None:
        return T.StructType()
    try:
        json = decode_json(schema_string)
    except msgspec.DecodeError as error:
        raise CorruptLogError(
            f"The schema in the table's metaData is not JSON: {error}. Restore the commit with the metaData "
            "from a copy.",
            table=table,
            version=version,
        ) from error
    if not isinstance(json, dict) or json.get("type") != "struct":
        raise CorruptLogError(
            "The schema in the table's metaData is not a struct. Restore the commit with the metaData from a "
            "copy.",
            table=table,
            version=version,
        )
    if _is_too_deep(json):
        raise CorruptLogError(
            f"The schema in the table's metaData has more than {MAX_SCHEMA_DEPTH} types within types.",
            table=table,
            version=version,
        )
    # fromJson would import the Python class that a user-defined type names.
    if _has_user_defined_type(json):
        raise UnsupportedFeatureError(
            "The table's schema has a user-defined type, which deltaflow does not read.",
            features=["user-defined types"],
            table=table,
            version=version,
        )
    try:
        schema = T.StructType.fromJson(json)
    # PySpark's parser raises exceptions of any class.
    except Exception as error:
        column = _unknown_column(json)
        where = "" if column is None else f", in column {column}"
        problem = str(error) or repr(error)
        raise UnsupportedFeatureError(
            f"The table's schema has a type that this PySpark does not know{where}: {problem}.",
            features=["data type"],
            table=table,
            version=version,
            column=column,
        ) from error
    wrong = _column_with_wrong_metadata(schema)
    if wrong is not None:
        raise CorruptLogError(
            f"The metadata of column {wrong} in the table's schema have values that nobody can understand. "
            "Restore an earlier schema.",
            table=table,
            version=version,
            column=wrong,
        )
    return schema


def _unknown_column(json: dict[str, Any]) -> str | None:
    """The first column that PySpark's parser does not know."""
    fields = json.get("fields")
    for field in fields if isinstance(fields, list) else []:
        try:
            T.StructField.fromJson(field)
        except Exception:  # as above
            return str(field.get("name")) if isinstance(field, dict) else None
    return None


def as_nullable(schema: T.StructType) -> T.StructType:
    """The schema with every column, element and map value nullable, as new tables have it."""
    nullable = nullable_type(schema)
    assert isinstance(nullable, T.StructType)
    return nullable


def check_writable_schema(
    schema: T.StructType,
    partition_columns: Sequence[str] = (),
    *,
    table: str | None = None,
    is_mapped: bool = False,
) -> list[str]:
    """The partition columns by their names in the schema; SchemaError (or UnsupportedFeatureError) if the
    schema has names or types, or the partitioning has columns, that deltaflow does not write. Columns of a
    mapped table may have any names.
    """
    check_no_duplicates(schema, table)
    if not is_mapped:
        _check_names(schema, table)
    for path, data_type in types_within(schema):
        if isinstance(data_type, T.ArrayType | T.MapType) and _has_void(data_type):
            raise SchemaError(
                error_class="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
                column_name=path,
                table=table,
                column=path,
            )
    for path, data_type in types_within(schema):
        unsupported = _unsupported(data_type)
        if unsupported is not None:
            raise UnsupportedFeatureError(
                f"deltaflow does not write the type {unsupported} of column {path} yet. "
                "Cast or drop the column.",
                features=[unsupported],
                error_class="DELTA_UNSUPPORTED_DATA_TYPES",
                table=table,
                column=path,
            )
    return check_partition_columns(schema, partition_columns, table)


def check_partitioning(existing: Sequence[str], given: Sequence[str], *, table: str | None = None) -> None:
    """SchemaError unless the given partition columns are the table's, in order, regardless of case."""
    if [name.lower() for name in existing] != [name.lower() for name in given]:
        raise SchemaError(
            error_class="DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING",
            specified=list(given),
            existing=list(existing),
            table=table,
        )


def rules_of_column(column: T.StructField) -> Any:
    """What a column asks of its rows: its name, type, nullability and metadata, with those of nested fields.

    Equal for columns that differ in comments or in the order of fields alone.
    """
    return _without_order(column.jsonValue())


def _without_order(json: Any) -> Any:
    """A part of a schema's JSON with the fields of structs by their names, and without comments."""
    if not isinstance(json, dict):
        return json
    rules = {name: _without_order(value) for name, value in json.items()}
    if "metadata" in json:
        rules["metadata"] = {name: value for name, value in json["metadata"].items() if name != "comment"}
    if "fields" in json:
        rules["fields"] = {field["name"]: _without_order(field) for field in json["fields"]}
    return rules


def nullable_type(data_type: T.DataType) -> T.DataType:
    """The type with every field, element and map value nullable."""
    return transformed(
        data_type, field=lambda inner: T.StructField(inner.name, inner.dataType, True, inner.metadata)
    )


def check_partition_columns(schema: T.StructType, given: Sequence[str], table: str | None) -> list[str]:
    """The partition columns by their names in the schema; SchemaError if they cannot be partition columns."""
    by_name = {field.name.lower(): field for field in schema.fields}
    resolved: list[str] = []
    for name in given:
        field = by_name.get(name.lower())
        if field is None:
            raise SchemaError(
                error_class="DELTA_PARTITION_COLUMN_NOT_FOUND",
                name=name,
                columns=", ".join(schema.names),
                table=table,
                column=name,
            )
        if isinstance(field.dataType, _NO_PARTITION_COLUMNS):
            raise SchemaError(
                error_class="DELTA_INVALID_PARTITION_COLUMN_TYPE",
                name=field.name,
                data_type=field.dataType.simpleString(),
                table=table,
                column=field.name,
            )
        resolved.append(field.name)
    if len(set(resolved)) != len(resolved):
        raise SchemaError(error_class="DELTA_DUPLICATE_COLUMNS_FOUND", columns=", ".join(given), table=table)
    if resolved and len(resolved) == len(schema.fields):
        raise SchemaError(error_class="DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", table=table)
    return resolved


def names_with_invalid_characters(schema: T.StructType) -> list[str]:
    """The columns and nested fields that have no name, or one that only mapped tables may have."""
    return [
        path + field.name
        for path, struct in _structs(schema)
        for field in struct.fields
        if not field.name or _INVALID_CHARACTERS.intersection(field.name)
    ]


def _check_names(schema: T.StructType, table: str | None) -> None:
    invalid = names_with_invalid_characters(schema)
    if invalid:
        raise SchemaError(
            error_class="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            columns=", ".join(repr(name) for name in invalid),
            table=table,
        )


def check_no_duplicates(schema: T.StructType, table: str | None) -> None:
    """SchemaError for columns whose names differ only in case."""
    for path, struct in _structs(schema):
        seen: dict[str, str] = {}
        for field in struct.fields:
            other = seen.get(field.name.lower())
            if other is not None:
                columns = f"{path}{other}, {path}{field.name}"
                raise SchemaError(error_class="DELTA_DUPLICATE_COLUMNS_FOUND", columns=columns, table=table)
            seen[field.name.lower()] = field.name


def _structs(schema: T.StructType) -> Iterator[tuple[str, T.StructType]]:
    """Every struct in a schema, with the prefix of its columns' names."""
    for path, data_type in types_within(schema):
        if isinstance(data_type, T.StructType):
            yield f"{path}." if path else "", data_type


def without_void(data_type: T.DataType) -> T.DataType:
    """The type without columns and fields of type void: data files lack them, and readers see nulls."""
    if not isinstance(data_type, T.StructType):
        return data_type
    return T.StructType(
        [
            T.StructField(field.name, without_void(field.dataType), field.nullable, field.metadata)
            for field in data_type.fields
            if not isinstance(field.dataType, T.NullType)
        ]
    )


def _has_void(data_type: T.DataType) -> bool:
    return any(isinstance(within, T.NullType) for _, within in types_within(data_type))


def _unsupported(data_type: T.DataType) -> str | None:
    """The name of a type that is not written; None for the others."""
    if isinstance(data_type, T.NullType) and READS_VOID:
        return None
    if is_nested(data_type) or type(data_type) in _WRITABLE_ATOMS or data_type == T.StringType():
        return None
    return data_type.simpleString()


def _is_too_deep(schema: Any) -> bool:
    """Of a struct's JSON."""
    level = [schema]
    # A type within a type is three levels of JSON deeper: in the list of fields, in a field.
    for _ in range(3 * MAX_SCHEMA_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _column_with_wrong_metadata(schema: T.StructType) -> str | None:
    """A column whose metadata Spark does not take, or that has another type of value than a name asks for."""
    for path, struct in _structs(schema):
        for field in struct.fields:
            if field.metadata and not _is_metadata(field.metadata):
                return path + field.name
    return None


def _is_metadata(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and _fits_spark(found)
        and all(isinstance(found[name], of) for name, of in _METADATA.items() if name in found)
        and all(isinstance(change, dict) for change in found.get("delta.typeChanges", ()))
    )


def _fits_spark(value: Any) -> bool:
    """Whether a value of JSON can be one of Spark's Metadata: arrays there have elements of one type."""
    if isinstance(value, dict):
        return all(_fits_spark(inner) for inner in value.values())
    if isinstance(value, list):
        one_type = len({type(inner) for inner in value}) <= 1
        return one_type and all(not isinstance(inner, list) and _fits_spark(inner) for inner in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _has_user_defined_type(json: Any) -> bool:
    if isinstance(json, list):
        return any(_has_user_defined_type(item) for item in json)
    if isinstance(json, dict):
        return json.get("type") == "udt" or any(
            _has_user_defined_type(value) for name, value in json.items() if name != "metadata"
        )
    return False
