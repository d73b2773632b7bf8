"""Turns a frame's rows into rows of a table: names, casts, missing columns, checks.

Spark does all of it in its own operators, by SQL. First texts of values, and nulls without a type, are cast
to the table's types; then its TableOutputResolver, which refuses them, casts the frame's columns and their
fields to the table's types, by name. Then columns and fields that the frame lacks become their defaults or
nulls, and CHAR and VARCHAR are cut to their length. Then identity columns that the frame lacks get numbers,
and generated columns that it lacks are computed. Then every row has to pass the checks, those of generated
columns that it gives among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T

from deltaflow.batch.rows.char_varchar import char_as_string, declared_type, has_no_char, stored_value
from deltaflow.batch.rows.column_expressions import (
    checks_of_generated,
    default_sql,
    is_computed,
    stored_generations,
    stored_partition_value,
)
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException, SchemaError
from deltaflow.log.protocol.data_types import (
    have_one_shape,
    inner_fields,
    transformed,
    types_within,
    with_inner_fields,
    with_type,
)
from deltaflow.log.protocol.identity_columns import identity_columns
from deltaflow.log.protocol.schema import CHAR_VARCHAR, char_length, without_void
from deltaflow.log.protocol.schema_merging import is_parsed
from deltaflow.spark.write.file_write import Check, Numbers, RowPlan


def row_plan(
    frame_schema: T.StructType,
    table_schema: T.StructType,
    partition_columns: Sequence[str],
    checks: Sequence[Check],
    path: str,
) -> RowPlan:
    """How rows of a frame become rows of the table at `path`.

    The frame's columns have the table's names, and types that fit; the table has all of them.
    """
    stored = _stored_schema(table_schema, path)
    wanted = [without_void(declared_type(table_schema[name])) for name in stored.names]
    missing = {field.name for field in table_schema.fields} - set(frame_schema.names)
    needed = [f.name for f in table_schema.fields if not (f.nullable or is_computed(f)) and f.name in missing]
    if needed:
        raise SchemaError(
            error_class="DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
            column_name=needed[0],
            table=path,
            column=needed[0],
        )
    checks = [
        *checks,
        *_binary_partition_checks(stored, partition_columns),
        *checks_of_generated(stored, partition_columns, frame_schema.names),
    ]
    if not checks and plain_type(frame_schema) == plain_type(stored) and all(map(has_no_char, wanted)):
        return RowPlan(frame_schema=plain_schema(frame_schema), table_schema=plain_schema(stored))
    cast = _common_schema(table_schema, frame_schema)
    columns = [
        _column_sql(field, cast[field.name].dataType, data_type, partition_columns)
        if field.name not in missing
        else _default_sql(field, data_type, partition_columns)
        for field, data_type in zip(stored.fields, wanted, strict=True)
    ]
    generations = stored_generations(stored, partition_columns)
    return RowPlan(
        plain_schema(frame_schema),
        with_char_metadata(stored),
        _parsed_schema(plain_schema(frame_schema), cast),
        cast,
        tuple(columns),
        tuple(checks),
        {
            name: Numbers(identity.first, identity.step)
            for name, identity in identity_columns(stored).items()
            if name in missing
        },
        {name: sql for name, sql in generations.items() if name in missing},
    )


def stored_columns(table_schema: T.StructType, partition_columns: Sequence[str]) -> dict[str, str]:
    """The values that the table stores of the columns of its rows, as SQL, by the columns' names: CHAR and
    VARCHAR are cut to their length, and empty partition values are null."""
    return {
        field.name: _column_sql(field, plain.dataType, declared_type(field), partition_columns)
        for field, plain in zip(table_schema.fields, plain_schema(table_schema).fields, strict=True)
    }


def _stored_schema(table_schema: T.StructType, path: str) -> T.StructType:
    """The columns of data files: all but those of type void, as in delta-spark."""
    stored = without_void(table_schema)
    assert isinstance(stored, T.StructType)
    for name, data_type in types_within(stored):
        if isinstance(data_type, T.StructType) and not data_type.fields:
            what = f"column {name}" if name else "the table"
            raise SchemaError(error_class="DELTA_CANNOT_WRITE_EMPTY_SCHEMA", what=what, table=path)
    return stored


def _binary_partition_checks(table_schema: T.StructType, partition_columns: Sequence[str]) -> Iterator[Check]:
    """The log keeps partition values as text, so that bytes which are no UTF-8 would be lost."""
    for name in partition_columns:
        if isinstance(table_schema[name].dataType, T.BinaryType):
            error = DeltaInvariantViolationException(
                error_class="DELTA_INVALID_BINARY_PARTITION_VALUE", name=name
            )
            text = f"cast({quoted(name)} as string)"
            yield Check(f"{text} is null or is_valid_utf8({text})", str(error), shows_values=True)


def _column_sql(
    field: T.StructField, have: T.DataType, want: T.DataType, partition_columns: Sequence[str]
) -> str:
    value = _value_sql(quoted(field.name), have, want, field.name, 0)
    # The checks have to see the null.
    return stored_partition_value(value, field) if field.name in partition_columns else value


def _default_sql(field: T.StructField, want: T.DataType, partition_columns: Sequence[str]) -> str:
    default = default_sql(field)
    if default is None or not isinstance(want, T.CharType | T.VarcharType | T.StringType | T.BinaryType):
        return default or "null"
    have = plain_type(want)
    value = _value_sql(f"cast(({default}\n) as {have.simpleString()})", have, want, field.name, 0)
    return stored_partition_value(value, field) if field.name in partition_columns else value


def _value_sql(sql: str, have: T.DataType, want: T.DataType, column: str, depth: int) -> str:
    """SQL that makes a value of type `want` of `sql`, which has the type `have`.

    The types differ in fields that `have` lacks, and in CHAR and VARCHAR, which are strings in `have`. The
    names of fields do not matter: Spark casts the value to the table's type afterwards, by position.
    """
    if have == plain_type(want) and has_no_char(want):
        return sql
    element = f"e{depth}"
    match have, want:
        case _, T.CharType() | T.VarcharType():
            return stored_value(sql, want, column)
        case T.StructType(), T.StructType():
            found = set(have.names)
            fields = [
                f"'f{i}', "
                + (
                    _value_sql(f"{sql}.{quoted(f.name)}", have[f.name].dataType, f.dataType, column, depth)
                    if f.name in found
                    else "null"
                )
                for i, f in enumerate(want.fields)
            ]
            return f"if({sql} is null, null, named_struct({', '.join(fields)}))"
        case T.ArrayType(), T.ArrayType():
            inner = _value_sql(element, have.elementType, want.elementType, column, depth + 1)
            return f"transform({sql}, {element} -> {inner})"
        case T.MapType(), T.MapType():
            keys = _value_sql(element, have.keyType, want.keyType, column, depth + 1)
            values = _value_sql(element, have.valueType, want.valueType, column, depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({sql}), {element} -> {keys}), "
                f"transform(map_values({sql}), {element} -> {values}))"
            )
    raise AssertionError(f"{have.simpleString()} is not the shape of {want.simpleString()}")


def _common_schema(table_schema: T.StructType, frame_schema: T.StructType) -> T.StructType:
    """The table's schema without the columns and fields that the frame lacks."""
    restricted = _common_type(table_schema, frame_schema)
    assert isinstance(restricted, T.StructType)
    return restricted


