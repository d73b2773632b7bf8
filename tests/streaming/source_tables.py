"""Tables for streams to read, with data files by pyarrow and commits by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tables import put_file

FIELDS = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]


class SourceTable:
    """A table of the column `id`, a file for each list of ids."""

    def __init__(self, path: str, *files: list[int], **metadata: Any) -> None:
        self.path = path
        self.log = Path(path, "_delta_log")
        self.log.mkdir(parents=True)
        self.next_version = 0
        self._number = 0
        self.metadata = metadata_action(**metadata)
        self.commit(*files, protocol={"minReaderVersion": 1, "minWriterVersion": 2}, metaData=self.metadata)

    def commit(
        self,
        *files: list[int],
        data_change: bool = True,
        remove: tuple[str, ...] = (),
        time_ms: int | None = None,
        **actions: dict[str, Any],
    ) -> int:
        """Commits the next version: adds files, removes files by their paths, and has `actions` by name."""
        info = {"timestamp": 0, "operation": "TEST", "operationParameters": {"by": "hand"}}
        lines: list[dict[str, Any]] = [{"commitInfo": info}]
        lines += [{name: action} for name, action in actions.items()]
        lines += [
            {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": data_change}} for path in remove
        ]
        lines += [{"add": {**self.file(ids), "dataChange": data_change}} for ids in files]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        put_file(self.commit_file(self.next_version), text, time_ms)
        self.next_version += 1
        return self.next_version - 1

    def file(self, ids: list[int]) -> dict[str, Any]:
        """Writes a data file and returns its add action. The number of a file is its modification time."""
        path = f"f{self._number:03}.parquet"
        self._number += 1
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), f"{self.path}/{path}")
        return {
            "path": path,
            "partitionValues": {},
            "size": os.path.getsize(f"{self.path}/{path}"),
            "modificationTime": self._number,
            "stats": json.dumps(
                {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
            ),
        }

    def commit_file(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def size(self, number: int) -> int:
        """The bytes of a file."""
        return os.path.getsize(f"{self.path}/f{number:03}.parquet")


def metadata_action(
    *fields: dict[str, Any],
    table_id: str = "table-1",
    partition_columns: tuple[str, ...] = (),
    **configuration: str,
) -> dict[str, Any]:
    """A metaData action; without fields those of `id` alone."""
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields or FIELDS)}),
        "partitionColumns": list(partition_columns),
        "configuration": {name.replace("_", "."): value for name, value in configuration.items()},
        "createdTime": 1,
    }


def read_batches(streams: Any, table: SourceTable, checkpoint: object, **options: object) -> list[list[int]]:
    """The ids of each batch that has some, of a stream over the table that is run to its end."""
    found = streams.batches(streams.read(table.path, **options), str(checkpoint))
    return [ids for ids in found.values() if ids]


def read_ids(streams: Any, table: SourceTable, checkpoint: object, **options: object) -> list[int]:
    """As `read_batches`, of all batches together."""
    return sorted(i for batch in read_batches(streams, table, checkpoint, **options) for i in batch)


def read_failure(streams: Any, table: SourceTable, checkpoint: object, **options: object) -> Any:
    """The error of a stream over the table that must not see a row."""
    seen: list[Any] = []
    source = streams.read(table.path, **options)
    error = streams.failure(streams.foreach(source, str(checkpoint), lambda b, _: seen.extend(b.collect())))
    assert seen == []
    return error
