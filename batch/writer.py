"""Writes data files into a table as one commit; batch saves and the streaming sink both come through here.

A write is one transaction: `begin` reads the table and decides what may be written, Spark writes
the files, `commit` takes their statistics from the footers and commits. Per write: one listing of
the log (the commits since the last one are read), one footer a file, one put.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltaflow.batch.data_files import DataFiles
from deltaflow.batch.file_layout import file_options, optimized_write_bytes
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.options import (
    boolean_option,
    option,
    required_path,
    table_properties,
    unsupported_options,
)
from deltaflow.errors import (
    DeltaTableAlreadyExistsError,
    DeltaUnsupportedOperationException,
    SchemaMismatchError,
)
from deltaflow.log import (
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    RemoveFile,
    SetTransaction,
    Snapshot,
    as_nullable,
    check_append_schema,
    check_partitioning,
    check_writable_schema,
    remove_files,
    schema_to_string,
)
from deltaflow.log.features import check_writable, is_append_only
from deltaflow.log.isolation import isolation_of_table
from deltaflow.log.observer import observe
from deltaflow.spark.write import Skip, WrittenFile, write_kind

_LOG = logging.getLogger(__name__)

# Each would change what is written; so none is passed over in silence.
NOT_YET = (
    "mergeSchema",
    "overwriteSchema",
    "replaceWhere",
    "partitionOverwriteMode",
)


@dataclass(frozen=True)
class OperationOfWrite:
    """How a commit names itself (commitInfo): name and parameters, and the names of its metrics."""

    name: str
    parameters: dict[str, str]
    numbers_of_files: tuple[str, str | None]
    """Names of the metrics for added and removed files."""
    source_offsets: list[str] | None = None
    """Of a stream's batch. See deltaflow.log.Operation."""


class TableWriter:
    """One write: what `begin` decided, waiting for its files. See deltaflow.spark.write.FileWrite."""

    def __init__(
        self,
        transaction: OptimisticTransaction,
        table_schema: StructType,
        frame_schema: StructType,
        partition_columns: Sequence[str],
        options: Mapping[str, str],
        *,
        overwrite: bool,
        operation: OperationOfWrite,
        application: SetTransaction | None = None,
        settings_to_unset: Sequence[str] = (),
    ) -> None:
        self.path = transaction.log.path
        self.partition_columns = tuple(partition_columns)
        self.written_schema = _written_schema(table_schema, frame_schema, self.path)
        self.file_options = file_options(options, self.path)
        self.settings_to_unset = settings_to_unset
        assert transaction.metadata is not None
        self.optimized_write_bytes = optimized_write_bytes(
            options, transaction.session, transaction.metadata.configuration, self.path
        )
        self._data_files = DataFiles(transaction.metadata, self.path)
        self.folder = self._data_files.folder
        self._transaction = transaction
        self._overwrite = overwrite
        self._operation = operation
        self._application = application
        self._user_metadata = option(options, "userMetadata")

    def commit(self, files: Sequence[WrittenFile]) -> None:
        """Commits the files, and in an overwrite the removal of all that the transaction read."""
        observe("files written", path=self.path, files=len(files))
        adds, rows = self._data_files.add_actions(files)
        actions: list[Any] = [] if self._application is None else [self._application]
        actions += adds
        removes = self._removes()
        actions += removes
        added, removed = self._operation.numbers_of_files
        metrics = {
            **({removed: str(len(removes))} if removed else {}),
            added: str(len(adds)),
            "numOutputRows": str(rows),
            "numOutputBytes": str(sum(add.size for add in adds)),
        }
        version = self._transaction.commit(
            actions,
            operation=Operation(
                self._operation.name,
                self._operation.parameters,
                metrics,
                source_offsets=self._operation.source_offsets,
                user_metadata=self._user_metadata,
            ),
        ).version
        observe("write committed", path=self.path, version=version)
        _LOG.info("%s: version %s with %s files, %s rows", self.path, version, len(adds), rows)

    def cancel(self) -> None:
        """No commit of this write appears after this has returned."""
        self._transaction.cancel()

    def _removes(self) -> list[RemoveFile]:
        snapshot = self._transaction.snapshot
        if not self._overwrite or snapshot is None:
            return []
        return remove_files(snapshot.files, self._transaction.log.clock())


