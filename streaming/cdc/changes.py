"""What a change is: the frame of changes that an envelope makes of the records of a stream.

A frame of changes has one row for each change, the data columns at its top level by their names, and the
reserved columns:

- `_change`, a string: `upsert`, `delete` (only the keys are read) or `truncate` (no data column is read);
- `_sequence`, of any type that has an order: of two changes of a key the one with the greater value is newer;
- `_unset`, an array of strings, which may be left out: data columns that an upsert leaves as they are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.protocol.data_types import fields_at
from deltaflow.log.protocol.schema import char_length, varchar_length
from deltaflow.spark.expressions.orderable import orderable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHANGE, SEQUENCE, UNSET = "_change", "_sequence", "_unset"
UPSERT, DELETE, TRUNCATE = "upsert", "delete", "truncate"
START_AT, END_AT = "__START_AT", "__END_AT"
"""Of a row of history: the sequences from which, and before which, it is valid."""
ROW_SEQUENCE, COLUMN_SEQUENCES = "__SEQUENCE", "__COLUMN_SEQUENCES"
"""Of a row: the sequence of its newest change; those of its columns that an older change set, by name."""
ENGINE_COLUMNS = (START_AT, END_AT, ROW_SEQUENCE, COLUMN_SEQUENCES)
RECORDED_AT = "_recorded_at"
"""Of a row of the tables beside the target: when it was written there."""
RESERVED = (CHANGE, SEQUENCE, UNSET, RECORDED_AT, *ENGINE_COLUMNS)


@dataclass(frozen=True)
class Current:
    """What the target holds when a batch begins."""

    schema: T.StructType | None
    """The data columns; None without a table."""
    rows: Callable[[], DataFrame | None]
    """The current rows by their data columns; None without a table."""
    keys: Sequence[str] = ()
    """The columns that name a row."""
    newest: Callable[[], Column | None] = lambda: None
    """The greatest sequence that was applied, by a job; None without one, and for a batch that did not end
    and runs again, because some of its own sequences may be known."""
    is_stored: Callable[[str], bool] = lambda name: True
    """Whether a column of the records goes to the target."""
    as_stored: Callable[[T.StructField], Column] = lambda field: column(field.name)
    """A column of the records that goes to the target, as it is there."""


class Envelope(Protocol):
    """Reads the records of a stream as changes."""

    def changes(self, batch: DataFrame, current: Current) -> DataFrame | None:
        """The changes that the records of a micro-batch tell; None if there are none, and their columns are
        unknown."""
        ...


def check_names(names: Iterable[str]) -> None:
    """DELTA_APPLY_CHANGES_RESERVED if a column of the records has a reserved name, in whatever case."""
    taken = {name.lower() for name in RESERVED}
    reserved = [name for name in names if name.lower() in taken]
    if reserved:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_APPLY_CHANGES_RESERVED", names=", ".join(reserved)
        )


def field_named(schema: T.StructType, name: str) -> T.StructField:
    """The column of this name, in whatever case; DELTA_APPLY_CHANGES_COLUMN if there is none."""
    found = fields_at(schema, [name])
    if found is None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_APPLY_CHANGES_COLUMN",
            column_name=name,
            given=", ".join(given for given in schema.names if given not in RESERVED),
        )
    return found[0]


@dataclass(frozen=True)
class ByConditions:
    """Records whose columns are the data; conditions over them say which are deletes and truncates."""

    sequence: Column
    deletes: Column | None = None
    truncates: Column | None = None

    def changes(self, batch: DataFrame, current: Current) -> DataFrame:
        check_names(batch.columns)
        change: Column = F.lit(UPSERT)
        # A condition that is null does not hold.
        if self.deletes is not None:
            change = F.when(self.deletes, DELETE).otherwise(change)
        if self.truncates is not None:
            change = F.when(self.truncates, TRUNCATE).otherwise(change)
        return batch.withColumns({CHANGE: change, SEQUENCE: self.sequence})


@dataclass(frozen=True)
class ChangeColumns:
    """The columns of one frame of changes."""

    keys: Sequence[T.StructField]
    values: Sequence[T.StructField]
    """The data columns that are no keys."""
    sequence: T.DataType
    partial: bool
    """Whether an upsert may leave columns as they are: each column has a sequence of its own then."""
    has_unset: bool
    """Whether the frame has the column `_unset`."""

    @property
    def key_names(self) -> list[str]:
        return [key.name for key in self.keys]

    @property
    def value_names(self) -> list[str]:
        return [value.name for value in self.values]

    @property
    def data(self) -> list[T.StructField]:
        return [*self.keys, *self.values]

    @property
    def groups(self) -> list[list[T.StructField]]:
        """The values that changes set together: all, or each by itself."""
        if self.partial:
            return [[value] for value in self.values]
        return [list(self.values)] if self.values else []

    def engine_fields(self, *, history: bool) -> list[T.StructField]:
        """The columns that a table with all that is known has beside the data."""
        names = [START_AT, END_AT] if history else [ROW_SEQUENCE]
        fields = [T.StructField(name, self.sequence) for name in names]
        if self.partial:
            fields.append(T.StructField(COLUMN_SEQUENCES, T.MapType(T.StringType(), self.sequence)))
        return fields


def column(name: str) -> Column:
    """The top-level column of this name."""
    return F.col(quoted(name))


def as_shown(value: Column, field: T.StructField) -> Column:
    """A value as a table shows it that has it in this column: a CHAR is filled with blanks, and blanks that
    are too many for a CHAR or VARCHAR are cut off."""
    filled = char_length(field)
    length = varchar_length(field) if filled is None else filled
    if length is None:
        return value
    ends_in_blanks = F.rtrim(F.substr(value, F.lit(length + 1))) == ""
    shown = F.when((F.length(value) > length) & ends_in_blanks, F.substring(value, 1, length))
    if filled is not None:
        shown = shown.when(F.length(value) < length, F.rpad(value, length, " "))
    return shown.otherwise(value)


FIRST, DELETED, TRUNCATED, INVALID = "\0first", "\0deleted", "\0truncated", "\0invalid"
"""Of one change, or of all changes of one key: see `summary_columns`."""


def summary_columns(columns: ChangeColumns) -> list[Column]:
    """What a batch has to be known for, of one change: its sequence, that of a delete, that of a truncate,
    and 1 if it is no change."""
    change, sequence = F.col(CHANGE), F.col(SEQUENCE)
    return [
        F.when(change != TRUNCATE, sequence).alias(FIRST),
        F.when(change == DELETE, sequence).alias(DELETED),
        F.when(change == TRUNCATE, sequence).alias(TRUNCATED),
        is_invalid(columns).cast("long").alias(INVALID),
    ]


def is_invalid(columns: ChangeColumns) -> Column:
    """Whether a row of a frame of changes is none: it lacks a key or a sequence, or is no known change.

    A struct that has nulls alone is no sequence.
    """
    no_key = functools.reduce(operator.or_, [column(key).isNull() for key in columns.key_names])
    unknown = ~F.coalesce(F.col(CHANGE).isin(UPSERT, DELETE, TRUNCATE), F.lit(False))
    return unknown | _is_null(F.col(SEQUENCE), columns.sequence) | (no_key & (F.col(CHANGE) != TRUNCATE))


def _is_null(value: Column, data_type: T.DataType) -> Column:
    if not isinstance(data_type, T.StructType) or not data_type.fields:
        return value.isNull()
    parts = [_is_null(value.getField(field.name), field.dataType) for field in data_type.fields]
    return functools.reduce(operator.and_, parts)


def is_set(field: T.StructField, *, ignores_nulls: bool, has_unset: bool) -> Column:
    """Whether an upsert tells a data column."""
    told: Column = F.lit(True)
    if has_unset:
        told = ~F.coalesce(F.array_contains(F.col(UNSET), field.name.lower()), F.lit(False))
    return told & column(field.name).isNotNull() if ignores_nulls else told


def comparable(fields: Sequence[T.StructField]) -> Column:
    """The columns as one value that has an order, by which of two upserts with equal sequences the greater
    wins."""
    # A struct without fields has no order.
    return F.struct(
        F.lit(True).alias("_"),
        *[orderable(column(field.name), field.dataType).alias(f"_{i}") for i, field in enumerate(fields)],
    )


def as_literal(encoded: object, data_type: T.DataType) -> Column:
    """A value that was collected as `encodable`, as a literal of its type."""
    if encoded is None:
        return F.lit(None).cast(data_type)
    if isinstance(data_type, T.ArrayType):
        elements = [as_literal(element, data_type.elementType) for element in encoded]  # type: ignore[attr-defined]
        return F.array(*elements).cast(data_type)
    if isinstance(data_type, T.StructType):
        values = [
            as_literal(encoded[field.name], field.dataType).alias(field.name)  # type: ignore[index]
            for field in data_type.fields
        ]
        return F.struct(*values)
    if isinstance(data_type, T.TimestampType):
        return F.timestamp_micros(F.lit(encoded))
    if isinstance(data_type, T.BinaryType):
        return F.unhex(F.lit(encoded))
    return F.lit(encoded).cast(data_type)


def encodable(value: Column, data_type: T.DataType) -> Column:
    """A value as one that Python can hold without loss, for `as_literal`: naive datetimes are ambiguous."""
    if isinstance(data_type, T.StructType):
        fields = [encodable(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, T.ArrayType):
        return F.transform(value, lambda element: encodable(element, data_type.elementType))
    if isinstance(data_type, T.TimestampType):
        return F.unix_micros(value)
    if isinstance(data_type, T.BinaryType):
        return F.hex(value)
    return value.cast("string")
