"""Applies the changes of each micro-batch to the target, once.

Per batch of current rows: a job that reads, folds and sums up the records, the MERGE, and where the batch has
deletes a job that remembers them. A history has a job more: it reads the rows of
the batch's keys. One listing of the log of the target, and one of that of the remembered deletes.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.batch.idempotent import SESSION_SETTINGS
from deltaflow.errors import DeltaIllegalArgumentException, DeltaIllegalStateException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.properties import MERGE_MATERIALIZE_SOURCE
from deltaflow.spark.expressions.call_sites import without_call_sites
from deltaflow.spark.expressions.frames import release
from deltaflow.store import given_path
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    COLUMN_SEQUENCES,
    DELETE,
    DELETED,
    END_AT,
    FIRST,
    INVALID,
    ROW_SEQUENCE,
    SEQUENCE,
    START_AT,
    TRUNCATE,
    TRUNCATED,
    ChangeColumns,
    Current,
    Envelope,
    as_literal,
    column,
    encodable,
    is_invalid,
    summary_columns,
)
from deltaflow.streaming.cdc.current_rows import CurrentRows
from deltaflow.streaming.cdc.data_columns import DataColumns, is_computed
from deltaflow.streaming.cdc.history_rows import HistoryRows
from deltaflow.streaming.cdc.side_tables import Forgotten, SideTables, Write, forget
from deltaflow.streaming.cdc.target import Target, table_beside
from deltaflow.streaming.cdc.tracked_history import shown_rows
from deltaflow.streaming.skipped_batches import tell_skipped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
_SHOWN = 3
_OF_SUMMARY = (FIRST, DELETED, TRUNCATED, INVALID)
_SHOWS_CHAR = {
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
}
"""The settings with which Spark reads CHAR as `as_shown` has it. They are not for what the user says of the
changes, which were read by the session's own."""


