"""Whether data fits a table's schema, and the schema that both have together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import types as T

from deltaflow.errors import SchemaError, SchemaMismatchError
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, with_inner_fields, with_type
from deltaflow.log.protocol.schema import check_no_duplicates, nullable_type

_POINTS_IN_TIME = (T.DateType, T.TimestampType, T.TimestampNTZType)
_GROWING: tuple[type[T.DataType], ...] = (T.ByteType, T.ShortType, T.IntegerType)
"""Types of which a column may grow into a later one."""

Fits = Callable[[T.DataType, T.DataType], bool]
"""Whether values of the first type may be written into a column of the second; neither is nested."""


def _is_same(data: T.DataType, table: T.DataType) -> bool:
    return data == table


def can_store(data: T.DataType, table: T.DataType) -> bool:
    """Spark's store assignment (Cast.canANSIStoreAssign); what does not fit in is an error of its row."""
    if isinstance(data, T.NullType) or data == table:
        return True
    if isinstance(data, T.NumericType) and isinstance(table, T.NumericType):
        return True
    if isinstance(data, _POINTS_IN_TIME) and isinstance(table, _POINTS_IN_TIME):
        return True
    return isinstance(data, T.AtomicType) and isinstance(table, T.StringType)


def can_cast(data: T.DataType, table: T.DataType) -> bool:
    """Store assignment by the policy LEGACY: what a cast can make of it, and Spark knows which."""
    return can_store(data, table) or (isinstance(data, T.AtomicType) and isinstance(table, T.AtomicType))


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
) -> T.StructType:
    """The table's schema once data of `data_schema` is in it (delta-spark's SchemaMergingUtils).

    Columns of the table keep their names, order, nullability and metadata, whether or not the data has
    them; other columns come after them, nullable, in nested structs too. Names are equal regardless of
    case. A type stays, or grows among byte, short and integer, or takes the place of void.
    SchemaMismatchError, showing both sides, for all other types that the data's do not `fits`; SchemaError
    for columns of the data whose names differ only in case.
    """
    check_no_duplicates(data_schema, table)
    conflicts: list[str] = []
    merged = _merged(table_schema, data_schema, "", conflicts, fits)
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


def _differences(table: T.DataType, data: T.DataType, path: str, fits: Fits) -> Iterator[_Difference]:
    prefix = f"{path}." if path else ""
    if isinstance(table, T.StructType) and isinstance(data, T.StructType):
        ours = {field.name.lower(): field for field in table.fields}
        theirs = {field.name.lower(): field for field in data.fields}
        if len(theirs) != len(data.fields):
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
    elif have_one_shape(table, data):
        for ours_inside, theirs_inside in zip(inner_fields(table), inner_fields(data), strict=True):
            path_inside = prefix + ours_inside.name
            yield from _differences(ours_inside.dataType, theirs_inside.dataType, path_inside, fits)
    elif not fits(data, table):
        # A column of type void takes the data's type when the schema is merged.
        is_new = isinstance(table, T.NullType)
        yield _Difference(_type_difference(table, data, path), is_new=is_new)


def _merged(table: T.DataType, data: T.DataType, path: str, conflicts: list[str], fits: Fits) -> T.DataType:
    """The merged type; what cannot be merged is added to `conflicts`."""
    prefix = f"{path}." if path else ""
    if have_one_shape(table, data):
        theirs = {field.name.lower(): field for field in inner_fields(data)}
        fields = []
        for field in inner_fields(table):
            other = theirs.pop(field.name.lower(), None)
            merged_type = field.dataType
            if other is not None:
                merged_type = _merged(merged_type, other.dataType, prefix + field.name, conflicts, fits)
            fields.append(with_type(field, merged_type))
        new = inner_fields(nullable_type(T.StructType(list(theirs.values()))))
        return with_inner_fields(table, fields + new)
    if table == data or isinstance(data, T.NullType):
        return table
    if isinstance(table, T.NullType):
        return nullable_type(data)
    # Parquet keeps all three as 32-bit integers.
    if type(table) in _GROWING and type(data) in _GROWING:
        return max(table, data, key=lambda data_type: _GROWING.index(type(data_type)))
    if not fits(data, table):
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
        f"{message}\n{schemas_side_by_side(table_schema, data_schema)}\n"
        "Differences:\n" + "\n".join(f"- {difference}" for difference in differences) + f"\n{remedy}",
        **context,
    )


def _tree(schema: T.StructType) -> str:
    return schema.treeString().rstrip("\n")
