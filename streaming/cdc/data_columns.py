"""Which columns of a frame of changes go to the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    COLUMN_SEQUENCES,
    ENGINE_COLUMNS,
    RESERVED,
    SEQUENCE,
    UNSET,
    ChangeColumns,
    column,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A value of one of these types is one of every type after it in the same list.
_WIDENED: list[list[type[T.DataType]]] = [
    [T.ByteType, T.ShortType, T.IntegerType, T.LongType],
    [T.FloatType, T.DoubleType],
]


@dataclass(frozen=True)
class DataColumns:
    """The keys, and which other columns to take: those named, or all but those named."""

    keys: Sequence[str]
    columns: Sequence[str] | None = None
    except_columns: Sequence[str] = ()
    track_history: Sequence[str] | None = None
    track_history_except: Sequence[str] | None = None

    def of(
        self, changes: DataFrame, snapshot: Snapshot | None, ignores_nulls: bool
    ) -> tuple[DataFrame, ChangeColumns]:
        """The changes with the columns that go to the target, by its names and types where it has them."""
        schema = changes.schema
        by_name = {field.name.lower(): field for field in schema.fields}
        for name in (CHANGE, SEQUENCE):
            if name not in schema.names:
                raise DeltaIllegalArgumentException(
                    error_class="DELTA_APPLY_CHANGES_COLUMN", column_name=name, given=", ".join(schema.names)
                )
        engine = [field.name for field in schema.fields if field.name in ENGINE_COLUMNS]
        if engine:
            raise DeltaIllegalArgumentException(
                error_class="DELTA_APPLY_CHANGES_RESERVED", names=", ".join(engine)
            )
        chosen = [field for field in schema.fields if field.name not in RESERVED]
        named = [*self.keys, *(self.columns or ()), *self.except_columns]
        for name in named:
            if name.lower() not in by_name:
                raise DeltaIllegalArgumentException(
                    error_class="DELTA_APPLY_CHANGES_COLUMN", column_name=name, given=", ".join(schema.names)
                )
        keys = _lower(self.keys)
        if self.columns is not None:
            wanted = _lower(self.columns) | keys
            chosen = [field for field in chosen if field.name.lower() in wanted]
        left_out = _lower(self.except_columns) - keys
        chosen = [field for field in chosen if field.name.lower() not in left_out]
        in_table = {} if snapshot is None else {f.name.lower(): f for f in snapshot.schema.fields}
        fields, selected = [], []
        for given in chosen:
            field = in_table.get(given.name.lower(), given)
            fields.append(T.StructField(field.name, field.dataType, True, field.metadata))
            selected.append(_as_type(given, field, snapshot).alias(field.name))
        has_unset = UNSET in schema.names
        taken = [column(CHANGE), column(SEQUENCE), *([column(UNSET)] if has_unset else [])]
        by_target = {field.name.lower(): field for field in fields}
        key_fields = [by_target[key.lower()] for key in self.keys]
        values = [field for field in fields if field.name.lower() not in keys]
        partial = (ignores_nulls or has_unset or COLUMN_SEQUENCES.lower() in in_table) and bool(values)
        columns = ChangeColumns(key_fields, values, schema[SEQUENCE].dataType, partial, has_unset)
        return changes.select(*selected, *taken), columns

    def of_target(self, schema: T.StructType) -> T.StructType:
        """The data columns of the target."""
        return T.StructType([field for field in schema.fields if field.name not in RESERVED])

    def tracked(self, columns: ChangeColumns) -> list[str] | None:
        """The columns whose changes make rows of history; None for all changes."""
        if self.track_history is None and self.track_history_except is None:
            return None
        names = columns.value_names
        wanted = _lower(names if self.track_history is None else self.track_history)
        found = wanted - _lower(self.track_history_except or ())
        return [name for name in names if name.lower() in found]


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _as_type(given: T.StructField, field: T.StructField, snapshot: Snapshot | None) -> Column:
    """The column as one of the target's type."""
    value = column(given.name)
    if snapshot is None or given.dataType == field.dataType:
        return value
    narrow, wide = type(given.dataType), type(field.dataType)
    for types in _WIDENED:
        if narrow in types and wide in types[types.index(narrow) :]:
            return value.cast(field.dataType)
    if given.dataType.simpleString() == field.dataType.simpleString():
        return value  # they differ in which inner values may be null
    raise DeltaAnalysisException(
        error_class="DELTA_APPLY_CHANGES_TYPE",
        column_name=field.name,
        given=given.dataType.simpleString(),
        wanted=field.dataType.simpleString(),
        table=snapshot.path,
        column=field.name,
    )
