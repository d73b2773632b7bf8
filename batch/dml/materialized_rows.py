"""The rows that a DELETE or UPDATE with subqueries changes, with their new values, found once.

A subquery may have another answer each time that Spark runs it. So the condition and the values are evaluated
by one execution, which reads one version of each Delta table, and its rows are kept until the commit
(Checkpoints).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltaflow.batch.dml.broadcasts import bytes_of, with_broadcast_hint
from deltaflow.batch.dml.row_level_operation import RowLevelOperation
from deltaflow.batch.read.own_scans import reads_newest, scans_of_table
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.expressions.frames import read_at, source_facts
from deltaflow.spark.scan.file_index import FILE, POSITION, hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_VALUE, _FOUND = "\0value", "\0found"


class MaterializedRows:
    """The rows of a frame for which a condition is true: their places, and values for some columns."""

    def __init__(
        self, operation: RowLevelOperation, rows: DataFrame, where: Column, values: Mapping[str, Column]
    ) -> None:
        """`rows` is a frame of the whole table; `values` are analysed over it, by the columns' names."""
        self._operation = operation
        self._rows, self._where, self._values = rows, where, values
        self._kept: DataFrame | None = None
        self.values = {name: F.col(f"{_VALUE}{i}") for i, name in enumerate(values)}
        """The new values, as columns of the frames that `beside` gives."""
        self.found = F.col(_FOUND).isNotNull()
        """Whether a row of such a frame is one of the materialised ones."""

    def places(self) -> DataFrame:
        """Finds the rows by one job, and records what their subqueries read of the table; gives the file and
        the position of each."""
        operation = self._operation
        matching = self._rows.where(self._where)
        values = [value.alias(f"{_VALUE}{i}") for i, value in enumerate(self._values.values())]
        wanted = operation.rows(like=matching.select(*values), places=True)
        read_at(wanted, hadoop_path(operation.snapshot.path), operation.snapshot.version)
        record_reads(operation, source_facts(wanted).scans)
        self._kept = operation.checkpoints.keep(wanted)
        return self._kept.select(FILE, POSITION)

    def beside(self, rows: DataFrame, matching_rows: int) -> DataFrame:
        """A frame of rows of the table and their places, with `found` and `values`. `matching_rows`: how many
        there are."""
        assert self._kept is not None
        size = bytes_of(self._kept, matching_rows)
        kept = with_broadcast_hint(self._kept.withColumn(_FOUND, F.lit(True)), size)
        return rows.join(kept, [FILE, POSITION], "left")


def record_reads(operation: RowLevelOperation, scans: Sequence[str]) -> None:
    """Records what subqueries read of the operation's table, by their scans. DeltaIllegalStateException if
    Spark has an older version of the table in its cache."""
    snapshot = operation.snapshot
    for scan in filter(reads_newest, scans_of_table(scans, snapshot.path)):
        if scan["version"] != snapshot.version:
            raise DeltaIllegalStateException(
                f"A subquery of {operation.name} reads version {scan['version']} of the table "
                f"{snapshot.path}, which Spark has cached, and its newest is {snapshot.version}. "
                "Take it out of the cache: spark.catalog.uncacheTable, or unpersist() of the DataFrame.",
                table=snapshot.path,
                version=snapshot.version,
            )
        operation.transaction.record_read_of_whole_table()
