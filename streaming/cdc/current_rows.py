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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.rows.column_expressions import default_sql, default_value
from deltaflow.batch.sql_names import quoted
from deltaflow.log.protocol.data_types import has_order
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
    comparable,
    is_set,
    summary_columns,
)
from deltaflow.streaming.cdc.data_columns import is_computed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from deltaflow.batch.delta_table import DeltaTable

TARGET, SOURCE = "__target", "__change"
_UPSERTED, _DELETED, _GROUP = "\0upserted", "\0ended", "\0group"


@dataclass(frozen=True)
class _Fields:
    """The columns of the target at this path, by their names in lower case."""

    path: str
    known: dict[str, T.StructField]

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
            if all(has_order(value.dataType) for value in group):
                newest = F.max(F.when(sets, values))
            else:
                newest = F.max_by(values, F.when(sets, F.struct(sequence, comparable(group).alias("_"))))
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
        rows = rows.withColumn(_DELETED, functools.reduce(_newer, ends))
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
        self, table: DeltaTable, folded: DataFrame, truncates: Sequence[Column], target: T.StructType
    ) -> None:
        """Joins the folded rows with those of the target, in one MERGE, after the truncates of the batch."""
        ended = functools.reduce(_newer, truncates, F.col(_DELETED))
        source = folded.select(
            *map(column, self.columns.key_names),
            *[
                F.col(f"{_GROUP}{i}").getField(value.name).alias(value.name)
                for i, group in enumerate(self.columns.groups)
                for value in group
            ],
            *[
                F.col(f"{_GROUP}{i}").getField(SEQUENCE).alias(f"{_GROUP}{i}")
                for i, _ in enumerate(self.columns.groups)
            ],
            _UPSERTED,
            ended.alias(_DELETED),
        )
        same_key = _all(_of(TARGET, key) == _of(SOURCE, key) for key in self.columns.key_names)
        upserted, deleted = _of(SOURCE, _UPSERTED), _of(SOURCE, _DELETED)
        existing = _of(TARGET, ROW_SEQUENCE)
        is_inserted = upserted.isNotNull() & (deleted.isNull() | (upserted > deleted))
        stays = deleted.isNull() | _holds(upserted > deleted) | _holds(existing > deleted)
        of_target = _Fields(table._path, {field.name.lower(): field for field in target.fields})
        changed, values = self._updated(of_target)
        inserted = {key: _of(SOURCE, key) for key in self.columns.key_names} | self._inserted(of_target)
        merge = table.alias(TARGET).merge(source.alias(SOURCE), same_key)
        merge = (
            merge.whenMatchedDelete(~stays)
            .whenMatchedUpdate(changed, _quoted(values))
            .whenNotMatchedInsert(is_inserted, _quoted(inserted))
        )
        if truncates:
            newest = functools.reduce(_newer, truncates)
            merge = merge.whenNotMatchedBySourceDelete(existing.isNull() | (existing <= newest))
            if self.columns.partial:
                is_older, values = self._truncated(newest, of_target)
                merge = merge.whenNotMatchedBySourceUpdate(is_older, _quoted(values))
        merge.withSchemaEvolution().execute()

    def _sets(self, group: Sequence[T.StructField]) -> Column:
        if not self.columns.partial:
            return F.lit(True)
        return is_set(group[0], ignores_nulls=self.ignores_nulls, has_unset=self.columns.has_unset)

    def _updated(self, target: _Fields) -> tuple[Column, dict[str, Column]]:
        """Whether a row of the target changes, and its new values."""
        known = target.known
        upserted, deleted, existing = _of(SOURCE, _UPSERTED), _of(SOURCE, _DELETED), _of(TARGET, ROW_SEQUENCE)
        newest = F.when(existing.isNull() | _holds(upserted > existing), upserted).otherwise(existing)
        is_reset = deleted.isNotNull() & (existing.isNull() | (deleted >= existing))
        values: dict[str, Column] = {ROW_SEQUENCE: F.coalesce(newest, existing)}
        changes: list[Column] = [_holds(upserted > existing), existing.isNull() & upserted.isNotNull()]
        sequences: dict[str, Column] = {}
        for i, group in enumerate(self.columns.groups):
            source = F.when(
                deleted.isNull() | (_of(SOURCE, f"{_GROUP}{i}") > deleted), _of(SOURCE, f"{_GROUP}{i}")
            )
            of_target = self._sequence_in_target(group[0], known)
            kept = F.when(deleted.isNull() | (of_target > deleted), of_target)
            fields = [known.get(value.name.lower()) for value in group]
            wins = _holds(source > kept) | (source.isNotNull() & kept.isNull())
            if None not in fields:
                ours, theirs = comparable(group, f"{SOURCE}."), comparable(group, f"{TARGET}.")
                wins = wins | (_holds(source == kept) & (ours > theirs))
            changes.append(wins)
            if not self.columns.partial:
                # The row is written anew only if the source's wins.
                values |= {value.name: _of(SOURCE, value.name) for value in group}
                continue
            changes.append(_holds(deleted >= of_target))
            (value,), (field,) = group, fields
            old = F.lit(None) if field is None else _of(TARGET, field.name)
            is_lost = deleted.isNotNull() & kept.isNull()
            new = F.when(wins, _of(SOURCE, value.name)).when(~is_lost, old)
            values[value.name] = target.or_default(value.name, new)
            sequences[value.name] = F.when(wins, source).otherwise(kept)
        if self.columns.partial:
            values[COLUMN_SEQUENCES] = _older(sequences, values[ROW_SEQUENCE])
        # A delete between the row and its newest change also ends the columns that the changes do not have.
        given = {field.name.lower() for field in self.columns.data} | {
            ROW_SEQUENCE.lower(),
            COLUMN_SEQUENCES.lower(),
        }
        for field in known.values():
            if field.name.lower() not in given and not is_computed(field):
                values[field.name] = target.or_default(field.name, F.when(~is_reset, _of(TARGET, field.name)))
        return functools.reduce(operator.or_, changes), values

    def _truncated(self, truncate: Column, target: _Fields) -> tuple[Column, dict[str, Column]]:
        """Whether a row that is newer than a truncate has values that are not, and the row without them."""
        known = target.known
        older: list[Column] = [F.lit(False)]
        values: dict[str, Column] = {}
        sequences: dict[str, Column] = {}
        for value in self.columns.values:
            if value.name.lower() not in known:
                continue
            sequence, old = self._sequence_in_target(value, known), _of(TARGET, value.name)
            # A value without a sequence was there before every change.
            is_known = sequence.isNotNull() | old.isNotNull()
            older.append(is_known & ~_holds(sequence > truncate))
            values[value.name] = target.or_default(value.name, F.when(sequence > truncate, old))
            sequences[value.name] = F.when(sequence > truncate, sequence)
        values[COLUMN_SEQUENCES] = _older(sequences, _of(TARGET, ROW_SEQUENCE))
        return functools.reduce(operator.or_, older), values

    def _inserted(self, target: _Fields) -> dict[str, Column]:
        upserted, deleted = _of(SOURCE, _UPSERTED), _of(SOURCE, _DELETED)
        values: dict[str, Column] = {ROW_SEQUENCE: upserted}
        sequences: dict[str, Column] = {}
        for i, group in enumerate(self.columns.groups):
            of_group = _of(SOURCE, f"{_GROUP}{i}")
            sequence = F.when(deleted.isNull() | (of_group > deleted), of_group)
            sequences[group[0].name] = sequence
            for value in group:
                told = F.when(sequence.isNotNull(), _of(SOURCE, value.name))
                values[value.name] = target.or_default(value.name, told)
        if self.columns.partial:
            values[COLUMN_SEQUENCES] = _older(sequences, upserted)
        return values

    def _sequence_in_target(self, value: T.StructField, known: dict[str, T.StructField]) -> Column:
        existing = _of(TARGET, ROW_SEQUENCE)
        if not self.columns.partial:
            return existing
        if value.name.lower() not in known:
            return F.lit(None).cast(self.columns.sequence)
        if COLUMN_SEQUENCES.lower() not in known:
            return existing
        older = _of(TARGET, COLUMN_SEQUENCES)
        return F.when(_holds(F.map_contains_key(older, value.name)), older.getItem(value.name)).otherwise(
            existing
        )


def _older(sequences: dict[str, Column], newest: Column) -> Column:
    """The sequences that differ from the row's, by column; null if there are none."""
    names = F.array(*[F.lit(name) for name in sequences])
    every = F.map_from_arrays(names, F.array(*sequences.values()))
    older = F.map_filter(every, lambda _, sequence: ~sequence.eqNullSafe(newest))
    return F.when(F.size(older) > 0, older)


def _newer(a: Column, b: Column) -> Column:
    return F.when(b.isNull() | (a >= b), a).otherwise(b)


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")


def _holds(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _all(conditions: Iterable[Column]) -> Column:
    return functools.reduce(operator.and_, conditions)


def _quoted(values: dict[str, Column]) -> dict[str, str | Column]:
    return {quoted(name): value for name, value in values.items()}
