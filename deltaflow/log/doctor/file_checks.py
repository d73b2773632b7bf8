"""Checks of a table's files: missing ones, those of another size, those that nobody needs, small ones."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaError, DeltaIllegalArgumentException, UnsupportedFeatureError
from deltaflow.log.doctor.finding import NAMED_FILES, Finding, Severity
from deltaflow.log.files.deletion_vectors import read_deletion_vectors
from deltaflow.log.maintenance.missing_files import absent_paths, listed_sizes
from deltaflow.log.maintenance.vacuum_plan import plan_vacuum
from deltaflow.log.progress import Progress
from deltaflow.log.protocol.properties import (
    AUTO_COMPACT_MAX_FILE_SIZE,
    AUTO_COMPACT_MIN_NUM_FILES,
    DELETED_FILE_RETENTION_MS,
)
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot

_VECTORS_AT_ONCE = 1_000


def check_files(log: LogFiles, snapshot: Snapshot) -> tuple[list[Finding], pa.Table]:
    """The findings on the files of a version, and those files that are there with their size."""
    files = snapshot.files
    listed_size = listed_sizes(log, snapshot)
    is_listed = pc.is_valid(listed_size)
    missing = absent_paths(log, files.filter(pc.invert(is_listed)))
    is_missing = pc.is_in(files["path"], value_set=missing)
    is_resized = pc.fill_null(pc.not_equal(files["size"], listed_size), False)
    resized = files["path"].filter(is_resized)
    findings = []
    if len(missing):
        findings.append(
            Finding(
                check="file-missing",
                severity=Severity.ERROR,
                what=f"{len(missing)} files of version {snapshot.version} are not there: queries that read "
                "them fail.",
                repair="Restore them from a copy. If their rows are lost, say so in the log: deltaflow "
                "repair PATH or FSCK REPAIR TABLE removes them, or RESTORE to a version that does not need "
                "them.",
                version=snapshot.version,
                files=missing[:NAMED_FILES].to_pylist(),
                count=len(missing),
                size_bytes=_total_size(files.filter(is_missing)),
            )
        )
    if len(resized):
        findings.append(
            Finding(
                check="file-size",
                severity=Severity.ERROR,
                what=f"{len(resized)} files of version {snapshot.version} do not have the size that the "
                "log says: they were cut off or replaced.",
                repair="Restore them from a copy. A file that is whole and was replaced on purpose needs a "
                "commit that removes it and adds the new one.",
                version=snapshot.version,
                files=resized[:NAMED_FILES].to_pylist(),
                count=len(resized),
            )
        )
    return findings, files.filter(pc.invert(pc.or_(is_missing, is_resized)))


def check_vectors(log: LogFiles, snapshot: Snapshot, progress: Progress) -> Iterator[Finding]:
    """Deletion vectors that are missing, or that are not what the log says."""
    files = snapshot.with_stats(snapshot.files.filter(snapshot.files["deletion_vector"].is_valid()))
    wrong: list[DeltaError] = []
    for start in range(0, files.num_rows, _VECTORS_AT_ONCE):
        progress("deletion vectors", start, files.num_rows)
        wrong += _vector_errors(log, snapshot.version, files.slice(start, _VECTORS_AT_ONCE))
    if wrong:
        yield Finding(
            check="deletion-vector",
            severity=Severity.ERROR,
            what=f"The deletion vectors of {len(wrong)} files of version {snapshot.version} cannot be read: "
            f"queries that read these files fail. {wrong[0].message}",
            repair="Restore them from a copy, or RESTORE the table to a version that does not need them. "
            "If a file of vectors is lost, deltaflow repair PATH --remove-files-without-vectors removes the "
            "files that need it from the table, with all of their rows.",
            version=snapshot.version,
            files=[error.parameters.get("data_file", error.file or "") for error in wrong[:NAMED_FILES]],
            count=len(wrong),
        )


def _vector_errors(log: LogFiles, version: int, files: pa.Table) -> list[DeltaError]:
    """An error for each file whose deletion vector cannot be read."""
    try:
        read_deletion_vectors(files, log.path, version)
    except DeltaError as error:
        if files.num_rows == 1:
            return [error]
        # Halves find the wrong ones in few attempts.
        middle = files.num_rows // 2
        halves = (files.slice(0, middle), files.slice(middle))
        return [found for half in halves for found in _vector_errors(log, version, half)]
    return []


def check_orphans(log: LogFiles, snapshot: Snapshot) -> Iterator[Finding]:
    """Files in the table's directory that no version within the table's retention needs."""
    try:
        retention_ms = DELETED_FILE_RETENTION_MS.of(snapshot.metadata.configuration, snapshot.path)
    except DeltaIllegalArgumentException:
        return  # `check_properties` finds it.
    try:
        plan = plan_vacuum(log, snapshot, retention_ms)
    except UnsupportedFeatureError as error:
        yield Finding(
            check="file-orphaned",
            severity=Severity.ADVICE,
            what=f"Files that no version needs were not looked for: {error.message}",
            repair="Run VACUUM with a Delta implementation that writes such tables.",
        )
        return
    if plan.files.num_rows:
        yield Finding(
            check="file-orphaned",
            severity=Severity.ADVICE,
            what=f"{plan.files.num_rows} files in the table's directory are needed by no version within "
            "the table's retention.",
            repair="See them with deltaflow vacuum PATH --dry-run. Without --dry-run it deletes them.",
            files=plan.files["path"][:NAMED_FILES].to_pylist(),
            count=plan.files.num_rows,
            size_bytes=plan.size_in_bytes,
        )


def check_small_files(snapshot: Snapshot) -> Iterator[Finding]:
    """Partitions with so many small files that autoCompact would rewrite them."""
    least = AUTO_COMPACT_MIN_NUM_FILES.of({}, snapshot.path)
    small = AUTO_COMPACT_MAX_FILE_SIZE.of({}, snapshot.path)
    files = snapshot.files.filter(pc.less(snapshot.files["size"], small))
    columns = snapshot.physical_partition_columns.values()
    values = {
        f"value{number}": pc.map_lookup(files["partition_values"], column, "first")
        for number, column in enumerate(columns)
    }
    grouped = pa.table({**values, "size": files["size"]}).group_by(list(values))
    crowded = grouped.aggregate([("size", "count"), ("size", "sum")])
    crowded = crowded.filter(pc.greater_equal(crowded["size_count"], max(least, 2)))
    if crowded.num_rows == 0:
        return
    number, size = (int(pc.sum(crowded[name]).as_py()) for name in ("size_count", "size_sum"))
    where = f"in {crowded.num_rows} partitions " if columns else ""
    yield Finding(
        check="small-files",
        severity=Severity.ADVICE,
        what=f"{number} files {where}are smaller than {small >> 20} MiB, {size // number} bytes on average. "
        "Queries open more files than they need to.",
        repair="Run OPTIMIZE, and set the table property delta.autoOptimize.autoCompact to true if a stream "
        "writes the table.",
        count=number,
        size_bytes=size,
    )


def _total_size(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)
