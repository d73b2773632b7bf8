"""The tables beside the target, in its directory `_changes`, which readers and vacuums of the target pass by.

`deletes` remembers deletes and truncates, so that an older change that comes later cannot bring a row back.
After the horizon they are forgotten; then it remembers, as one row, the greatest sequence that was. A change
that is not younger than this, and of whose key nothing is known, goes to `late`. `history` has all points of
a history whose target shows some of them.

Each is appended to before the target is merged into, and forgets only afterwards: until the target has a
batch, a run that repeats it finds the same answers. Per batch: one listing of the log of `deletes`; a job
that appends, if the batch has deletes, and after some dozens of those one that compacts their files.
"""

from __future__ import annotations

import logging
import operator
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.data_types import EXACT_JSON
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MODE
from deltaflow.log.protocol.schema_merging import Fits, obstacles_to_writing
from deltaflow.log.protocol.type_widening import keeps_values
from deltaflow.store import given_path
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    DELETE,
    RECORDED_AT,
    SEQUENCE,
    TRUNCATE,
    ChangeColumns,
    as_literal,
    column,
    encodable,
)
from deltaflow.streaming.cdc.target import DIRECTORY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
HORIZON = "horizon"
_SLACK = 16
"""A delete may be remembered longer than the horizon by two of so many parts of it: its time is rounded up to
one, since Spark compiles the code of a batch anew for each time, and one passes between two times that
deletes are forgotten."""


@dataclass(frozen=True)
class Write:
    """By which a table knows that it has a batch already."""

    app_id: str
    version: int

    @property
    def options(self) -> dict[str, str]:
        return {"txnAppId": self.app_id, "txnVersion": str(self.version)}

    def is_in(self, table: Snapshot) -> bool:
        done = table.transactions.get(self.app_id)
        return done is not None and done.version >= self.version


_BEGIN = Write("the rows of the target", 0)


@dataclass(frozen=True)
class Forgotten:
    """What `deletes` tells beside the deletes of keys."""

    horizon: Column | None
    """The greatest sequence of those that were forgotten."""
    truncates: Sequence[Column]
    """The sequences of all truncates, the greatest first."""


