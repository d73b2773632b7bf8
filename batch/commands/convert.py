"""CONVERT TO DELTA: one commit makes a Delta table of a directory of Parquet files (ConvertToDeltaCommand).

No file is moved or changed. If a conversion ends early, or another one wins, the next conversion finds either
a Parquet table, which it converts, or a Delta table, which it leaves as it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.types import StructType

from deltaflow.batch.commands.parquet_source import properties_of, read_parquet_table
from deltaflow.batch.named_table import enclosing_table, named_by_path, table_at_path, table_of_name
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException, StoreError
from deltaflow.log import (
    LOG_DIRECTORY,
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    schema_to_string,
)
from deltaflow.log.protocol.column_mapping import mapping_mode
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MODE, CONVERT_METADATA_CHECK_ENABLED
from deltaflow.spark.expressions.frames import delta_settings
from deltaflow.spark.sql.parquet_tables import TableEntry, describe_table, make_entry_delta
from deltaflow.spark.sql.statements import NamedTable
from deltaflow.store import store_for, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def convert_table(
    spark: SparkSession, identifier: str, partition_columns: str | StructType | None
) -> NamedTable:
    """As `convert_to_delta`, with partition columns that may be DDL. Returns the Delta table."""
    if isinstance(partition_columns, str):
        partition_columns = columns_of_ddl(partition_columns)
    entry = convert_to_delta(spark, identifier, partition_columns)
    if entry.name is not None:
        return table_of_name(spark, entry.quoted)
    # To look for a table that has just been committed could fail, and would seem to be its failure.
    return table_at_path(entry.path) if _is_delta(entry) else named_by_path(entry.path)


def columns_of_ddl(ddl: str) -> StructType:
    """The columns of a text such as `day DATE, country STRING`."""
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
    """Makes a Delta table of parquet.`path`, or of a Parquet table of the catalog, whose entry is changed,
    too.

    A Delta table stays as it is. `partition_columns` have to be those of the catalog or of the folders.
    """
    entry = describe_table(spark, identifier)
    if _is_delta(entry):
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
        make_entry_delta(spark, entry)
    return entry


def _is_delta(entry: TableEntry) -> bool:
    return (entry.provider or "").lower() == "delta"


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
            table=table,
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
    transaction.update_metadata(metadata, keeps_names=True)
    assert transaction.metadata is not None
    mode = mapping_mode(transaction.metadata, transaction.path)
    if mode == "id":  # the files have no ids, by which readers would look for the columns
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
            config=COLUMN_MAPPING_MODE.name,
            mode=mode,
            table=transaction.path,
        )
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
        # It is not there, or has the commit of another writer, or goes. What the commit raised says more than
        # that it is left.
        with suppress(StoreError):
            store, root = store_for(transaction.path)
            store.data_directory(root).delete_if_empty(LOG_DIRECTORY)
        raise


def _merge_properties(transaction: OptimisticTransaction, entry: TableEntry) -> None:
    """Commits the properties of a catalog entry whose directory is a Delta table already."""
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
