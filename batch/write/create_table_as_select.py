"""CREATE TABLE … AS SELECT, REPLACE TABLE … AS SELECT and saveAsTable: a table and its rows in one commit."""

from __future__ import annotations

import msgspec

from deltaflow.batch.ddl.table_definition import TableDefinition
from deltaflow.batch.rows.schema_on_write import DeclaredTable
from deltaflow.batch.write.messages import BatchWriteRequest
from deltaflow.batch.write.write_into_delta import DefiningStatement, Definition, begin_write_into_delta
from deltaflow.log import DeltaLog
from deltaflow.spark.write.file_write import FileWrite, Skip, begins_write


class TableAsSelectRequest(BatchWriteRequest, frozen=True, kw_only=True):
    """write.begin.tableAsSelect: a batch write into the table that a statement defines.

    The definition counts: its path is the table's, and it gives the mode.
    """

    definition: TableDefinition


@begins_write("tableAsSelect")
def begin_table_as_select(request: TableAsSelectRequest) -> FileWrite | Skip:
    """Begins the write of a query's rows into the table that its statement defines."""
    definition = request.definition
    exists = DeltaLog.for_table(definition.path).exists()
    definition.check_location(exists=exists, as_select=True)
    statement = DefiningStatement(
        definition.operation_name(as_select=True),
        definition.parameters,
        replaces=definition.operation != "create",
        is_save_as_table=definition.is_save_as_table,
    )
    replaces = definition.operation != "create"
    if exists and definition.is_save_as_table:
        return begin_write_into_delta(
            msgspec.structs.replace(request, mode="Overwrite"),
            Definition(
                statement,
                definition.partition_columns,
                cluster_by=definition.clustering_columns,
            ),
        )
    return begin_write_into_delta(
        # A table that appears meanwhile is a rival.
        msgspec.structs.replace(request, mode="Overwrite" if replaces else "ErrorIfExists"),
        Definition(
            statement,
            definition.partition_columns,
            DeclaredTable(properties=definition.table_properties, comment=definition.comment),
            replaces_table=replaces,
            cluster_by=definition.clustering_columns,
        ),
    )