def _common_type(table_schema: T.DataType, frame_schema: T.DataType) -> T.DataType:
    if not have_one_shape(table_schema, frame_schema):
        return plain_type(table_schema)
    theirs = {field.name: field.dataType for field in inner_fields(frame_schema)}
    fields = [
        T.StructField(field.name, _common_type(field.dataType, theirs[field.name]))
        for field in inner_fields(table_schema)
        if field.name in theirs
    ]
    return with_inner_fields(table_schema, fields)


def _parsed_schema(frame_schema: T.StructType, cast: T.StructType) -> T.StructType:
    """The frame's schema with the table's types in place of strings that are texts of their values, and of
    void."""
    parsed = _parsed_type(frame_schema, cast)
    assert isinstance(parsed, T.StructType)
    return parsed


def _parsed_type(given: T.DataType, wanted: T.DataType) -> T.DataType:
    if isinstance(given, T.NullType) or is_parsed(given, wanted):
        return wanted
    if not have_one_shape(given, wanted):
        return given
    ours = {field.name: field.dataType for field in inner_fields(wanted)}
    fields = [
        with_type(field, _parsed_type(field.dataType, ours[field.name])) for field in inner_fields(given)
    ]
    return with_inner_fields(given, fields)


def plain_type(data_type: T.DataType) -> T.DataType:
    """The type with all nullable, without metadata, and with CHAR and VARCHAR as strings."""
    return transformed(
        data_type, field=lambda inner: T.StructField(inner.name, inner.dataType), atomic=char_as_string
    )


def plain_schema(schema: T.StructType) -> T.StructType:
    """Like `plain_type`, for a schema."""
    plain = plain_type(schema)
    assert isinstance(plain, T.StructType)
    return plain


def with_char_metadata(table_schema: T.StructType) -> T.StructType:
    """The plain schema with metadata for CHAR columns, so that checks compare CHAR as readers do."""
    fields = []
    for field, plain in zip(table_schema.fields, plain_schema(table_schema).fields, strict=True):
        metadata = {} if char_length(field) is None else {CHAR_VARCHAR: field.metadata[CHAR_VARCHAR]}
        fields.append(T.StructField(plain.name, plain.dataType, True, metadata))
    return T.StructType(fields)
