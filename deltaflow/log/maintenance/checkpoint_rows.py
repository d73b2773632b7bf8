"""A table's state as the rows of a checkpoint (PROTOCOL.md, "Checkpoint Schema"), columns to columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.file_rows import DELETION_VECTOR, FIELDS_OF_ADD, FIELDS_OF_REMOVE, STRING_MAP
from deltaflow.log.files.json_text import struct_type_of, structs_from_json, structs_of_fitting_fields
from deltaflow.log.files.partition_values import ARROW_TYPES, typed_values_or_null
from deltaflow.log.protocol.actions import (
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Sidecar,
    name_and_body,
)
from deltaflow.log.protocol.column_mapping import physical_indexed_leaves, physical_name
from deltaflow.log.protocol.indexed_columns import ColumnPath
from deltaflow.log.protocol.properties import (
    CHECKPOINT_WRITE_STATS_AS_JSON,
    CHECKPOINT_WRITE_STATS_AS_STRUCT,
)
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.untrusted_json import decode_json

_LOG = logging.getLogger(__name__)
_STRINGS = pa.list_(pa.field("element", pa.string()))
# The fields of file actions that a snapshot has in the column `extra`.
_EXTRA_OF_ADD = pa.struct([pa.field("clusteringProvider", pa.string())])
_EXTRA_OF_REMOVE = pa.struct([])
# The table's properties say how statistics are written. Tombstones get neither statistics nor tags.
_ADD_COLUMNS = {name: column for name, column in FIELDS_OF_ADD.items() if name != "stats"}
_REMOVE_COLUMNS = {name: column for name, column in FIELDS_OF_REMOVE.items() if name not in ("stats", "tags")}
_OTHER_TYPES: Mapping[str, pa.StructType] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _STRINGS),
            ("configuration", STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _STRINGS),
            ("writerFeatures", _STRINGS),
        ]
    ),
    "domainMetadata": pa.struct(
        [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
    ),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", STRING_MAP),
        ]
    ),
}
# The types, besides decimals, that have bounds in statistics.
_SKIPPING_TYPES: Mapping[type[DataType], pa.DataType] = {
    data_type: arrow_type
    for data_type, arrow_type in ARROW_TYPES.items()
    if data_type not in (BinaryType, BooleanType)
}

OtherAction = Protocol | Metadata | SetTransaction | DomainMetadata | CheckpointMetadata | Sidecar


class FileRows:
    """A snapshot's files and tombstones as values of the columns `add` and `remove`.

    The table's properties decide about statistics. Fields that the protocol does not know are kept if they
    have one type in all files; otherwise they are left out, with a warning.
    """

    def __init__(self, snapshot: Snapshot, files: pa.Table, tombstones: pa.Table) -> None:
        """`files` and `tombstones` are rows of the snapshot's."""
        configuration, path = snapshot.metadata.configuration, snapshot.path
        self._stats_as_json = CHECKPOINT_WRITE_STATS_AS_JSON.of(configuration, path)
        self._stats_type: pa.StructType | None = None
        self._partition_schema = StructType([])
        if CHECKPOINT_WRITE_STATS_AS_STRUCT.of(configuration, path):
            self._stats_type = _stats_type(physical_indexed_leaves(snapshot.metadata, path))
            self._partition_schema = StructType(
                [snapshot.schema[name] for name in snapshot.partition_columns]
            )
        self._extra_of_add = _extra_type(files["extra"], _EXTRA_OF_ADD, path)
        self._extra_of_remove = _extra_type(tombstones["extra"], _EXTRA_OF_REMOVE, path)
        # No rows give the same column types as any rows.
        self.column_types: dict[str, pa.StructType] = {
            "add": self.adds(_batch(snapshot.with_stats(files.slice(0, 0)))).type,
            "remove": self.removes(_batch(tombstones.slice(0, 0))).type,
        }
        """The types of the columns `add` and `remove`."""

    def adds(self, files: pa.RecordBatch) -> pa.StructArray:
        """Values of the column `add` for rows of the files with their statistics (Snapshot.with_stats)."""
        columns = _columns(files, _ADD_COLUMNS)
        columns |= _extra_columns(files.column("extra"), self._extra_of_add, columns)
        stats = files.column("stats")
        if self._stats_as_json:
            columns["stats"] = stats
        if self._stats_type is not None:
            columns["stats_parsed"] = structs_of_fitting_fields(stats, self._stats_type)
        if self._partition_schema.fields:
            columns["partitionValues_parsed"] = _parsed_values(
                files.column("partition_values"), self._partition_schema
            )
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))

    def removes(self, tombstones: pa.RecordBatch) -> pa.StructArray:
        """Values of the column `remove` for rows of the tombstones."""
        columns = _columns(tombstones, _REMOVE_COLUMNS)
        columns |= _extra_columns(tombstones.column("extra"), self._extra_of_remove, columns)
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


