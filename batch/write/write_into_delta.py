"""`df.write.format("delta")` and SQL's inserts: all save modes are one write.

CREATE TABLE … AS SELECT and similar statements are the same write with a definition of the table
(`Definition`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from deltaflow.batch.arguments import check_predicate
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.options import (
    boolean_option,
    clustering_columns,
    option,
    required_path,
    table_properties,
    unsupported_options,
)
from deltaflow.batch.read.own_scans import oldest_version, scans_of_table
from deltaflow.batch.rows.schema_on_write import DeclaredTable, SchemaRules, fits_by_names, schema_rules
from deltaflow.batch.write.messages import BatchWriteRequest
from deltaflow.batch.write.overwrites import MatchingRows, OverwriteScope, WholeTable, WrittenPartitions
from deltaflow.batch.write.transactional_write import (
    TransactionalWrite,
    WriteOperation,
    begin_write,
)
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaTableAlreadyExistsError,
)
from deltaflow.log import DeltaLog, Metadata, OptimisticTransaction
from deltaflow.log.protocol.properties import (
    DYNAMIC_PARTITION_OVERWRITE_ENABLED,
    REPLACE_WHERE_CHECKS_ROWS,
    REPLACE_WHERE_DATA_COLUMNS_ENABLED,
)
from deltaflow.spark.write.file_write import Skip, begins_write

# Options that would change what is written: they are refused, not ignored.
_NOT_YET = (
    "replaceOn",
    "replaceUsing",
    "targetAlias",
)


@dataclass(frozen=True)
class DefiningStatement:
    """The statement, or the saveAsTable, that makes or replaces the table with the rows of the write."""

    name: str
    parameters: Callable[[Metadata], dict[str, Any]]
    """Makes the parameters in the history from the metadata that the table has after the commit."""
    replaces: bool
    """Whether it may replace a table: REPLACE, CREATE OR REPLACE, saveAsTable in mode overwrite."""
    is_save_as_table: bool


@dataclass(frozen=True)
class Definition:
    """What a statement defines of the table that it makes or replaces with the rows of a write."""

    statement: DefiningStatement
    """The commit names this statement instead of WRITE."""
    partition_by: list[str]
    declared: DeclaredTable | None = None
    """None: the write changes only what the writer's options say."""
    replaces_table: bool = False
    """Whether, in mode Overwrite, the table takes the schema, partitioning, properties and comment of the
    definition. Its id and history stay."""
    cluster_by: Sequence[str] = ()


@begins_write("batch")
def begin_batch(request: BatchWriteRequest) -> TransactionalWrite | Skip:
    """Begins a write into a table by its path, or into a table by name that exists."""
    return begin_write_into_delta(request)


def begin_write_into_delta(
    request: BatchWriteRequest, definition: Definition | None = None
) -> TransactionalWrite | Skip:
    """Begins a write, into the table that a statement defines if there is one."""
    options, settings = request.options, request.settings
    path, mode = required_path(request.path), request.mode
    unsupported_options(options, _NOT_YET, "writing")
    rules = schema_rules(
        options,
        settings,
        store_assignment=request.store_assignment_policy,
        overwrites=mode == "Overwrite",
        by_position=request.by_position or False,
        replaces_table=definition is not None and definition.replaces_table,
        needs_partition_columns=request.by_position is None,  # what a list of columns leaves out is null
        casts_implicitly=request.by_position is not None,
    )
    if definition is not None:
        partition_by = definition.partition_by
    else:
        partition_by = msgspec.json.decode(option(options, "__partition_columns") or "[]")
    idempotent = idempotent_write(options, settings, path)
    transaction = _transaction(request, path)
    if idempotent is not None and idempotent.record_read_and_compare(transaction):
        return Skip(idempotent.settings_to_unset, is_repeated=True)
    if transaction.snapshot is not None:
        if mode == "Ignore":
            return Skip()
        if mode == "ErrorIfExists":
            raise DeltaTableAlreadyExistsError(path=path, table=path)
    elif mode in ("ErrorIfExists", "Ignore"):
        transaction.require_no_table()
    frame_schema = StructType.fromJson(msgspec.json.decode(request.schema))
    if rules.by_position and transaction.snapshot is not None:
        by_name = fits_by_names(frame_schema, transaction.snapshot, rules)
        rules = replace(rules, fields_by_position=not by_name)
    overwrite_scope = _overwrite_scope(request, rules, transaction, partition_by)
    return begin_write(
        frame_schema,
        partition_by,
        options,
        rules=rules,
        operation=_operation(request, definition, rules, overwrite_scope, partition_by),
        transaction=transaction,
        overwrite_scope=overwrite_scope,
        declared=_declared(request, definition),
        application=None if idempotent is None else idempotent.action(transaction),
        settings_to_unset=() if idempotent is None else idempotent.settings_to_unset,
    )


