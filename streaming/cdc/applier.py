"""Applies the changes of each micro-batch to the target, once.

Per batch one listing of the log of the target, and one of that of the remembered deletes, beside the jobs
that `change_batch` counts.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.idempotent import SESSION_SETTINGS
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.spark.expressions.call_sites import without_call_sites
from deltaflow.spark.expressions.checkpoints import Checkpoints
from deltaflow.store import given_path
from deltaflow.streaming.cdc.change_batch import ChangeBatch
from deltaflow.streaming.cdc.changes import (
    COLUMN_SEQUENCES,
    END_AT,
    ROW_SEQUENCE,
    SEQUENCE,
    START_AT,
    ChangeColumns,
    Current,
    Envelope,
    as_literal,
    column,
    encodable,
)
from deltaflow.streaming.cdc.data_columns import DataColumns, is_computed
from deltaflow.streaming.cdc.session_settings import session_settings
from deltaflow.streaming.cdc.side_tables import SideTables, Write, forget
from deltaflow.streaming.cdc.target import Target, table_beside
from deltaflow.streaming.lost_table import table_is_gone
from deltaflow.streaming.skipped_batches import tell_skipped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
    _runs_with_target: list[str | None] = field(default_factory=list, init=False)
    """The run of the query that had a target, once one has."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """The function of foreachBatch."""
        context = batch.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run_id = context.getLocalProperty("spark.jobGroup.id")
        assert query_id is not None
        had_target = self._runs_with_target == [run_id]
        if self.apply(batch, Write(query_id, batch_id), had_target=had_target):
            self._runs_with_target[:] = [run_id]

    def apply(self, batch: DataFrame, write: Write, *, had_target: bool = False) -> bool:
        """Applies the changes of a batch, unless the target has it already; whether there is a target then.

        `had_target`: whether an earlier batch of this run has found or made it.
        """
        # The session's own txnAppId holds for no table here: all writes but the first would be skipped.
        with session_settings(batch.sparkSession, dict.fromkeys(SESSION_SETTINGS)), without_call_sites():
            return self._apply(batch, write, had_target=had_target)

    def _apply(self, batch: DataFrame, write: Write, *, had_target: bool) -> bool:
        spark = batch.sparkSession
        snapshot = self.target.snapshot(spark)
        if snapshot is None and had_target:
            raise table_is_gone(self.target.name or str(self.target.path), write.version)
        if snapshot is not None and write.is_in(snapshot):
            newest = snapshot.transactions[write.app_id].version
            tell_skipped(snapshot.path, write.app_id, write.version, newest)
            self._forget_again(spark, snapshot, write)
            return True
        rows = _Rows(spark, self.target, self.scd_type)
        changes = self.envelope.changes(batch, self._current(spark, snapshot, write, rows))
        if changes is not None:
            with session_settings(spark, _SHOWS_CHAR):
                self._apply_changes(spark, changes, snapshot, write, are_compared=rows.are_read)
        return snapshot is not None or changes is not None

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
        with Checkpoints(snapshot.path) as checkpoints:
            run = ChangeBatch(
                spark,
                write,
                side,
                columns,
                checkpoints,
                self.data_columns,
                self.ignore_null_updates,
                self.horizon_ms,
                self.clock,
            )
            table = self.target.table(spark)
            if self.scd_type == 1:
                run.apply_to_current_rows(changes, table, snapshot, are_compared=are_compared)
            else:
                changes, summary = run.summed_up(run.one_by_one(changes), changes)
                if tracked is None:
                    run.apply_to_history(changes, summary, table, snapshot)
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
        with session_settings(self.spark, _SHOWS_CHAR):
            found = self.target.table(self.spark).toDF()
        if self.scd_type == 2:
            found = found.where(F.col(END_AT).isNull())
        return found.select(*[column(name) for name in fields.names])
