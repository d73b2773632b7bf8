"""CREATE TABLE … AS SELECT, REPLACE TABLE … AS SELECT and saveAsTable: a table and its rows in one commit."""

from __future__ import annotations

import msgspec

from deltaflow.batch.ddl.messages import DefinitionRequest
from deltaflow.batch.ddl.table_definition import TableDefinition
from deltaflow.batch.rows.schema_on_write import DeclaredTable
from deltaflow.batch.write.messages import SaveRequest
from deltaflow.batch.write.save import DefiningStatement, Definition, begin_save
from deltaflow.log import DeltaLog
from deltaflow.spark.write.file_write import FileWrite, Skip, begins_write


class TableWriteRequest(SaveRequest, frozen=True, kw_only=True):
    """write.begin.table: a save into the table that a statement defines, whose path and mode count."""

    definition: DefinitionRequest


@begins_write("table")
def begin_table(request: TableWriteRequest) -> FileWrite | Skip:
    """The write of a query into the table that its statement defines; see deltaflow.batch.write.save."""
    definition = TableDefinition.of(request.definition)
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
        return begin_save(
            msgspec.structs.replace(request, mode="Overwrite"),
            Definition(statement, definition.partition_columns),
        )
    return begin_save(
        # A table that appears meanwhile is a rival.
        msgspec.structs.replace(request, mode="Overwrite" if replaces else "ErrorIfExists"),
        Definition(
            statement,
            definition.partition_columns,
            DeclaredTable(properties=definition.properties, comment=definition.comment),
            replaces_table=replaces,
        ),
    )