class OtherRows:
    """The rows of all actions of a checkpoint except file actions."""

    def __init__(self, actions: Sequence[OtherAction], table: str) -> None:
        self._values: dict[str, list[dict[str, Any]]] = {}
        for name, body in map(name_and_body, actions):
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            self._values.setdefault(name, []).append(dict(_decoded(fields, name, table)))
        required = ("txn", "metaData", "protocol", "domainMetadata")
        self.column_types: dict[str, pa.StructType] = {
            name: _with_unknown_fields(struct_type, self._values.get(name, []), name, table)
            for name, struct_type in _OTHER_TYPES.items()
            if name in self._values or name in required
        }
        """The types of their columns."""

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """One row per action, by a checkpoint's schema."""
        number = sum(map(len, self._values.values()))
        columns = {}
        before = 0
        for name, values in self._values.items():
            padded = [None] * before + [_fit(self.column_types[name], value) for value in values]
            columns[name] = pa.array(padded + [None] * (number - len(padded)), self.column_types[name])
            before += len(values)
        return _row_batch(columns, schema, number)


def file_batch(name: str, actions: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a checkpoint that hold values of the column `add` or `remove`."""
    return _row_batch({name: actions}, schema, len(actions))


def _stats_type(leaves: Iterable[tuple[ColumnPath, DataType]]) -> pa.StructType:
    """The type of `stats_parsed` (delta-spark's StatisticsCollection) where these columns have statistics;
    only types with an order in Delta have bounds.
    """
    tree: _Leaves = {}
    for path, data_type in leaves:
        struct = tree
        for name in path[:-1]:
            struct = struct.setdefault(name, {})
        struct[path[-1]] = data_type
    bounds = _mapped(tree, _skipping_type)
    counts = _mapped(tree, lambda data_type: pa.int64())
    types = {
        "numRecords": pa.int64(),
        "minValues": bounds,
        "maxValues": bounds,
        "nullCount": counts,
        "tightBounds": pa.bool_(),
    }
    return pa.struct([(name, arrow_type) for name, arrow_type in types.items() if arrow_type is not None])


_Leaves = dict[str, Any]


def _mapped(leaves: _Leaves, to_arrow: Any) -> pa.StructType | None:
    """The struct of the leaves that have an Arrow type; None without any (Parquet has no empty group)."""
    fields = {
        name: _mapped(leaf, to_arrow) if isinstance(leaf, dict) else to_arrow(leaf)
        for name, leaf in leaves.items()
    }
    fields = {name: arrow_type for name, arrow_type in fields.items() if arrow_type is not None}
    return pa.struct(list(fields.items())) if fields else None


def _skipping_type(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _SKIPPING_TYPES.get(type(data_type))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    if rows.num_rows == 0:
        return pa.RecordBatch.from_pylist([], schema=rows.schema)
    return rows.combine_chunks().to_batches()[0]


def _columns(rows: pa.RecordBatch, names: Mapping[str, str]) -> dict[str, pa.Array]:
    columns = {name: rows.column(column) for name, column in names.items()}
    return {**columns, "dataChange": pa.repeat(False, rows.num_rows)}


def _extra_type(extra: pa.ChunkedArray, known: pa.StructType, table: str) -> pa.StructType:
    if extra.null_count == len(extra):
        return known
    if pc.any(pc.match_substring(extra, '"deletionVector"')).as_py():
        # It has fields that the protocol does not know.
        known = pa.struct([*known, pa.field("deletionVector", DELETION_VECTOR)])
    try:
        struct_type = struct_type_of(extra.chunks, known)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        _LOG.warning("Fields of files of %s that the protocol lacks are in no checkpoint: %s", table, error)
        return known
    return pa.struct(list(_storable(struct_type.fields, "file actions", table)))


def _storable(fields: Iterable[pa.Field], where: str, table: str) -> Iterator[pa.Field]:
    for field in fields:
        if _is_storable(field.type):
            yield field
        else:
            _LOG.warning("Field %s in %s of %s has no value for a checkpoint", field.name, where, table)


def _is_storable(arrow_type: pa.DataType) -> bool:
    """Whether Parquet can store the type: it cannot store a null type or a struct without fields."""
    if pa.types.is_null(arrow_type) or (pa.types.is_struct(arrow_type) and arrow_type.num_fields == 0):
        return False
    return all(_is_storable(arrow_type.field(index).type) for index in range(arrow_type.num_fields))


def _extra_columns(
    extra: pa.StringArray, struct_type: pa.StructType, known: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """The columns of `extra`; for a deletion vector that is in both, the one of it and of `known`."""
    if extra.null_count == len(extra) or not struct_type.num_fields:
        columns = {field.name: pa.nulls(len(extra), field.type) for field in struct_type}
    else:
        structs = structs_from_json(extra, struct_type)
        if structs.null_count > extra.null_count:
            # A checkpoint without a deletion vector would bring deleted rows back.
            raise CorruptLogError("A field of a file action has a value that does not fit its type.")
        columns = dict(zip((field.name for field in struct_type), structs.flatten(), strict=True))
    if "deletionVector" in columns:
        wide = columns["deletionVector"]
        columns["deletionVector"] = pc.coalesce(wide, _widened(known["deletionVector"], wide.type))
    return columns


def _widened(vectors: pa.StructArray, struct_type: pa.StructType) -> pa.StructArray:
    """The deletion vectors with further fields, which are null."""
    own = vectors.type.names
    fields = [
        pc.struct_field(vectors, field.name) if field.name in own else pa.nulls(len(vectors), field.type)
        for field in struct_type
    ]
    return pa.StructArray.from_arrays(fields, fields=list(struct_type), mask=vectors.is_null())


def _parsed_values(values: pa.MapArray, schema: StructType) -> pa.StructArray:
    """`partitionValues_parsed`. A timestamp without a zone is read as UTC, as readers without a session do
    (Delta Kernel): so the checkpoint does not depend on the session that writes it."""
    columns = [
        typed_values_or_null(pc.map_lookup(values, pa.scalar(physical_name(field)), "first"), field.dataType)
        for field in schema.fields
    ]
    return pa.StructArray.from_arrays(columns, names=[physical_name(field) for field in schema.fields])


def _decoded(fields: Mapping[str, msgspec.Raw], where: str, table: str) -> Iterator[tuple[str, Any]]:
    """The values of an action's fields, but one with a number of which Python makes none, such as 1e999."""
    for name, value in fields.items():
        try:
            yield name, decode_json(value)
        except msgspec.DecodeError as error:
            _LOG.warning("Field %s in %s of %s is in no checkpoint: %s", name, where, table, error)


def _with_unknown_fields(
    struct_type: pa.StructType, values: Sequence[dict[str, Any]], name: str, table: str
) -> pa.StructType:
    known = {field.name for field in struct_type}
    beyond = {field_name for fields in values for field_name in fields} - known
    found = []
    for field_name in sorted(beyond):
        try:
            inferred = pa.array([fields.get(field_name) for fields in values]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            _LOG.warning("Field %s in %s of %s is in no checkpoint: %s", field_name, name, table, error)
        else:
            found.append(pa.field(field_name, inferred))
    return pa.struct([*struct_type, *_storable(found, name, table)])


def _fit(arrow_type: pa.DataType, value: Any) -> Any:
    """A JSON value as pyarrow takes it: a map as a list of pairs."""
    if pa.types.is_map(arrow_type) and value is not None:
        return list(value.items())
    if pa.types.is_struct(arrow_type) and value is not None:
        return {field.name: _fit(field.type, value.get(field.name)) for field in arrow_type}
    return value


def _row_batch(columns: Mapping[str, pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def other_actions(snapshot: Snapshot, transactions_after_ms: int | None) -> list[OtherAction]:
    """The actions of a snapshot except file actions. With `transactions_after_ms`, txn actions that were not
    updated after it are left out."""
    transactions = [
        transaction
        for transaction in snapshot.transactions.values()
        if transactions_after_ms is None
        or (transaction.last_updated is not None and transaction.last_updated > transactions_after_ms)
    ]
    return [snapshot.protocol, snapshot.metadata, *snapshot.domains.values(), *transactions]


def spark_schema(schema: pa.Schema) -> StructType:
    """A checkpoint's schema in Spark's types."""
    return StructType([StructField(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(arrow_type: pa.DataType) -> DataType:
    if pa.types.is_struct(arrow_type):
        return spark_schema(pa.schema(list(arrow_type)))
    if pa.types.is_list(arrow_type):
        return ArrayType(_spark_type(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return MapType(_spark_type(arrow_type.key_type), _spark_type(arrow_type.item_type))
    if pa.types.is_decimal(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if pa.types.is_boolean(arrow_type):
        return BooleanType()
    if pa.types.is_binary(arrow_type):  # of a partition column
        return BinaryType()
    return next(spark() for spark, arrow in _SKIPPING_TYPES.items() if arrow == arrow_type)
