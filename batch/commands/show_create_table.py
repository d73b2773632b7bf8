"""SHOW CREATE TABLE: the statement that makes an empty table like this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.batch.rows.char_varchar import with_declared_types
from deltaflow.batch.sql_names import quoted, quoted_name
from deltaflow.definition_text import column_text, properties, string, type_text
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import MAX_ID, without_mapping
from deltaflow.log.protocol.features import CLUSTERING, listed_features
from deltaflow.log.protocol.identity_columns import ALLOWS_EXPLICIT, START, STEP
from deltaflow.log.protocol.properties import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from deltaflow.log.protocol.schema import CURRENT_DEFAULT, GENERATION_EXPRESSION, nullable_type
from deltaflow.log.protocol.type_widening import without_type_changes
from deltaflow.spark.scan.file_index import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaflow.spark.sql.statements import NamedTable

_MADE_ANEW = frozenset(
    (
        MAX_ID,
        MATERIALIZED_ROW_ID_COLUMN,
        MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.inCommitTimestampEnablementVersion",
        "delta.requireCheckpointProtectionBeforeVersion",
    )
)
"""Properties that a table gets while it lives."""
_KEYS = ("comment", CURRENT_DEFAULT, GENERATION_EXPRESSION, START, STEP, ALLOWS_EXPLICIT)


def show_create_table(spark: SparkSession, table: NamedTable) -> str:
    """The statement, with all that the log says of the table but its data. What it has that SQL cannot say is
    left out: ids and names of column mapping, high-water marks of identity columns."""
    assert table.path is not None
    snapshot = DeltaLog.for_table(table.path).snapshot()
    metadata = snapshot.metadata
    columns = ",\n  ".join(_column(field) for field in with_declared_types(defined_schema(snapshot)).fields)
    parts = [f"CREATE TABLE {table.name} (\n  {columns})", "USING delta"]
    if snapshot.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(map(quoted, snapshot.partition_columns))})")
    if snapshot.clustering_columns:
        parts.append(f"CLUSTER BY ({', '.join(map(quoted_name, snapshot.clustering_columns))})")
    if metadata.description is not None:
        parts.append(f"COMMENT {string(metadata.description)}")
    if not table.name.startswith("delta.`") and spark.catalog.getTable(table.name).tableType != "MANAGED":
        parts.append(f"LOCATION {string(hadoop_path(snapshot.path))}")
    kept = properties_of(snapshot)
    if kept:
        parts.append(f"TBLPROPERTIES {properties(kept)}")
    return "\n".join(parts)


def defined_schema(snapshot: Snapshot) -> T.StructType:
    """The columns as a new table gets them: their physical names and the types that they had are the old
    table's."""
    return without_type_changes(without_mapping(snapshot.schema))


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties by which a new table becomes like this one: its own, and the features that it
    lists. CLUSTER BY brings that of clustered tables."""
    protocol = snapshot.protocol
    listed = listed_features(protocol) - {CLUSTERING}
    own = {name: value for name, value in snapshot.metadata.configuration.items() if name not in _MADE_ANEW}
    return {**own, **{f"delta.feature.{name}": "supported" for name in sorted(listed)}}


def _column(field: T.StructField) -> str:
    known = {key: field.metadata[key] for key in _KEYS if key in field.metadata}
    try:
        data_type = type_text(field.dataType)
    except DeltaUnsupportedOperationException:  # SQL has no words for arrays and maps without nulls inside
        data_type = type_text(nullable_type(field.dataType))
    return column_text(field.name, data_type, field.nullable, known)
