"""What a frame's rows go through on their way into a table: names, casts, missing columns, checks.

All of it is SQL that Spark runs in its own operators. Spark's TableOutputResolver casts the frame's columns,
and the fields within them, to the table's types by name; after it come the columns and fields that the frame
lacks, as nulls, and CHAR and VARCHAR; then the checks that every row has to pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T

from deltaflow.batch.rows.char_varchar import char_as_string, declared_type, is_plain, of_length
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException, SchemaError
from deltaflow.log.protocol.data_types import (
    have_one_shape,
    inner_fields,
    transformed,
    types_within,
    with_inner_fields,
)
from deltaflow.log.protocol.schema import CHAR_VARCHAR, char_length, without_void
from deltaflow.spark.write.file_write import Check, RowPlan


def row_plan(
    frame: T.StructType,
    table: T.StructType,
    partition_columns: Sequence[str],
    checks: Sequence[Check],
    path: str,
) -> RowPlan:
    """How rows of `frame`, whose columns have the table's names, become rows of the table (at `path`).

    The frame has no columns that the table lacks, and types that fit.
    """
    stored = _stored(table, path)
    wanted = [without_void(declared_type(table[name])) for name in stored.names]
    missing = {field.name for field in table.fields} - set(frame.names)
    needed = [f.name for f in table.fields if not f.nullable and f.name in missing]
    if needed:
        raise SchemaError(
            error_class="DELTA_MISSING_NOT_NULL_COLUMN_VALUE",
            column_name=needed[0],
            table=path,
            column=needed[0],
        )
    checks = [*checks, *_binary_partition_checks(stored, partition_columns)]
    if not checks and plain_type(frame) == plain_type(stored) and all(map(is_plain, wanted)):
        return RowPlan(frame=plain_schema(frame), table=plain_schema(stored))
    cast = _restricted(table, frame)
    columns = [
        _column(
            field.name, cast[field.name].dataType, data_type, is_partition=field.name in partition_columns
        )
        if field.name not in missing
        else "null"
        for field, data_type in zip(stored.fields, wanted, strict=True)
    ]
    return RowPlan(plain_schema(frame), _with_char(stored), cast, tuple(columns), tuple(checks))


def _stored(table: T.StructType, path: str) -> T.StructType:
    """The columns that data files have: those of type void are left out, as by delta-spark."""
    stored = without_void(table)
    assert isinstance(stored, T.StructType)
    for name, data_type in types_within(stored):
        if isinstance(data_type, T.StructType) and not data_type.fields:
            what = f"column {name}" if name else "the table"
            raise SchemaError(error_class="DELTA_CANNOT_WRITE_EMPTY_SCHEMA", what=what, table=path)
    return stored


def _binary_partition_checks(table: T.StructType, partition_columns: Sequence[str]) -> Iterator[Check]:
    """The log has partition values as text: bytes that are none would be lost."""
    for name in partition_columns:
        if isinstance(table[name].dataType, T.BinaryType):
            error = DeltaInvariantViolationException(
                error_class="DELTA_INVALID_BINARY_PARTITION_VALUE", name=name
            )
            text = f"cast({quoted(name)} as string)"
            yield Check(f"{text} is null or is_valid_utf8({text})", str(error), shows_values=True)


def _column(name: str, have: T.DataType, want: T.DataType, *, is_partition: bool) -> str:
    value = _value(quoted(name), have, want, name, 0)
    # Among partition values the empty string is null, which the checks are to see.
    is_text = is_partition and isinstance(have, T.StringType)
    return f"if({quoted(name)} = '', null, {value})" if is_text else value


def _value(sql: str, have: T.DataType, want: T.DataType, column: str, depth: int) -> str:
    """SQL for the value of type `want` that `sql`, of type `have`, becomes.

    They differ in fields that `have` lacks, and in CHAR and VARCHAR, which `have` has as strings. Fields
    get names that say nothing: the value is cast to the table's type afterwards, by position.
    """
    if have == plain_type(want) and is_plain(want):
        return sql
    element = f"e{depth}"
    match have, want:
        case _, T.CharType() | T.VarcharType():
            return of_length(sql, want, column)
        case T.StructType(), T.StructType():
            found = set(have.names)
            fields = [
                f"'f{i}', "
                + (
                    _value(f"{sql}.{quoted(f.name)}", have[f.name].dataType, f.dataType, column, depth)
                    if f.name in found
                    else "null"
                )
                for i, f in enumerate(want.fields)
            ]
            return f"if({sql} is null, null, named_struct({', '.join(fields)}))"
        case T.ArrayType(), T.ArrayType():
            inner = _value(element, have.elementType, want.elementType, column, depth + 1)
            return f"transform({sql}, {element} -> {inner})"
        case T.MapType(), T.MapType():
            keys = _value(element, have.keyType, want.keyType, column, depth + 1)
            values = _value(element, have.valueType, want.valueType, column, depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({sql}), {element} -> {keys}), "
                f"transform(map_values({sql}), {element} -> {values}))"
            )
    raise AssertionError(f"{have.simpleString()} is not the shape of {want.simpleString()}")


def _restricted(table: T.StructType, frame: T.StructType) -> T.StructType:
    """The table's schema as far as the frame has it: same types and order, nothing that the frame lacks."""
    restricted = _restricted_type(table, frame)
    assert isinstance(restricted, T.StructType)
    return restricted


def _restricted_type(table: T.DataType, frame: T.DataType) -> T.DataType:
    if not have_one_shape(table, frame):
        return plain_type(table)
    theirs = {field.name: field.dataType for field in inner_fields(frame)}
    fields = [
        T.StructField(field.name, _restricted_type(field.dataType, theirs[field.name]))
        for field in inner_fields(table)
        if field.name in theirs
    ]
    return with_inner_fields(table, fields)


def plain_type(data_type: T.DataType) -> T.DataType:
    """The type alone: nullable throughout, no metadata, CHAR and VARCHAR as strings."""
    return transformed(
        data_type, field=lambda inner: T.StructField(inner.name, inner.dataType), atomic=char_as_string
    )


def plain_schema(schema: T.StructType) -> T.StructType:
    """As `plain_type`, for a whole schema."""
    plain = plain_type(schema)
    assert isinstance(plain, T.StructType)
    return plain


def _with_char(table: T.StructType) -> T.StructType:
    """The types alone, of columns that tell Spark where they are CHAR: checks compare CHAR as readers do."""
    char = [{} if char_length(f) is None else {CHAR_VARCHAR: f.metadata[CHAR_VARCHAR]} for f in table.fields]
    return T.StructType(
        [
            T.StructField(f.name, f.dataType, True, c)
            for f, c in zip(plain_schema(table).fields, char, strict=True)
        ]
    )
