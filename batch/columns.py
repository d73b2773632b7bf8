"""ALTER TABLE … ADD COLUMNS and ALTER COLUMN: one commit that changes a table's schema, and no file.

Columns are found by name, regardless of case, in nested structs by their path, in which `element`,
`key` and `value` stand for what arrays and maps hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.char_varchar import CHAR_VARCHAR
from deltaflow.batch.table_properties import begin_change, commit_change
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException, SchemaError
from deltaflow.log import DeltaLog, Operation, check_writable_schema, schema_to_string

Path = Sequence[str]
Edit = Callable[[list[T.StructField]], list[T.StructField]]
_FIRST = "FIRST"


@dataclass(frozen=True)
class NewColumn:
    """A column of ADD COLUMNS: the path of its struct, the field, and where among its siblings."""

    parent: Path
    field: T.StructField
    position: str | None
    """FIRST, `AFTER name`, or None for the end."""


@dataclass(frozen=True)
class ColumnChange:
    """What ALTER COLUMN changes of a column; None is for what stays."""

    path: Path
    data_type: T.DataType | None = None
    nullable: bool | None = None
    comment: str | None = None
    position: str | None = None


def add_columns(log: DeltaLog, columns: Sequence[NewColumn], settings: Mapping[str, str]) -> int:
    """Adds nullable columns; the version of the commit. Raises, and changes nothing, for all others."""
    for column in columns:
        if not column.field.nullable:
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_OPERATION_NOT_ALLOWED",
                operation="NOT NULL in ALTER TABLE ADD COLUMNS",
                advice="The rows that are there have no value for it. Leave NOT NULL out.",
                table=log.path,
                column=column.field.name,
            )
    transaction, metadata = begin_change(log, settings)
    assert transaction.snapshot is not None
    schema = transaction.snapshot.schema
    for column in columns:
        name = ".".join([*column.parent, column.field.name])
        schema = _edited(schema, column.parent, _insert(column, log.path), name, log.path)
    check_writable_schema(schema, metadata.partition_columns, table=log.path)
    shown = [
        {"column": _shown(column.parent, column.field), **_shown_position(column.position)}
        for column in columns
    ]
    return commit_change(
        transaction,
        msgspec.structs.replace(metadata, schema_string=schema_to_string(schema)),
        Operation("ADD COLUMNS", {"columns": _json(shown)}),
    )


def change_columns(log: DeltaLog, changes: Sequence[ColumnChange], settings: Mapping[str, str]) -> int:
    """Changes comments and positions of columns and drops NOT NULL; the version of the commit.

    DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED for another type and for a NOT NULL that the data may break.
    """
    transaction, metadata = begin_change(log, settings)
    assert transaction.snapshot is not None
    schema = transaction.snapshot.schema
    shown: list[dict[str, Any]] = []
    for change in changes:
        edit = _change(change, shown, log.path)
        schema = _edited(schema, change.path[:-1], edit, ".".join(change.path), log.path)
    if len(changes) == 1:
        position = shown[0].pop("position", None)
        parameters = {
            "column": _json(shown[0]),
            **({} if position is None else {"position": position}),
        }
        operation = Operation("CHANGE COLUMN", parameters)
    else:
        operation = Operation("CHANGE COLUMNS", {"columns": _json(shown)})
    return commit_change(
        transaction, msgspec.structs.replace(metadata, schema_string=schema_to_string(schema)), operation
    )


def _insert(column: NewColumn, table: str) -> Edit:
    def insert(fields: list[T.StructField]) -> list[T.StructField]:
        return _placed(fields, column.field, column.position or _after(fields[-1].name), table)

    return insert


def _change(change: ColumnChange, shown: list[dict[str, Any]], table: str) -> Edit:
    def edit(fields: list[T.StructField]) -> list[T.StructField]:
        old = fields[_index(fields, change.path[-1], table)]
        new = _changed(old, change, table)
        shown.append({**_shown(change.path[:-1], new), **_shown_position(change.position)})
        if change.position is None or change.position.lower() == _after(old.name).lower():
            return [new if field is old else field for field in fields]
        return _placed([field for field in fields if field is not old], new, change.position, table)

    return edit


def _changed(old: T.StructField, change: ColumnChange, table: str) -> T.StructField:
    nullable = old.nullable if change.nullable is None else change.nullable
    if (change.data_type not in (None, old.dataType)) or (old.nullable and not nullable):
        new = T.StructField(old.name, change.data_type or old.dataType, nullable)
        raise DeltaAnalysisException(
            error_class="DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED",
            current_type=_type_text(old),
            new_type=_type_text(new),
            table=table,
            column=".".join(change.path),
        )
    comment = {} if change.comment is None else {"comment": change.comment}
    return T.StructField(old.name, old.dataType, nullable, {**old.metadata, **comment})


def _placed(
    fields: list[T.StructField], field: T.StructField, position: str, table: str
) -> list[T.StructField]:
    at = 0
    if position != _FIRST:
        at = _index(fields, position.removeprefix(_after("")), table) + 1
    return [*fields[:at], field, *fields[at:]]


def _edited(kind: T.DataType, path: Path, edit: Edit, column: str, table: str) -> Any:
    """The type with `edit` applied to the fields of the struct at the path."""
    match kind:
        case T.StructType() if not path:
            return T.StructType(edit(list(kind.fields)))
        case T.StructType():
            at = _index(kind.fields, path[0], table)
            old = kind.fields[at]
            inner = _edited(old.dataType, path[1:], edit, column, table)
            new = T.StructField(old.name, inner, old.nullable, old.metadata)
            return T.StructType([*kind.fields[:at], new, *kind.fields[at + 1 :]])
        case T.ArrayType() if path and path[0].lower() == "element":
            return T.ArrayType(_edited(kind.elementType, path[1:], edit, column, table), kind.containsNull)
        case T.MapType() if path and path[0].lower() == "key":
            key = _edited(kind.keyType, path[1:], edit, column, table)
            return T.MapType(key, kind.valueType, kind.valueContainsNull)
        case T.MapType() if path and path[0].lower() == "value":
            value = _edited(kind.valueType, path[1:], edit, column, table)
            return T.MapType(kind.keyType, value, kind.valueContainsNull)
    raise SchemaError(
        error_class="DELTA_ADD_COLUMN_PARENT_NOT_STRUCT",
        column_name=column,
        other=kind.simpleString(),
        table=table,
        column=column,
    )


def _index(fields: Sequence[T.StructField], name: str, table: str) -> int:
    for at, field in enumerate(fields):
        if field.name.lower() == name.lower():
            return at
    raise SchemaError(
        error_class="DELTA_COLUMN_NOT_FOUND",
        column_name=name,
        column_list=", ".join(field.name for field in fields),
        table=table,
        column=name,
    )


def _after(name: str) -> str:
    return f"AFTER {name}"


def _type_text(field: T.StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"


def _shown(parent: Path, field: T.StructField) -> dict[str, Any]:
    """A column as commitInfo shows it."""
    kind = field.dataType.jsonValue()
    return {
        "name": ".".join([*parent, field.name]),
        "type": kind["type"] if isinstance(kind, dict) else kind,
        "nullable": field.nullable,
        "metadata": field.metadata,
    }


def _shown_position(position: str | None) -> dict[str, str]:
    return {} if position is None else {"position": position}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def column_field(name: str, type_json: str, *, nullable: bool, comment: str | None) -> T.StructField:
    """A field of a type in Spark's JSON; CHAR and VARCHAR are strings that remember their length."""
    kind = _data_type(type_json)
    metadata: dict[str, Any] = {} if comment is None else {"comment": comment}
    if isinstance(kind, T.CharType | T.VarcharType):
        metadata[CHAR_VARCHAR] = kind.simpleString()
        kind = T.StringType()
    return T.StructField(name, kind, nullable, metadata)


def data_type(type_json: str) -> T.DataType:
    """A type from Spark's JSON, CHAR and VARCHAR as strings."""
    kind = _data_type(type_json)
    return T.StringType() if isinstance(kind, T.CharType | T.VarcharType) else kind


def _data_type(type_json: str) -> T.DataType:
    field = {"name": "c", "type": msgspec.json.decode(type_json), "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType
