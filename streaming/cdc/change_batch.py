"""One batch of changes on its way into the target.

Per batch of current rows: a job that reads, folds and sums up the records, the MERGE, and where the batch has
deletes a job that remembers them. A history has a job more: it reads the rows of the batch's keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.batch.idempotent import SESSION_SETTINGS
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.properties import MERGE_MATERIALIZE_SOURCE
from deltaflow.spark.expressions.checkpoints import Checkpoints
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    DELETE,
    DELETED,
    END_AT,
    FIRST,
    INVALID,
    SEQUENCE,
    START_AT,
    TRUNCATE,
    TRUNCATED,
    ChangeColumns,
    as_literal,
    column,
    encodable,
    is_invalid,
    summary_columns,
)
from deltaflow.streaming.cdc.current_rows import CurrentRows
from deltaflow.streaming.cdc.data_columns import DataColumns, is_computed
from deltaflow.streaming.cdc.history_rows import HistoryRows
from deltaflow.streaming.cdc.session_settings import session_settings
from deltaflow.streaming.cdc.side_tables import Forgotten, SideTables, Write
from deltaflow.streaming.cdc.target import Target
from deltaflow.streaming.cdc.tracked_history import shown_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
_SHOWN = 3
_OF_SUMMARY = (FIRST, DELETED, TRUNCATED, INVALID)


@dataclass(frozen=True)
class Summary:
    """What the changes of a batch are."""

    first: Any
    """The oldest sequence of an upsert or delete, as `encodable` gives it; None without any."""
    truncates: Sequence[Any]
    """The sequences of the truncates, as `encodable` gives them."""
    deletes: int
    invalid: int


@dataclass(frozen=True)
class ChangeBatch:
    """One batch on its way."""

    spark: SparkSession
    write: Write
    side: SideTables
    columns: ChangeColumns
    checkpoints: Checkpoints
    data_columns: DataColumns
    ignore_null_updates: bool
    horizon_ms: int
    clock: Callable[[], int]

    def one_by_one(self, changes: DataFrame) -> DataFrame:
        """The changes with `summary_columns`."""
        return changes.drop(*_OF_SUMMARY).select("*", *summary_columns(self.columns))

    def summed_up(self, summed: DataFrame, changes: DataFrame) -> tuple[DataFrame, Summary]:
        """The frame with `summary_columns`, materialised, and what the job found that did it.

        DELTA_INVALID_CHANGE if a row of the changes is none.
        """
        data_type, observed = self.columns.sequence, Observation()
        found = F.struct(
            encodable(F.min(FIRST), data_type).alias("first"),
            F.collect_set(encodable(F.col(TRUNCATED), data_type)).alias("truncates"),
            F.count(DELETED).alias("deletes"),
            F.coalesce(F.sum(INVALID), F.lit(0)).alias("invalid"),
        )
        # As text: PySpark 4.0 gives observed arrays and structs as Java's objects.
        text = F.to_json(found, {"ignoreNullFields": "false"}).alias("summary")
        kept = self.checkpoints.keep(summed.observe(observed, text))
        summary = msgspec.json.decode(observed.get["summary"], type=Summary)
        if summary.invalid:
            raise self._invalid(summary.invalid, changes)
        return kept, summary

    def apply_to_current_rows(
        self, changes: DataFrame, table: DeltaTable, target: Snapshot, *, are_compared: bool
    ) -> None:
        """One row for each key. `target`: the table, from before its rows are read. `are_compared`: whether
        the changes were found by comparing with these rows."""
        side = self.side
        rows = CurrentRows(self.columns, self.ignore_null_updates)
        forgotten, deletes = side.forgotten(), side.deletes()
        older = next(iter(forgotten.truncates), None)
        folded, summary = self.summed_up(rows.fold(changes, deletes, older), changes)
        if self._may_be_late(summary, forgotten):
            are_compared = True
            late = rows.late(self._before(changes, forgotten), table.toDF(), deletes)
            in_time = self._without(changes, self.checkpoints.keep(late))
            folded, summary = self.summed_up(rows.fold(in_time, deletes, older), in_time)
        truncates = self._truncates(summary)
        own = folded.where(F.col(DELETED).isNotNull())
        self._remember(own.select(*self._keys, F.col(DELETED).alias(SEQUENCE)), summary, folded)
        with self._as_one_write():
            rows.merge(table, folded, truncates, target.schema, target.version if are_compared else None)

    def apply_to_history(
        self, changes: DataFrame, summary: Summary, table: DeltaTable, target: Snapshot
    ) -> None:
        """A row for each upsert. `target`: the table, from before its rows are read."""
        side = self.side
        rows = HistoryRows(self.columns, self.ignore_null_updates)
        forgotten, deletes = side.forgotten(), side.deletes()
        if self._may_be_late(summary, forgotten):
            late = rows.late(self._before(changes, forgotten), table.toDF())
            changes = self._without(changes, self.checkpoints.keep(late))
            changes, summary = self.summed_up(self.one_by_one(changes), changes)
        truncates = self._truncates(summary)
        points = changes.where(F.col(CHANGE) != TRUNCATE)
        for truncate in truncates:
            ends = self._valid_at(table, truncate).select(
                *self._keys, truncate.alias(SEQUENCE), F.lit(DELETE).alias(CHANGE)
            )
            points = points.unionByName(ends, allowMissingColumns=True)
        # The MERGE that follows looks at the rows of these keys alone, too.
        of_keys = table.toDF().join(
            points.select(*self._keys).distinct(), self.columns.key_names, "left_semi"
        )
        prepared = self.checkpoints.keep(
            rows.prepare(points, of_keys, deletes, [*truncates, *forgotten.truncates])
        )
        own = changes.where(F.col(CHANGE) == DELETE).select(*self._keys, SEQUENCE).distinct()
        self._remember(own, summary, changes)
        with self._as_one_write():
            rows.merge(table, prepared, target)

    def apply_to_tracked_history(
        self,
        changes: DataFrame,
        summary: Summary,
        table: DeltaTable,
        tracked: Sequence[str],
        target: Snapshot,
        snapshot: Snapshot | None,
    ) -> None:
        """The whole history (`snapshot`; None before it is made) is kept beside the target, and the target
        follows from it.

        A target that has rows, and no history, was there before, or is a clone.
        """
        whole = Target(self.side.history_path, None)
        if snapshot is None:
            fields = [*self.columns.data, *self.columns.engine_fields(history=True)]
            snapshot = whole.create(self.spark, fields, {}, self.side.properties)
        self.side.check_history(snapshot, target)
        # Its transactions may have expired: a history that was begun has rows.
        if target.num_files and not snapshot.transactions and not snapshot.num_files:
            self.side.begin_history(table.toDF())
            begun = whole.snapshot(self.spark)
            assert begun is not None
            snapshot = begun
        elif not self.write.is_in(snapshot):
            self._check_names(target, snapshot)
        if not self.write.is_in(snapshot):
            self.apply_to_history(changes, summary, whole.table(self.spark), snapshot)
        history = whole.table(self.spark).toDF()
        touched = changes.where(F.col(CHANGE) != TRUNCATE).select(*self._keys)
        for truncate in self._truncates(summary):
            touched = touched.unionByName(self._valid_at(table, truncate).select(*self._keys))
        keys = self.checkpoints.keep(touched.distinct())
        history, visible = (
            frame.join(keys, self.columns.key_names, "left_semi") for frame in (history, table.toDF())
        )
        shown = self.checkpoints.keep(shown_rows(history, visible, self.columns, tracked))
        with self._as_one_write():
            rows = HistoryRows(replace(self.columns, partial=False), False)
            rows.merge(table, shown, target)

    # --------------------------------------------------------------------------------------- parts of a batch

    @property
    def _keys(self) -> list[Column]:
        return [column(key) for key in self.columns.key_names]

    @staticmethod
    def _valid_at(table: DeltaTable, truncate: Column) -> DataFrame:
        """The rows of a history that a truncate ends; a newer change may have ended them already."""
        is_begun = F.col(START_AT).isNull() | (F.col(START_AT) <= truncate)
        is_after = F.col(END_AT).isNull() | (F.col(END_AT) > truncate)
        return table.toDF().where(is_begun & is_after)

    def _check_names(self, target: Snapshot, history: Snapshot) -> None:
        """DELTA_APPLY_CHANGES_RENAMED if the target has columns in place of others of the history.

        What the history lacks, the target would lose.
        """
        names, of_history = (
            {f.name.lower() for f in self.data_columns.of_target(each.schema) if not is_computed(f)}
            for each in (target, history)
        )
        if names - of_history and of_history - names:
            raise DeltaIllegalStateException(
                error_class="DELTA_APPLY_CHANGES_RENAMED",
                new=", ".join(sorted(names - of_history)),
                old=", ".join(sorted(of_history - names)),
                history=history.path,
                table=target.path,
            )

    def _invalid(self, number: int, changes: DataFrame) -> DeltaIllegalStateException:
        rows = changes.where(is_invalid(self.columns)).select(*self._keys, CHANGE, SEQUENCE).limit(_SHOWN)
        shown = "; ".join(
            ", ".join(f"{name} = {value}" for name, value in row.asDict().items()) for row in rows.collect()
        )
        return DeltaIllegalStateException(
            error_class="DELTA_INVALID_CHANGE",
            number=number,
            rows=shown,
            batch=self.write.version,
            table=self.side.target,
        )

    def _truncates(self, summary: Summary) -> list[Column]:
        return [as_literal(sequence, self.columns.sequence) for sequence in summary.truncates]

    def _may_be_late(self, summary: Summary, forgotten: Forgotten) -> bool:
        """Whether a change is not younger than a forgotten delete; no job without such."""
        if forgotten.horizon is None or summary.first is None:
            return False
        first = as_literal(summary.first, self.columns.sequence)
        row = self.spark.range(1).select((first <= forgotten.horizon).alias("late")).first()
        return row is not None and bool(row["late"])

    def _before(self, changes: DataFrame, forgotten: Forgotten) -> DataFrame:
        assert forgotten.horizon is not None
        return changes.where((F.col(CHANGE) != TRUNCATE) & (F.col(SEQUENCE) <= forgotten.horizon))

    def _without(self, changes: DataFrame, late: DataFrame) -> DataFrame:
        """The other changes; the late ones are put into the table of late changes."""
        number = late.count()
        if not number:
            return changes
        self.side.keep_late(late.drop(*_OF_SUMMARY), self.write, self.clock())
        _LOG.warning(
            "%s: %d changes of batch %s came later than the horizon, and are in %s",
            self.side.target,
            number,
            self.write.version,
            self.side.late_path,
        )
        names = [*self.columns.key_names, SEQUENCE]
        return changes.join(late.select(*map(column, names)).distinct(), names, "left_anti").select(
            *map(column, changes.columns)
        )

    def _remember(self, deletes: DataFrame, summary: Summary, summed: DataFrame) -> None:
        if not summary.deletes and not summary.truncates:
            return
        truncates = summed.where(F.col(TRUNCATED).isNotNull()).select(
            *[F.lit(None).cast(key.dataType).alias(key.name) for key in self.columns.keys],
            F.col(TRUNCATED).alias(SEQUENCE),
            F.lit(TRUNCATE).alias(CHANGE),
        )
        points = deletes.withColumn(CHANGE, F.lit(DELETE)).unionByName(truncates)
        self.side.remember(points, self.write, self.clock(), self.horizon_ms)

    def _as_one_write(self) -> AbstractContextManager[None]:
        """The MERGEs in the block are skipped by a table that has the batch already. They check the rows that
        they read; what those came from is checked now."""
        self.checkpoints.check()
        of_write = dict(zip(SESSION_SETTINGS, self.write.options.values(), strict=True))
        # The source is materialised.
        return session_settings(self.spark, {**of_write, MERGE_MATERIALIZE_SOURCE.name: "none"})