def begin_write(
    path: str | None,
    frame_schema: StructType,
    partition_by: Sequence[str],
    options: Mapping[str, str],
    *,
    overwrite: bool,
    operation: OperationOfWrite,
    transaction: OptimisticTransaction,
    application: SetTransaction | None = None,
    settings_to_unset: Sequence[str] = (),
) -> TableWriter:
    """Checks a write against the table, or makes the metadata of a new one.

    Raises SchemaMismatchError, SchemaError or UnsupportedFeatureError before any file is written.
    """
    snapshot = transaction.snapshot
    if snapshot is None:
        table_schema = _schema_of_new_table(frame_schema)
        partition_columns = check_writable_schema(table_schema, partition_by, table=path)
        transaction.update_metadata(
            Metadata(
                id=transaction.log.ids(),
                schema_string=schema_to_string(table_schema),
                partition_columns=partition_columns,
                configuration=table_properties(options),
                created_time=transaction.log.clock(),
            )
        )
    else:
        check_writable(snapshot.protocol, snapshot.metadata, transaction.log.path, snapshot.version)
        isolation_of_table(snapshot.metadata, transaction.log.path)  # a wrong value would stop the commit
        if overwrite and is_append_only(snapshot.metadata):
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=transaction.log.path
            )
        table_schema = snapshot.schema
        partition_columns = list(snapshot.partition_columns)
        check_writable_schema(frame_schema, table=path)
        check_writable_schema(table_schema, partition_columns, table=path)
        if partition_by:
            check_writable_schema(frame_schema, partition_by, table=path)
            check_partitioning(partition_columns, partition_by, table=path)
        check_append_schema(table_schema, frame_schema, table=path)
    if overwrite:
        transaction.read_whole_table()
    return TableWriter(
        transaction,
        table_schema,
        frame_schema,
        partition_columns,
        options,
        overwrite=overwrite,
        operation=operation,
        application=application,
        settings_to_unset=settings_to_unset,
    )


@write_kind("batch")
def begin_batch(request: dict[str, Any]) -> TableWriter | Skip:
    """`df.write.format("delta").save(path)` in Spark's four modes."""
    options = request["options"]
    path = required_path(request["path"])
    unsupported_options(options, NOT_YET, "writing")
    if option(options, "dataChange") is not None and not boolean_option(options, "dataChange"):
        raise DeltaUnsupportedOperationException(
            "writing with option dataChange=false is not supported yet. Remove it",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )
    if option(options, "__clustering_columns") is not None:
        raise DeltaUnsupportedOperationException(
            "writing with clusterBy is not supported yet. Remove it, or use partitionBy",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )
    partition_by = msgspec.json.decode(option(options, "__partition_columns") or "[]")
    idempotent = idempotent_write(options, request["settings"], path)
    transaction = _transaction(request, path)
    if idempotent is not None and idempotent.is_done(transaction):
        return Skip(idempotent.settings_to_unset)
    mode = request["mode"]
    if transaction.snapshot is not None:
        if mode == "Ignore":
            return Skip()
        if mode == "ErrorIfExists":
            raise DeltaTableAlreadyExistsError(path=path, table=path)
    elif mode != "Append":
        transaction.read_whole_table()  # a table that appears meanwhile is not to be appended to
    partition_columns = _partitioning(transaction.snapshot, partition_by)
    if mode == "Overwrite" and partition_columns:
        _refuse_dynamic_overwrite(options, request["partitionOverwriteMode"])
    return begin_write(
        path,
        StructType.fromJson(msgspec.json.decode(request["schema"])),
        partition_by,
        options,
        overwrite=mode == "Overwrite",
        operation=OperationOfWrite(
            "WRITE",
            {
                "mode": mode,
                "partitionBy": msgspec.json.encode(partition_columns).decode(),
            },
            ("numFiles", "numRemovedFiles" if mode == "Overwrite" else None),
        ),
        transaction=transaction,
        application=None if idempotent is None else idempotent.action(transaction),
        settings_to_unset=() if idempotent is None else idempotent.settings_to_unset,
    )


