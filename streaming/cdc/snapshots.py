"""Full snapshots of a table, compared with each other, as changes."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.expressions.orderable import orderable
from deltaflow.streaming.cdc.changes import (
    CHANGE,
    DELETE,
    SEQUENCE,
    UPSERT,
    Current,
    as_literal,
    check_names,
    column,
    encodable,
    field_named,
)
from deltaflow.streaming.cdc.records import record_failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ORDINAL, _ROW, _TOLD = "\0ordinal", "\0row", "\0told"
_LEAST_BEFORE, _GREATEST_BEFORE = "\0least before", "\0greatest before"
"""The row's values in the snapshot before, which are equal if it had one row of the key."""
_IS_TWICE, _IS_IN_NEXT = "\0is twice", "\0is in next"
"""Whether its own snapshot has another row of the row's key, and whether the next one has any."""
_TARGET = 0
"""The ordinal of the rows that the target holds; the snapshots of a batch count on from here."""


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """Reads rows of full snapshots: what a snapshot does not have, and the one before it had, is deleted.

    A batch may have several snapshots, and has to have them whole: a part of a snapshot looks like a snapshot
    without the rest. Snapshots come in the order of their versions.
    """

    version: str
    """The column with the snapshot's version, of any type that has an order. It is no data."""

    def changes(self, batch: DataFrame, current: Current) -> DataFrame:
        """The changes between the target and the first snapshot of the batch, and from each to the next one.

        A row that is as it was is no change. The sequence of a change is the version of its snapshot. The
        versions of the batch are read by a job.

        Raises:
            DeltaIllegalStateException: a version is not newer than the target's newest change.
        """
        check_names(batch.columns)
        version = field_named(batch.schema, self.version)
        versions = self._versions(batch, version.dataType, current)
        ordinals = F.array(*[F.lit(None).cast(version.dataType), *versions])
        data = [name for name in batch.columns if name != version.name]
        ordinal = F.array_position(ordinals, F.col(quoted(self.version))) - 1
        # As the target has them, so that they can be compared.
        values = [
            (current.as_stored(batch.schema[name]) if current.is_stored(name) else column(name)).alias(name)
            for name in data
        ]
        snapshots = batch.select(*values, ordinal.cast("int").alias(_ORDINAL))
        rows = snapshots if current.schema is None else snapshots.unionByName(self._held(data, current), True)
        return self._differences(rows, data, current, ordinals)

    def _versions(self, batch: DataFrame, version_type: T.DataType, current: Current) -> list[Column]:
        """The versions of the batch, the oldest first."""
        version = F.col(quoted(self.version))
        no_version = record_failure(F.to_json(F.struct("*")))(f"column {self.version}, its version, is null")
        checked = batch.select(F.when(version.isNull(), no_version).otherwise(version).alias("version"))
        found = checked.distinct().sort("version").select(encodable(F.col("version"), version_type)).collect()
        versions = [as_literal(row[0], version_type) for row in found]
        newest = current.newest()
        if versions and newest is not None:
            row = batch.sparkSession.range(1).select(versions[0] <= newest, newest.cast("string")).first()
            if row is not None and row[0]:
                raise DeltaIllegalStateException(
                    error_class="DELTA_CHANGE_SNAPSHOT_OLD", snapshot=found[0][0], newest=row[1]
                )
        return versions

    def _held(self, data: list[str], current: Current) -> DataFrame:
        """The rows of the target that have a key, by those of its columns that the snapshots have."""
        assert current.schema is not None
        known = {field.name.lower(): field.name for field in current.schema.fields}
        rows = current.rows()
        assert rows is not None
        ordinal = F.lit(_TARGET).alias(_ORDINAL)
        held = [column(known[name.lower()]).alias(name) for name in data if name.lower() in known]
        return rows.select(*held, ordinal).where(_has_key(current))

    @staticmethod
    def _differences(rows: DataFrame, data: list[str], current: Current, ordinals: Column) -> DataFrame:
        """The changes: a row differs from that in the snapshot before, or the next snapshot lacks it."""
        failure = record_failure(F.to_json(F.struct(*map(column, data))))
        ordinal = F.col(_ORDINAL)
        fields = {field.name: field.dataType for field in rows.schema.fields}
        stored = [name for name in data if current.is_stored(name)]
        comparable = F.struct(*[orderable(column(name), fields[name]).alias(name) for name in stored])
        of_key = Window.partitionBy(*map(column, current.keys)).orderBy(ordinal)
        # The table that became the target may have several rows of a key.
        before, at_once, after = (of_key.rangeBetween(at, at) for at in (-1, 0, 1))
        known = rows.withColumns(
            {
                _ROW: comparable,
                _LEAST_BEFORE: F.min(comparable).over(before),
                _GREATEST_BEFORE: F.max(comparable).over(before),
                _IS_TWICE: F.count(ordinal).over(at_once) > 1,
                _IS_IN_NEXT: F.count(ordinal).over(after) > 0,
            }
        )

        def told(change: str, at: Column) -> Column:
            of_snapshot = F.element_at(ordinals, at + 1)
            return F.struct(F.lit(change).alias(CHANGE), of_snapshot.alias(SEQUENCE))

        row = F.col(_ROW)
        is_same = F.col(_LEAST_BEFORE).eqNullSafe(row) & F.col(_GREATEST_BEFORE).eqNullSafe(row)
        is_upsert = (ordinal > _TARGET) & ~is_same
        is_last = ordinal == F.size(ordinals) - 1
        is_deleted = ~is_last & ~F.col(_IS_IN_NEXT)
        changes = F.array_compact(
            F.array(F.when(is_upsert, told(UPSERT, ordinal)), F.when(is_deleted, told(DELETE, ordinal + 1)))
        )
        checked = F.when(~_has_key(current), failure("its key is null"))
        twice = (ordinal > _TARGET) & F.col(_IS_TWICE)
        checked = checked.when(twice, failure("its snapshot has another row with the same key"))
        exploded = known.select(*map(column, data), F.explode(checked.otherwise(changes)).alias(_TOLD))
        return exploded.select(*map(column, data), f"`{_TOLD}`.*")


def _has_key(current: Current) -> Column:
    return functools.reduce(operator.and_, (column(key).isNotNull() for key in current.keys))
