"""What the rows of a table have to satisfy, as conditions in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException, UnsupportedFeatureError
from deltaflow.log import Metadata
from deltaflow.spark.write.file_write import Check

_INVARIANTS = "delta.invariants"
CONSTRAINTS = "delta.constraints."


def checks_of_table(metadata: Metadata, schema: T.StructType, *, schema_changes: bool = False) -> list[Check]:
    """NOT NULL, the invariants of columns and the CHECK constraints (PROTOCOL.md, "Column Invariants",
    "CHECK Constraints"). `schema_changes`: with this write, which may not drop a column of a constraint."""
    without_column = (
        "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
        if schema_changes
        else "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"
    )
    return [
        *(_not_null(path, condition) for path, condition in _conditions(schema, (), "")),
        *_invariants(schema),
        *(
            Check(
                expression,
                _violated(name[len(CONSTRAINTS) :], expression),
                shows_values=True,
                without_column=without_column,
            )
            for name, expression in sorted(metadata.configuration.items())
            if name.lower().startswith(CONSTRAINTS)
        ),
    ]


def _not_null(path: Sequence[str], condition: str) -> Check:
    error = DeltaInvariantViolationException(
        error_class="DELTA_NOT_NULL_CONSTRAINT_VIOLATED", column_name=".".join(path)
    )
    return Check(condition, str(error))


def _violated(name: str, expression: str) -> str:
    error = DeltaInvariantViolationException(
        error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", name=name, expression=expression
    )
    return str(error)


class _Expression(msgspec.Struct):
    expression: str


class _Invariant(msgspec.Struct):
    expression: _Expression


def _invariants(struct: T.StructType) -> Iterator[Check]:
    for field in struct.fields:
        if _INVARIANTS in field.metadata and field.nullable:
            try:
                found = msgspec.json.decode(field.metadata[_INVARIANTS], type=_Invariant)
            except msgspec.MsgspecError as error:
                raise UnsupportedFeatureError(
                    f"The invariant of column {field.name} is none that deltaflow knows: "
                    f"{field.metadata[_INVARIANTS]}.",
                    features=["invariants"],
                    column=field.name,
                ) from error
            text = found.expression.expression
            yield Check(text, _violated(f"EXPRESSION({text})", text), shows_values=True)
        if isinstance(field.dataType, T.StructType):
            yield from _invariants(field.dataType)


def _conditions(
    struct: T.StructType, path: tuple[str, ...], prefix: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """(column, condition) for everything in the struct that may not be null. Where a field of a struct may
    not be, the struct may not be either, as with delta-spark."""
    for field in struct.fields:
        sql, name = prefix + quoted(field.name), (*path, field.name)
        if not field.nullable:
            yield name, f"{sql} is not null"
        if isinstance(field.dataType, T.StructType):
            yield from _conditions(field.dataType, name, f"{sql}.")
        else:
            inside = _inside(sql, field.dataType, 0)
            if inside is not None:
                yield name, inside


def _inside(sql: str, data_type: T.DataType, depth: int) -> str | None:
    """The condition that nothing within an array or map is null that may not be; None without any."""
    element = f"e{depth}"
    match data_type:
        case T.StructType():
            parts = []
            for field in data_type.fields:
                inner = f"{sql}.{quoted(field.name)}"
                parts += [] if field.nullable else [f"{inner} is not null"]
                inside = _inside(inner, field.dataType, depth)
                parts += [] if inside is None else [inside]
            return " and ".join(parts) or None
        case T.ArrayType():
            collections = [(sql, data_type.elementType, data_type.containsNull)]
        case T.MapType():
            collections = [
                (f"map_keys({sql})", data_type.keyType, True),
                (f"map_values({sql})", data_type.valueType, data_type.valueContainsNull),
            ]
        case _:
            return None
    conditions = []
    for values, of, may_be_null in collections:
        inside = _inside(element, of, depth + 1)
        parts = [] if may_be_null else [f"{element} is not null"]
        parts += [] if inside is None else [inside]
        if parts:
            conditions.append(f"coalesce(forall({values}, {element} -> {' and '.join(parts)}), true)")
    return " and ".join(conditions) or None
