"""Files of a table as rows: the columns of active files and of tombstones, and the actions they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.file_key import ODD_PATHS, logical_key
from deltaflow.log.protocol.actions import (
    AddFile,
    DeletionVectorDescriptor,
    RemoveFile,
    add_from_fields,
    remove_from_fields,
)

STRING_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)
"""The type of a column of deletion vectors, by the protocol's names; null where a file has none."""
STATS = pa.field("stats", pa.string())
"""A column of statistics as JSON text."""
FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition_values", STRING_MAP, nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("stats_text", pa.string()),
        pa.field("stats_row", pa.int64()),
        pa.field("tags", STRING_MAP),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("extra", pa.string()),
    ]
)
"""One row per file: `path` as in the log, size in bytes, modification_time in ms. The statistics are in
`stats_text`, as JSON, or at the place `stats_row` of a checkpoint, which is read when somebody asks for them
(Snapshot.with_stats, Snapshot.statistics_of); both are null for a file without any. `extra` is the JSON
object of all other fields of the add action except dataChange, null without any. The deletion vector is
there, too, if it has fields that the protocol does not know."""

TOMBSTONES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", STRING_MAP),
        pa.field("size", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRING_MAP),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("extra", pa.string()),
    ]
)
"""One row per removed file: columns as in FILES_SCHEMA, deletion_timestamp in ms; `extra` is the JSON
object of all other fields of the remove action except dataChange, null without any."""

FIELDS_OF_ADD = {
    "path": "path",
    "partitionValues": "partition_values",
    "size": "size",
    "modificationTime": "modification_time",
    "stats": "stats_text",
    "tags": "tags",
    "deletionVector": "deletion_vector",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
}
"""The fields of an add action that are columns of FILES_SCHEMA, with the columns' names."""
FIELDS_OF_REMOVE = {
    "path": "path",
    "deletionTimestamp": "deletion_timestamp",
    "extendedFileMetadata": "extended_file_metadata",
    "partitionValues": "partition_values",
    "size": "size",
    "stats": "stats",
    "tags": "tags",
    "deletionVector": "deletion_vector",
    "baseRowId": "base_row_id",
    "defaultRowCommitVersion": "default_row_commit_version",
}
"""The fields of a remove action that are columns of TOMBSTONES_SCHEMA, with the columns' names."""
COLUMNS_OF_ADD = (*FIELDS_OF_ADD, "dataChange")
"""The fields of an add action that are not in `extra`."""
COLUMNS_OF_REMOVE = (*FIELDS_OF_REMOVE, "dataChange")
"""The fields of a remove action that are not in `extra`."""
ROWS_PER_BATCH = 16_384


def add_files(files: pa.Table, *, data_change: bool = True) -> Iterator[AddFile]:
    """The add actions of rows of a snapshot's `files` with their statistics (Snapshot.with_stats), with all
    fields that the log has."""
    for row in _rows(files):
        yield add_from_fields(
            {
                "path": row["path"],
                "partitionValues": dict(row["partition_values"]),
                "size": row["size"],
                "modificationTime": row["modification_time"],
                "dataChange": data_change,
                "stats": row["stats"],
                "tags": None if row["tags"] is None else dict(row["tags"]),
                "deletionVector": row["deletion_vector"],
                "baseRowId": row["base_row_id"],
                "defaultRowCommitVersion": row["default_row_commit_version"],
            },
            row["extra"],
        )


def remove_files(
    files: pa.Table, deletion_timestamp_ms: int, *, data_change: bool = True
) -> list[RemoveFile]:
    """The remove actions for rows of a snapshot's `files` with their statistics, as `add_files`."""
    return [add.remove(deletion_timestamp_ms, data_change=data_change) for add in add_files(files)]


def tombstone_actions(tombstones: pa.Table) -> Iterator[RemoveFile]:
    """The remove actions of rows of a snapshot's `tombstones`; they change no data any more."""
    for row in _rows(tombstones):
        values = row["partition_values"]
        fields = {
            "path": row["path"],
            "deletionTimestamp": row["deletion_timestamp"],
            "dataChange": False,
            "extendedFileMetadata": row["extended_file_metadata"],
            "partitionValues": None if values is None else dict(values),
            "size": row["size"],
            "stats": row["stats"],
            "tags": None if row["tags"] is None else dict(row["tags"]),
            "deletionVector": row["deletion_vector"],
            "baseRowId": row["base_row_id"],
            "defaultRowCommitVersion": row["default_row_commit_version"],
        }
        yield remove_from_fields(fields, row["extra"])


def file_keys(files: pa.Table, table_path: str) -> pa.Array:
    """`file_key` of rows of a snapshot's `files`."""
    keys = [keys_or_null(*columns, table_path) for columns in _chunks(files)]
    paths = files["path"].combine_chunks()
    found = pa.concat_arrays(keys) if keys else pa.nulls(0, pa.string())
    return paths if found.null_count == len(found) else pc.coalesce(found, paths)


def keys_or_null(paths: pa.Array, vectors: pa.Array, table_path: str) -> pa.Array:
    """`file_key` of the files with these paths and deletion vectors; null where it is the path itself."""
    odd = pc.match_substring_regex(paths, ODD_PATHS)
    if vectors.null_count < len(vectors):
        odd = pc.or_(odd, vectors.is_valid())
    if not pc.any(odd).as_py():
        return pa.nulls(len(paths), pa.string())
    rows = pc.indices_nonzero(odd)
    pairs = zip(paths.take(rows).to_pylist(), unique_ids(vectors.take(rows)).to_pylist(), strict=True)
    keys = pa.array([logical_key(path, vector, table_path) for path, vector in pairs], pa.string())
    return pc.replace_with_mask(pa.nulls(len(paths), pa.string()), odd, keys)


def unique_ids(vectors: pa.StructArray) -> pa.StringArray:
    """The unique ids of deletion vectors (PROTOCOL.md, "Derived Fields"); null without a vector."""
    storage_types, texts, offsets = (pc.struct_field(vectors, index) for index in range(3))
    at_offset = pc.coalesce(pc.binary_join_element_wise("@", offsets.cast(pa.string()), ""), pa.scalar(""))
    return pc.binary_join_element_wise(storage_types, texts, at_offset, "")


def vector_row(vector: DeletionVectorDescriptor | None) -> dict[str, Any] | None:
    """An action's deletion vector as a value of the type DELETION_VECTOR."""
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


def _chunks(files: pa.Table) -> Iterator[tuple[pa.Array, pa.Array]]:
    for batch in files.select(["path", "deletion_vector"]).to_batches():
        yield batch.column("path"), batch.column("deletion_vector")


def _rows(files: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in files.to_batches(max_chunksize=ROWS_PER_BATCH):
        yield from batch.to_pylist()
