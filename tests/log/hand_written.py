"""Tables for the tests of the log: commits written by hand, line by line, and through transactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, commit_name, schema_to_string
from deltaflow.store import LocalLogStore
from tests.tables import put_file

SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])
WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})


class HandWrittenTable:
    """A table whose commits are given as JSON objects, one an action."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.log_directory = path / "_delta_log"
        self.log_directory.mkdir(parents=True)

    def commit(self, version: int, *actions: dict[str, Any]) -> Path:
        return self.write(version, "".join(json.dumps(action) + "\n" for action in actions).encode())

    def write(self, version: int, data: bytes) -> Path:
        file = self.log_directory / commit_name(version)
        put_file(file, data)
        return file

    def first_commit(self, *actions: dict[str, Any], **metadata: Any) -> Path:
        return self.commit(0, protocol(), meta_data(**metadata), *actions)

    def log(self) -> DeltaLog:
        return DeltaLog(LocalLogStore(), self.path)


def protocol(reader: int = 1, writer: int = 2, **features: list[str]) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}


def meta_data(
    *,
    table_id: str = "table-1",
    schema: StructType = SCHEMA,
    partition_columns: list[str] | None = None,
    configuration: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_to_string(schema),
            "partitionColumns": partition_columns or [],
            "configuration": configuration or {},
            "createdTime": 1,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    usual = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": usual | fields}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True} | fields}


def add_file(path: str, **fields: Any) -> AddFile:
    usual = {"partition_values": {}, "size": 10, "modification_time": 1, "data_change": True}
    return AddFile(path=path, **(usual | fields))


def new_metadata(**fields: Any) -> Metadata:
    usual = {
        "id": "table-1",
        "schema_string": schema_to_string(SCHEMA),
        "partition_columns": [],
        "created_time": 1,
    }
    return Metadata(**(usual | fields))


def create(log: DeltaLog, *files: str, **metadata: Any) -> None:
    """Version 0 of a table, with these files."""
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(**metadata))
    transaction.commit([add_file(path) for path in files], WRITE)


def append(log: DeltaLog, *files: str) -> int:
    return log.start_transaction().commit([add_file(path) for path in files], WRITE).version


def paths(log: DeltaLog) -> list[str]:
    return sorted(log.snapshot().files["path"].to_pylist())
