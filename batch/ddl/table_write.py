"""CREATE TABLE … AS SELECT, REPLACE TABLE … AS SELECT and saveAsTable: a table and its rows in one commit."""

from __future__ import annotations

from typing import Any

import msgspec

from deltaflow.batch.ddl.messages import DefinitionRequest
from deltaflow.batch.ddl.table_definition import TableDefinition
from deltaflow.batch.write.save import DefiningStatement, begin_batch
from deltaflow.log import DeltaLog
from deltaflow.spark.write.file_write import FileWrite, Skip, write_kind


@write_kind("table")
def begin_table(request: dict[str, Any]) -> FileWrite | Skip:
    """The write of a query into the table that its statement defines; see deltaflow.batch.write.save."""
    definition = TableDefinition.of(msgspec.convert(request["definition"], DefinitionRequest))
    exists = DeltaLog.for_table(definition.path).exists()
    definition.check_location(exists=exists, as_select=True)
    write = {
        **request,
        "path": definition.path,
        "partitionBy": definition.partition_columns,
        "statement": DefiningStatement(
            definition.operation_name(as_select=True),
            definition.parameters,
            replaces=definition.operation != "create",
            is_save_as_table=definition.is_save_as_table,
        ),
    }
    if exists and definition.is_save_as_table:
        return begin_batch({**write, "mode": "Overwrite"})
    return begin_batch(
        {
            **write,
            # A table that appears meanwhile is a rival.
            "mode": "ErrorIfExists" if definition.operation == "create" else "Overwrite",
            "replaceTable": definition.operation != "create",
            "properties": definition.properties,
            "comment": definition.comment,
        }
    )
