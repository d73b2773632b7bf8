"""`spark.read.format("delta").load(path)`: one version of a table as a scan by Spark's Parquet reader."""

from __future__ import annotations

from typing import Any

from deltaflow.batch.options import option, required_path, unsupported_options
from deltaflow.errors import CorruptLogError, DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.log.files import refuse_deletion_vectors
from deltaflow.spark.dispatcher import dispatcher
from deltaflow.spark.scan import ScannedFiles, relation, scan_kind

_NOT_YET = ("timestampAsOf", "readChangeFeed", "readChangeData")


@dispatcher.handle("read")
def read(request: dict[str, Any]) -> dict[str, Any]:
    """The relation over a version, the newest unless versionAsOf names another.

    The scan stays at that version, whatever is committed later.
    """
    path = required_path(request["path"])
    unsupported_options(request["options"], _NOT_YET, "reading")
    log = DeltaLog.for_table(path)
    version = option(request["options"], "versionAsOf")
    snapshot = log.snapshot() if version is None else log.snapshot_at(_version(version))
    return relation(
        {
            "kind": "version",
            "path": log.path,
            "id": snapshot.table_id,
            "version": snapshot.version,
            "timeTravel": version is not None,
        },
        log.path,
        snapshot.schema,
        list(snapshot.partition_columns),
        snapshot.size_in_bytes,
    )


def _version(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=value,
            name="versionAsOf",
            explain="must be a version number",
        )
    return int(value)


@scan_kind("version")
def files_of_version(description: dict[str, Any]) -> ScannedFiles:
    """The files of one version of a table."""
    log = DeltaLog.for_table(description["path"])
    snapshot = log.snapshot_at(description["version"])
    if snapshot.table_id != description["id"]:
        raise CorruptLogError(
            f"the table {log.path} was replaced by another one (id {snapshot.table_id}) after this "
            f"DataFrame was made for id {description['id']}. Load it again",
            table=log.path,
            version=description["version"],
        )
    refuse_deletion_vectors(snapshot.files, log.path, snapshot.version)
    return ScannedFiles(log.path, tuple(snapshot.partition_columns), snapshot.files)
