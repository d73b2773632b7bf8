"""ALTER TABLE … SET LOCATION: gives a name the Delta table of another directory. No file is moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltaflow.batch.named_table import is_named_by_path
from deltaflow.batch.options import boolean_option, required_path
from deltaflow.errors import DeltaAnalysisException, DeltaTableNotFoundError
from deltaflow.log import DeltaLog
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.spark.sql.catalog_tables import location_of, set_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from deltaflow.spark.sql.statements import NamedTable

_BYPASS_CHECK = "spark.databricks.delta.alterLocation.bypassSchemaCheck"


def set_table_location(
    spark: SparkSession, table: NamedTable, location: str, settings: Mapping[str, str]
) -> None:
    """Gives the catalog's entry of a table another location, that of a Delta table with the same columns.

    DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER for a table without an entry, DELTA_MISSING_DELTA_TABLE if
    there is no Delta table at the location, DELTA_SET_LOCATION_SCHEMA_MISMATCH if it has other columns.
    """
    assert table.path is not None
    if is_named_by_path(table):
        raise DeltaAnalysisException(
            error_class="DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER", table=table.path
        )
    log = DeltaLog.for_table(location_of(spark, table.name, required_path(location)))
    destination = log.snapshot_if_exists()
    if destination is None:
        raise DeltaTableNotFoundError(
            error_class="DELTA_MISSING_DELTA_TABLE",
            table_name=location,
            advice="Set the location to the directory of a Delta table.",
        )
    original = DeltaLog.for_table(table.path).snapshot()
    layouts = [(found.schema, tuple(found.partition_columns)) for found in (original, destination)]
    if layouts[0] != layouts[1] and not boolean_option(settings, _BYPASS_CHECK):
        raise DeltaAnalysisException(
            error_class="DELTA_SET_LOCATION_SCHEMA_MISMATCH",
            original=_shown(*layouts[0]),
            destination=_shown(*layouts[1]),
            config=_BYPASS_CHECK,
            table=table.path,
        )
    set_location(spark, table.name, hadoop_path(log.path))


def _shown(schema: StructType, partition_columns: tuple[str, ...]) -> str:
    return f"{schema.simpleString()} partitioned by ({', '.join(partition_columns)})"