def own_scans(request: dict[str, Any], log: DeltaLog) -> list[dict[str, Any]]:
    """The descriptions of those scans in the frame's plan that read the table which is written."""
    scans = [msgspec.json.decode(scan) for scan in request["scans"]]
    return [scan for scan in scans if scan["path"] == log.path]


def _transaction(request: dict[str, Any], path: str) -> OptimisticTransaction:
    """A transaction that has read what the frame reads of the table itself.

    A frame scans the version that it was loaded at: whatever was committed since is a rival, and not to
    be overwritten unseen. A version that was asked for by number is the past, and depends on nothing.
    """
    log = DeltaLog.for_table(path)
    versions = [scan["version"] for scan in own_scans(request, log) if not scan.get("timeTravel", True)]
    if not versions:
        return log.start_transaction(request["settings"])
    transaction = log.start_transaction(request["settings"], read_version=min(versions))
    transaction.read_whole_table()
    return transaction


def _refuse_dynamic_overwrite(options: Mapping[str, str], setting_of_session: str) -> None:
    """The option itself is refused with the others; without it the session's setting holds, as in Spark."""
    if option(options, "partitionOverwriteMode") is None and setting_of_session.upper() == "DYNAMIC":
        raise DeltaUnsupportedOperationException(
            "the session's setting spark.sql.sources.partitionOverwriteMode=dynamic asks to overwrite only "
            "the partitions that the data has, which is not supported yet. Set it to static, or write with "
            "option partitionOverwriteMode=static, to overwrite the whole table",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )


def _partitioning(snapshot: Snapshot | None, given: Sequence[str]) -> list[str]:
    return list(given) if snapshot is None else list(snapshot.partition_columns)


def _schema_of_new_table(frame_schema: StructType) -> StructType:
    """The frame's schema, all nullable, and of the columns' metadata the comments alone: the rest is
    Spark's own (watermarks) or belongs to the table that the frame was read from."""
    fields = []
    for f in as_nullable(frame_schema).fields:
        comment = {key: value for key, value in f.metadata.items() if key == "comment"}
        if "__CHAR_VARCHAR_TYPE_STRING" in f.metadata:  # not to be lost before it is refused
            comment["__CHAR_VARCHAR_TYPE_STRING"] = f.metadata["__CHAR_VARCHAR_TYPE_STRING"]
        fields.append(StructField(f.name, f.dataType, True, comment))
    return StructType(fields)


def _written_schema(table: StructType, frame: StructType, path: str) -> StructType:
    """The frame's columns in its order under the table's names and types.

    Spark's rows are positional, so within a nested type the order must be the table's; and elements that
    the table declares free of nulls must be so in the frame, as nothing checks the rows.
    """
    by_name = {f.name.lower(): f for f in table.fields}
    fields = []
    for f in frame.fields:
        target = by_name[f.name.lower()]
        _check_inside(target.dataType, f.dataType, target.name, path)
        fields.append(StructField(target.name, target.dataType))
    return as_nullable(StructType(fields))


def _check_inside(table: DataType, frame: DataType, column: str, path: str) -> None:
    match table, frame:
        case StructType(), StructType():
            if [f.name.lower() for f in table.fields] != [f.name.lower() for f in frame.fields]:
                raise SchemaMismatchError(
                    f"The fields of column {column} are in another order than the table's "
                    f"({', '.join(table.names)}). Select them in that order",
                    table=path,
                    column=column,
                )
            for ours, theirs in zip(table.fields, frame.fields, strict=True):
                _check_inside(ours.dataType, theirs.dataType, f"{column}.{ours.name}", path)
        case ArrayType(), ArrayType():
            _check_nulls_inside(table.containsNull, frame.containsNull, "elements", column, path)
            _check_inside(table.elementType, frame.elementType, f"{column}.element", path)
        case MapType(), MapType():
            _check_nulls_inside(table.valueContainsNull, frame.valueContainsNull, "values", column, path)
            _check_inside(table.keyType, frame.keyType, f"{column}.key", path)
            _check_inside(table.valueType, frame.valueType, f"{column}.value", path)


def _check_nulls_inside(table: bool, frame: bool, what: str, column: str, path: str) -> None:
    if frame and not table:
        raise SchemaMismatchError(
            f"The {what} of column {column} may not be null in the table, and may be in the data",
            table=path,
            column=column,
        )
