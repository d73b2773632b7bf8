"""The `deltaflow.batch` package. Its folder stands beside `deltaflow` in the repository."""

if __name__ != "deltaflow.batch":
    raise ImportError(
        f"this package is deltaflow.batch, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.batch instead."
    )

# The modules that answer the dispatcher.
from deltaflow.batch.ddl import catalog
from deltaflow.batch.read import change_feed, reader
from deltaflow.batch.sql import (
    alter_table,
    command_statements,
    refused_statements,
    row_statements,
    table_changes,
)
from deltaflow.batch.write import create_table_as_select, write_into_delta

__all__ = [
    "alter_table",
    "catalog",
    "change_feed",
    "command_statements",
    "create_table_as_select",
    "reader",
    "refused_statements",
    "row_statements",
    "table_changes",
    "write_into_delta",
]
