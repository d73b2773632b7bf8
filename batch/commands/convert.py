"""CONVERT TO DELTA: a directory of Parquet files becomes a Delta table where it is (ConvertToDeltaCommand).

One commit makes the table: before its put nothing is in the directory that was not there, and no file of it
is moved or changed at any time. Where a conversion ends early, or another one wins, the next one finds either
a Parquet table or a Delta table, and converts the one and leaves the other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.types import StructType

from deltaflow.batch.arguments import check_string
from deltaflow.batch.commands.parquet_source import properties_of, read_parquet_table
from deltaflow.batch.named_table import at_path, enclosing_table, of_name
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import (
    LOG_DIRECTORY,
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    schema_to_string,
)
from deltaflow.log.protocol.properties import CONVERT_METADATA_CHECK_ENABLED
from deltaflow.spark.expressions.row_operations import delta_settings
from deltaflow.spark.sql.parquet_tables import TableEntry, becomes_delta, describe_table
from deltaflow.spark.sql.statements import NamedTable
from deltaflow.store import table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def converted(spark: SparkSession, identifier: str, partition_columns: str | StructType | None) -> NamedTable:
    """As `convert_to_delta`, of partition columns as DDL, too; the table that it then is."""
    if isinstance(partition_columns, str):
        partition_columns = columns_of_ddl(partition_columns)
    entry = convert_to_delta(spark, check_string(identifier, "identifier"), partition_columns)
    return at_path(entry.path) if entry.name is None else of_name(spark, entry.quoted)


def columns_of_ddl(ddl: str) -> StructType:
    """The columns that a text such as `day DATE, country STRING` defines."""
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    return columns


def convert_to_delta(
    spark: SparkSession,
    identifier: str,
    partition_columns: StructType | None = None,
    *,
    collect_stats: bool = True,
) -> TableEntry:
    """Makes a Delta table of parquet.`path`, or of a Parquet table of the catalog; its entry becomes Delta's.

    Nothing happens to a Delta table. `partition_columns` have to be the catalog's, or the folders'.
    """
    entry = describe_table(spark, identifier)
    if (entry.provider or "").lower() == "delta":
        return entry
    _check_target(entry, identifier)
    log = DeltaLog.for_table(table_path(entry.path))
    transaction = log.start_transaction(delta_settings(spark))
    if transaction.snapshot is None:
        _refuse_part_of_table(entry.path)
        _convert(spark, transaction, entry, partition_columns, collect_stats=collect_stats)
    elif entry.name is not None:
        _merge_properties(transaction, entry)
    if entry.name is not None:
        becomes_delta(spark, entry)
    return entry


def _check_target(entry: TableEntry, identifier: str) -> None:
    if entry.is_view:
        raise DeltaAnalysisException(
            f"Operation not allowed: Converting a view to a Delta table is not supported: {identifier}. "
            "Convert the table that it reads.",
            error_class="DELTA_OPERATION_NOT_ALLOWED",
        )
    if entry.provider is None:
        raise DeltaAnalysisException(error_class="DELTA_MISSING_PROVIDER_FOR_CONVERT", path=entry.path)
    if entry.provider.lower() != "parquet":
        raise DeltaAnalysisException(
            error_class="DELTA_CONVERT_NON_PARQUET_TABLE", source_name=entry.provider, table_id=identifier
        )


def _refuse_part_of_table(path: str) -> None:
    table = enclosing_table(path)
    if table is not None:
        raise DeltaAnalysisException(
            f"Operation not allowed: {path} lies in the Delta table {table}. As a table of its own it would "
            "have files of that one, and could delete them. Name that table, or move the files out of it.",
            error_class="DELTA_OPERATION_NOT_ALLOWED",
            table=str(table),
        )


def _convert(
    spark: SparkSession,
    transaction: OptimisticTransaction,
    entry: TableEntry,
    given: StructType | None,
    *,
    collect_stats: bool,
) -> None:
    transaction.record_read_of_whole_table()
    transaction.require_no_table()
    source = read_parquet_table(spark, entry, given)
    metadata = Metadata(
        id=transaction.log.ids(),
        schema_string=schema_to_string(source.schema),
        partition_columns=source.partition_columns,
        configuration=source.properties,
        created_time=transaction.log.clock(),
    )
    transaction.update_metadata(metadata)
    adds = source.add_actions(transaction.metadata if collect_stats else None)
    parameters: dict[str, str | bool | int | None] = {
        "numFiles": len(adds),
        "partitionedBy": msgspec.json.encode(source.partition_columns).decode(),
        "collectStats": collect_stats,
        **({} if entry.name is None else {"catalogTable": entry.name}),
        "sourceFormat": "parquet",
    }
    try:
        transaction.commit(adds, Operation("CONVERT", parameters, {"numConvertedFiles": str(len(adds))}))
    except BaseException:
        _remove_if_empty(os.path.join(transaction.path, LOG_DIRECTORY))
        raise


def _merge_properties(transaction: OptimisticTransaction, entry: TableEntry) -> None:
    """The directory is a Delta table, and its entry is not yet: the entry's properties go into the log."""
    assert transaction.metadata is not None
    before = transaction.metadata.configuration
    own = properties_of(entry)
    merged = {**before, **own}
    if merged == before:
        return
    if before and CONVERT_METADATA_CHECK_ENABLED.of(transaction.session, transaction.path):
        raise DeltaAnalysisException(
            error_class="DELTA_CONVERT_METASTORE_METADATA_MISMATCH",
            properties=own,
            configuration=dict(before),
            table=transaction.path,
        )
    parameters: dict[str, str | bool | int | None] = {
        "numFiles": 0,
        "partitionedBy": "[]",
        "collectStats": False,
        "catalogTable": entry.name or "",
        "sourceFormat": "parquet",
    }
    transaction.update_metadata(msgspec.structs.replace(transaction.metadata, configuration=merged))
    transaction.commit([], Operation("CONVERT", parameters))


def _remove_if_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:  # it was never made, or another writer's commit is in it
        return
