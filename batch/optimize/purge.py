"""REORG TABLE … APPLY (PURGE): which files hold rows or columns that are no longer in the table; before type
widening is dropped, those that have a column of an older type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log import Snapshot
from deltaflow.log.files.data_path import sized_paths
from deltaflow.log.files.footers import arrow_schemas
from deltaflow.log.protocol.column_mapping import ID, physical_name
from deltaflow.log.protocol.properties import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from deltaflow.log.protocol.type_widening import can_widen

ChooseFiles: TypeAlias = Callable[[Snapshot, pa.Table], pa.Table]
"""The files of a snapshot, among some rows of its `files`, that are to be written anew."""
_FIELD_ID = b"PARQUET:field_id"
_TYPES = {
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.date32(): T.DateType(),
}
_MATERIALIZED = (MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN)
"""The properties that name the columns of row tracking, which are in files and not in the schema."""


def files_to_purge(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """Those of `files`, rows of the snapshot's `files`, that have a deletion vector, or a column that the
    table no longer has (delta-spark's DeltaPurgeOperation).

    Reads the footers of all files without a deletion vector. StoreError for one that cannot be read.
    """
    has_vector = files["deletion_vector"].is_valid()
    schemas = _schemas(snapshot, files.filter(pc.invert(has_vector)))
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
        case T.ArrayType() if _is_list(found):
            return _has_others(found.value_type, of_table.elementType, frozenset())
        case T.MapType() if pa.types.is_map(found):
            return _has_others(found.key_type, of_table.keyType, frozenset()) or _has_others(
                found.item_type, of_table.valueType, frozenset()
            )
    return False


def files_of_older_types(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """Those of `files`, rows of the snapshot's `files`, that have a column of a narrower type than the table.

    Reads the footers of all files. StoreError for one that cannot be read.
    """
    by_id = snapshot.mapping_mode == "id"
    is_older = [_is_older(found, snapshot.schema, by_id=by_id) for found in _schemas(snapshot, files)]
    return files.filter(pa.array(is_older, pa.bool_()))


def _schemas(snapshot: Snapshot, files: pa.Table) -> Iterator[pa.Schema]:
    return arrow_schemas(sized_paths(snapshot.path, files))


def _is_older(found: pa.Schema | pa.DataType, of_table: T.DataType, *, by_id: bool) -> bool:
    match of_table:
        case T.StructType() if isinstance(found, pa.Schema) or pa.types.is_struct(found):
            types = {
                field.metadata[ID] if by_id else physical_name(field).lower(): field.dataType
                for field in of_table.fields
            }
            keys = [_key(inner, by_id=by_id) for inner in found]
            return any(
                key in types and _is_older(inner.type, types[key], by_id=by_id)
                for key, inner in zip(keys, found, strict=True)
            )
        case T.ArrayType() if _is_list(found):
            return _is_older(found.value_type, of_table.elementType, by_id=by_id)
        case T.MapType() if pa.types.is_map(found):
            return _is_older(found.key_type, of_table.keyType, by_id=by_id) or _is_older(
                found.item_type, of_table.valueType, by_id=by_id
            )
    if pa.types.is_decimal(found):
        return can_widen(T.DecimalType(found.precision, found.scale), of_table)
    return found in _TYPES and can_widen(_TYPES[found], of_table)


def _is_list(found: pa.DataType) -> bool:
    """Whether a type is that of an array. Files of Arrow's writers tell which of Arrow's it was."""
    return (
        pa.types.is_list(found)
        or pa.types.is_large_list(found)
        or pa.types.is_fixed_size_list(found)
        or pa.types.is_list_view(found)
        or pa.types.is_large_list_view(found)
    )


def _key(field: pa.Field, *, by_id: bool) -> int | str:
    return int((field.metadata or {}).get(_FIELD_ID, -1)) if by_id else field.name.lower()
