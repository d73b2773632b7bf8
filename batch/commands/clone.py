"""SHALLOW CLONE: makes a table that shares the files of another one (delta-spark's CloneTableCommand).

The clone's log names the source's files by absolute paths. Writes to the clone go to its own directory;
deletes change its log, and never the source's directory. If a VACUUM of the source deletes the files of a
version, the clones of that version lose them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.types import LongType

from deltaflow.arguments import check_clone
from deltaflow.batch.commands.clone_target import CloneTarget
from deltaflow.batch.commands.parquet_source import read_parquet_table
from deltaflow.batch.named_table import table_at_path, table_of_name
from deltaflow.batch.read.load_path import version_number
from deltaflow.batch.result_rows import schema_of
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalStateException
from deltaflow.log import (
    AddFile,
    DeletionVectorDescriptor,
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    Protocol,
    Snapshot,
    add_files,
    schema_to_string,
)
from deltaflow.log.files.data_path import absolute_uris, encoded_uri, hadoop_path
from deltaflow.log.files.deletion_vectors import vector_uri
from deltaflow.log.protocol.column_assignment import with_mapped_columns
from deltaflow.log.protocol.column_mapping import mapping_mode
from deltaflow.log.protocol.configuration import canonical_name, checked_name, with_checked_properties
from deltaflow.log.protocol.identity_columns import with_marks_of
from deltaflow.log.protocol.properties import RESTORE_PROTOCOL_DOWNGRADE_ALLOWED
from deltaflow.log.protocol.protocols import merged_protocol, protocol_for, without_protocol_properties
from deltaflow.log.protocol.row_tracking import with_row_id_columns
from deltaflow.log.replay.log_files import system_clock
from deltaflow.spark.expressions.timestamps import timestamp_of_text
from deltaflow.spark.sql.parquet_tables import describe_table
from deltaflow.spark.sql.sql_text import name_parts
from deltaflow.spark.sql.statements import NamedTable, run_statement
from deltaflow.store import is_absolute_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLONED = schema_of(
    source_table_size=LongType(),
    source_num_of_files=LongType(),
    num_removed_files=LongType(),
    num_copied_files=LongType(),
    removed_files_size=LongType(),
    copied_files_size=LongType(),
)
"""The output of SHALLOW CLONE."""
_METRICS = (
    "sourceTableSize",
    "sourceNumOfFiles",
    "numRemovedFiles",
    "numCopiedFiles",
    "removedFilesSize",
    "copiedFilesSize",
)
"""The same numbers by their names in commitInfo."""
# These properties refer to versions of the source.
_OF_HISTORY = (
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
    "delta.requireCheckpointProtectionBeforeVersion",
)


def clone(
    spark: SparkSession,
    source: NamedTable,
    target: str,
    shallow: bool,
    replace: bool,
    properties: dict[str, str] | None,
    *,
    version: int | None = None,
    timestamp: str | None = None,
) -> NamedTable:
    """Clones the table as SQL does, and returns the clone. `target` is an absolute path or a name."""
    check_clone(target, shallow, replace, properties)
    is_path = is_absolute_path(target)
    fields = {
        "target": ["delta", target] if is_path else name_parts(spark, target),
        "replace": replace,
        "version": version,
        "timestamp": timestamp,
        "properties": properties or {},
    }
    run_statement(spark, "ShallowClone", source, fields)
    return table_at_path(target) if is_path else table_of_name(spark, target)


@dataclass(frozen=True)
class _CloneSource:
    """The source of a clone: its name and version, and the add actions for the clone's log."""

    name: str
    version: int
    metadata: Metadata
    protocol: Protocol
    size_in_bytes: int
    adds: list[AddFile]
    snapshot: Snapshot | None = None
    """The version of a Delta table."""


def shallow_clone(
    spark: SparkSession,
    source: NamedTable | str,
    target: CloneTarget,
    properties: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    version: int | str | None = None,
    timestamp: str | None = None,
) -> tuple[int, ...]:
    """Clones a Delta table, or the Parquet table of a name. Returns the row of CLONED."""
    if isinstance(source, str):
        if version is not None or timestamp is not None:
            raise DeltaAnalysisException(
                f"{source} is a Parquet table, and has no versions: leave VERSION or TIMESTAMP AS OF out.",
                error_class="DELTA_CLONE_UNSUPPORTED_SOURCE",
            )
        found = _parquet_source(spark, source)
    else:
        found = _delta_source(spark, source, version, timestamp)
    return _commit(spark, found, target, properties, settings)


def _delta_source(
    spark: SparkSession, table: NamedTable, version: int | str | None, timestamp: str | None
) -> _CloneSource:
    assert table.path is not None
    log = DeltaLog.for_table(table.path)
    number = None if version is None else version_number(str(version))
    if timestamp is not None:
        number = log.version_at_timestamp(timestamp_of_text(timestamp, spark).ms)
    snapshot = log.snapshot() if number is None else log.snapshot_at(number)
    return _CloneSource(
        table.name,
        snapshot.version,
        snapshot.metadata,
        snapshot.protocol,
        snapshot.size_in_bytes,
        _adds(snapshot),
        snapshot,
    )


