"""`DeltaTable`: a table's operations by Python, with the names and signatures of `delta.tables`.

Each method hands over to the module of its operation; this one only says what table it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.batch.options import required_path
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog
from deltaflow.spark.statements import NamedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DeltaTable:
    """A Delta table in a Spark session. Make one with `forPath` or `forName`."""

    def __init__(self, spark: SparkSession, table: NamedTable, alias: str | None = None) -> None:
        self._spark = spark
        self._table = table
        self._alias = alias

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str) -> DeltaTable:
        """The table at a path; DELTA_MISSING_DELTA_TABLE if there is none."""
        if not cls.isDeltaTable(sparkSession, path):
            raise DeltaAnalysisException(
                f"{path} is not a Delta table.", error_class="DELTA_MISSING_DELTA_TABLE", table=path
            )
        return cls(sparkSession, NamedTable(f"delta.`{path}`", path))

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether there is a Delta table at a path."""
        return DeltaLog.for_table(required_path(identifier)).exists()

    def toDF(self) -> DataFrame:
        """The table's newest version, at each execution; under the alias, if there is one."""
        frame = self._spark.read.format("delta").load(self._table.path)
        return frame if self._alias is None else frame.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under another name, for the conditions of a merge."""
        return DeltaTable(self._spark, self._table, aliasName)
