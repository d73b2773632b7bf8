"""Schemas: their JSON, what may be written, and whether data fits a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError, SchemaError, SchemaMismatchError, UnsupportedFeatureError

_INVALID_CHARACTERS = frozenset(" ,;{}()\n\t=")
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
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
    T.BinaryType,
)
_GROWING: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType)
"""Types of which a column may grow into a later one."""


def schema_to_string(schema: T.StructType) -> str:
    """The schemaString of a schema."""
    return schema.json()


def schema_from_string(
    schema_string: str, *, table: str | None = None, version: int | None = None
) -> T.StructType:
    """The schema of a schemaString; CorruptLogError if it is none, UnsupportedFeatureError for odd types.

    `table` and `version` are for the errors.
    """
    try:
        json = msgspec.json.decode(schema_string)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(
            f"The schema in the table's metaData is not JSON: {error}.", table=table, version=version
        ) from error
    if not isinstance(json, dict) or json.get("type") != "struct":
        raise CorruptLogError(
            "The schema in the table's metaData is not a struct.", table=table, version=version
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
        return T.StructType.fromJson(json)
    # PySpark raises whatever the JSON leads it to.
    except Exception as error:
        raise UnsupportedFeatureError(
            f"The table's schema has a type that this PySpark does not know: {error}.",
            features=["data type"],
            table=table,
            version=version,
        ) from error


def as_nullable(schema: T.StructType) -> T.StructType:
    """The schema with every column, element and map value nullable, as new tables have it."""
    nullable = _nullable(schema)
    assert isinstance(nullable, T.StructType)
    return nullable


def check_append_schema(
    table_schema: T.StructType,
    data_schema: T.StructType,
    *,
    table: str | None = None,
    merge_option: str | None = None,
) -> None:
    """SchemaMismatchError, showing both sides, unless data of `data_schema` may be appended as it is.

    Names are equal regardless of case, in any order; types are equal; nullability and column
    metadata do not matter. `merge_option`, where the writer has one, is how its user asks for
    `merge_schemas`: the error names it if that would do.
    """
    differences = list(_differences(table_schema, data_schema, ""))
    if differences:
        remedy = "Select and cast the data's columns so that they are the table's."
        if merge_option is not None and _is_mergeable(table_schema, data_schema):
            remedy = f"To let the table take them over, write with {merge_option}; or: {remedy}"
        raise _mismatch(
            "A schema mismatch detected when writing to the Delta table.",
            table_schema,
            data_schema,
            differences,
            remedy,
            table=table,
        )


def is_read_compatible(analysed: T.DataType, newest: T.DataType) -> bool:
    """Whether a query that was analysed with one schema reads a table that has another one by now.

    It does where all its columns are there by their names and types, and none of them takes nulls that it
    did not take (SchemaUtils.isReadCompatible).
    """
    match analysed, newest:
        case T.StructType(), T.StructType():
            found = {f.name: f for f in newest.fields}
            return all(
                f.name in found
                and (f.nullable or not found[f.name].nullable)
                and is_read_compatible(f.dataType, found[f.name].dataType)
                for f in analysed.fields
            )
        case T.ArrayType(), T.ArrayType():
            takes_nulls = analysed.containsNull or not newest.containsNull
            return takes_nulls and is_read_compatible(analysed.elementType, newest.elementType)
        case T.MapType(), T.MapType():
            takes_nulls = analysed.valueContainsNull or not newest.valueContainsNull
            return (
                takes_nulls
                and is_read_compatible(analysed.keyType, newest.keyType)
                and is_read_compatible(analysed.valueType, newest.valueType)
            )
        case _:
            return analysed == newest


def merge_schemas(
    table_schema: T.StructType, data_schema: T.StructType, *, table: str | None = None
) -> T.StructType:
    """The table's schema once data of `data_schema` is in it (delta-spark's SchemaMergingUtils).

    Columns of the table keep their names, order, nullability and metadata, whether or not the data has
    them; other columns come after them, nullable, in nested structs too. Names are equal regardless of
    case. A type stays, or grows among byte, short and integer, or takes the place of void.
    SchemaMismatchError, showing both sides, for all other types; SchemaError for columns of the data
    whose names differ only in case.
    """
    _check_no_duplicates(data_schema, table)
    conflicts: list[str] = []
    merged = _merged(table_schema, data_schema, "", conflicts)
    if conflicts:
        raise _mismatch(
            "Failed to merge the data's schema into the Delta table's.",
            table_schema,
            data_schema,
            conflicts,
            "Cast the data's columns to the table's types, or write them under other names.",
            error_class="DELTA_FAILED_TO_MERGE_FIELDS",
            table=table,
        )
    assert isinstance(merged, T.StructType)
    return merged


def check_writable_schema(
    schema: T.StructType,
    partition_columns: Sequence[str] = (),
    *,
    table: str | None = None,
    for_log_alone: bool = False,
) -> list[str]:
    """The partition columns by their names in the schema; SchemaError (or UnsupportedFeatureError) if the
    schema has names or types, or the partitioning has columns, that deltaflow does not write.

    `for_log_alone`: the types may also be those that the log settles and no writer of rows does yet.
    """
    if not schema.fields:
        raise SchemaError("The data has no columns.", error_class="DELTA_EMPTY_DATA", table=table)
    _check_names(schema, table)
    for path, kind, metadata in _leaves(schema, ""):
        unsupported = _unsupported(kind, metadata)
        if for_log_alone and isinstance(kind, T.TimestampNTZType):
            continue
        if unsupported is not None:
            raise UnsupportedFeatureError(
                f"deltaflow does not write the type {unsupported} of column {path} yet. "
                "Cast or drop the column.",
                features=[unsupported],
                error_class="DELTA_UNSUPPORTED_DATA_TYPES",
                table=table,
                column=path,
            )
    return _check_partition_columns(schema, partition_columns, table)


def check_partitioning(existing: Sequence[str], given: Sequence[str], *, table: str | None = None) -> None:
    """SchemaError unless the given partition columns are the table's, in order, regardless of case."""
    if [name.lower() for name in existing] != [name.lower() for name in given]:
        raise SchemaError(
            error_class="DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING",
            specified=list(given),
            existing=list(existing),
            table=table,
        )


