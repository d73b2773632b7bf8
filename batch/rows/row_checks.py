"""The checks that every row of a table has to pass, as conditions in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException, UnsupportedFeatureError
from deltaflow.log import Metadata
from deltaflow.log.protocol.properties import check_constraints
from deltaflow.log.untrusted_json import decode_json
from deltaflow.spark.write.file_write import Check

_INVARIANTS = "delta.invariants"


def checks_of_table(metadata: Metadata, schema: T.StructType, *, schema_changes: bool = False) -> list[Check]:
    """The checks for NOT NULL, for column invariants and for CHECK constraints, by PROTOCOL.md.

    If this write changes the schema (`schema_changes`), it must not drop a column that a constraint names.
    """
    without_column = (
        "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
        if schema_changes
        else "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"
    )
    return [
        *(_not_null_check(path, condition) for path, condition in _not_null_conditions(schema, (), "")),
        *_invariant_checks(schema),
        *(
            Check(
                expression,
                _violation_message(name, expression),
                shows_values=True,
                without_column=without_column,
            )
            for name, expression in check_constraints(metadata.configuration).items()
        ),
    ]


def _not_null_check(path: Sequence[str], condition: str) -> Check:
    error = DeltaInvariantViolationException(
        error_class="DELTA_NOT_NULL_CONSTRAINT_VIOLATED", column_name=".".join(path)
    )
    return Check(condition, str(error))


def _violation_message(name: str, expression: str) -> str:
    error = DeltaInvariantViolationException(
        error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", name=name, expression=expression
    )
    return str(error)


class _Expression(msgspec.Struct):
    expression: str


class _Invariant(msgspec.Struct):
    expression: _Expression


def _invariant_checks(struct: T.StructType) -> Iterator[Check]:
    for field in struct.fields:
        if _INVARIANTS in field.metadata and field.nullable:
            try:
                found = decode_json(field.metadata[_INVARIANTS], as_type=_Invariant)
            except msgspec.MsgspecError as error:
                raise UnsupportedFeatureError(
                    f"deltaflow cannot read the invariant of column {field.name}: "
                    f"{field.metadata[_INVARIANTS]}.",
                    features=["invariants"],
                    column=field.name,
                ) from error
            text = found.expression.expression
            yield Check(text, _violation_message(f"EXPRESSION({text})", text), shows_values=True)
        if isinstance(field.dataType, T.StructType):
            yield from _invariant_checks(field.dataType)


def _not_null_conditions(
    struct: T.StructType, path: tuple[str, ...], prefix: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Pairs (column, condition) for every column and nested field that must not be null.

    If a field of a struct must not be null, the struct must not be null either, as with delta-spark.
    """
    for field in struct.fields:
        sql, name = prefix + quoted(field.name), (*path, field.name)
        if not field.nullable:
            yield name, f"{sql} is not null"
        if isinstance(field.dataType, T.StructType):
            yield from _not_null_conditions(field.dataType, name, f"{sql}.")
        else:
            inside = _nested_condition(sql, field.dataType, 0)
            if inside is not None:
                yield name, inside


def _nested_condition(sql: str, data_type: T.DataType, depth: int) -> str | None:
    """The condition that nothing inside of an array or map is null against its NOT NULL; None without one."""
    element = f"e{depth}"
    match data_type:
        case T.StructType():
            parts = []
            for field in data_type.fields:
                inner = f"{sql}.{quoted(field.name)}"
                parts += [] if field.nullable else [f"{inner} is not null"]
                inside = _nested_condition(inner, field.dataType, depth)
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
        inside = _nested_condition(element, of, depth + 1)
        parts = [] if may_be_null else [f"{element} is not null"]
        parts += [] if inside is None else [inside]
        if parts:
            conditions.append(f"coalesce(forall({values}, {element} -> {' and '.join(parts)}), true)")
    return " and ".join(conditions) or None
