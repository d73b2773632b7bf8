"""ALTER TABLE … ADD, ALTER and REPLACE COLUMNS: one commit that changes a table's schema, and no file.

Columns are found by name, regardless of case. The path of a nested field has `element`, `key` and `value` for
the contents of arrays and maps. CHAR and VARCHAR are types here; the log stores them as strings with
metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.ddl.changes import begin_change, commit_change
from deltaflow.batch.ddl.type_changes import check_change, obstacle_to_change, replaced
from deltaflow.batch.rows.char_varchar import with_char_as_string, with_declared_types
from deltaflow.batch.rows.widened_schema import widened
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException, SchemaError
from deltaflow.log import (
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    Snapshot,
    schema_to_string,
)
from deltaflow.log.protocol.data_types import inner_fields, with_inner_fields
from deltaflow.log.protocol.features import widens_types
from deltaflow.log.protocol.identity_columns import is_identity
from deltaflow.log.protocol.schema import CURRENT_DEFAULT
from deltaflow.log.protocol.schema_reading import Path, dotted, fields_within
from deltaflow.log.protocol.type_widening import can_widen

Edit = Callable[[T.DataType], T.DataType]
_FIRST = "FIRST"


@dataclass(frozen=True)
class NewColumn:
    """A column of ADD COLUMNS: the path of its struct, the field, and its position in the struct."""

    parent: Path
    field: T.StructField
    position: str | None
    """FIRST, `AFTER name`, or None for the end."""


@dataclass(frozen=True)
class ColumnChange:
    """The changes of one ALTER COLUMN; None where nothing changes."""

    path: Path
    data_type: T.DataType | None = None
    nullable: bool | None = None
    comment: str | None = None
    """The empty string removes the comment."""
    position: str | None = None
    default: str | None = None
    """The SQL of the default; the empty string removes it."""


def add_columns(log: DeltaLog, columns: Sequence[NewColumn], settings: Mapping[str, str]) -> int:
    """Adds columns, which have to be nullable. Returns the commit's version."""
    for column in columns:
        if not all(field.nullable for field in fields_within(column.field)):
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_OPERATION_NOT_ALLOWED",
                operation="NOT NULL in ALTER TABLE ADD COLUMNS",
                advice="The rows that are there have no value for it. Leave NOT NULL out.",
                table=log.path,
                column=column.field.name,
            )
    transaction, metadata, schema = _begin(log, settings)
    for column in columns:
        schema = edited(schema, column.parent, _insert(column, log.path), log.path)
    shown = [
        {"column": _shown(column.parent, column.field), **_shown_position(column.position)}
        for column in columns
    ]
    return _commit(transaction, metadata, schema, Operation("ADD COLUMNS", {"columns": _json(shown)}))


def change_columns(
    log: DeltaLog,
    changes: Sequence[ColumnChange],
    settings: Mapping[str, str],
    check: Callable[[Snapshot], None],
) -> int:
    """Changes comments and positions of columns, drops NOT NULL, lengthens CHAR and VARCHAR, gives VOID a
    type, and widens types where the table allows it. Returns the commit's version. `check` may refuse the
    changes of the version that they are made of.

    DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP for other changes of a type, and for SET NOT NULL. Raises as
    deltaflow.batch.rows.widened_schema for a type that cannot be widened.
    """
    transaction, metadata, schema = _begin(log, settings)
    assert transaction.snapshot is not None
    check(transaction.snapshot)
    shown: list[dict[str, Any]] = []
    may_widen = _may_widen(transaction)
    for change in changes:
        edit = _change(change, shown, log.path, may_widen=may_widen)
        schema = edited(schema, change.path[:-1], edit, log.path)
    if len(changes) == 1:
        position = shown[0].pop("position", None)
        parameters = {
            "column": _json(shown[0]),
            **({} if position is None else {"position": position}),
        }
        operation = Operation("CHANGE COLUMN", parameters)
    else:
        operation = Operation("CHANGE COLUMNS", {"columns": _json(shown)})
    return _commit(transaction, metadata, schema, operation)


