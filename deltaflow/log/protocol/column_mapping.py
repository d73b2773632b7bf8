"""Column mapping: the names and ids that a table's columns have in its files (PROTOCOL.md, "Column Mapping").

The schema of a mapped table has them in the metadata of its fields. Where this module says physical name, a
field without that metadata has its own name: the schema of a table that is not mapped needs no other code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.data_types import inner_fields, transformed_schema, types_within, with_metadata
from deltaflow.log.protocol.indexed_columns import ColumnPath, indexed_leaves
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MAX_ID, COLUMN_MAPPING_MODE
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION, schema_from_string
from deltaflow.log.protocol.type_widening import without_type_changes

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
ID: Final = "delta.columnMapping.id"
MAX_ID: Final = COLUMN_MAPPING_MAX_ID.name
"""The table property with the highest id that a column of the table has or had."""
_PREFIX: Final = "delta.columnMapping."
_OF_VALUES: Final = ("delta.identity.", GENERATION_EXPRESSION, "EXISTS_DEFAULT")
"""Metadata by which writers make values; only columns of the table itself have them."""


def mapping_mode(metadata: Metadata, table: str) -> str:
    """none, name or id: by what readers find a column in a data file."""
    return COLUMN_MAPPING_MODE.of(metadata.configuration, table)


def table_schema(metadata: Metadata, *, table: str, version: int | None = None) -> T.StructType:
    """The table's schema, which has the metadata of column mapping if and only if the table is mapped.

    CorruptLogError if it lacks a partition column, or for a mapped table in whose schema a column has no
    physical name (or no id, where columns are found by ids), or has that of another one. Other errors are
    those of `schema_from_string`.
    """
    schema = schema_from_string(metadata.schema_string, table=table, version=version)
    unknown = [name for name in metadata.partition_columns if name not in schema.names]
    if unknown:
        raise CorruptLogError(
            f"The table's metaData names the partition column {unknown[0]}, which its schema lacks. Restore "
            "the commit with the metaData from a copy.",
            table=table,
            version=version,
            column=unknown[0],
        )
    mode = mapping_mode(metadata, table)
    if mode == "none":
        return without_mapping(schema)
    for path, data_type in types_within(schema):
        if isinstance(data_type, T.StructType):
            _check_names(data_type, path, mode, table, version)
    if mode == "id":
        ids = [field.metadata[ID] for field in _fields(schema)]
        if len(set(ids)) != len(ids):
            raise CorruptLogError(
                "Two columns of the table's schema have one id of column mapping.",
                table=table,
                version=version,
            )
    return schema


def is_mapped(schema: T.StructType) -> bool:
    """Whether the schema of `table_schema` is that of a mapped table."""
    return any(PHYSICAL_NAME in field.metadata for field in schema.fields)


def without_mapping(schema: T.StructType) -> T.StructType:
    """The schema without the metadata of column mapping."""
    if not any(name.startswith(_PREFIX) for field in _fields(schema) for name in field.metadata):
        return schema
    return with_metadata(schema, lambda name: not name.startswith(_PREFIX))


def visible_schema(schema: T.StructType) -> T.StructType:
    """The schema as Spark and its users see it: without what only the log says of columns.

    These are column mapping, changed types, identities and generation expressions (delta-spark's
    DeltaTableUtils.removeInternalDeltaMetadata), and EXISTS_DEFAULT, which is no word of the protocol: Spark
    would evaluate it for files without the column.
    """
    visible = without_type_changes(without_mapping(schema))
    if not any(name.startswith(_OF_VALUES) for field in schema.fields for name in field.metadata):
        return visible
    return with_metadata(visible, lambda name: not name.startswith(_OF_VALUES))


def with_mapping_alone(schema: T.StructType) -> T.StructType:
    """The schema with every column nullable, and without metadata except those of column mapping."""
    return transformed_schema(
        schema,
        field=lambda field: T.StructField(
            field.name,
            field.dataType,
            metadata={name: value for name, value in field.metadata.items() if name.startswith(_PREFIX)},
        ),
    )


def physical_name(field: T.StructField) -> str:
    """The name of a column in data files, statistics and partition values."""
    name: str = field.metadata.get(PHYSICAL_NAME, field.name)
    return name


def physical_names(schema: T.StructType, columns: Iterable[str]) -> dict[str, str]:
    """These columns of the schema in their order, each with its physical name."""
    return {name: physical_name(schema[name]) for name in columns}


def physical_path(schema: T.StructType, path: ColumnPath) -> ColumnPath:
    """The physical names along the path to a column; names that the schema lacks stay as they are."""
    names: list[str] = []
    inside: T.DataType = schema
    for name in path:
        field = next((inner for inner in inner_fields(inside) if inner.name == name), None)
        names.append(name if field is None else physical_name(field))
        inside = T.NullType() if field is None else field.dataType
    return tuple(names)


def physical_paths(struct: T.StructType) -> Iterator[ColumnPath]:
    """The physical names along the paths to all columns and to all fields of structs."""
    for field in struct.fields:
        path = (physical_name(field),)
        yield path
        if isinstance(field.dataType, T.StructType):
            yield from ((*path, *inner) for inner in physical_paths(field.dataType))


def physical_indexed_leaves(metadata: Metadata, table: str) -> list[tuple[ColumnPath, T.DataType]]:
    """As `indexed_leaves`, with the physical names on the paths."""
    leaves = indexed_leaves(metadata, table)
    if mapping_mode(metadata, table) == "none":
        return leaves
    schema = table_schema(metadata, table=table)
    return [(physical_path(schema, path), data_type) for path, data_type in leaves]


def physical_partition_columns(metadata: Metadata, table: str) -> dict[str, str]:
    """The partition columns in their order, each with its physical name."""
    if mapping_mode(metadata, table) == "none":
        return {name: name for name in metadata.partition_columns}
    return physical_names(table_schema(metadata, table=table), metadata.partition_columns)


def with_logical_names(values: Mapping[str, Any], schema: T.DataType) -> dict[str, Any]:
    """Values by physical names, those of a struct in a mapping of their own, by the schema's names."""
    fields = {physical_name(field): field for field in inner_fields(schema)}
    return {
        fields[name].name if name in fields else name: with_logical_names(value, fields[name].dataType)
        if isinstance(value, Mapping) and name in fields
        else value
        for name, value in values.items()
    }


