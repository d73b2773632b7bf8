"""`spark.read.format("delta").load(path)`: a table as a scan by Spark's Parquet reader.

Without time travel the scan has no version. At each execution of a query Spark's optimizer asks for the
newest version, which is one for all scans of the table (`pin`). The schema stays that of the load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql.types import StructType

from deltaflow.batch.options import option, required_path
from deltaflow.batch.read.load_path import LoadPath, files_of_partition, load_path, no_table_at
from deltaflow.batch.read.messages import PinAnswer, PinRequest, ReadRequest
from deltaflow.errors import CorruptLogError, DeltaAnalysisException, DeltaTableNotFoundError
from deltaflow.interface.arguments import FILE_SYSTEM_PREFIXES
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.column_mapping import visible_schema
from deltaflow.log.protocol.schema_reading import can_read
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.file_index import (
    NEWEST,
    ScannedFiles,
    column_mapping,
    finds_files,
    relation,
    row_ids_of,
)
from deltaflow.spark.scan.messages import Relation

_FILE_OPTIONS = ("ignoreMissingFiles", "ignoreCorruptFiles")


@dispatcher.handle("read")
def read(request: ReadRequest) -> Relation:
    """The relation over a table: at the version that the request asks for, or without a version."""
    loaded = load_path(required_path(request.path), request.options, request.settings)
    log = DeltaLog.for_table(loaded.table_path)
    try:
        version = loaded.version(log)
        snapshot = log.snapshot() if version is None else log.snapshot_at(version)
    except DeltaTableNotFoundError as error:
        raise no_table_at(log.path) from error
    return relation(
        _description(loaded, snapshot, version),
        log.path,
        snapshot.schema,
        snapshot.partition_columns,
        snapshot.size_in_bytes,
        snapshot.mapping_mode,
        _file_options(request.options),
        vectors=snapshot.num_deletion_vectors,
        row_ids=row_ids_of(snapshot),
    )


def _file_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options for Spark's file reader."""
    own = {name: value for name in _FILE_OPTIONS if (value := option(options, name)) is not None}
    return own | {name: value for name, value in options.items() if name.startswith(FILE_SYSTEM_PREFIXES)}


def _description(loaded: LoadPath, snapshot: Snapshot, version: int | None) -> dict[str, Any]:
    description: dict[str, Any] = {"reads": NEWEST, "path": snapshot.path, "id": snapshot.table_id}
    if version is not None:
        description |= _of_version(snapshot) | {"timeTravel": True}
    if loaded.partition:
        loaded.check_partition(snapshot)
        description |= {"partition": loaded.partition, "timeZone": loaded.time_zone}
    return description


def _of_version(snapshot: Snapshot) -> dict[str, Any]:
    """The time tells it from another version with the same number: a log may be put back from a copy."""
    return {"reads": "version", "version": snapshot.version, "timeMs": snapshot.timestamp_ms}


@dispatcher.handle("scan.pin")
def pin(request: PinRequest) -> PinAnswer:
    """The version that one execution reads for a scan without a version: the request's if it has one.

    Raises DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS if the table can no longer be read with the schema of the
    analysed query.
    """
    description = msgspec.json.decode(request.scan)
    log = DeltaLog.for_table(description["path"])
    snapshot = log.snapshot() if request.version is None else log.snapshot_at(request.version)
    _check_same_table(description, snapshot)
    if request.schema is not None:
        analysed = StructType.fromJson(msgspec.json.decode(request.schema))
        _check_schema(analysed, snapshot)
    pinned = description | _of_version(snapshot) | {"timeTravel": False}
    visible = visible_schema(snapshot.schema)
    return PinAnswer(
        version=snapshot.version,
        scan=msgspec.json.encode(pinned).decode(),
        partition_schema=StructType([visible[name] for name in snapshot.partition_columns]).json(),
        size_in_bytes=snapshot.size_in_bytes,
        mapping=column_mapping(snapshot.schema, snapshot.mapping_mode),
        vectors=snapshot.num_deletion_vectors,
        row_ids=row_ids_of(snapshot),
    )


def _check_schema(analysed: StructType, snapshot: Snapshot) -> None:
    reads = can_read(analysed, snapshot.schema, may_omit_columns=True)
    if not reads or not set(snapshot.partition_columns) <= set(analysed.names):
        raise DeltaAnalysisException(
            error_class="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            analysed=analysed.simpleString(),
            newest=snapshot.schema.simpleString(),
            table=snapshot.path,
            version=snapshot.version,
        )


def _check_same_table(description: dict[str, Any], snapshot: Snapshot) -> None:
    if snapshot.table_id != description["id"]:
        raise CorruptLogError(
            f"the table {snapshot.path} was replaced by another table (id {snapshot.table_id}) after this "
            f"DataFrame was made for the id {description['id']}. Load the table again",
            table=snapshot.path,
            version=snapshot.version,
        )


@finds_files("version")
def files_of_version(description: dict[str, Any]) -> ScannedFiles:
    """The files of one version of a table."""
    log = DeltaLog.for_table(description["path"])
    snapshot = log.snapshot_at(description["version"])
    _check_same_table(description, snapshot)
    files, statistics = snapshot.files, snapshot.statistics
    if "partition" in description:
        files = files_of_partition(snapshot, description["partition"], description["timeZone"])
        statistics = snapshot.statistics_of(files)
    return ScannedFiles(
        log.path, snapshot.physical_partition_columns, files, statistics, with_stats=snapshot.with_stats
    )
