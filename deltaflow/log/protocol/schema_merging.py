"""Whether data fits a table's schema, and the merged schema of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import types as T

from deltaflow.errors import SchemaError, SchemaMismatchError
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, with_inner_fields, with_type
from deltaflow.log.protocol.schema import check_no_duplicates, nullable_type
from deltaflow.log.protocol.type_widening import can_widen

_POINTS_IN_TIME = (T.DateType, T.TimestampType, T.TimestampNTZType)
_PARSED = (T.NumericType, *_POINTS_IN_TIME, T.BooleanType, T.BinaryType)
_GROWING: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType)
"""A column of one of these types may be widened to a later one: Parquet keeps all as 32-bit integers."""

Fits = Callable[[T.DataType, T.DataType], bool]
"""Whether values of the first type may be written into a column of the second; neither is nested."""


def _is_same(data: T.DataType, column: T.DataType) -> bool:
    return data == column


def can_store(data: T.DataType, column: T.DataType) -> bool:
    """Spark's store assignment (Cast.canANSIStoreAssign); a value that overflows fails when it is written."""
    if isinstance(data, T.NullType) or data == column:
        return True
    if isinstance(data, T.NumericType) and isinstance(column, T.NumericType):
        return True
    if isinstance(data, _POINTS_IN_TIME) and isinstance(column, _POINTS_IN_TIME):
        return True
    return isinstance(data, T.AtomicType) and isinstance(column, T.StringType)


def is_parsed(data: T.DataType, column: T.DataType) -> bool:
    """Whether the data are texts of the column's values; one that is none fails when it is written."""
    return isinstance(data, T.StringType) and isinstance(column, _PARSED)


def can_store_or_parse(data: T.DataType, column: T.DataType) -> bool:
    """Store assignment, and texts of a column's values."""
    return can_store(data, column) or is_parsed(data, column)


def can_cast(data: T.DataType, column: T.DataType) -> bool:
    """Store assignment by the policy LEGACY: any cast between atomic types, and of any type into text; Spark
    refuses impossible ones."""
    is_atomic = isinstance(data, T.AtomicType) and isinstance(column, T.AtomicType)
    return can_store(data, column) or is_atomic or isinstance(column, T.StringType)


def can_grow(data: T.DataType, column: T.DataType) -> bool:
    """Whether one column can hold both by growing among byte, short and integer, without type widening."""
    return type(data) in _GROWING and type(column) in _GROWING


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
    differences = [found.text for found in _differences(table_schema, data_schema, "", _is_same)]
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


def merge_schemas(
    table_schema: T.StructType,
    data_schema: T.StructType,
    *,
    table: str | None = None,
    fits: Fits = _is_same,
    may_grow: bool = True,
    may_widen: bool = False,
) -> T.StructType:
    """The table's schema after data of `data_schema` is written (delta-spark's SchemaMergingUtils).

    Columns of the table keep their names, order, nullability and metadata, whether or not the data has
    them; other columns come after them, nullable, in nested structs too. Names are equal regardless of
    case. A type stays, or grows among byte, short and integer (if it `may_grow`), or takes the place of void.
    If it `may_widen`, it grows as PROTOCOL.md has it ("Type Widening").
    SchemaMismatchError, showing both sides, where the data's type is another one and not `fits`; SchemaError
    for columns of the data whose names differ only in case.
    """
    check_no_duplicates(data_schema, table)
    conflicts: list[str] = []
    merged = _merged(table_schema, data_schema, "", conflicts, fits, may_grow=may_grow, may_widen=may_widen)
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


def obstacles_to_writing(
    table_schema: T.StructType, data_schema: T.StructType, *, fits: Fits, may_add: bool
) -> list[str]:
    """Why data of `data_schema` cannot be written into the table; nothing if it can.

    Columns that the data lacks are null in its rows. `may_add`: the table takes over columns that it lacks.
    """
    return [
        difference.text
        for difference in _differences(table_schema, data_schema, "", fits)
        if not difference.is_missing and not (may_add and difference.is_new)
    ]


def schemas_side_by_side(table_schema: T.StructType, data_schema: T.StructType) -> str:
    """Both schemas, for an error."""
    return f"Table schema:\n{_tree(table_schema)}\nData schema:\n{_tree(data_schema)}"


