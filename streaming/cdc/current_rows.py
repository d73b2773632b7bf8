"""The newest state of every key (slowly changing dimension, type 1).

A row of the target is the join of all changes of its key: of each column the value that the newest change
set, unless a newer change deleted the row. The join is the same for every order of the changes and for every
way to cut them into batches. So a batch is folded to one row a key, and a MERGE joins this with the target's
row.

Of equal sequences of one key a delete wins; of two upserts the one whose columns are greater, the first that
differs deciding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.merge_builder import MergeBuilder
from deltaflow.batch.rows.column_expressions import default_sql, default_value
from deltaflow.batch.sql_names import quoted
from deltaflow.log.protocol.data_types import has_order
from deltaflow.spark.expressions.orderable import orderable
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    COLUMN_SEQUENCES,
    DELETED,
    FIRST,
    INVALID,
    ROW_SEQUENCE,
    SEQUENCE,
    TRUNCATED,
    UPSERT,
    ChangeColumns,
    column,
    is_set,
    summary_columns,
)
from deltaflow.streaming.cdc.data_columns import is_computed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from deltaflow.batch.delta_table import DeltaTable

TARGET, SOURCE = "__target", "__change"
_UPSERTED, _DELETED, _GROUP, _SEQUENCES = "\0upserted", "\0ended", "\0group", "\0sequences"


@dataclass(frozen=True)
class _Target:
    """The target's row in a MERGE: its columns by their names in lower case, and the table's path."""

    path: str
    known: dict[str, T.StructField]
    columns: ChangeColumns
    ignores_nulls: bool

    @property
    def sequence(self) -> Column:
        """The row's; null in one that was there before every change."""
        return _of(TARGET, ROW_SEQUENCE)

    def has(self, value: T.StructField) -> bool:
        return value.name.lower() in self.known

    def old(self, value: T.StructField) -> Column:
        """A value as it is; null in a column that the table gets by this MERGE."""
        if not self.has(value):
            return F.lit(None).cast(value.dataType)
        return _of(TARGET, self.known[value.name.lower()].name)

    def sequence_of(self, value: T.StructField) -> Column:
        """Of one value of the row; null if no change has told it."""
        if not self.columns.partial:
            return self.sequence
        return F.when(self._may_be_told(value), self.sequence_by_name(F.lit(value.name)))

    def may_be_told(self) -> Column:
        """By the names of the values, whether a change may have told them; see `_may_be_told`."""
        values = self.columns.values
        return F.map_from_arrays(_names(values), F.array(*[self._may_be_told(value) for value in values]))

    def _may_be_told(self, value: T.StructField) -> Column:
        """A row that was written before the table had the column does not say that no change told it; where
        nulls tell nothing, its null does."""
        if not self.has(value):
            return F.lit(False)
        return self.old(value).isNotNull() if self.ignores_nulls else F.lit(True)

    def sequence_by_name(self, name: Column) -> Column:
        """Of the value in the table's column of this name."""
        if not self.columns.partial:
            return self.sequence
        older = _of(TARGET, COLUMN_SEQUENCES)
        return F.when(F.map_contains_key(older, name), older[name]).otherwise(self.sequence)

    def has_values_of_no_change(self) -> Column:
        """Whether a value was there before every change: it has no sequence, and is not what rows have of
        which no change has told it."""
        fields = [value for value in self.columns.values if self.has(value)]
        given = F.map_from_arrays(_names(fields), F.array(*[self._is_given(value) for value in fields]))
        found = F.map_filter(given, lambda name, is_given: is_given & self.sequence_by_name(name).isNull())
        return F.size(found) > 0

    def _is_given(self, value: T.StructField) -> Column:
        field, old = self.known[value.name.lower()], self.old(value)
        if default_sql(field) is None:
            return old.isNotNull()
        default = default_value(field, self.path)
        return ~orderable(old, value.dataType).eqNullSafe(orderable(default, value.dataType))

    def or_default(self, name: str, value: Column) -> Column:
        """A CASE without ELSE, which is the column's default in a row of which no change has told it."""
        field = self.known.get(name.lower())
        if field is None or default_sql(field) is None:
            return value
        return value.otherwise(default_value(field, self.path))


