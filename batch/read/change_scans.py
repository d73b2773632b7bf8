"""Scans of change rows, of batch queries and of streams: their columns, and the relation over their files.

All change columns are partition columns, but for _change_type in the files of cdc actions, which have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql.types import StructField, StructType

from deltaflow.log.files.change_files import CHANGE_COLUMNS, CHANGE_TYPE
from deltaflow.log.protocol.column_mapping import visible_schema
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.scan.file_index import column_mapping, hadoop_path
from deltaflow.spark.scan.messages import Relation


def with_change_columns(schema: StructType) -> StructType:
    """The schema of change rows of a table with this schema."""
    return StructType([*schema.fields, *CHANGE_COLUMNS.fields])


def change_relation(
    description: Message,
    path: str,
    schema: StructType,
    mapping_mode: str,
    partition_columns: Sequence[str],
    *,
    recorded: bool,
    size_in_bytes: int,
    vectors: int | None,
) -> Relation:
    """The answer from which the JVM makes a relation over a scan of change rows (see `relation`).

    `schema` and `mapping_mode` are those of the table, `partition_columns` its columns by which the files are
    partitioned. `recorded`: whether the files are those of cdc actions.
    """
    visible = visible_schema(schema)
    fields = [visible[name] for name in partition_columns] + _partition_fields(recorded)
    return Relation(
        root=hadoop_path(path),
        pinned=True,
        scan=msgspec.json.encode(description).decode(),
        partition_schema=StructType(fields).json(),
        data_schema=with_change_columns(visible).json(),
        mapping=column_mapping(schema, mapping_mode),
        size_in_bytes=size_in_bytes,
        options={},
        vectors=vectors,
        row_ids=None,
    )


def partition_names(physical_names: Mapping[str, str], *, recorded: bool) -> dict[str, str]:
    """The partition columns of such a scan, each with its name in partition values; `physical_names` are
    those of the table's."""
    return {**physical_names, **{field.name: field.name for field in _partition_fields(recorded)}}


def _partition_fields(recorded: bool) -> list[StructField]:
    return [field for field in CHANGE_COLUMNS.fields if not (recorded and field.name == CHANGE_TYPE)]
