"""Answers Spark's catalog: describes a table by its log, and commits CREATE and REPLACE TABLE.

The catalog's entry of a table holds its name and its location. The schema, the partitioning, the properties
and the comment come from the log each time; those of the entry are ignored.
"""

from __future__ import annotations

from dataclasses import replace

from deltaflow.batch.ddl.messages import (
    LoadedTable,
    LoadTableAnswer,
    LoadTableRequest,
    OtherFormatRequest,
    RefusedRequest,
    RelativePathRequest,
    TableExistsAnswer,
    TableExistsRequest,
)
from deltaflow.batch.ddl.table_definition import TableDefinition
from deltaflow.batch.options import required_path
from deltaflow.batch.read.load_path import LoadPath, load_path, no_table_at, version_number
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import DeltaLog, Operation, Snapshot, remove_files
from deltaflow.log.protocol.column_mapping import visible_schema
from deltaflow.log.protocol.features import listed_features
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.store import table_path


@dispatcher.handle("catalog.load")
def load(request: LoadTableRequest) -> LoadTableAnswer:
    """The table as its log describes it, now or at the version or time that a query names."""
    loaded = _loaded(request)
    log = DeltaLog.for_table(loaded.table_path)
    newest = log.snapshot_if_exists()
    if newest is None:
        if request.may_be_absent:
            return LoadTableAnswer(table=None)
        if request.is_path_of_query:
            raise no_table_at(log.path)
        raise DeltaTableNotFoundError(
            error_class="DELTA_TABLE_NOT_FOUND", table_name=request.name, path=log.path, table=log.path
        )
    version = loaded.version(log)
    snapshot = newest if version is None else log.snapshot_at(version)
    loaded.check_partition(snapshot)
    return LoadTableAnswer(table=_described(snapshot, hadoop_path(table_path(loaded.path)), version))


def _loaded(request: LoadTableRequest) -> LoadPath:
    """The table's path and the version that is asked for, which the path in a query may have as well."""
    path, version, micros = required_path(request.path), request.version, request.as_of_micros
    loaded = load_path(path, {}, request.settings) if request.is_path_of_query else LoadPath(path, path=path)
    if version is None and micros is None:
        return loaded
    if loaded.travels:
        raise DeltaIllegalArgumentException(error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS")
    timestamp_ms = None if micros is None else micros // 1000
    return replace(loaded, version_as_of=version_number(version), timestamp_ms=timestamp_ms)


@dispatcher.handle("catalog.exists")
def exists(request: TableExistsRequest) -> TableExistsAnswer:
    """Whether there is a table at a path."""
    return TableExistsAnswer(exists=DeltaLog.for_table(required_path(request.path)).exists())


@dispatcher.handle("catalog.check")
def check(definition: TableDefinition) -> None:
    """Checks a CREATE or REPLACE before its query runs."""
    definition.check()


@dispatcher.handle("catalog.commit")
def commit(definition: TableDefinition) -> None:
    """CREATE or REPLACE without a query: one commit, or none if the same table exists already."""
    log = DeltaLog.for_table(definition.path)
    transaction = log.start_transaction(definition.settings)
    snapshot = transaction.snapshot
    replaces = definition.operation != "create" and (snapshot is not None or definition.is_in_catalog)
    if snapshot is not None and not replaces:
        definition.check_same_as(snapshot)
        return
    if not definition.schema.fields:
        definition.check_without_columns()
    definition.check_location(exists=snapshot is not None, as_select=False)
    if snapshot is None:
        transaction.require_no_table()
    else:
        transaction.record_read_of_whole_table()
    transaction.clustering.by(definition.clustering_columns)
    metadata = definition.metadata(definition.schema, transaction)
    transaction.update_metadata(metadata, replaces_table=True)
    removes = []
    if snapshot is not None:
        removes = remove_files(snapshot.with_stats(snapshot.files), transaction.log.clock())
    assert transaction.metadata is not None
    parameters = definition.parameters(transaction.metadata)
    transaction.commit(removes, Operation(definition.operation_name(as_select=False), parameters, {}))


@dispatcher.handle("catalog.refuse")
def refuse(request: RefusedRequest) -> None:
    """Refuses a statement that would change a table without a commit in its log."""
    raise DeltaUnsupportedOperationException(
        error_class="DELTA_OPERATION_NOT_ALLOWED_DETAIL",
        operation=request.operation,
        table_name=request.name,
    )


@dispatcher.handle("catalog.refuseOtherFormat")
def refuse_other_format(request: OtherFormatRequest) -> None:
    """Refuses to put a Delta table in the place of a table of another format."""
    raise DeltaAnalysisException(error_class="DELTA_NOT_A_DELTA_TABLE", table_name=request.name)


@dispatcher.handle("catalog.refuseRelativePath")
def refuse_relative_path(request: RelativePathRequest) -> None:
    """Refuses a relative path in a name."""
    path = request.path
    raise DeltaAnalysisException(
        f"delta.`{path}` has a relative path, and in SQL a path begins at the root. Write "
        f"delta.`{table_path(path)}` if that is the table. In Python, load, save and DeltaTable.forPath take "
        "relative paths.",
        error_class="DELTA_NOT_A_DELTA_TABLE",
    )


def _described(snapshot: Snapshot, path: str, version: int | None) -> LoadedTable:
    protocol = snapshot.protocol
    features = listed_features(protocol)
    return LoadedTable(
        path=path,
        version=version,
        schema=visible_schema(snapshot.schema).json(),
        partition_columns=list(snapshot.partition_columns),
        properties={
            **snapshot.metadata.configuration,
            "delta.minReaderVersion": str(protocol.min_reader_version),
            "delta.minWriterVersion": str(protocol.min_writer_version),
            **{f"delta.feature.{name}": "supported" for name in sorted(features)},
        },
        comment=snapshot.metadata.description,
    )
