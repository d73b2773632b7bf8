"""Tables by name, as Spark's catalog asks: what a table is now, and what a CREATE or REPLACE makes of it.

The catalog's entry of a table holds its name and its location. Schema, partitioning, properties and
comment are the log's, here and now: an entry that says otherwise is never believed.
"""

from __future__ import annotations

from dataclasses import replace

from deltaflow.batch.ddl.messages import (
    DefinitionRequest,
    LoadedTable,
    LoadTableAnswer,
    LoadTableRequest,
    OtherFormatRequest,
    RefusedRequest,
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
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.store import table_path


@dispatcher.handle("catalog.load")
def load(request: LoadTableRequest) -> LoadTableAnswer:
    """A table as its log has it, now or at the version or time that a query names.

    None without a table, if the request says that it may be so.
    """
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
    """Where the table is, and the version that is asked for. A query that names a path may say both there."""
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
def check(request: DefinitionRequest) -> None:
    """Refuses a CREATE or REPLACE that cannot be, before its query runs."""
    TableDefinition.of(request).check()


@dispatcher.handle("catalog.commit")
def commit(request: DefinitionRequest) -> None:
    """CREATE or REPLACE without a query: one commit, or none where there is the same table already."""
    definition = TableDefinition.of(request)
    log = DeltaLog.for_table(definition.path)
    transaction = log.start_transaction(definition.settings)
    snapshot = transaction.snapshot
    replaces = definition.operation != "create" and (snapshot is not None or definition.is_in_catalog)
    if snapshot is not None and not replaces:
        definition.check_same_as(snapshot)
        return
    definition.check_location(exists=snapshot is not None, as_select=False)
    if not definition.schema.fields:
        raise definition.without_schema(log.path)
    if snapshot is None:
        transaction.require_no_table()
    else:
        transaction.record_read_of_whole_table()
    metadata = definition.metadata(definition.schema, transaction)
    transaction.update_metadata(metadata)
    removes = [] if snapshot is None else remove_files(snapshot.files, transaction.log.clock())
    assert transaction.metadata is not None
    parameters = definition.parameters(transaction.metadata)
    transaction.commit(removes, Operation(definition.operation_name(as_select=False), parameters, {}))


@dispatcher.handle("catalog.refuse")
def refuse(request: RefusedRequest) -> None:
    """A statement that would go past the log."""
    raise DeltaUnsupportedOperationException(
        error_class="DELTA_OPERATION_NOT_ALLOWED_DETAIL",
        operation=request.what,
        table_name=request.table,
    )


@dispatcher.handle("catalog.refuseOtherFormat")
def refuse_other_format(request: OtherFormatRequest) -> None:
    """A Delta table in the place of a table of another format."""
    raise DeltaAnalysisException(error_class="DELTA_NOT_A_DELTA_TABLE", table_name=request.table)


def _described(snapshot: Snapshot, path: str, version: int | None) -> LoadedTable:
    protocol = snapshot.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return LoadedTable(
        path=path,
        version=version,
        schema=snapshot.schema.json(),
        partition_columns=list(snapshot.partition_columns),
        properties={
            **snapshot.metadata.configuration,
            "delta.minReaderVersion": str(protocol.min_reader_version),
            "delta.minWriterVersion": str(protocol.min_writer_version),
            **{f"delta.feature.{name}": "supported" for name in sorted(features)},
        },
        comment=snapshot.metadata.description,
    )