def _transaction(request: BatchWriteRequest, path: str) -> OptimisticTransaction:
    """A transaction that has read what the frame itself reads of the table.

    If the frame scans the written table, the transaction reads the version that the frame scans: a commit
    after that version is a rival, which must not be overwritten unseen.
    """
    log = DeltaLog.for_table(path)
    version = oldest_version(scans_of_table(request.scans, log.path))
    transaction = log.start_transaction(request.settings, read_version=version)
    if version is not None:
        transaction.record_read_of_whole_table()
    return transaction


def _declared(request: BatchWriteRequest, definition: Definition | None) -> DeclaredTable:
    properties = table_properties(request.options)
    if definition is None:
        return DeclaredTable(properties=properties, cluster_by=clustering_columns(request.options))
    declared = definition.declared or DeclaredTable()
    return replace(
        declared, properties={**declared.properties, **properties}, cluster_by=definition.cluster_by
    )


def _overwrite_scope(
    request: BatchWriteRequest,
    rules: SchemaRules,
    transaction: OptimisticTransaction,
    partition_by: list[str],
) -> OverwriteScope:
    options, settings = request.options, request.settings
    if not rules.overwrites:
        return OverwriteScope()
    predicate = option(options, "replaceWhere")
    is_dynamic = _is_dynamic(options, settings, request.partition_overwrite_mode)
    if predicate is not None:
        if is_dynamic and option(options, "partitionOverwriteMode") is not None:
            raise DeltaIllegalArgumentException(
                error_class="DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"
            )
        if not request.has_condition:
            check_predicate(predicate, transaction.path)
        return MatchingRows(
            request.handle,
            predicate,
            is_of_statement=request.has_condition,
            checks_rows=REPLACE_WHERE_CHECKS_ROWS.of(settings, transaction.path),
            data_columns=REPLACE_WHERE_DATA_COLUMNS_ENABLED.of(settings, transaction.path),
            data_change=rules.data_change,
        )
    snapshot = transaction.snapshot
    if snapshot is not None and not rules.overwrite_schema:
        partition_by = list(snapshot.partition_columns)
    if not is_dynamic or not partition_by or rules.replaces_table:
        return WholeTable()
    if rules.overwrite_schema:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"
        )
    return WrittenPartitions()


def _is_dynamic(options: Mapping[str, str], settings: Mapping[str, str], setting_of_session: str) -> bool:
    """The option decides; without it the session's setting decides, as in Spark."""
    mode = option(options, "partitionOverwriteMode") or setting_of_session
    if mode.upper() not in ("STATIC", "DYNAMIC"):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=mode,
            name="partitionOverwriteMode",
            explain="must be 'STATIC' or 'DYNAMIC'",
        )
    if mode.upper() == "DYNAMIC" and not DYNAMIC_PARTITION_OVERWRITE_ENABLED.of(settings):
        raise DeltaIllegalArgumentException(error_class="DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED")
    return mode.upper() == "DYNAMIC"


def _operation(
    request: BatchWriteRequest,
    definition: Definition | None,
    rules: SchemaRules,
    overwrite_scope: OverwriteScope,
    partition_by: list[str],
) -> WriteOperation:
    """delta-spark's DeltaOperations.Write, or the operation of the statement that defines the table."""
    numbers = ("numFiles", "numRemovedFiles" if rules.overwrites else None)
    options = request.options
    predicate = option(options, "replaceWhere")
    rules_of_write = {
        **({} if predicate is None else {"predicate": predicate}),
        **({"isDynamicPartitionOverwrite": True} if isinstance(overwrite_scope, WrittenPartitions) else {}),
        **({"canOverwriteSchema": True} if boolean_option(options, "overwriteSchema") else {}),
        **({"canMergeSchema": True} if rules.merge_schema else {}),
    }
    statement = None if definition is None else definition.statement
    if statement is None or (statement.is_save_as_table and predicate is not None):
        write = {"mode": request.mode, "partitionBy": msgspec.json.encode(partition_by).decode()}
        return WriteOperation("WRITE", lambda _: {**write, **rules_of_write}, numbers)
    if not statement.replaces:
        rules_of_write = {}
    elif statement.is_save_as_table:
        rules_of_write["isV1SaveAsTableOverwrite"] = True
    return WriteOperation(
        statement.name, lambda metadata: {**statement.parameters(metadata), **rules_of_write}, numbers
    )