def _nullable(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        fields = [
            T.StructField(field.name, _nullable(field.dataType), True, field.metadata)
            for field in kind.fields
        ]
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def _check_partition_columns(schema: T.StructType, given: Sequence[str], table: str | None) -> list[str]:
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
        if isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType | T.BinaryType):
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
    if len(resolved) == len(schema.fields):
        raise SchemaError(error_class="DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", table=table)
    return resolved


def _check_names(schema: T.StructType, table: str | None) -> None:
    _check_no_duplicates(schema, table)
    invalid = [
        path + field.name
        for path, struct in _structs(schema, "")
        for field in struct.fields
        if not field.name or _INVALID_CHARACTERS.intersection(field.name)
    ]
    if invalid:
        raise SchemaError(
            error_class="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            columns=", ".join(repr(name) for name in invalid),
            table=table,
        )


def _check_no_duplicates(schema: T.StructType, table: str | None) -> None:
    for path, struct in _structs(schema, ""):
        seen: dict[str, str] = {}
        for field in struct.fields:
            other = seen.get(field.name.lower())
            if other is not None:
                columns = f"{path}{other}, {path}{field.name}"
                raise SchemaError(error_class="DELTA_DUPLICATE_COLUMNS_FOUND", columns=columns, table=table)
            seen[field.name.lower()] = field.name


def _structs(kind: T.DataType, path: str) -> Iterator[tuple[str, T.StructType]]:
    """Every struct in a type, with the prefix of its columns' names."""
    if isinstance(kind, T.StructType):
        yield path, kind
        for field in kind.fields:
            yield from _structs(field.dataType, f"{path}{field.name}.")
    elif isinstance(kind, T.ArrayType):
        yield from _structs(kind.elementType, f"{path}element.")
    elif isinstance(kind, T.MapType):
        yield from _structs(kind.keyType, f"{path}key.")
        yield from _structs(kind.valueType, f"{path}value.")


def _leaves(
    kind: T.DataType, path: str, metadata: dict[str, Any] | None = None
) -> Iterator[tuple[str, T.DataType, dict[str, Any]]]:
    """Every atomic type in a type, with the path of its column and that column's metadata."""
    prefix = f"{path}." if path else ""
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _leaves(field.dataType, prefix + field.name, field.metadata)
    elif isinstance(kind, T.ArrayType):
        yield from _leaves(kind.elementType, f"{prefix}element", metadata)
    elif isinstance(kind, T.MapType):
        yield from _leaves(kind.keyType, f"{prefix}key", metadata)
        yield from _leaves(kind.valueType, f"{prefix}value", metadata)
    else:
        yield path, kind, metadata or {}


