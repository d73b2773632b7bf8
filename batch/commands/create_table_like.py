"""CREATE TABLE … LIKE: an empty table with the columns, partitioning and properties of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from deltaflow.batch.commands.show_create_table import defined_schema, properties_of
from deltaflow.batch.sql_names import quoted_name
from deltaflow.log import DeltaLog, schema_to_string
from deltaflow.log.protocol.identity_columns import metadata_without_mark
from deltaflow.log.protocol.schema import CURRENT_DEFAULT
from deltaflow.spark.expressions.table_expressions import table_expression
from deltaflow.spark.sql.catalog_tables import create_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaflow.spark.sql.statements import NamedTable


def create_table_like(
    spark: SparkSession,
    source: NamedTable,
    target: Sequence[str],
    *,
    location: str | None,
    properties: Mapping[str, str],
    if_not_exists: bool,
) -> None:
    """Creates the table. `properties` have precedence over the source's; identity columns begin anew."""
    assert source.path is not None
    snapshot = DeltaLog.for_table(source.path).snapshot()
    fields = [
        T.StructField(
            field.name,
            field.dataType,
            field.nullable,
            _definition(field, source.path),
        )
        for field in defined_schema(snapshot).fields
    ]
    create_table(
        spark,
        {
            "name": quoted_name(target),
            "location": location,
            "replaces": False,
            "isLenient": if_not_exists,
            "schema": schema_to_string(T.StructType(fields)),
            "partitionedBy": list(snapshot.partition_columns),
            "clusterBy": list(map(quoted_name, snapshot.clustering_columns)),
            "properties": {**properties_of(snapshot), **properties},
            "comment": snapshot.metadata.description,
        },
    )


def _definition(field: T.StructField, table: str) -> dict[str, Any]:
    """The metadata of a column that is defined like this one of the table at the path."""
    metadata = metadata_without_mark(field)
    if CURRENT_DEFAULT in metadata:  # Spark takes a default only together with that of older rows
        table_expression(metadata[CURRENT_DEFAULT], table)  # Spark evaluates it
        metadata["EXISTS_DEFAULT"] = metadata[CURRENT_DEFAULT]
    return metadata