class _Difference(NamedTuple):
    text: str
    is_missing: bool = False
    is_new: bool = False


def _differences(
    table_type: T.DataType, data_type: T.DataType, path: str, fits: Fits
) -> Iterator[_Difference]:
    prefix = f"{path}." if path else ""
    if isinstance(table_type, T.StructType) and isinstance(data_type, T.StructType):
        ours = {field.name.lower(): field for field in table_type.fields}
        theirs = {field.name.lower(): field for field in data_type.fields}
        if len(theirs) != len(data_type.fields):
            yield _Difference(f"{path or 'the data'} has columns whose names differ only in case")
        for name, field in ours.items():
            if name not in theirs:
                text = f"column {prefix}{field.name} ({field.dataType.simpleString()}) is missing in the data"
                yield _Difference(text, is_missing=True)
            else:
                yield from _differences(field.dataType, theirs[name].dataType, prefix + field.name, fits)
        for name, field in theirs.items():
            if name not in ours:
                text = f"column {prefix}{field.name} ({field.dataType.simpleString()}) is not in the table"
                yield _Difference(text, is_new=True)
    elif have_one_shape(table_type, data_type):
        for ours_inside, theirs_inside in zip(inner_fields(table_type), inner_fields(data_type), strict=True):
            path_inside = prefix + ours_inside.name
            yield from _differences(ours_inside.dataType, theirs_inside.dataType, path_inside, fits)
    elif not fits(data_type, table_type):
        # A column of type void takes the data's type when the schema is merged.
        is_new = isinstance(table_type, T.NullType)
        yield _Difference(_type_difference(table_type, data_type, path), is_new=is_new)


def _merged(
    table_type: T.DataType,
    data_type: T.DataType,
    path: str,
    conflicts: list[str],
    fits: Fits,
    *,
    may_grow: bool,
    may_widen: bool,
) -> T.DataType:
    """The merged type; what cannot be merged is added to `conflicts`."""
    prefix = f"{path}." if path else ""
    if have_one_shape(table_type, data_type):
        theirs = {field.name.lower(): field for field in inner_fields(data_type)}
        fields = []
        for field in inner_fields(table_type):
            other = theirs.pop(field.name.lower(), None)
            merged_type = field.dataType
            if other is not None:
                inside = prefix + field.name
                merged_type = _merged(
                    merged_type,
                    other.dataType,
                    inside,
                    conflicts,
                    fits,
                    may_grow=may_grow,
                    may_widen=may_widen,
                )
            fields.append(with_type(field, merged_type))
        new = inner_fields(nullable_type(T.StructType(list(theirs.values()))))
        return with_inner_fields(table_type, fields + new)
    if table_type == data_type or isinstance(data_type, T.NullType):
        return table_type
    if isinstance(table_type, T.NullType):
        return nullable_type(data_type)
    if may_widen and can_widen(table_type, data_type):
        return data_type
    if may_grow and can_grow(data_type, table_type):
        return max(table_type, data_type, key=lambda either: _GROWING.index(type(either)))
    if not fits(data_type, table_type):
        conflicts.append(_type_difference(table_type, data_type, path))
    return table_type


def _is_mergeable(table_schema: T.StructType, data_schema: T.StructType) -> bool:
    try:
        merge_schemas(table_schema, data_schema)
    except SchemaError:
        return False
    return True


def _type_difference(table_type: T.DataType, data_type: T.DataType, path: str) -> str:
    in_table, in_data = table_type.simpleString(), data_type.simpleString()
    return f"column {path} is {in_table} in the table and {in_data} in the data"


def _mismatch(
    message: str,
    table_schema: T.StructType,
    data_schema: T.StructType,
    differences: Sequence[str],
    remedy: str,
    **context: Any,
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{message}\n{schemas_side_by_side(table_schema, data_schema)}\n"
        "Differences:\n" + "\n".join(f"- {difference}" for difference in differences) + f"\n{remedy}",
        **context,
    )


def _tree(schema: T.StructType) -> str:
    return schema.treeString().rstrip("\n")
