"""Which columns have statistics: the first ones, or those that a table names (StatisticsCollection)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
    VariantType,
)

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.data_types import fields_at
from deltaflow.log.protocol.properties import DATA_SKIPPING_NUM_INDEXED_COLS, DATA_SKIPPING_STATS_COLUMNS
from deltaflow.log.protocol.schema import schema_from_string

ColumnPath: TypeAlias = tuple[str, ...]
_NOT_ORDERED = (ArrayType, BinaryType, BooleanType, MapType, NullType, VariantType)


def indexed_leaves(metadata: Metadata, table: str) -> list[tuple[ColumnPath, DataType]]:
    """The leaf columns, each with its path through structs, that a table collects statistics of.

    They are those under the columns of delta.dataSkippingStatsColumns, or else the first
    delta.dataSkippingNumIndexedCols leaves of the data columns (-1: all; an array or a map is one leaf).
    """
    schema = schema_from_string(metadata.schema_string, table=table)
    leaves = list(leaves_of(f for f in schema.fields if f.name not in metadata.partition_columns))
    named = DATA_SKIPPING_STATS_COLUMNS.of(metadata.configuration, table)
    if named is None:
        count = DATA_SKIPPING_NUM_INDEXED_COLS.of(metadata.configuration, table)
        return leaves if count < 0 else leaves[:count]
    prefixes = {_folded(path) for path in named}
    return [
        (path, data_type)
        for path, data_type in leaves
        if any(_folded(path[: length + 1]) in prefixes for length in range(len(path)))
    ]


def is_ordered(data_type: DataType) -> bool:
    """Whether values of the type have bounds, by which files can be skipped."""
    return not isinstance(data_type, _NOT_ORDERED)


def leaves_of(
    fields: Iterable[StructField], parent: ColumnPath = ()
) -> Iterator[tuple[ColumnPath, DataType]]:
    """The leaf columns in the order of the schema, with their types."""
    for field in fields:
        path = (*parent, field.name)
        if isinstance(field.dataType, StructType):
            yield from leaves_of(field.dataType.fields, path)
        else:
            yield path, field.dataType


def check_statistics_columns(metadata: Metadata, table: str) -> None:
    """DeltaIllegalArgumentException where delta.dataSkippingStatsColumns names a column that is not there,
    a partition column, a column twice, or one whose type has no order.
    """
    named = DATA_SKIPPING_STATS_COLUMNS.of(metadata.configuration, table) or []
    schema = schema_from_string(metadata.schema_string, table=table) if named else StructType()
    found: list[ColumnPath] = []
    for path in named:
        text = ".".join(path)
        if text.lower() in {name.lower() for name in metadata.partition_columns}:
            raise DeltaIllegalArgumentException(
                error_class="DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN",
                table=table,
                column=text,
                name=text,
            )
        named_fields = fields_at(schema, path)
        if named_fields is None:
            raise DeltaIllegalArgumentException(
                error_class="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                table=table,
                column=text,
                name=text,
                schema=schema.simpleString(),
            )
        data_type = named_fields[-1].dataType
        if len(path) == 1 and isinstance(data_type, _NOT_ORDERED):
            raise DeltaIllegalArgumentException(
                error_class="DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE",
                table=table,
                column=text,
                name=text,
                data_type=data_type.simpleString(),
            )
        fields = data_type.fields if isinstance(data_type, StructType) else []
        found += [leaf for leaf, _ in leaves_of(fields, path)] or [path]
    folded = [_folded(path) for path in found]
    twice = sorted({".".join(path) for path in folded if folded.count(path) > 1})
    if twice:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS", table=table, columns=", ".join(twice)
        )


def _folded(path: ColumnPath) -> ColumnPath:
    return tuple(name.lower() for name in path)