def _parquet_source(spark: SparkSession, name: str) -> _CloneSource:
    """A Parquet table by name or as parquet.`path`. Statistics are collected from its files.

    DELTA_CLONE_UNSUPPORTED_SOURCE for any other name.
    """
    entry = describe_table(spark, name)
    name = entry.name or f"{entry.provider}.`{entry.path}`"
    provider = "View" if entry.is_view else entry.provider or "Unknown"
    if provider.lower() != "parquet":
        raise DeltaAnalysisException(error_class="DELTA_CLONE_UNSUPPORTED_SOURCE", name=name, format=provider)
    source = read_parquet_table(spark, entry)
    metadata = Metadata(
        id="",
        schema_string=schema_to_string(source.schema),
        partition_columns=source.partition_columns,
        configuration=source.properties,
        created_time=system_clock(),
    )
    adds = source.add_actions(metadata, encoded_uri(hadoop_path(source.files.root) + "/"))
    protocol = protocol_for(metadata, None, source.files.root)
    return _CloneSource(name, -1, metadata, protocol, source.size_in_bytes, adds)


def _adds(snapshot: Snapshot) -> list[AddFile]:
    column = snapshot.files.schema.get_field_index("path")
    paths = absolute_uris(snapshot.path, snapshot.files["path"])
    files = snapshot.files.set_column(column, snapshot.files.schema.field("path"), paths)
    # The rows of a clone get row ids of their own.
    return [
        msgspec.structs.replace(
            add,
            base_row_id=None,
            default_row_commit_version=None,
            deletion_vector=_absolute(add.deletion_vector, snapshot.path),
        )
        for add in add_files(files)
    ]


def _absolute(vector: DeletionVectorDescriptor | None, root: str) -> DeletionVectorDescriptor | None:
    """The deletion vector, whose file another table can name."""
    if vector is None or vector.storage_type != "u":
        return vector
    uri = vector_uri(vector.storage_type, vector.path_or_inline_dv)
    [path] = absolute_uris(root, pa.chunked_array([[uri]], pa.string())).to_pylist()
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=path)


def _commit(
    spark: SparkSession,
    source: _CloneSource,
    target: CloneTarget,
    properties: Mapping[str, str],
    settings: Mapping[str, str],
) -> tuple[int, ...]:
    """Commits the clone, and makes its entry in the catalog. Returns the row of CLONED."""
    transaction = DeltaLog.for_table(target.path).start_transaction(settings)
    transaction.record_read_of_whole_table()
    if transaction.snapshot is None:
        transaction.require_no_table()
    elif transaction.snapshot.num_files:
        raise DeltaIllegalStateException(error_class="DELTA_UNSUPPORTED_NON_EMPTY_CLONE", table=target.path)
    transaction.update_protocol(*_protocol_and_metadata(transaction, source, properties))
    if source.snapshot is not None:
        transaction.clustering.as_in(source.snapshot)
    row = (source.size_in_bytes, len(source.adds), 0, 0, 0, 0)
    metrics = {name: str(number) for name, number in zip(_METRICS, row, strict=True)}
    parameters: dict[str, str | bool | int | None] = {"source": source.name, "sourceVersion": source.version}
    transaction.commit(source.adds, Operation("CLONE", parameters, metrics))
    target.update_catalog(spark)
    return row


def _protocol_and_metadata(
    transaction: OptimisticTransaction, source: _CloneSource, properties: Mapping[str, str]
) -> tuple[Protocol, Metadata]:
    """The clone's metadata is the source's with an id of its own, and with the statement's properties above
    the source's. Its protocol supports what the source, the properties and the target's earlier versions
    need."""
    path, before = transaction.path, transaction.snapshot
    own = {checked_name(name, value, transaction.session, path): value for name, value in properties.items()}
    inherited = {
        name: value for name, value in source.metadata.configuration.items() if name not in _OF_HISTORY
    }
    kept = {} if before is None else before.metadata.configuration
    of_history = {name: kept[name] for name in _OF_HISTORY if name in kept}
    metadata = msgspec.structs.replace(
        source.metadata,
        id=transaction.log.ids() if before is None else before.metadata.id,
        name=None if before is None else before.metadata.name,
        description=None if before is None else before.metadata.description,
        configuration={
            **{canonical_name(name): value for name, value in inherited.items()},
            **of_history,
            **own,
        },
    )
    metadata = with_checked_properties(metadata, inherited, transaction.session, path)
    if mapping_mode(metadata, path) != mapping_mode(source.metadata, path):
        metadata = with_mapped_columns(metadata, source.metadata, transaction.log.ids, path)
    if before is not None:
        metadata = with_marks_of(metadata, before.metadata, path)
    protocol = protocol_for(metadata, source.protocol, path)
    own_metadata = None if before is None else before.metadata
    metadata = with_row_id_columns(metadata, own_metadata, protocol, transaction.log.ids, path)
    if before is not None and not RESTORE_PROTOCOL_DOWNGRADE_ALLOWED.of(transaction.session, path):
        protocol = merged_protocol(protocol, before.protocol)
    return protocol, without_protocol_properties(metadata)
