"""Reads a Parquet table for CONVERT TO DELTA and SHALLOW CLONE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.batch.commands.parquet_files import ParquetFiles, files_of_directory, files_of_partitions
from deltaflow.batch.commands.parquet_schema import (
    FOOTERS_AT_ONCE,
    data_schema,
    merged_with_partitions,
    partition_schema,
    partition_values,
)
from deltaflow.batch.ddl.table_definition import check_columns
from deltaflow.batch.rows.char_varchar import with_char_as_string
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import AddFile, Metadata, as_nullable, schema_from_string
from deltaflow.log.files.data_path import encoded_path
from deltaflow.log.files.footers import collect_statistics
from deltaflow.log.protocol.indexed_columns import indexed_leaves
from deltaflow.log.protocol.properties import DATA_SKIPPING_STRING_PREFIX_LENGTH
from deltaflow.spark.sql.parquet_tables import TableEntry
from deltaflow.store import table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_PROPERTIES = ("transient_lastDdlTime",)


@dataclass(frozen=True)
class ParquetSource:
    """The files of a Parquet table, and its metadata for a Delta table."""

    files: ParquetFiles
    schema: StructType
    partition_columns: list[str]
    partition_values: Sequence[dict[str, str | None]]
    """The values of each partition of `files`, as the log stores them."""
    properties: dict[str, str]

    @property
    def size_in_bytes(self) -> int:
        """The size of all files."""
        return pc.sum(self.files.files["size"]).as_py() or 0

    def add_actions(self, statistics_of: Metadata | None, prefix: str = "") -> list[AddFile]:
        """The add actions of the files, whose paths get the `prefix`.

        With `statistics_of`, they have the statistics that a table of this metadata collects; the footers are
        read in parallel.
        """
        adds: list[AddFile] = []
        files = self.files
        for start in range(0, files.files.num_rows, FOOTERS_AT_ONCE):
            rows = files.files.slice(start, FOOTERS_AT_ONCE)
            stats: Sequence[str | None] = [None] * rows.num_rows
            if statistics_of is not None:
                stats = collect_statistics(
                    files.paths_and_sizes(start, FOOTERS_AT_ONCE),
                    indexed_leaves(statistics_of, files.root),
                    DATA_SKIPPING_STRING_PREFIX_LENGTH.of(statistics_of.configuration, files.root),
                )
            adds += [
                AddFile(
                    path=prefix + encoded_path(row["path"]),
                    partition_values=self.partition_values[row["partition"]],
                    size=row["size"],
                    modification_time=row["modification_time"],
                    data_change=True,
                    stats=statistics,
                )
                for row, statistics in zip(rows.to_pylist(), stats, strict=True)
            ]
        return adds


def properties_of(entry: TableEntry) -> dict[str, str]:
    """The properties of a catalog entry that the Delta table gets."""
    return {name: value for name, value in entry.properties.items() if name not in _NOT_PROPERTIES}


def read_parquet_table(
    spark: SparkSession, entry: TableEntry, given: StructType | None = None
) -> ParquetSource:
    """Reads a Parquet table. `given` are its partition columns; without them, Spark infers them.

    The schema and the partitions of a table of the catalog are those of its entry, as for Spark's readers.
    """
    path = table_path(entry.path)
    given = None if given is None else with_char_as_string(given)
    catalog = None if entry.name is None else _schema_of(entry, path)
    of_entry = None if catalog is None else StructType([catalog[name] for name in entry.partition_columns])
    if of_entry is not None and given is not None and _signature(of_entry) != _signature(given):
        raise DeltaAnalysisException(
            error_class="DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER",
            catalog_schema=of_entry.simpleString(),
            user_schema=given.simpleString(),
        )
    files = _files(path, entry)
    partitions = partition_schema(spark, files, given if of_entry is None else of_entry)
    schema = merged_with_partitions(data_schema(spark, files), partitions)
    if catalog is not None:
        schema = catalog
    return ParquetSource(
        files, schema, partitions.names, partition_values(spark, files, partitions), properties_of(entry)
    )


def _schema_of(entry: TableEntry, path: str) -> StructType:
    schema = schema_from_string(entry.schema, table=path)
    check_columns(schema, path)
    return as_nullable(with_char_as_string(schema))


def _signature(schema: StructType) -> list[tuple[str, Any]]:
    return [(field.name, field.dataType) for field in schema.fields]


def _files(path: str, entry: TableEntry) -> ParquetFiles:
    if entry.partitions is None:
        return files_of_directory(path)
    if not entry.partitions:
        raise DeltaAnalysisException(
            error_class="DELTA_CONVERSION_NO_PARTITION_FOUND", table_name=entry.name, table=path
        )
    values: Mapping[str, Mapping[str, str | None]] = {
        partition.path: {name: partition.values[name] for name in entry.partition_columns}
        for partition in entry.partitions
    }
    return files_of_partitions(path, values)