@dataclass(frozen=True)
class Applier:
    """How changes are applied; `apply_changes` says what the fields mean."""

    target: Target
    envelope: Envelope
    data_columns: DataColumns
    scd_type: int
    ignore_null_updates: bool
    horizon_ms: int
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """The function of foreachBatch."""
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        self.apply(batch, Write(query_id, batch_id))

    def apply(self, batch: DataFrame, write: Write) -> None:
        """Applies the changes of a batch, unless the target has it already."""
        # The session's own txnAppId holds for no table here: all writes but the first would be skipped.
        with _settings(batch.sparkSession, dict.fromkeys(SESSION_SETTINGS)), without_call_sites():
            self._apply(batch, write)

    def _apply(self, batch: DataFrame, write: Write) -> None:
        spark = batch.sparkSession
        snapshot = self.target.snapshot(spark)
        if snapshot is not None and write.is_in(snapshot):
            newest = snapshot.transactions[write.app_id].version
            tell_skipped(snapshot.path, write.app_id, write.version, newest)
            self._forget_again(spark, snapshot, write)
            return
        rows = _Rows(spark, self.target, self.scd_type)
        changes = self.envelope.changes(batch, self._current(spark, snapshot, write, rows))
        if changes is not None:
            with _settings(spark, _SHOWS_CHAR):
                self._apply_changes(spark, changes, snapshot, write, are_compared=rows.are_read)

    def _apply_changes(
        self,
        spark: SparkSession,
        changes: DataFrame,
        snapshot: Snapshot | None,
        write: Write,
        *,
        are_compared: bool,
    ) -> None:
        """`are_compared`: whether the changes were found by comparing with the rows of the target."""
        whole = None if snapshot is None else self._whole_history(spark, snapshot)
        # A history of some columns does not show the sequences that its whole history has.
        by_columns = self.ignore_null_updates or (
            whole is not None and COLUMN_SEQUENCES in whole.schema.names
        )
        changes, columns = self.data_columns.of(changes, snapshot, by_columns)
        tracked = self.data_columns.tracked(columns) if self.scd_type == 2 else None
        flow = {
            "keys": columns.key_names,
            "storedAsScdType": self.scd_type,
            "sequence": columns.sequence.simpleString(),
            "trackHistory": tracked is not None,
        }
        if snapshot is None:
            known = columns if tracked is None else replace(columns, partial=False)
            fields = [*columns.data, *known.engine_fields(history=self.scd_type == 2)]
            snapshot = self.target.create(spark, fields, flow)
            whole = self._whole_history(spark, snapshot)
        else:
            snapshot = self.target.adopt(spark, snapshot, flow)
            snapshot = self._with_engine_columns(spark, snapshot, columns)
        side = SideTables(spark, snapshot, columns)
        with ExitStack() as frames:
            run = _Batch(spark, self, write, side, columns, frames)
            table = self.target.table(spark)
            if self.scd_type == 1:
                run.apply_to_current_rows(changes, table, snapshot, are_compared=are_compared)
            else:
                changes, summary = run.summed_up(run.one_by_one(changes), changes)
                if tracked is None:
                    run.apply_to_history(changes, summary, table, snapshot.version)
                else:
                    run.apply_to_tracked_history(changes, summary, table, tracked, snapshot, whole)
        # Only now: until the target has the batch, it must find what it found the first time.
        side.forget(self.clock(), self.horizon_ms)

    def _forget_again(self, spark: SparkSession, target: Snapshot, write: Write) -> None:
        """The end of a batch that may have been killed before it had forgotten what earlier ones remembered.

        Where the batch has deletes of its own, the next one forgets instead.
        """
        remembered = table_beside(target, "deletes").snapshot(spark)
        if remembered is not None and not write.is_in(remembered):
            forget(spark, remembered, self.clock(), self.horizon_ms)

    def _whole_history(self, spark: SparkSession, snapshot: Snapshot) -> Snapshot | None:
        """That which a history of some columns follows from; None of other targets, and before it is made."""
        if not self.data_columns.tracks:
            return None
        return table_beside(snapshot, "history").snapshot(spark)

    def _with_engine_columns(
        self, spark: SparkSession, snapshot: Snapshot, columns: ChangeColumns
    ) -> Snapshot:
        """The table, which may have been made without them; its rows are older than every change then."""
        names = {field.name.lower() for field in snapshot.schema.fields}
        needed = columns.engine_fields(history=False) if self.scd_type == 1 else []
        missing = [field for field in needed if field.name.lower() not in names]
        if not missing:
            return snapshot
        given = [field for field in snapshot.schema.fields if not is_computed(field)]
        nothing = spark.createDataFrame([], T.StructType([*given, *missing]))
        writer = nothing.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.save(given_path(snapshot.path))
        found = self.target.snapshot(spark)
        assert found is not None
        return found

    def _current(self, spark: SparkSession, snapshot: Snapshot | None, write: Write, rows: _Rows) -> Current:
        keys, is_stored = self.data_columns.keys, self.data_columns.is_stored

        def as_stored(given: T.StructField) -> Column:
            return self.data_columns.as_stored(given, snapshot)

        if snapshot is None:
            return Current(None, lambda: None, keys, is_stored=is_stored, as_stored=as_stored)
        fields, known = self.data_columns.of_target(snapshot.schema), set(snapshot.schema.names)
        self.target.check(snapshot, {"storedAsScdType": self.scd_type})
        if self.scd_type == 2 and not known.issuperset([START_AT, END_AT]):
            raise DeltaIllegalArgumentException(
                error_class="DELTA_APPLY_CHANGES_NO_HISTORY", table=snapshot.path
            )

        def newest() -> Column | None:
            names = [ROW_SEQUENCE] if self.scd_type == 1 else [START_AT, END_AT]
            tables = [(self.target, names)]
            # The target does not show all that a history tells.
            for beside, of_beside in (("deletes", [SEQUENCE]), ("history", names)):
                table = table_beside(snapshot, beside)
                remembered = table.snapshot(spark)
                if remembered is None:
                    continue
                if write.is_in(remembered):
                    return None
                tables.append((table, of_beside))
            if not known.issuperset(names):
                return None
            sequences = [
                table.table(spark).toDF().select(F.col(name).alias(SEQUENCE))
                for table, of_table in tables
                for name in of_table
            ]
            data_type = snapshot.schema[names[0]].dataType
            every = functools.reduce(lambda a, b: a.union(b), sequences)
            row = every.agg(encodable(F.max(SEQUENCE), data_type)).first()
            return None if row is None or row[0] is None else as_literal(row[0], data_type)

        return Current(fields, lambda: rows(fields), keys, newest, is_stored, as_stored)


