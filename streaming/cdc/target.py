"""The table that changes are applied to, by path or by name; it is made by the first batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.batch import named_table
from deltaflow.batch.delta_table import DeltaTable
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "deltaflow.applyChanges"


@dataclass(frozen=True)
class Target:
    """A table: its path, or its name in Spark's catalog."""

    path: str | None
    name: str | None

    def snapshot(self, spark: SparkSession) -> Snapshot | None:
        """The newest version; None without a table."""
        path = self.path
        if self.name is not None:
            path = _path_of_name(spark, self.name)
        log = None if path is None else DeltaLog.for_table(path)
        return log.snapshot() if log is not None and log.exists() else None

    def table(self, spark: SparkSession) -> DeltaTable:
        """The table, which exists."""
        if self.name is not None:
            return DeltaTable.forName(spark, self.name)
        assert self.path is not None
        return DeltaTable.forPath(spark, self.path)

    def create(
        self, spark: SparkSession, fields: Sequence[T.StructField], flow: dict[str, object]
    ) -> Snapshot:
        """Makes the table. `flow` says how changes are applied to it; see `check`."""
        builder = DeltaTable.createIfNotExists(spark).property(_PROPERTY, json.dumps(flow))
        columns = T.StructType([T.StructField(f.name, f.dataType, True, f.metadata) for f in fields])
        if self.name is not None:
            builder = builder.tableName(self.name)
        else:
            assert self.path is not None
            builder = builder.location(self.path)
        builder.addColumns(columns).execute()
        snapshot = self.snapshot(spark)
        assert snapshot is not None
        return snapshot

    @staticmethod
    def check(snapshot: Snapshot, flow: dict[str, object]) -> None:
        """DELTA_APPLY_CHANGES_MISMATCH if changes were applied to the table in another way."""
        recorded = snapshot.metadata.configuration.get(_PROPERTY)
        if recorded is None:
            return
        before = json.loads(recorded)
        different = [name for name in flow if before.get(name) != flow[name]]
        if different:
            shown = "; ".join(f"{name} {before.get(name)}, now {flow[name]}" for name in different)
            raise DeltaIllegalArgumentException(
                error_class="DELTA_APPLY_CHANGES_MISMATCH", differences=shown, table=snapshot.path
            )


def _path_of_name(spark: SparkSession, name: str) -> str | None:
    if not spark.catalog.tableExists(name):
        return None
    return named_table.table_of_name(spark, name).path
