"""REORG TABLE … APPLY (PURGE): which files hold rows or columns that are no longer in the table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log import Snapshot
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.files.footers import arrow_schemas
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.properties import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)

_MATERIALIZED = (MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN)
"""The properties that name the columns of row tracking, which are in files and not in the schema."""


def files_to_purge(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """Those of `files`, rows of the snapshot's `files`, that have a deletion vector, or a column that the
    table no longer has (delta-spark's DeltaPurgeOperation).

    Reads the footers of all files without a deletion vector. StoreError for one that cannot be read.
    """
    has_vector = files["deletion_vector"].is_valid()
    others = files.filter(pc.invert(has_vector))
    paths = store_paths(snapshot.path, others["path"]).to_pylist()
    schemas = arrow_schemas(list(zip(paths, others["size"].to_pylist(), strict=True)))
    kept = frozenset(
        snapshot.metadata.configuration[name].lower()
        for name in _MATERIALIZED
        if name in snapshot.metadata.configuration
    )
    is_left = iter([_has_others(found, snapshot.schema, kept) for found in schemas])
    return files.filter(pa.array([found or next(is_left) for found in has_vector.to_pylist()], pa.bool_()))


def _has_others(found: pa.Schema | pa.DataType, of_table: T.DataType, kept: frozenset[str]) -> bool:
    """Whether a file's type has fields that the table's lacks and that are not among the `kept` ones."""
    match of_table:
        case T.StructType() if isinstance(found, pa.Schema) or pa.types.is_struct(found):
            fields = {physical_name(field).lower(): field.dataType for field in of_table.fields}
            for inner in found:
                name = inner.name.lower()
                if name not in fields and name not in kept:
                    return True
                if name in fields and _has_others(inner.type, fields[name], frozenset()):
                    return True
        case T.ArrayType() if pa.types.is_list(found):
            return _has_others(found.value_type, of_table.elementType, frozenset())
        case T.MapType() if pa.types.is_map(found):
            return _has_others(found.key_type, of_table.keyType, frozenset()) or _has_others(
                found.item_type, of_table.valueType, frozenset()
            )
    return False
