"""`DeltaOptimizeBuilder`: the partitions and the order of an OPTIMIZE."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from pyspark.sql import DataFrame

from deltaflow.interface.arguments import check_string, names_of


class DeltaOptimizeBuilder(ABC):
    """Builds an OPTIMIZE of a table. See `DeltaTable.optimize`."""

    def __init__(self) -> None:
        self._where: list[str] = []

    def where(self, partitionFilter: str) -> Self:
        """Optimizes only partitions for which this condition, in SQL, and all earlier ones are true."""
        self._where.append(check_string(partitionFilter, "partitionFilter"))
        return self

    def executeCompaction(self) -> DataFrame:
        """Makes larger files of small ones. Returns one row with the path and the metrics."""
        return self._execute([])

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Puts rows that are close in these columns into one file. Returns one row, as executeCompaction."""
        return self._execute(names_of(cols, "Z-order column must be str."))

    @abstractmethod
    def _execute(self, z_order_by: list[str]) -> DataFrame:
        """Optimizes the partitions; with columns, their rows are ordered."""
