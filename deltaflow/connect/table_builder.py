"""CREATE TABLE and REPLACE TABLE by Python, in a session of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType

from deltaflow.connect.sql_text import column_name, name_of_path
from deltaflow.definition_text import column_text, properties, quoted_list, string, type_text
from deltaflow.interface.table_builder import DeltaTableBuilder, Operation, Table

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_VERBS = {
    "create": "CREATE TABLE",
    "createIfNotExists": "CREATE TABLE IF NOT EXISTS",
    "replace": "REPLACE TABLE",
    "createOrReplace": "CREATE OR REPLACE TABLE",
}


class TableBuilder(DeltaTableBuilder[Table]):
    """Makes the table by a statement."""

    def __init__(self, spark: SparkSession, operation: Operation, opened: Callable[[str], Table]) -> None:
        super().__init__(operation)
        self._spark = spark
        self._opened = opened

    def _execute(self) -> Table:
        if self._name is not None:
            name = self._name
        else:
            assert self._location is not None
            name = name_of_path(self._location)
        parts = [f"{_VERBS[self._operation]} {name}"]
        if self._columns:
            columns = [column_text(*column.values()) for column in self._columns]
            parts.append(f"({', '.join(columns)})")
        parts.append("USING delta")
        if self._partition_columns:
            parts.append(f"PARTITIONED BY {quoted_list(self._partition_columns)}")
        if self._clustering_columns:
            parts.append(f"CLUSTER BY ({', '.join(map(column_name, self._clustering_columns))})")
        if self._location is not None and self._name is not None:
            parts.append(f"LOCATION {string(self._location)}")
        if self._comment is not None:
            parts.append(f"COMMENT {string(self._comment)}")
        if self._properties:
            parts.append(f"TBLPROPERTIES {properties(self._properties)}")
        self._spark.sql("\n".join(parts))
        return self._opened(name)

    def _type_of(self, data_type: str | DataType) -> str:
        return data_type if isinstance(data_type, str) else type_text(data_type)