class SideTables:
    """The tables beside the target."""

    def __init__(self, spark: SparkSession, target: Snapshot, columns: ChangeColumns) -> None:
        self.target = given_path(target.path)
        # Where the target is mapped, its columns may have names that only mapped tables may have.
        is_mapped = target.mapping_mode != "none"
        self.properties: dict[str, str] = {COLUMN_MAPPING_MODE.name: "name"} if is_mapped else {}
        """Of each of the tables when it is made."""
        self._spark = spark
        self._columns = columns
        self.late_path, self.history_path, self._path = (
            posixpath.join(self.target, DIRECTORY, name) for name in ("late", "history", "deletes")
        )
        self._snapshot = DeltaLog.for_table(self._path).snapshot_if_exists()
        if self._snapshot is not None:
            self._check_types(self._snapshot, columns.keys, keeps_values)

    def deletes(self) -> DataFrame | None:
        """The remembered deletes (keys, SEQUENCE); None if there are none."""
        if DELETE not in self._parts():
            return None
        rows = self._rows().where(F.col(CHANGE) == DELETE)
        return rows.select(*map(column, self._columns.key_names), SEQUENCE)

    def forgotten(self) -> Forgotten:
        """One small job, if there was a truncate or if deletes were forgotten."""
        if not self._parts() & {TRUNCATE, HORIZON}:
            return Forgotten(None, ())
        data_type = self._columns.sequence
        found = self._rows().where(F.col(CHANGE).isin(TRUNCATE, HORIZON)).orderBy(F.col(SEQUENCE).desc())
        rows = found.select(CHANGE, encodable(F.col(SEQUENCE), data_type).alias(SEQUENCE)).collect()
        sequences = {
            kind: [as_literal(r[1], data_type) for r in rows if r[0] == kind] for kind in (TRUNCATE, HORIZON)
        }
        return Forgotten(next(iter(sequences[HORIZON]), None), sequences[TRUNCATE])

    def remember(self, points: DataFrame, write: Write, now_ms: int, horizon_ms: int) -> None:
        """Appends deletes and truncates (keys, SEQUENCE, CHANGE)."""
        part = max(1, horizon_ms // _SLACK)
        recorded = F.timestamp_millis(F.lit(-(-now_ms // part) * part))
        rows = points.withColumn(RECORDED_AT, recorded).coalesce(1)
        writer = rows.write.format("delta").mode("append").partitionBy(CHANGE)
        # Every batch reads all files, and a horizon may have tens of thousands of batches.
        writer = writer.option("autoCompact", "true")
        writer.options(**write.options, **self.properties).save(self._path)

    def keep_late(self, changes: DataFrame, write: Write, now_ms: int) -> None:
        """Appends changes that came later than the horizon. When a batch is run again, others may be late
        than before, because its target may have changed meanwhile: the table gets those that it lacks."""
        table = DeltaLog.for_table(self.late_path).snapshot_if_exists()
        if table is not None:
            self._check_types(table, self._columns.data, keeps_values)
        is_again = table is not None and write.is_in(table)
        rows = self._not_yet_late(changes) if is_again else changes
        rows = rows.withColumn(RECORDED_AT, F.timestamp_millis(F.lit(now_ms)))
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        writer.options(**({} if is_again else write.options), **self.properties).save(self.late_path)

    def _not_yet_late(self, changes: DataFrame) -> DataFrame:
        late = self._spark.read.format("delta").load(self.late_path).drop(RECORDED_AT)
        names = {name.lower(): None for name in (*changes.columns, *late.columns)}

        def text(rows: DataFrame) -> Column:
            """A row as JSON, in which a column or a field that is null is like one that is not there."""
            known = {name.lower(): name for name in rows.columns}
            values = [column(known[name]).alias(f"_{i}") for i, name in enumerate(names) if name in known]
            return F.to_json(F.struct(*values), EXACT_JSON)

        there = late.select(text(late).alias("\0late"))
        return changes.join(there, text(changes) == F.col("\0late"), "left_anti")

    def check_history(self, history: Snapshot, target: Snapshot) -> None:
        """DELTA_APPLY_CHANGES_TYPE_BESIDE unless the columns of the history have the target's types: values
        go from either to the other."""
        self._check_types(history, target.schema.fields, operator.eq)

    def _check_types(self, beside: Snapshot, fields: Sequence[T.StructField], fits: Fits) -> None:
        """A write would round what does not fit."""
        given = T.StructType(list(fields))
        differences = obstacles_to_writing(beside.schema, given, fits=fits, may_add=True)
        if differences:
            raise DeltaIllegalStateException(
                error_class="DELTA_APPLY_CHANGES_TYPE_BESIDE",
                differences="; ".join(differences),
                beside=given_path(beside.path),
                table=self.target,
            )

    def begin_history(self, target: DataFrame) -> None:
        """Puts the rows that the target has into the history, once: those of which no change has told."""
        names = {name.lower() for name in target.columns}
        fields = [*self._columns.data, *self._columns.engine_fields(history=True)]
        rows = target.select(*[column(field.name) for field in fields if field.name.lower() in names])
        rows.write.format("delta").mode("append").options(**_BEGIN.options).save(self.history_path)

    def forget(self, now_ms: int, horizon_ms: int) -> None:
        """Forgets what earlier batches remembered longer ago than the horizon, if there is any."""
        if self._snapshot is not None:
            forget(self._spark, self._snapshot, now_ms, horizon_ms)

    def _rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)

    def _parts(self) -> set[str]:
        """Which values CHANGE has."""
        if self._snapshot is None:
            return set()
        return set(pc.unique(_changes_of_files(self._snapshot)).to_pylist())


def forget(spark: SparkSession, deletes: Snapshot, now_ms: int, horizon_ms: int) -> None:
    """Forgets what the table of deletes remembered longer ago than the horizon, if there is any.

    `deletes` is the table as it was before the batch that forgets remembered deletes of its own.
    """
    oldest = _oldest_ms(deletes) if deletes.num_files else None
    # Not in each batch that is a horizon after one with deletes.
    if oldest is None or oldest >= now_ms - horizon_ms - horizon_ms // _SLACK:
        return
    path = given_path(deletes.path)
    is_old = F.col(RECORDED_AT) < F.timestamp_millis(F.lit(now_ms - horizon_ms))
    expired = is_old & F.col(CHANGE).isin(DELETE, TRUNCATE)
    rows = spark.read.format("delta").load(path).where(expired | (F.col(CHANGE) == HORIZON))
    greatest = rows.agg(F.max(SEQUENCE).alias(SEQUENCE)).where(F.col(SEQUENCE).isNotNull())
    recorded = F.timestamp_millis(F.lit(now_ms)).alias(RECORDED_AT)
    marker = greatest.select(SEQUENCE, F.lit(HORIZON).alias(CHANGE), recorded)
    # First what was forgotten is known, then it is forgotten: in between too much is known.
    marker.write.format("delta").mode("append").save(path)
    replaced = (F.col(CHANGE) == HORIZON) & (F.col(RECORDED_AT) < F.timestamp_millis(F.lit(now_ms)))
    DeltaTable.forPath(spark, path).delete(expired | replaced)
    _LOG.info("%s: forgot the deletes that were older than %d ms", path, horizon_ms)


def _oldest_ms(deletes: Snapshot) -> int | None:
    """When the oldest delete or truncate was remembered; None without any."""
    parts = pa.array([DELETE, TRUNCATE])
    files = deletes.files.filter(pc.is_in(_changes_of_files(deletes), value_set=parts))
    recorded = deletes.statistics_of(files).column((RECORDED_AT,))
    assert recorded is not None
    # What a file remembers is not younger than the file.
    written = files["modification_time"].combine_chunks()
    return pc.min(pc.coalesce(pc.divide(recorded.low, 1_000), written)).as_py()


def _changes_of_files(deletes: Snapshot) -> pa.ChunkedArray:
    # The session's defaults for new tables may have given it column mapping.
    name = physical_name(deletes.schema[CHANGE])
    return pc.map_lookup(deletes.files["partition_values"], name, "first")
