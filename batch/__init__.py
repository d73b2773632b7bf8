"""The `deltaflow.batch` package. Its folder stands beside `deltaflow` in the repository."""

if __name__ != "deltaflow.batch":
    raise ImportError(
        f"this package is deltaflow.batch, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.batch instead."
    )

from deltaflow.batch import (
    catalog,
    clone,
    constraints,
    convert,
    detail,
    drop_feature,
    generate,
    history,
    merge_statement,
    optimize,
    reader,
    restore,
    row_statements,
    save,
    statements,
    table_write,
    vacuum,
    writer,
)

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
    "restore",
    "row_statements",
    "save",
    "statements",
    "table_write",
    "vacuum",
    "writer",
]
