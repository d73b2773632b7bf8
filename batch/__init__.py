"""The `deltaflow.batch` package. Its folder stands beside `deltaflow` in the repository."""

if __name__ != "deltaflow.batch":
    raise ImportError(
        f"this package is deltaflow.batch, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.batch instead."
    )

# The modules that answer the dispatcher.
from deltaflow.batch.commands import clone, convert, detail, generate, history, restore, vacuum
from deltaflow.batch.ddl import catalog, constraints, drop_feature, table_write
from deltaflow.batch.optimize import optimize
from deltaflow.batch.read import reader
from deltaflow.batch.sql import merge_statement, refused_statements, row_statements, statements
from deltaflow.batch.write import save, writer

__all__ = [
    "catalog",
    "clone",
    "constraints",
    "convert",
    "detail",
    "drop_feature",
    "generate",
    "history",
    "merge_statement",
    "optimize",
    "reader",
    "refused_statements",
    "restore",
    "row_statements",
    "save",
    "statements",
    "table_write",
    "vacuum",
    "writer",
]
