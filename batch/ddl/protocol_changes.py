"""Changes of a table's protocol for the Python API, made by the statements of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.arguments import check_boolean, check_protocol_versions, check_string
from deltaflow.log.protocol.protocols import FEATURE_PREFIX, READER_VERSION, WRITER_VERSION
from deltaflow.spark.sql.statements import NamedTable, run_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def upgrade_protocol(spark: SparkSession, table: NamedTable, reader: int, writer: int) -> None:
    """Gives the protocol all features of these versions; ValueError if they are no integers."""
    check_protocol_versions(reader, writer)
    _set_properties(spark, table, {READER_VERSION: str(reader), WRITER_VERSION: str(writer)})


def add_feature(spark: SparkSession, table: NamedTable, name: str) -> None:
    """Adds a table feature to the protocol."""
    _set_properties(spark, table, {FEATURE_PREFIX + check_string(name, "featureName"): "supported"})


def drop_feature_of(spark: SparkSession, table: NamedTable, name: str, truncate_history: bool | None) -> None:
    """Drops a table feature; see deltaflow.batch.ddl.drop_feature."""
    fields = {
        "featureName": check_string(name, "featureName"),
        "truncateHistory": truncate_history is not None
        and check_boolean(truncate_history, "truncateHistory"),
    }
    run_statement(spark, "DropFeature", table, fields)


def _set_properties(spark: SparkSession, table: NamedTable, properties: dict[str, str]) -> None:
    run_statement(spark, "SetTableProperties", table, {"properties": properties})
