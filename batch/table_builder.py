"""CREATE TABLE and REPLACE TABLE for Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import DataType

from deltaflow.batch.named_table import named_by_path, table_of_name
from deltaflow.interface.table_builder import DeltaTableBuilder, Operation, Table
from deltaflow.spark.sql.catalog_tables import create_table
from deltaflow.spark.sql.sql_text import type_json
from deltaflow.spark.sql.statements import NamedTable
from deltaflow.store import given_path, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableBuilder(DeltaTableBuilder[Table]):
    """Makes the table by the module of the statements of SQL."""

    def __init__(
        self, spark: SparkSession, operation: Operation, opened: Callable[[NamedTable], Table]
    ) -> None:
        super().__init__(operation)
        self._spark = spark
        self._opened = opened

    def _execute(self) -> Table:
        if self._name is None:
            assert self._location is not None
            self._location = given_path(table_path(self._location))
        statement = {
            "name": self._name,
            "location": self._location,
            "replaces": self._operation in ("replace", "createOrReplace"),
            "isLenient": self._operation in ("createIfNotExists", "createOrReplace"),
            "schema": msgspec.json.encode({"type": "struct", "fields": self._columns}).decode(),
            "partitionedBy": self._partition_columns,
            "clusterBy": self._clustering_columns,
            "properties": self._properties,
            "comment": self._comment,
        }
        create_table(self._spark, statement)
        return self._opened(self._table())

    def _type_of(self, data_type: str | DataType) -> Any:
        return type_json(self._spark, data_type) if isinstance(data_type, str) else data_type.jsonValue()

    def _table(self) -> NamedTable:
        if self._name is not None:
            return table_of_name(self._spark, self._name)
        assert self._location is not None
        return named_by_path(self._location)
