"""The table that changes are applied to, by path or by name; it is made by the first batch."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.batch import named_table
from deltaflow.batch.delta_table import DeltaTable
from deltaflow.errors import DeltaIllegalArgumentException, DeltaIllegalStateException
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.store import given_path, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "deltaflow.applyChanges"
DIRECTORY = "_changes"
"""Of the tables beside the target, in its own directory."""


@dataclass(frozen=True)
class Target:
    """A table: its path, as Spark is given it, or its name in Spark's catalog."""

    path: str | None
    name: str | None

    def snapshot(self, spark: SparkSession) -> Snapshot | None:
        """The newest version; None without a table."""
        path = self.path
        if self.name is not None:
            path = _path_of_name(spark, self.name)
        return None if path is None else DeltaLog.for_table(table_path(path)).snapshot_if_exists()

    def table(self, spark: SparkSession) -> DeltaTable:
        """The table, which exists."""
        if self.name is not None:
            return DeltaTable.forName(spark, self.name)
        assert self.path is not None
        return DeltaTable.forPath(spark, self.path)

    def create(
        self,
        spark: SparkSession,
        fields: Sequence[T.StructField],
        flow: dict[str, object],
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Makes the table. `flow` says how changes are applied to it; see `check`."""
        builder = DeltaTable.createIfNotExists(spark).property(_PROPERTY, json.dumps(flow))
        for name, value in (properties or {}).items():
            builder = builder.property(name, value)
        columns = T.StructType([T.StructField(f.name, f.dataType, True, f.metadata) for f in fields])
        if self.name is not None:
            builder = builder.tableName(self.name)
        else:
            assert self.path is not None
            check_nothing_remembered(table_path(self.path))
            builder = builder.location(self.path)
        builder.addColumns(columns).execute()
        snapshot = self.snapshot(spark)
        assert snapshot is not None
        return snapshot

    def adopt(self, spark: SparkSession, snapshot: Snapshot, flow: dict[str, object]) -> Snapshot:
        """The table, which records from now on how changes are applied to it.

        DELTA_APPLY_CHANGES_MISMATCH if it was in another way before. DELTA_APPLY_CHANGES_REPLACED if the
        table was made anew beside what an earlier one remembers.
        """
        recorded = snapshot.metadata.configuration.get(_PROPERTY)
        if recorded is None:
            check_nothing_remembered(snapshot.path)
            value = json.dumps(flow).replace("\\", "\\\\").replace("'", "\\'")
            table = named_table.quoted_path(given_path(snapshot.path))
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{_PROPERTY}' = '{value}')")
            adopted = self.snapshot(spark)
            assert adopted is not None
            return adopted
        self.check(snapshot, flow)
        return snapshot

    def check(self, snapshot: Snapshot, flow: dict[str, object]) -> None:
        """DELTA_APPLY_CHANGES_MISMATCH if the table records other values of these."""
        recorded = snapshot.metadata.configuration.get(_PROPERTY)
        before = flow if recorded is None else json.loads(recorded)
        different = [name for name in flow if before.get(name) != flow[name]]
        if different:
            shown = "; ".join(f"{name} {before.get(name)}, now {flow[name]}" for name in different)
            raise DeltaIllegalArgumentException(
                error_class="DELTA_APPLY_CHANGES_MISMATCH", differences=shown, table=snapshot.path
            )


def table_beside(target: Snapshot, name: str) -> Target:
    """A table in the directory of a target that has what its rows do not show."""
    return Target(posixpath.join(given_path(target.path), DIRECTORY, name), None)


def check_nothing_remembered(path: str) -> None:
    """DELTA_APPLY_CHANGES_REPLACED if a table that was at the path before remembers changes."""
    directory = posixpath.join(path, DIRECTORY)
    if any(DeltaLog.for_table(posixpath.join(directory, name)).exists() for name in ("deletes", "history")):
        raise DeltaIllegalStateException(
            error_class="DELTA_APPLY_CHANGES_REPLACED", directory=directory, table=path
        )


def _path_of_name(spark: SparkSession, name: str) -> str | None:
    if not spark.catalog.tableExists(name):
        return None
    return named_table.table_of_name(spark, name).path
