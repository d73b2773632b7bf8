"""The history of every key (slowly changing dimension, type 2): a row for each upsert, valid from its
sequence until the next change of the key.

The points of a key are its upserts, which are the rows of the target by their START_AT, and its deletes:
those that ended a row are its END_AT, the others are remembered beside the table. A row that was in the
target before every change may have no START_AT: it has always been valid. A batch adds points. All points of
its keys give the intervals anew, so that they have no gap and no overlap, whatever the order in which the
points came.

Of equal sequences of one key a delete wins; of two upserts the one whose columns are greater, the first that
differs deciding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.merge_builder import MergeBuilder
from deltaflow.batch.rows.column_expressions import default_value
from deltaflow.batch.sql_names import quoted
from deltaflow.log import Snapshot
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    COLUMN_SEQUENCES,
    DELETE,
    END_AT,
    SEQUENCE,
    START_AT,
    UPSERT,
    ChangeColumns,
    column,
    comparable,
    is_set,
)
from deltaflow.streaming.cdc.data_columns import is_computed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from deltaflow.batch.delta_table import DeltaTable

TARGET, SOURCE = "__target", "__change"
_KIND, _ROW, _END = "\0point", "row", "end"
REMOVED, REPLACED = "\0removed", "\0replaced"
_OLD_END, _OLD_SEQUENCES, _GROUP, _SETS, _NEW = "\0end", "\0old", "\0group", "\0sets", "\0new"


@dataclass(frozen=True)
class HistoryRows:
    """Merges changes with these columns."""

    columns: ChangeColumns
    ignores_nulls: bool

    def prepare(
        self, changes: DataFrame, target: DataFrame, deletes: DataFrame | None, truncates: Sequence[Column]
    ) -> DataFrame:
        """The rows of the target that the changes add, change or remove.

        `target` has the rows of the changes' keys, `deletes` the older deletes (keys, SEQUENCE) of all keys,
        `truncates` are the sequences of all truncates.
        """
        points = self._points(changes, target, deletes, truncates)
        return self._intervals(self._distinct(points))

    def late(self, changes: DataFrame, target: DataFrame) -> DataFrame:
        """Of changes that are not younger than deletes which were forgotten: those that no row of the target
        was valid at. A forgotten delete may have followed them."""
        keys = self.columns.key_names
        rows = target.select(*map(column, keys), START_AT, END_AT).alias("\0rows")
        sequence, all_changes = F.col(SEQUENCE), changes.alias("\0changes")
        same = [F.col(f"\0changes.{quoted(key)}") == F.col(f"\0rows.{quoted(key)}") for key in keys]
        is_begun = F.col(START_AT).isNull() | (F.col(START_AT) <= sequence)
        covers = is_begun & (F.col(END_AT).isNull() | (sequence <= F.col(END_AT)))
        return all_changes.join(rows, functools.reduce(operator.and_, [*same, covers]), "left_anti")

    def merge(self, table: DeltaTable, prepared: DataFrame, target: Snapshot) -> None:
        """Puts the prepared rows into the target, in one MERGE. They were made of the target's rows at the
        version of `target`, or at a later one: what others have changed since then is a conflict.

        A row of another upsert of its sequence has nothing of the one before it: a column that the changes
        lack has in it what it has in a new row.
        """
        same = [_of(TARGET, key) == _of(SOURCE, key) for key in self.columns.key_names]
        same.append(_of(TARGET, START_AT).eqNullSafe(_of(SOURCE, START_AT)))
        fields = [*self.columns.data, *self.columns.engine_fields(history=True)]
        values: dict[str, str | Column] = {quoted(f.name): _of(SOURCE, f.name) for f in fields}
        merge = table.alias(TARGET).merge(prepared.alias(SOURCE), functools.reduce(operator.and_, same))
        assert isinstance(merge, MergeBuilder)
        merge = merge.reading(target.version).whenMatchedDelete(_of(SOURCE, REMOVED))
        if lacking := self._lacking(target):
            merge = merge.whenMatchedUpdate(_of(SOURCE, REPLACED), {**values, **lacking})
        (
            merge.whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(~_of(SOURCE, REMOVED), values)
            .withSchemaEvolution()
            .execute()
        )

    def _lacking(self, target: Snapshot) -> dict[str, str | Column]:
        """The values that a new row has in the columns of the target that the changes lack."""
        fields = [*self.columns.data, *self.columns.engine_fields(history=True)]
        known = {field.name.lower() for field in fields}
        return {
            quoted(field.name): default_value(field, target.path)
            for field in target.schema.fields
            if field.name.lower() not in known and not is_computed(field)
        }

    # ----------------------------------------------------------------------------------------------- points

    def _points(
        self, changes: DataFrame, target: DataFrame, deletes: DataFrame | None, truncates: Sequence[Column]
    ) -> DataFrame:
        keys = [column(key) for key in self.columns.key_names]
        told = changes.select(
            *keys,
            SEQUENCE,
            F.col(CHANGE).alias(_KIND),
            *[column(value.name) for value in self.columns.values],
            *[
                (self._sets(group) & (F.col(CHANGE) == UPSERT)).alias(f"{_SETS}{i}")
                for i, group in enumerate(self.columns.groups)
            ],
        )
        present = {name.lower() for name in target.columns}
        rows = target.select(
            *keys,
            F.col(START_AT).alias(SEQUENCE),
            F.lit(_ROW).alias(_KIND),
            *[
                column(v.name) if v.name.lower() in present else F.lit(None).cast(v.dataType).alias(v.name)
                for v in self.columns.values
            ],
            *[
                self._was_set(group, present).alias(f"{_SETS}{i}")
                for i, group in enumerate(self.columns.groups)
            ],
            F.col(END_AT).alias(_OLD_END),
            self._old_sequences(present).alias(_OLD_SEQUENCES),
        )
        ends = target.where(F.col(END_AT).isNotNull())
        others = [rows, ends.select(*keys, F.col(END_AT).alias(SEQUENCE), F.lit(_END).alias(_KIND))]
        touched = changes.select(*keys).distinct()
        if deletes is not None:
            known = deletes.join(touched, self.columns.key_names, "left_semi")
            others.append(known.select(*keys, SEQUENCE, F.lit(DELETE).alias(_KIND)))
        if truncates:
            ended = F.explode(F.array(*truncates)).alias(SEQUENCE)
            others.append(touched.select(*keys, ended, F.lit(DELETE).alias(_KIND)))
        return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), others, told)

    def _distinct(self, points: DataFrame) -> DataFrame:
        """One row for each key and sequence."""
        kind = F.col(_KIND)
        is_row = kind == _ROW
        found = [
            # What ended a row, and began none, was a delete; it may be forgotten beside the table.
            (F.bool_or(kind == DELETE) | (F.bool_or(kind == _END) & ~F.bool_or(is_row))).alias("\0deleted"),
            F.bool_or(kind.isin(UPSERT, _ROW)).alias("\0upserted"),
            F.bool_or(is_row).alias("\0is_row"),
            F.any_value(F.when(is_row, F.col(_OLD_END)), True).alias(_OLD_END),
            F.any_value(F.when(is_row, F.col(_OLD_SEQUENCES)), True).alias(_OLD_SEQUENCES),
        ]
        for i, group in enumerate(self.columns.groups):
            # Of equal rows the target's, so that it is not written anew.
            order = F.when(F.col(f"{_SETS}{i}"), F.struct(comparable(group).alias("_"), is_row.alias("old")))
            values = [column(value.name) for value in group]
            found.append(
                F.max_by(F.struct(*values, (~is_row).alias(_NEW), SEQUENCE), order).alias(f"{_GROUP}{i}")
            )
        return points.groupBy(*map(column, self.columns.key_names), SEQUENCE).agg(*found)

    def _intervals(self, points: DataFrame) -> DataFrame:
        keys = [column(key) for key in self.columns.key_names]
        in_order = Window.partitionBy(*keys).orderBy(SEQUENCE)
        is_upsert = F.col("\0upserted") & ~F.col("\0deleted")
        bounded = points.withColumns(
            {
                END_AT: F.lead(SEQUENCE).over(in_order),
                "\0life": F.sum(F.when(is_upsert, 0).otherwise(1)).over(in_order),
            }
        )
        groups = [F.col(f"{_GROUP}{i}") for i, _ in enumerate(self.columns.groups)]
        if self.columns.partial:
            in_life = Window.partitionBy(*keys, "\0life").orderBy(SEQUENCE)
            groups = [F.last(F.when(is_upsert, group), ignorenulls=True).over(in_life) for group in groups]
        values = {f"{_GROUP}{i}": group for i, group in enumerate(groups)}
        filled = bounded.withColumns(values) if values else bounded
        sequences = self._sequences()
        is_row = F.col("\0is_row")
        news = [F.coalesce(F.col(f"{_GROUP}{i}").getField(_NEW), F.lit(False)) for i in range(len(groups))]
        changed = [~is_row, ~F.col(END_AT).eqNullSafe(F.col(_OLD_END)), *news]
        if self.columns.partial:
            changed.append(~_entries(sequences).eqNullSafe(_entries(F.col(_OLD_SEQUENCES))))
        removed = is_row & ~is_upsert
        replaced = is_row & functools.reduce(operator.or_, news, F.lit(False))
        rows = filled.where(removed | (is_upsert & functools.reduce(operator.or_, changed)))
        return rows.select(
            *keys,
            *[
                F.col(f"{_GROUP}{i}").getField(value.name).alias(value.name)
                for i, group in enumerate(self.columns.groups)
                for value in group
            ],
            F.col(SEQUENCE).alias(START_AT),
            END_AT,
            *([sequences.alias(COLUMN_SEQUENCES)] if self.columns.partial else []),
            removed.alias(REMOVED),
            replaced.alias(REPLACED),
        )

    def _sets(self, group: Sequence[T.StructField]) -> Column:
        if not self.columns.partial:
            return F.lit(True)
        return is_set(group[0], ignores_nulls=self.ignores_nulls, has_unset=self.columns.has_unset)

    def _was_set(self, group: Sequence[T.StructField], present: set[str]) -> Column:
        """Whether the upsert that a row of the target stands for has set the group."""
        if not self.columns.partial:
            return F.lit(True)
        if group[0].name.lower() not in present:
            return F.lit(False)
        # A row from before the column does not say that nothing set it; if nulls are ignored, its null does.
        is_given = column(group[0].name).isNotNull() if self.ignores_nulls else F.lit(True)
        if COLUMN_SEQUENCES.lower() not in present:
            return is_given
        older = F.col(COLUMN_SEQUENCES)
        return is_given & ~F.coalesce(F.map_contains_key(older, group[0].name), F.lit(False))

    def _old_sequences(self, present: set[str]) -> Column:
        known = self.columns.partial and COLUMN_SEQUENCES.lower() in present
        wanted = T.MapType(T.StringType(), self.columns.sequence)
        return F.col(COLUMN_SEQUENCES) if known else F.lit(None).cast(wanted)

    def _sequences(self) -> Column:
        """The sequences of the values that an older change set, by column; null for values that none set."""
        if not self.columns.partial:
            return F.lit(None)
        names = F.array(*[F.lit(name) for name in self.columns.value_names])
        every = F.map_from_arrays(
            names,
            F.array(*[F.col(f"{_GROUP}{i}").getField(SEQUENCE) for i, _ in enumerate(self.columns.groups)]),
        )
        older = F.map_filter(every, lambda _, sequence: ~sequence.eqNullSafe(F.col(SEQUENCE)))
        return F.when(F.size(older) > 0, older)


def _entries(sequences: Column) -> Column:
    """A map as something that can be compared."""
    return F.sort_array(F.map_entries(sequences))


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")
