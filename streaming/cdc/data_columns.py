"""Which columns of a frame of changes go to the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.identity_columns import is_identity
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION, nullable_type
from deltaflow.log.protocol.type_widening import can_widen
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    COLUMN_SEQUENCES,
    RESERVED,
    SEQUENCE,
    UNSET,
    ChangeColumns,
    as_shown,
    check_names,
    column,
    field_named,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FLOATS = (T.FloatType, T.DoubleType)
_DIGITS: dict[type[T.DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
_MAX_DIGITS = 38
# The empty value of one of these types in a partition column is null in the table.
_WITHOUT_EMPTY = (T.StringType, T.BinaryType)
_NAMES = "array<string>"


@dataclass(frozen=True)
class DataColumns:
    """The keys, and which other columns to take: those named, or all but those named."""

    keys: Sequence[str]
    columns: Sequence[str] | None = None
    except_columns: Sequence[str] = ()
    track_history: Sequence[str] | None = None
    track_history_except: Sequence[str] | None = None

    def of(
        self, changes: DataFrame, snapshot: Snapshot | None, by_columns: bool
    ) -> tuple[DataFrame, ChangeColumns]:
        """The changes with the columns that go to the target, by its names and types where it has them.

        `by_columns`: whether columns have sequences of their own, also if neither changes nor target say so.
        A column of the target that these changes lack keeps its value: where the columns have sequences of
        their own, and where the whole history is beside the target, it is among the columns for that.
        """
        schema = changes.schema
        for name in (CHANGE, SEQUENCE):
            if name not in schema.names:
                raise DeltaIllegalArgumentException(
                    error_class="DELTA_APPLY_CHANGES_COLUMN", column_name=name, given=", ".join(schema.names)
                )
        check_names(name for name in schema.names if name not in (CHANGE, SEQUENCE, UNSET))
        chosen = [field for field in schema.fields if field.name not in RESERVED]
        named = [*self.keys, *(self.columns or ()), *self.except_columns]
        in_table = {} if snapshot is None else {f.name.lower(): f for f in snapshot.schema.fields}
        tracked = [*(self.track_history or ()), *(self.track_history_except or ())]
        for name in [*named, *(name for name in tracked if name.lower() not in in_table)]:
            field_named(schema, name)
        keys = _lower(self.keys)
        chosen = [field for field in chosen if self.is_stored(field.name)]
        fields, selected = [], []
        for given in chosen:
            new = T.StructField(given.name, nullable_type(given.dataType), True, given.metadata)
            field = in_table.get(given.name.lower(), new)
            fields.append(T.StructField(field.name, field.dataType, True, field.metadata))
            selected.append(self.as_stored(given, snapshot).alias(field.name))
        has_unset = UNSET in schema.names
        is_partial = by_columns or has_unset or COLUMN_SEQUENCES.lower() in in_table
        untold = self._untold(fields, snapshot) if is_partial or self.tracks else []
        fields += untold
        selected += [F.lit(None).cast(field.dataType).alias(field.name) for field in untold]
        taken = [column(CHANGE), column(SEQUENCE)]
        if has_unset or (is_partial and untold):
            names = F.array(*[F.lit(field.name) for field in untold]).cast(_NAMES)
            if has_unset:
                names = F.concat(F.coalesce(column(UNSET), F.array().cast(_NAMES)), names)
            # The source may write a name in another case than the target.
            taken.append(F.transform(names, lambda name: F.lower(name)).alias(UNSET))
            has_unset = True
        by_target = {field.name.lower(): field for field in fields}
        key_fields = [by_target[key.lower()] for key in self.keys]
        # By this order the greater of two upserts of a sequence is found: the source may change its own.
        places = {name: place for place, name in enumerate(in_table)}
        fields.sort(key=lambda field: places.get(field.name.lower(), len(places)))
        values = [field for field in fields if field.name.lower() not in keys]
        partial = is_partial and bool(values)
        # The end of a row has it, too, which may be null.
        sequence = nullable_type(schema[SEQUENCE].dataType)
        columns = ChangeColumns(key_fields, values, sequence, partial, has_unset)
        return changes.select(*selected, *taken), columns

    def is_stored(self, name: str) -> bool:
        """Whether a column of the changes goes to the target."""
        if name.lower() in _lower(self.keys):
            return True
        is_wanted = self.columns is None or name.lower() in _lower(self.columns)
        return is_wanted and name.lower() not in _lower(self.except_columns)

    def as_stored(self, given: T.StructField, snapshot: Snapshot | None) -> Column:
        """A column of the changes as the target has it.

        DELTA_APPLY_CHANGES_TYPE if its type is another one.
        """
        known = {} if snapshot is None else {f.name.lower(): f for f in snapshot.schema.fields}
        return _as_type(given, known.get(given.name.lower(), given), snapshot)

    def of_target(self, schema: T.StructType) -> T.StructType:
        """The data columns of the target."""
        return T.StructType([field for field in schema.fields if field.name not in RESERVED])

    def tracked(self, columns: ChangeColumns) -> list[str] | None:
        """The columns whose changes make rows of history; None for all changes."""
        if not self.tracks:
            return None
        names = columns.value_names
        wanted = _lower(names if self.track_history is None else self.track_history)
        found = wanted - _lower(self.track_history_except or ())
        return [name for name in names if name.lower() in found]

    @property
    def tracks(self) -> bool:
        """Whether only changes of some columns make rows of history."""
        return self.track_history is not None or self.track_history_except is not None

    def _untold(self, told: Sequence[T.StructField], snapshot: Snapshot | None) -> list[T.StructField]:
        """The columns that the target has beside these."""
        known = _lower(field.name for field in told)
        fields = [] if snapshot is None else self.of_target(snapshot.schema).fields
        return [
            T.StructField(field.name, field.dataType, True, field.metadata)
            for field in fields
            if field.name.lower() not in known and not is_computed(field)
        ]


def have_common_type(a: T.DataType, b: T.DataType) -> bool:
    """Whether a union of columns of these types keeps every value as it is."""
    if a.simpleString() == b.simpleString() or (isinstance(a, _FLOATS) and isinstance(b, _FLOATS)):
        return True
    of_a, of_b = _digits(a), _digits(b)
    if of_a is None or of_b is None:
        return False
    return max(of_a[0], of_b[0]) + max(of_a[1], of_b[1]) <= _MAX_DIGITS


def is_computed(field: T.StructField) -> bool:
    """Whether the table itself gives a column its values, if a write does not."""
    return GENERATION_EXPRESSION in field.metadata or is_identity(field)


def _digits(data_type: T.DataType) -> tuple[int, int] | None:
    """The digits before and after the point of an exact number."""
    if isinstance(data_type, T.DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    digits = _DIGITS.get(type(data_type))
    return None if digits is None else (digits, 0)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _as_type(given: T.StructField, field: T.StructField, snapshot: Snapshot | None) -> Column:
    """The column as one of the target's type."""
    value = as_shown(column(given.name), field)
    if snapshot is None:
        return value
    if field.name in snapshot.metadata.partition_columns and isinstance(given.dataType, _WITHOUT_EMPTY):
        value = F.when(F.length(value) > 0, value)
    if given.dataType == field.dataType:
        return value
    if can_widen(given.dataType, field.dataType):
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