def _unsupported(kind: T.DataType, metadata: dict[str, Any]) -> str | None:
    """The name of a type that is not written; None for the others."""
    if _CHAR_VARCHAR in metadata:
        return str(metadata[_CHAR_VARCHAR])
    if type(kind) in _WRITABLE_ATOMS or (type(kind) is T.StringType and kind == T.StringType()):
        return None
    return kind.simpleString()


def _differences(table: T.DataType, data: T.DataType, path: str) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    if isinstance(table, T.StructType) and isinstance(data, T.StructType):
        ours = {field.name.lower(): field for field in table.fields}
        theirs = {field.name.lower(): field for field in data.fields}
        if len(theirs) != len(data.fields):
            yield f"{path or 'the data'} has columns whose names differ only in case"
        for name, field in ours.items():
            if name not in theirs:
                yield f"column {prefix}{field.name} ({field.dataType.simpleString()}) is missing in the data"
            else:
                yield from _differences(field.dataType, theirs[name].dataType, prefix + field.name)
        for name, field in theirs.items():
            if name not in ours:
                yield f"column {prefix}{field.name} ({field.dataType.simpleString()}) is not in the table"
    elif isinstance(table, T.ArrayType) and isinstance(data, T.ArrayType):
        yield from _differences(table.elementType, data.elementType, f"{prefix}element")
    elif isinstance(table, T.MapType) and isinstance(data, T.MapType):
        yield from _differences(table.keyType, data.keyType, f"{prefix}key")
        yield from _differences(table.valueType, data.valueType, f"{prefix}value")
    elif _nullable(table) != _nullable(data):
        yield _type_difference(table, data, path)


def _merged(table: T.DataType, data: T.DataType, path: str, conflicts: list[str]) -> T.DataType:
    """The merged type; what cannot be merged is added to `conflicts`."""
    prefix = f"{path}." if path else ""
    if isinstance(table, T.StructType) and isinstance(data, T.StructType):
        theirs = {field.name.lower(): field for field in data.fields}
        fields = []
        for field in table.fields:
            other = theirs.pop(field.name.lower(), None)
            kind = field.dataType
            if other is not None:
                kind = _merged(kind, other.dataType, prefix + field.name, conflicts)
            fields.append(T.StructField(field.name, kind, field.nullable, field.metadata))
        new = _nullable(T.StructType(list(theirs.values())))
        assert isinstance(new, T.StructType)
        return T.StructType(fields + new.fields)
    if isinstance(table, T.ArrayType) and isinstance(data, T.ArrayType):
        element = _merged(table.elementType, data.elementType, f"{prefix}element", conflicts)
        return T.ArrayType(element, table.containsNull)
    if isinstance(table, T.MapType) and isinstance(data, T.MapType):
        key = _merged(table.keyType, data.keyType, f"{prefix}key", conflicts)
        value = _merged(table.valueType, data.valueType, f"{prefix}value", conflicts)
        return T.MapType(key, value, table.valueContainsNull)
    if table == data or isinstance(data, T.NullType):
        return table
    if isinstance(table, T.NullType):
        return _nullable(data)
    # Parquet keeps all three as 32-bit integers.
    if type(table) in _GROWING and type(data) in _GROWING:
        return max(table, data, key=lambda kind: _GROWING.index(type(kind)))
    conflicts.append(_type_difference(table, data, path))
    return table


def _is_mergeable(table: T.StructType, data: T.StructType) -> bool:
    try:
        merge_schemas(table, data)
    except SchemaError:
        return False
    return True


def _type_difference(table: T.DataType, data: T.DataType, path: str) -> str:
    return f"column {path} is {table.simpleString()} in the table and {data.simpleString()} in the data"


def _mismatch(
    message: str,
    table_schema: T.StructType,
    data_schema: T.StructType,
    differences: Sequence[str],
    remedy: str,
    **context: Any,
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{message}\nTable schema:\n{_tree(table_schema)}\nData schema:\n{_tree(data_schema)}\n"
        "Differences:\n" + "\n".join(f"- {difference}" for difference in differences) + f"\n{remedy}",
        **context,
    )


def _tree(schema: T.StructType) -> str:
    return schema.treeString().rstrip("\n")


def _has_user_defined_type(json: Any) -> bool:
    if isinstance(json, list):
        return any(_has_user_defined_type(item) for item in json)
    if isinstance(json, dict):
        return json.get("type") == "udt" or any(
            _has_user_defined_type(value) for name, value in json.items() if name != "metadata"
        )
    return False