def replace_columns(log: DeltaLog, columns: Sequence[T.StructField], settings: Mapping[str, str]) -> int:
    """Gives the table these columns in this order: its own and new ones. Returns the commit's version.

    DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP if that drops a column or changes its type.
    """
    transaction, metadata, schema = _begin(log, settings)
    numbered = next((field.name for field in schema.fields if is_identity(field)), None)
    if numbered is not None:
        raise DeltaAnalysisException(
            error_class="DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED", table=log.path, column=numbered
        )
    wanted = T.StructType(list(columns))
    obstacle = obstacle_to_change(schema, wanted, (), may_widen=_may_widen(transaction))
    if obstacle is not None:
        raise DeltaAnalysisException(
            error_class="DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            details=obstacle,
            old_schema=schema.simpleString(),
            new_schema=wanted.simpleString(),
            table=log.path,
        )
    operation = Operation("REPLACE COLUMNS", {"columns": _json([_shown((), column) for column in columns])})
    return _commit(transaction, metadata, replaced(schema, wanted), operation)


def _begin(
    log: DeltaLog, settings: Mapping[str, str]
) -> tuple[OptimisticTransaction, Metadata, T.StructType]:
    transaction, metadata = begin_change(log, settings)
    assert transaction.snapshot is not None
    return transaction, metadata, with_declared_types(transaction.snapshot.schema)


def _commit(
    transaction: OptimisticTransaction, metadata: Metadata, schema: T.DataType, operation: Operation
) -> int:
    assert isinstance(schema, T.StructType)
    assert transaction.snapshot is not None
    schema = widened(transaction.snapshot, with_char_as_string(schema), by_alter=True)
    schema_string = schema_to_string(schema)
    return commit_change(
        transaction, msgspec.structs.replace(metadata, schema_string=schema_string), operation
    )


def _may_widen(transaction: OptimisticTransaction) -> bool:
    snapshot = transaction.snapshot
    return snapshot is not None and widens_types(snapshot.protocol, snapshot.metadata)


def _insert(column: NewColumn, table: str) -> Edit:
    def insert(data_type: T.DataType) -> T.DataType:
        if not isinstance(data_type, T.StructType):
            raise _no_struct(data_type, (*column.parent, column.field.name), table)
        if column.field.name.lower() in (name.lower() for name in data_type.names):
            raise SchemaError(
                error_class="FIELD_ALREADY_EXISTS",
                column_name=dotted((*column.parent, column.field.name)),
                struct=data_type.simpleString(),
                table=table,
            )
        position = column.position or (_after(data_type.names[-1]) if data_type.fields else _FIRST)
        return T.StructType(_placed(data_type.fields, column.field, position, table))

    return insert


def _change(change: ColumnChange, shown: list[dict[str, Any]], table: str, *, may_widen: bool) -> Edit:
    def edit(data_type: T.DataType) -> T.DataType:
        match data_type:
            case T.StructType():
                return T.StructType(change_field(data_type.fields))
            case T.ArrayType() | T.MapType():
                return with_inner_fields(data_type, change_inside(inner_fields(data_type)))
        raise _no_struct(data_type, change.path, table)

    def change_field(fields: list[T.StructField]) -> list[T.StructField]:
        old = fields[position_of(fields, change.path[-1], table)]
        new = _changed(old, change, table, may_widen=may_widen)
        shown.append({**_shown(change.path[:-1], new), **_shown_position(change.position)})
        if change.position is None or change.position.lower() == _after(old.name).lower():
            return [new if field is old else field for field in fields]
        return _placed([field for field in fields if field is not old], new, change.position, table)

    def change_inside(fields: list[T.StructField]) -> list[T.StructField]:
        old = fields[position_of(fields, change.path[-1], table)]
        if change.comment is not None:
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY", field_path=dotted(change.path), table=table
            )
        if change.position is not None or change.nullable not in (None, old.nullable):
            raise _not_supported(change, old, old.dataType, table)
        return change_field(fields)

    return edit


def _changed(old: T.StructField, change: ColumnChange, table: str, *, may_widen: bool) -> T.StructField:
    nullable = old.nullable if change.nullable is None else change.nullable
    data_type = old.dataType if change.data_type is None else change.data_type
    if is_identity(old) and (data_type != old.dataType or nullable != old.nullable or change.default):
        raise DeltaAnalysisException(
            error_class="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED",
            column_name=old.name,
            table=table,
            column=old.name,
        )
    fits = check_change(old.dataType, data_type, change.path, table, may_widen=may_widen)
    if not fits or (old.nullable and not nullable):
        raise _not_supported(change, old, data_type, table)
    metadata = dict(old.metadata)
    for key, value in (("comment", change.comment), (CURRENT_DEFAULT, change.default)):
        if value is not None:
            metadata[key] = value
        if value == "":
            del metadata[key]
    return T.StructField(old.name, data_type, nullable, metadata)