@dataclass
class _Rows:
    """The current rows of the target, for an envelope. It reads them when the changes are folded: after the
    look at the target whose version the MERGE names."""

    spark: SparkSession
    target: Target
    scd_type: int
    are_read: bool = False

    def __call__(self, fields: T.StructType) -> DataFrame:
        self.are_read = True
        with _settings(self.spark, _SHOWS_CHAR):
            found = self.target.table(self.spark).toDF()
        if self.scd_type == 2:
            found = found.where(F.col(END_AT).isNull())
        return found.select(*[column(name) for name in fields.names])


@dataclass(frozen=True)
class _Summary:
    """What the changes of a batch are."""

    first: Any
    """The oldest sequence of an upsert or delete, as `encodable` gives it; None without any."""
    truncates: Sequence[Any]
    """The sequences of the truncates, as `encodable` gives them."""
    deletes: int
    invalid: int


@dataclass(frozen=True)
class _Batch:
    """One batch on its way. `frames` gives back what was materialised."""

    spark: SparkSession
    applier: Applier
    write: Write
    side: SideTables
    columns: ChangeColumns
    frames: ExitStack

    def one_by_one(self, changes: DataFrame) -> DataFrame:
        """The changes with `summary_columns`."""
        return changes.drop(*_OF_SUMMARY).select("*", *summary_columns(self.columns))

    def summed_up(self, summed: DataFrame, changes: DataFrame) -> tuple[DataFrame, _Summary]:
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
        kept = self._materialized(summed.observe(observed, text))
        summary = msgspec.json.decode(observed.get["summary"], type=_Summary)
        if summary.invalid:
            raise self._invalid(summary.invalid, changes)
        return kept, summary

    def apply_to_current_rows(
        self, changes: DataFrame, table: DeltaTable, target: Snapshot, *, are_compared: bool
    ) -> None:
        """One row for each key. `target`: the table, from before its rows are read. `are_compared`: whether
        the changes were found by comparing with these rows."""
        side = self.side
        rows = CurrentRows(self.columns, self.applier.ignore_null_updates)
        forgotten, deletes = side.forgotten(), side.deletes()
        older = next(iter(forgotten.truncates), None)
        folded, summary = self.summed_up(rows.fold(changes, deletes, older), changes)
        if self._may_be_late(summary, forgotten):
            are_compared = True
            late = rows.late(self._before(changes, forgotten), table.toDF(), deletes)
            in_time = self._without(changes, self._materialized(late))
            folded, summary = self.summed_up(rows.fold(in_time, deletes, older), in_time)
        truncates = self._truncates(summary)
        own = folded.where(F.col(DELETED).isNotNull())
        self._remember(own.select(*self._keys, F.col(DELETED).alias(SEQUENCE)), summary, folded)
        with self._as_one_write():
            rows.merge(table, folded, truncates, target.schema, target.version if are_compared else None)

    def apply_to_history(
        self, changes: DataFrame, summary: _Summary, table: DeltaTable, read_version: int
    ) -> None:
        """A row for each upsert. `read_version`: the table's, from before its rows are read."""
        side = self.side
        rows = HistoryRows(self.columns, self.applier.ignore_null_updates)
        forgotten, deletes = side.forgotten(), side.deletes()
        if self._may_be_late(summary, forgotten):
            late = rows.late(self._before(changes, forgotten), table.toDF())
            changes = self._without(changes, self._materialized(late))
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
        prepared = self._materialized(
            rows.prepare(points, of_keys, deletes, [*truncates, *forgotten.truncates])
        )
        own = changes.where(F.col(CHANGE) == DELETE).select(*self._keys, SEQUENCE).distinct()
        self._remember(own, summary, changes)
        with self._as_one_write():
            rows.merge(table, prepared, read_version)

    def apply_to_tracked_history(
        self,
        changes: DataFrame,
        summary: _Summary,
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
        if target.num_files and not snapshot.transactions:
            self.side.begin_history(table.toDF())
            begun = whole.snapshot(self.spark)
            assert begun is not None
            snapshot = begun
        elif not self.write.is_in(snapshot):
            self._check_names(target, snapshot)
        if not self.write.is_in(snapshot):
            self.apply_to_history(changes, summary, whole.table(self.spark), snapshot.version)
        history = whole.table(self.spark).toDF()
        touched = changes.where(F.col(CHANGE) != TRUNCATE).select(*self._keys)
        for truncate in self._truncates(summary):
            touched = touched.unionByName(self._valid_at(table, truncate).select(*self._keys))
        keys = self._materialized(touched.distinct())
        history, visible = (
            frame.join(keys, self.columns.key_names, "left_semi") for frame in (history, table.toDF())
        )
        shown = self._materialized(shown_rows(history, visible, self.columns, tracked))
        with self._as_one_write():
            rows = HistoryRows(replace(self.columns, partial=False), False)
            rows.merge(table, shown, target.version)

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
            {f.name.lower() for f in self.applier.data_columns.of_target(each.schema) if not is_computed(f)}
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

    def _materialized(self, frame: DataFrame) -> DataFrame:
        kept = frame.localCheckpoint(eager=True)
        self.frames.callback(release, kept)
        return kept

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

    def _truncates(self, summary: _Summary) -> list[Column]:
        return [as_literal(sequence, self.columns.sequence) for sequence in summary.truncates]

    def _may_be_late(self, summary: _Summary, forgotten: Forgotten) -> bool:
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
        self.side.keep_late(late.drop(*_OF_SUMMARY), self.write, self.applier.clock())
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

    def _remember(self, deletes: DataFrame, summary: _Summary, summed: DataFrame) -> None:
        if not summary.deletes and not summary.truncates:
            return
        truncates = summed.where(F.col(TRUNCATED).isNotNull()).select(
            *[F.lit(None).cast(key.dataType).alias(key.name) for key in self.columns.keys],
            F.col(TRUNCATED).alias(SEQUENCE),
            F.lit(TRUNCATE).alias(CHANGE),
        )
        points = deletes.withColumn(CHANGE, F.lit(DELETE)).unionByName(truncates)
        self.side.remember(points, self.write, self.applier.clock(), self.applier.horizon_ms)

    def _as_one_write(self) -> AbstractContextManager[None]:
        """The MERGEs in the block are skipped by a table that has the batch already."""
        of_write = dict(zip(SESSION_SETTINGS, self.write.options.values(), strict=True))
        # The source is materialised.
        return _settings(self.spark, {**of_write, MERGE_MATERIALIZE_SOURCE.name: "none"})


@contextmanager
def _settings(spark: SparkSession, values: Mapping[str, str | None]) -> Iterator[None]:
    """The settings of the session have these values in the block; those that are None are unset."""
    before = {name: spark.conf.get(name, None) for name in values}

    def set_all(settings: Mapping[str, str | None]) -> None:
        for name, value in settings.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)

    set_all(values)
    try:
        yield
    finally:
        set_all(before)
