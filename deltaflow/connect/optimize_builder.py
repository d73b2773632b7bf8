"""OPTIMIZE by Python, in a session of Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.connect.sql_text import column_name
from deltaflow.interface.optimize_builder import DeltaOptimizeBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession


class OptimizeBuilder(DeltaOptimizeBuilder):
    """Optimizes by a statement."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        super().__init__()
        self._spark = spark
        self._table = table

    def _execute(self, z_order_by: list[str]) -> DataFrame:
        where = " AND ".join(f"({condition}\n)" for condition in self._where)
        order = ", ".join(map(column_name, z_order_by))
        return self._spark.sql(
            f"OPTIMIZE {self._table}"
            f"{f' WHERE {where}' if where else ''}{f' ZORDER BY ({order})' if order else ''}"
        )
