"""Checkpoints written by pyarrow alone, from actions as JSON objects (PROTOCOL.md, "Checkpoint Schema")."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.log.hand_written import HandWrittenTable

CHECKPOINT_LAYOUTS = (
    "classic",
    "multi-part",
    "v2-json",
    "v2-parquet",
    "v2-without-sidecars",
    "v2-classic-name",
)

_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_ROW_TRACKING = {"baseRowId": pa.int64(), "defaultRowCommitVersion": pa.int64()}
ADD = {
    "path": pa.string(),
    "partitionValues": _MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _MAP,
    "deletionVector": _VECTOR,
    **_ROW_TRACKING,
    "clusteringProvider": pa.string(),
}
REMOVE = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": _MAP,
    "size": pa.int64(),
    "tags": _MAP,
    "deletionVector": _VECTOR,
    **_ROW_TRACKING,
}
_OTHERS = {
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _MAP}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _MAP,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    },
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    "checkpointMetadata": {"version": pa.int64(), "tags": _MAP},
    "sidecar": {
        "path": pa.string(),
        "sizeInBytes": pa.int64(),
        "modificationTime": pa.int64(),
        "tags": _MAP,
    },
}


def write_checkpoint(
    table: HandWrittenTable,
    version: int,
    actions: list[dict[str, Any]],
    layout: str = "classic",
    *,
    add: dict[str, pa.DataType] = ADD,
    row_group_rows: int = 1_000,
) -> list[Path]:
    """Write one of CHECKPOINT_LAYOUTS; its files, the one that names the others last."""
    action_fields: dict[str, dict[str, pa.DataType]] = {"add": add, "remove": REMOVE, **_OTHERS}
    directory = table.log_directory
    stem = f"{version:020}.checkpoint"
    half = len(actions) // 2

    def parquet(file: Path, rows: list[dict[str, Any]], *names: str) -> Path:
        schema = pa.schema([(name, pa.struct(action_fields[name])) for name in names or action_fields])
        rows = [{name: _value(value, schema.field(name).type)} for row in rows for name, value in row.items()]
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), file, row_group_size=row_group_rows)
        return file

    def sidecars() -> tuple[list[Path], list[dict[str, Any]]]:
        of_files = [action for action in actions if "add" in action or "remove" in action]
        files = [
            parquet(directory / "_sidecars" / f"{uuid.uuid4()}.parquet", rows, "add", "remove")
            for rows in (of_files[::2], of_files[1::2])
        ]
        named = [
            {"sidecar": {"path": file.name, "sizeInBytes": file.stat().st_size, "modificationTime": 1}}
            for file in files
        ]
        others = [action for action in actions if action not in of_files]
        return files, [{"checkpointMetadata": {"version": version}}, *others, *named]

    match layout:
        case "classic":
            return [parquet(directory / f"{stem}.parquet", actions)]
        case "multi-part":
            return [
                parquet(directory / f"{stem}.{part:010}.{2:010}.parquet", rows)
                for part, rows in ((1, actions[:half]), (2, actions[half:]))
            ]
        case "v2-json":
            files, top = sidecars()
            file = directory / f"{stem}.{uuid.uuid4()}.json"
            file.write_text("".join(json.dumps(action) + "\n" for action in top))
            return [*files, file]
        case "v2-parquet":
            files, top = sidecars()
            return [*files, parquet(directory / f"{stem}.{uuid.uuid4()}.parquet", top)]
        case "v2-without-sidecars":
            top = [{"checkpointMetadata": {"version": version}}, *actions]
            return [parquet(directory / f"{stem}.{uuid.uuid4()}.parquet", top)]
        case "v2-classic-name":
            files, top = sidecars()
            return [*files, parquet(directory / f"{stem}.parquet", top)]
    raise ValueError(layout)


def write_compaction(table: HandWrittenTable, first: int, last: int, actions: list[dict[str, Any]]) -> Path:
    file = table.log_directory / f"{first:020}.{last:020}.compacted.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return file


def write_hint(table: HandWrittenTable, version: int) -> None:
    (table.log_directory / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 1}))


def _value(value: Any, arrow_type: pa.DataType) -> Any:
    """A JSON value as pyarrow takes it: maps as pairs."""
    if value is None:
        return None
    if pa.types.is_map(arrow_type):
        return list(value.items())
    if pa.types.is_struct(arrow_type):
        return {name: _value(item, arrow_type.field(name).type) for name, item in value.items()}
    return value