def keeps_columns(older: T.DataType, newer: T.DataType) -> bool:
    """Whether a newer version's type has all columns of an older one under their names: none was renamed or
    dropped since."""
    by_physical_name = {physical_name(field): field for field in inner_fields(newer)}
    for field in inner_fields(older):
        kept = by_physical_name.get(physical_name(field))
        if kept is None or kept.name != field.name or not keeps_columns(field.dataType, kept.dataType):
            return False
    return True


def keeps_names(older: T.DataType, newer: T.DataType) -> bool:
    """Whether every name that both types have is that of the same column, in files too."""
    by_name = {field.name: field for field in inner_fields(newer)}
    for field in inner_fields(older):
        kept = by_name.get(field.name)
        if kept is None:
            continue
        if physical_name(kept) != physical_name(field) or not keeps_names(field.dataType, kept.dataType):
            return False
    return True


def _fields(schema: T.StructType) -> Iterable[T.StructField]:
    """The fields of all structs in a schema."""
    for _, data_type in types_within(schema):
        if isinstance(data_type, T.StructType):
            yield from data_type.fields


def _check_names(struct: T.StructType, path: str, mode: str, table: str, version: int | None) -> None:
    found: dict[str, str] = {}
    for field in struct.fields:
        column = f"{path}.{field.name}" if path else field.name
        name = field.metadata.get(PHYSICAL_NAME)
        if not isinstance(name, str) or (mode == "id" and not isinstance(field.metadata.get(ID), int)):
            missing = "an id" if isinstance(name, str) else "a physical name"
            raise CorruptLogError(
                f"Column {column} of the table's schema lacks {missing}, by which its values are found in "
                f"data files (delta.columnMapping.mode is {mode}).",
                table=table,
                version=version,
            )
        if name in found:
            raise CorruptLogError(
                f"Columns {found[name]} and {column} of the table's schema have one physical name, {name}.",
                table=table,
                version=version,
            )
        found[name] = column