@dataclass(frozen=True)
class CurrentRows:
    """Folds and merges changes with these columns."""

    columns: ChangeColumns
    ignores_nulls: bool

    def fold(self, changes: DataFrame, deletes: DataFrame | None, truncated: Column | None) -> DataFrame:
        """One row for each key of the changes, and one without keys for their truncates.

        `deletes` are older deletes (keys, SEQUENCE), None without any; `truncated` is the newest older
        truncate. DELETED is that of a delete which has to be remembered.
        """
        sequence = F.col(SEQUENCE)
        is_upsert = F.col(CHANGE) == UPSERT
        first, deleted, truncates, invalid = summary_columns(self.columns)
        folded = [
            F.min(first).alias(FIRST),
            F.max(deleted).alias(DELETED),
            F.max(truncates).alias(TRUNCATED),
            F.sum(invalid).alias(INVALID),
            F.max(F.when(is_upsert, sequence)).alias(_UPSERTED),
        ]
        for i, group in enumerate(self.columns.groups):
            values = F.struct(sequence.alias(SEQUENCE), *[column(value.name) for value in group])
            sets = is_upsert & self._sets(group)
            if _has_order(group):
                newest = F.max(F.when(sets, values))
            else:
                state = _state(sequence, group, {value.name: column(value.name) for value in group})
                newest = F.max_by(values, F.when(sets, state))
            folded.append(newest.alias(f"{_GROUP}{i}"))
        keys = self.columns.key_names
        rows = changes.groupBy(*map(column, keys)).agg(*folded)
        ends = [F.col(DELETED)]
        if deletes is not None:
            older = deletes.groupBy(*map(column, keys)).agg(F.max(SEQUENCE).alias("\0older"))
            rows = rows.join(older, keys, "left")
            ends.append(F.col("\0older"))
        if truncated is not None:
            ends.append(truncated)
        rows = rows.withColumn(_DELETED, _newest(ends))
        if self.columns.partial:
            return rows
        # The row that a newer upsert leaves says as much as the delete.
        is_superseded = _holds(F.col(_UPSERTED) > F.col(DELETED))
        return rows.withColumn(DELETED, F.when(~is_superseded, F.col(DELETED)))

    def late(self, changes: DataFrame, target: DataFrame, deletes: DataFrame | None) -> DataFrame:
        """Of changes that are not younger than deletes which were forgotten: those that such a delete may
        have followed. A newer row or delete of the key that is known says that the change is of no use."""
        keys = self.columns.key_names
        rows = target.select(
            *map(column, keys), F.col(ROW_SEQUENCE).alias("\0row"), F.lit(True).alias("\0is")
        )
        joined = changes.join(rows, keys, "left")
        sequence = F.col(SEQUENCE)
        is_late = F.col("\0is").isNull()
        if self.columns.partial:
            is_late = is_late | _holds(sequence < F.col("\0row"))
        if deletes is not None:
            newest = deletes.groupBy(*map(column, keys)).agg(F.max(SEQUENCE).alias("\0older"))
            joined = joined.join(newest, keys, "left")
            is_late = is_late & ~_holds(sequence <= F.col("\0older"))
        return joined.where(is_late).select(*[column(name) for name in changes.columns])

    def merge(
        self,
        table: DeltaTable,
        folded: DataFrame,
        truncates: Sequence[Column],
        target: T.StructType,
        read_version: int | None,
    ) -> None:
        """Joins the folded rows with those of the target, in one MERGE, after the truncates of the batch. If
        they were found by the target's rows at `read_version` or later, what others have changed since then
        is a conflict.

        What it evaluates for each column is small, and what can be the same for all columns is evaluated by
        name: Spark compiles it anew for every batch.
        """
        same_key = _all(_of(TARGET, key) == _of(SOURCE, key) for key in self.columns.key_names)
        upserted, deleted = _of(SOURCE, _UPSERTED), _of(SOURCE, _DELETED)
        known = {field.name.lower(): field for field in target.fields}
        row = _Target(table._path, known, self.columns, self.ignores_nulls)
        source = self._source(folded, truncates, row)
        is_inserted = upserted.isNotNull() & (deleted.isNull() | (upserted > deleted))
        stays = deleted.isNull() | _holds(upserted > deleted) | _holds(row.sequence > deleted)
        changed, values = self._updated(row)
        inserted = {key: _of(SOURCE, key) for key in self.columns.key_names} | self._inserted(row)
        merge = table.alias(TARGET).merge(source.alias(SOURCE), same_key)
        assert isinstance(merge, MergeBuilder)
        merge = merge.of_schema(target)
        if read_version is not None:
            merge = merge.reading(read_version)
        merge = (
            merge.whenMatchedDelete(~stays)
            .whenMatchedUpdate(changed, _quoted(values))
            .whenNotMatchedInsert(is_inserted, _quoted(inserted))
        )
        if truncates:
            newest = _newest(truncates)
            merge = merge.whenNotMatchedBySourceDelete(row.sequence.isNull() | (row.sequence <= newest))
            if self.columns.partial:
                is_older, values = self._truncated(newest, row)
                merge = merge.whenNotMatchedBySourceUpdate(is_older, _quoted(values))
        merge.withSchemaEvolution().execute()

    def _source(self, folded: DataFrame, truncates: Sequence[Column], row: _Target) -> DataFrame:
        """The folded rows without what a delete or a truncate has ended: the keys; of each group its sequence
        and values as one value, which is null if no change has told it; the values that are not in that, and
        those of columns that the table gets, as the MERGE wants it; the sequences by column. No value is
        there twice: rows of few bytes are broadcast, and the join does not shuffle the table.
        """
        keys, deleted = [column(key) for key in self.columns.key_names], F.col(_DELETED)
        told: list[Column] = []
        values: list[Column] = []
        states: list[Column] = []
        sequences: list[Column] = []
        for i, group in enumerate(self.columns.groups):
            found, name = F.col(f"{_GROUP}{i}"), f"{_GROUP}{i}"
            sequence = found.getField(SEQUENCE)
            told.append(F.when(deleted.isNull() | (sequence > deleted), found).alias(name))
            sequences.append(sequence)
            of_group = {value.name: found.getField(value.name) for value in group}
            values += [of_group[v.name].alias(v.name) for v in group if not _is_in_state(v, group, row)]
            if not _has_order(group):
                found = F.when(found.isNotNull(), _state(sequence, group, of_group)).alias(name)
            states.append(found)
        if self.columns.partial:
            by_name = F.map_from_arrays(_names(self.columns.values), F.array(*sequences))
            states.append(by_name.alias(_SEQUENCES))
        ended = folded.withColumn(_DELETED, _newest([deleted, *truncates]))
        rows = ended.select(*keys, *told, _UPSERTED, _DELETED)
        return rows.select(*keys, *values, *states, _UPSERTED, _DELETED)

    def _values_of_source(self, number: int, row: _Target) -> dict[str, Column]:
        """The values of a group of columns in `_source`."""
        group, state = self.columns.groups[number], _of(SOURCE, f"{_GROUP}{number}")
        return {
            value.name: state.getField(value.name)
            if _is_in_state(value, group, row)
            else _of(SOURCE, value.name)
            for value in group
        }

    def _sets(self, group: Sequence[T.StructField]) -> Column:
        if not self.columns.partial:
            return F.lit(True)
        return is_set(group[0], ignores_nulls=self.ignores_nulls, has_unset=self.columns.has_unset)

    def _updated(self, row: _Target) -> tuple[Column, dict[str, Column]]:
        """Whether a row of the target changes, and its new values."""
        upserted, deleted = _of(SOURCE, _UPSERTED), _of(SOURCE, _DELETED)
        is_undeleted = deleted.isNull()
        values: dict[str, Column] = {ROW_SEQUENCE: _newest([upserted, row.sequence])}
        changes = [_holds(upserted > row.sequence), row.sequence.isNull() & upserted.isNotNull()]
        for i, group in enumerate(self.columns.groups):
            sequence = row.sequence_of(group[0])
            old = {value.name: row.old(value) for value in group}
            # What a delete has ended is older than the source's values, too.
            wins = _of(SOURCE, f"{_GROUP}{i}") > _state(sequence, group, old)
            changes.append(_holds(wins))
            if not self.columns.partial:
                # The row is written anew only if the source's wins.
                values |= self._values_of_source(i, row)
                continue
            (value,) = group
            newer = self._values_of_source(i, row)[value.name]
            new = F.when(wins, newer).when(is_undeleted | (sequence > deleted), old[value.name])
            values[value.name] = row.or_default(value.name, new)
        if self.columns.partial:
            changed, values[COLUMN_SEQUENCES] = self._merged_sequences(row, values[ROW_SEQUENCE])
            changes += [changed, deleted.isNotNull() & row.has_values_of_no_change()]
        # A delete between the row and its newest change also ends the columns that the changes do not have.
        is_reset = deleted.isNotNull() & (row.sequence.isNull() | (deleted >= row.sequence))
        given = {field.name.lower() for field in self.columns.data} | {
            ROW_SEQUENCE.lower(),
            COLUMN_SEQUENCES.lower(),
        }
        for field in row.known.values():
            if field.name.lower() not in given and not is_computed(field):
                values[field.name] = row.or_default(field.name, F.when(~is_reset, row.old(field)))
        return functools.reduce(operator.or_, changes), values

    def _merged_sequences(self, row: _Target, newest: Column) -> tuple[Column, Column]:
        """Whether the sequence of a column changes, and those of all columns beside the row's new one."""
        deleted, told = _of(SOURCE, _DELETED), _of(SOURCE, _SEQUENCES)
        may_be_told = row.may_be_told()

        def present(name: Column, may_be_told: Column) -> Column:
            return F.when(may_be_told, row.sequence_by_name(name))

        def merged(name: Column, may_be_told: Column) -> Column:
            kept = present(name, may_be_told)
            return _newest([told[name], F.when(deleted.isNull() | (kept > deleted), kept)])

        def differs(name: Column, may_be_told: Column) -> Column:
            return ~merged(name, may_be_told).eqNullSafe(present(name, may_be_told))

        changed = F.size(F.map_filter(may_be_told, differs)) > 0
        return changed, _older(F.transform_values(may_be_told, merged), newest)

    def _truncated(self, truncate: Column, row: _Target) -> tuple[Column, dict[str, Column]]:
        """Whether a row that is newer than a truncate has values that are not, and the row without them."""
        fields = [value for value in self.columns.values if row.has(value)]
        names = _names(fields)
        is_older = F.exists(names, lambda name: _holds(row.sequence_by_name(name) <= truncate))
        values = {
            value.name: row.or_default(value.name, F.when(row.sequence_of(value) > truncate, row.old(value)))
            for value in fields
        }

        def kept(name: Column) -> Column:
            return F.when(row.sequence_by_name(name) > truncate, row.sequence_by_name(name))

        kept_by_name = F.map_from_arrays(names, F.transform(names, kept))
        values[COLUMN_SEQUENCES] = _older(kept_by_name, row.sequence)
        return is_older | row.has_values_of_no_change(), values

    def _inserted(self, row: _Target) -> dict[str, Column]:
        upserted = _of(SOURCE, _UPSERTED)
        values: dict[str, Column] = {ROW_SEQUENCE: upserted}
        for i in range(len(self.columns.groups)):
            is_told = _of(SOURCE, f"{_GROUP}{i}").isNotNull()
            for name, value in self._values_of_source(i, row).items():
                values[name] = row.or_default(name, F.when(is_told, value))
        if self.columns.partial:
            values[COLUMN_SEQUENCES] = _older(_of(SOURCE, _SEQUENCES), upserted)
        return values


