"""The streaming sink: every micro-batch is one transaction, like a batch write.

Each batch is written exactly once: its commit holds `txn(appId = query id, version = batch id)`, and a batch
is skipped if the table has its txn already. Source: delta-spark's DeltaSink.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
from pyspark.sql.types import NullType, StructType

from deltaflow.batch.options import clustering_columns, option, required_path, table_properties
from deltaflow.batch.read.own_scans import oldest_version, scans_of_table
from deltaflow.batch.rows.schema_on_write import DeclaredTable, schema_rules
from deltaflow.batch.write.overwrites import WholeTable
from deltaflow.batch.write.transactional_write import (
    TransactionalWrite,
    WriteOperation,
    begin_write,
)
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log import DeltaLog, OptimisticTransaction, SetTransaction
from deltaflow.log.observer import observe
from deltaflow.log.protocol.column_mapping import table_schema
from deltaflow.log.protocol.data_types import types_within
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.write.file_write import Skip, begins_write
from deltaflow.streaming.lost_table import table_is_gone
from deltaflow.streaming.messages import BatchRequest, OpenSinkAnswer, OpenSinkRequest
from deltaflow.streaming.quarantine import begin_quarantine
from deltaflow.streaming.sink_options import check_sink_options
from deltaflow.streaming.skipped_batches import tell_skipped
from deltaflow.streaming.stream_records import record_sink


@dispatcher.handle("sink.open")
def open_sink(request: OpenSinkRequest) -> OpenSinkAnswer:
    """Checks the options and the output mode of a writeStream when it starts; looks whether its table is
    there, by one listing."""
    path, mode = required_path(request.path), request.output_mode
    check_sink_options(request.options, path, mode)
    if mode not in ("Append", "Complete"):
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_UNSUPPORTED_OUTPUT_MODE", source="delta", mode=mode
        )
    return OpenSinkAnswer(has_table=DeltaLog.for_table(path).latest_version() >= 0)


class _WholeTable(WholeTable):
    """Complete mode. As in delta-spark, a stream's metrics count no removed bytes."""

    def metrics(self, removed: pa.Table, copied_rows: int) -> dict[str, int]:
        return {}


@begins_write("stream")
def begin_batch(request: BatchRequest) -> TransactionalWrite | Skip:
    """Begins the write of a micro-batch, or skips it if the table has it already."""
    path, query_id, batch_id = required_path(request.path), request.query_id, request.batch_id
    observe("offset written", path=path, query_id=query_id, batch_id=batch_id)
    log = DeltaLog.for_table(path)
    if request.checkpoint is not None:
        record_sink(request.checkpoint, log.path, request.output_mode, request.options)
    transaction = _transaction(request, log)
    if request.had_table and transaction.snapshot is None:
        raise table_is_gone(log.path, batch_id)
    committed = transaction.record_read_of_txn(query_id)
    if committed is not None and committed >= batch_id:
        tell_skipped(path, query_id, batch_id, committed)
        return Skip(is_repeated=True)
    mode, options, schema = request.output_mode, request.options, _schema(request.schema, path)
    operation = WriteOperation(
        "STREAMING UPDATE",
        lambda _: {"outputMode": mode, "queryId": query_id, "epochId": str(batch_id)},
        ("numAddedFiles", "numRemovedFiles"),
        _source_offsets(request.offsets),
    )
    writer = begin_write(
        schema,
        request.partition_by,
        options,
        rules=schema_rules(
            options,
            request.settings,
            store_assignment=request.store_assignment_policy,
            overwrites=mode == "Complete",
            casts_implicitly=True,
        ),
        overwrite_scope=_WholeTable() if mode == "Complete" else None,
        operation=operation,
        transaction=transaction,
        declared=DeclaredTable(properties=table_properties(options), cluster_by=clustering_columns(options)),
        application=SetTransaction(app_id=query_id, version=batch_id, last_updated=transaction.log.clock()),
    )
    quarantine_path = option(options, "quarantinePath")
    if quarantine_path is not None:
        place = required_path(quarantine_path)
        assert transaction.metadata is not None
        table = table_schema(transaction.metadata, table=path)
        writer.quarantine = begin_quarantine(request, place, schema, writer.rows, table, operation)
    return writer


def _transaction(request: BatchRequest, log: DeltaLog) -> OptimisticTransaction:
    """A transaction that has read what the query itself reads of the table.

    Spark has planned the batch: what it scans of the table that it writes is of the version that was the
    newest then. A commit after that version is a rival. What Spark has cached stays as it is for all batches.
    """
    scans = scans_of_table(request.scans, log.path)
    version = oldest_version(scan for scan in scans if not scan.get("cached"))
    transaction = log.start_transaction(request.settings, read_version=version)
    if scans:
        transaction.record_read_of_whole_table()
    return transaction


def _source_offsets(entry: str | None) -> list[str] | None:
    """The offsets in an entry of Spark's offset log, whose first two lines are version and metadata."""
    return None if entry is None else entry.splitlines()[2:]


def _schema(json: str, path: str) -> StructType:
    schema = StructType.fromJson(msgspec.json.decode(json))
    for column in (name for name, data_type in types_within(schema) if isinstance(data_type, NullType)):
        raise DeltaAnalysisException(
            error_class="DELTA_NULL_SCHEMA_IN_STREAMING_WRITE", table=path, column=column
        )
    return schema