def _not_supported(
    change: ColumnChange, old: T.StructField, data_type: T.DataType, table: str
) -> DeltaAnalysisException:
    nullable = old.nullable if change.nullable is None else change.nullable
    if data_type == old.dataType:
        advice = "Add a CHECK constraint (… IS NOT NULL)."
    elif can_widen(old.dataType, data_type):
        advice = "Set the table property delta.enableTypeWidening to true."
    else:
        advice = "Write the table anew with overwriteSchema."
    return DeltaAnalysisException(
        error_class="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        field_path=dotted(change.path),
        old_field=_type_text(old.dataType, old.nullable),
        new_field=_type_text(data_type, nullable),
        advice=advice,
        table=table,
        column=dotted(change.path),
    )


def _placed(
    fields: list[T.StructField], field: T.StructField, position: str, table: str
) -> list[T.StructField]:
    at = 0
    if position != _FIRST:
        at = position_of(fields, position.removeprefix(_after("")), table) + 1
    return [*fields[:at], field, *fields[at:]]


def edited(data_type: T.DataType, path: Path, edit: Edit, table: str, at: Path = ()) -> Any:
    """The type, in which `edit` has changed the type at the path."""
    if not path:
        return edit(data_type)
    inside = (*at, path[0])
    match data_type, path[0].lower():
        case T.StructType(), _:
            i = position_of(data_type.fields, path[0], table)
            old = data_type.fields[i]
            inner = edited(old.dataType, path[1:], edit, table, inside)
            new = T.StructField(old.name, inner, old.nullable, old.metadata)
            return T.StructType([*data_type.fields[:i], new, *data_type.fields[i + 1 :]])
        case T.ArrayType(), "element":
            return T.ArrayType(
                edited(data_type.elementType, path[1:], edit, table, inside), data_type.containsNull
            )
        case T.MapType(), "key":
            key = edited(data_type.keyType, path[1:], edit, table, inside)
            return T.MapType(key, data_type.valueType, data_type.valueContainsNull)
        case T.MapType(), "value":
            value = edited(data_type.valueType, path[1:], edit, table, inside)
            return T.MapType(data_type.keyType, value, data_type.valueContainsNull)
    raise _no_struct(data_type, inside, table)


def _no_struct(data_type: T.DataType, path: Path, table: str) -> SchemaError:
    return SchemaError(
        error_class="DELTA_ADD_COLUMN_PARENT_NOT_STRUCT",
        column_name=dotted(path),
        other=data_type.simpleString(),
        table=table,
        column=dotted(path),
    )


def position_of(fields: Sequence[T.StructField], name: str, table: str) -> int:
    """Where a field is, by its name regardless of case; DELTA_COLUMN_NOT_FOUND if it is nowhere."""
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


def _type_text(data_type: T.DataType, nullable: bool) -> str:
    return data_type.simpleString() + ("" if nullable else " NOT NULL")


def _shown(parent: Path, field: T.StructField) -> dict[str, Any]:
    """A column as commitInfo has it."""
    data_type = field.dataType.jsonValue()
    return {
        "name": dotted([*parent, field.name]),
        "type": data_type["type"] if isinstance(data_type, dict) else data_type,
        "nullable": field.nullable,
        "metadata": field.metadata,
    }


def _shown_position(position: str | None) -> dict[str, str]:
    return {} if position is None else {"position": position}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def column_field(name: str, type_json: str, *, nullable: bool, comment: str | None) -> T.StructField:
    """A field, whose type is given as Spark's JSON."""
    metadata = {} if comment is None else {"comment": comment}
    return T.StructField(name, type_of_json(type_json), nullable, metadata)


def type_of_json(type_json: str) -> T.DataType:
    """The data type of Spark's JSON."""
    field = {"name": "c", "type": msgspec.json.decode(type_json), "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType
