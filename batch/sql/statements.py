"""SQL statements on Delta tables that commit to the log, or answer from it.

A further statement is one more function here, or in a module of its own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructField

from deltaflow.batch.ddl.columns import (
    ColumnChange,
    NewColumn,
    add_columns,
    change_columns,
    column_field,
    data_type,
    replace_columns,
)
from deltaflow.batch.ddl.table_properties import set_properties, unset_properties
from deltaflow.batch.files.partitions import partition_folders
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.protocol.features import check_writable
from deltaflow.spark.sql.statements import Rows, Statement, refused, statement


@statement("SetTableProperties", changes=True)
def _set_properties(statement: Statement) -> Rows:
    set_properties(_log(statement), statement.fields["properties"], statement.settings)
    return ()


@statement("UnsetTableProperties", changes=True)
def _unset_properties(statement: Statement) -> Rows:
    fields = statement.fields
    unset_properties(_log(statement), fields["propertyKeys"], fields["ifExists"], statement.settings)
    return ()


@statement("CommentOnTable", changes=True)
def _comment(statement: Statement) -> Rows:
    set_properties(_log(statement), {"comment": statement.fields["comment"]}, statement.settings)
    return ()


@statement("AddColumns", changes=True)
def _add_columns(statement: Statement) -> Rows:
    columns = [
        NewColumn(
            () if column["path"] is None else column["path"]["name"],
            _field(statement, column),
            _position(column["position"]),
        )
        for column in statement.fields["columnsToAdd"]
    ]
    add_columns(_log(statement), columns, statement.settings)
    return ()


@statement("ReplaceColumns", changes=True)
def _replace_columns(statement: Statement) -> Rows:
    columns = [_field(statement, column) for column in statement.fields["columnsToAdd"]]
    replace_columns(_log(statement), columns, statement.settings)
    return ()


@statement("AlterColumns", changes=True)
def _change_columns(statement: Statement) -> Rows:
    changes = []
    for spec in statement.fields["specs"]:
        _refuse_default(statement, spec)
        change = ColumnChange(
            spec["column"]["name"],
            None if spec["newDataType"] is None else data_type(spec["newDataType"]),
            spec["newNullability"],
            "" if spec.get("dropComment") else spec["newComment"],
            _position(spec["newPosition"]),
        )
        changes.append(change)
    change_columns(_log(statement), changes, statement.settings)
    return ()


@statement("TruncateTable", changes=True)
def _truncate(statement: Statement) -> Rows:
    log = _log(statement)
    snapshot = log.snapshot()
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    transaction = log.start_transaction(statement.settings, read_version=snapshot.version)
    transaction.read_whole_table()
    removes = remove_files(snapshot.files, transaction.log.clock())
    transaction.commit(removes, Operation("TRUNCATE", {}, {"numRemovedFiles": str(len(removes))}))
    return ()


@statement("ShowColumns", table="child")
def _show_columns(statement: Statement) -> Rows:
    return [(name,) for name in _log(statement).snapshot().schema.names]


@statement("ShowPartitions")
def _show_partitions(statement: Statement) -> Rows:
    snapshot = _log(statement).snapshot()
    if not snapshot.partition_columns:
        raise DeltaAnalysisException(
            error_class="DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE", table_name=snapshot.path
        )
    pattern = statement.fields["pattern"]
    return [(folder,) for folder in partition_folders(snapshot, {} if pattern is None else pattern["spec"])]


def _log(statement: Statement) -> DeltaLog:
    return DeltaLog.for_table(statement.path)


def _position(position: dict[str, Any] | None) -> str | None:
    return None if position is None else str(position["position"])


def _field(statement: Statement, column: dict[str, Any]) -> StructField:
    _refuse_default(statement, column)
    return column_field(
        column["colName"], column["dataType"], nullable=column["nullable"], comment=column["comment"]
    )


def _refuse_default(statement: Statement, column: dict[str, Any]) -> None:
    # Spark 4.0 says DROP DEFAULT as an empty text, later ones as a flag.
    if any(value not in (None, False) for key, value in column.items() if "default" in key.lower()):
        raise refused("a column with DEFAULT", statement.table, "Leave DEFAULT out: it is not built yet.")