def _has_order(group: Sequence[T.StructField]) -> bool:
    return all(has_order(value.dataType) for value in group)


def _is_in_state(value: T.StructField, group: Sequence[T.StructField], row: _Target) -> bool:
    return row.has(value) and _has_order(group)


def _state(sequence: Column, group: Sequence[T.StructField], values: Mapping[str, Column]) -> Column:
    """A group's sequence and values as one value; of two the greater wins."""
    comparable_values = [orderable(values[value.name], value.dataType).alias(value.name) for value in group]
    return F.struct(sequence.alias(SEQUENCE), *comparable_values)


def _names(fields: Sequence[T.StructField]) -> Column:
    return F.array(*[F.lit(value.name) for value in fields]).cast(T.ArrayType(T.StringType()))


def _older(sequences: Column, newest: Column) -> Column:
    """The sequences, by column, that differ from the row's; null if there are none."""
    older = F.map_filter(sequences, lambda _, sequence: ~sequence.eqNullSafe(newest))
    return F.when(F.size(older) > 0, older)


def _newest(sequences: Sequence[Column]) -> Column:
    """The greatest of them that is not null."""
    return F.greatest(*sequences) if len(sequences) > 1 else sequences[0]


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")


def _holds(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _all(conditions: Iterable[Column]) -> Column:
    return functools.reduce(operator.and_, conditions)


def _quoted(values: dict[str, Column]) -> dict[str, str | Column]:
    return {quoted(name): value for name, value in values.items()}
