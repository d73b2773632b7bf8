"""RESTORE: a commit gives a table the contents of one of its earlier versions (RestoreTableCommand).

The commit adds the files that the newest version lacks, removes those that the earlier version lacks, and
restores the metadata. The history is kept: the version that was the newest can be restored as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType

from deltaflow.batch.options import session_setting
from deltaflow.batch.result_rows import schema_of
from deltaflow.errors import StoreError, VersionNotFoundError, after_commit
from deltaflow.log import AddFile, DeltaLog, Operation, RemoveFile, Snapshot, add_files, remove_files
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_rows import file_keys
from deltaflow.log.protocol.clustering import CLUSTERING_DOMAIN
from deltaflow.log.protocol.column_assignment import with_highest_id
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.identity_columns import with_marks_of
from deltaflow.log.protocol.properties import (
    IGNORE_MISSING_FILES,
    MAX_COMMIT_ATTEMPTS,
    RESTORE_PROTOCOL_DOWNGRADE_ALLOWED,
)
from deltaflow.log.protocol.protocols import merged_protocol
from deltaflow.spark.expressions.timestamps import timestamp_of_text
from deltaflow.store import absent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESTORED = schema_of(
    table_size_after_restore=LongType(),
    num_of_files_after_restore=LongType(),
    num_removed_files=LongType(),
    num_restored_files=LongType(),
    removed_files_size=LongType(),
    restored_files_size=LongType(),
)
"""The output of RESTORE."""
_METRICS = (
    "tableSizeAfterRestore",
    "numOfFilesAfterRestore",
    "numRemovedFiles",
    "numRestoredFiles",
    "removedFilesSize",
    "restoredFilesSize",
)
"""The same numbers by their names in commitInfo."""
_MISSING_FILES_NAMED = 100


def restore_to_version(
    spark: SparkSession, path: str, version: int, settings: Mapping[str, str]
) -> list[tuple[int, ...]]:
    """Restores a version, and returns the row of RESTORED. If it is the newest, nothing is done: no row.

    `settings` are the session's spark.databricks.delta.*. DELTA_CANNOT_RESTORE_TABLE_VERSION if the log
    cannot rebuild the version. StoreError if its files are missing, unless spark.sql.files.ignoreMissingFiles
    is true. Any commit meanwhile is a conflict.
    """
    return _restore(
        spark, DeltaLog.for_table(path), version, {"version": version, "timestamp": None}, settings
    )


def restore_to_timestamp(
    spark: SparkSession, path: str, timestamp: str, settings: Mapping[str, str]
) -> list[tuple[int, ...]]:
    """As `restore_to_version`, for the version that was the newest at a time, in the session's time zone.

    DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER for a time before the first version, …_GREATER after the last one.
    """
    log = DeltaLog.for_table(path)
    time = timestamp_of_text(timestamp, spark)
    try:
        version = log.version_at_timestamp(time.ms)
    except VersionNotFoundError as error:
        is_early = error.error_class == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
        raise VersionNotFoundError(
            error_class=f"DELTA_CANNOT_RESTORE_TIMESTAMP_{'EARLIER' if is_early else 'GREATER'}",
            table=log.path,
            timestamp=error.parameters["timestamp"],
            earliest=error.parameters["earliest"],
            latest=error.parameters["latest"],
        ) from error
    return _restore(spark, log, version, {"version": None, "timestamp": time.text}, settings)


def _restore(
    spark: SparkSession,
    log: DeltaLog,
    version: int,
    parameters: Mapping[str, str | bool | int | None],
    settings: Mapping[str, str],
) -> list[tuple[int, ...]]:
    log.snapshot()  # there has to be a table
    # One attempt: the restore was not computed for what a rival commits meanwhile.
    session = {**settings, MAX_COMMIT_ATTEMPTS.name: "1"}
    transaction = log.start_transaction(session)
    transaction.record_read_of_whole_table()
    current, restored = transaction.snapshot, _snapshot_at(log, version)
    assert current is not None
    if restored.version == current.version:
        return []
    for snapshot in (current, restored):
        check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    added, removed = _files_only_in(restored, current), _files_only_in(current, restored)
    needs_all = not session_setting(spark, IGNORE_MISSING_FILES)
    if needs_all and (missing := _missing(added, restored)):
        raise _files_missing(
            restored,
            missing,
            f"Not all files of version {restored.version} of {log.path} are there any more: VACUUM deleted "
            "them, or somebody by hand. Nothing was committed.",
            "Restore a newer version; to restore what is there of this one, set "
            "spark.sql.files.ignoreMissingFiles to true.",
        )
    may_downgrade = RESTORE_PROTOCOL_DOWNGRADE_ALLOWED.of(session, log.path)
    protocol = restored.protocol if may_downgrade else merged_protocol(restored.protocol, current.protocol)
    if restored.domains.get(CLUSTERING_DOMAIN) != current.domains.get(CLUSTERING_DOMAIN):
        transaction.clustering.as_in(restored)
    metadata = with_highest_id(restored.metadata, current.metadata)
    transaction.update_protocol(protocol, with_marks_of(metadata, current.metadata, log.path))
    row = (
        restored.size_in_bytes,
        restored.num_files,
        removed.num_rows,
        added.num_rows,
        pc.sum(removed["size"], min_count=0).as_py(),
        pc.sum(added["size"], min_count=0).as_py(),
    )
    metrics = {name: str(number) for name, number in zip(_METRICS, row, strict=True)}
    actions: list[AddFile | RemoveFile] = [
        *add_files(restored.with_stats(added)),
        # Their rows are there: neither streams nor the change data feed may have them again.
        *add_files(restored.with_stats(_files_of_other_ids(restored, current)), data_change=False),
        *remove_files(current.with_stats(removed), transaction.log.clock()),
    ]
    committed = transaction.commit(actions, Operation("RESTORE", parameters, metrics))
    # A vacuum that had looked at the log before the commit may have deleted them since they were looked for.
    if needs_all:
        failure = "it is not known whether VACUUM deleted files that RESTORE brought back"
        advice = "FSCK REPAIR TABLE … DRY RUN lists those that are missing."
        with after_commit(failure, advice, table=log.path, version=committed.version):
            missing = _missing(added, restored)
        if missing:
            raise _files_missing(
                restored,
                missing,
                f"VACUUM deleted files of version {restored.version} of {log.path} while RESTORE brought "
                f"them back: the table lacks them since version {committed.version}, which is committed.",
                f"Restore version {current.version}, which was the newest before it.",
            )
    return [row]


def _snapshot_at(log: DeltaLog, version: int) -> Snapshot:
    try:
        return log.snapshot_at(version)
    except VersionNotFoundError as error:
        versions = log.available_versions()
        raise VersionNotFoundError(
            error_class="DELTA_CANNOT_RESTORE_TABLE_VERSION",
            requested=version,
            available=f"[{versions[0]}, {versions[-1]}]",
            table=log.path,
        ) from error


def _files_only_in(snapshot: Snapshot, other: Snapshot) -> pa.Table:
    """The files of the snapshot that the other one lacks."""
    return snapshot.files.filter(_places_in(snapshot, other).is_null())


def _files_of_other_ids(snapshot: Snapshot, other: Snapshot) -> pa.Table:
    """The files of the snapshot that the other one has without row ids, or with other ones."""
    places = _places_in(snapshot, other)
    ids = snapshot.files["base_row_id"].combine_chunks()
    other_ids = other.files["base_row_id"].combine_chunks().take(places)
    differ = pc.and_(ids.is_valid(), pc.fill_null(pc.not_equal(ids, other_ids), True))
    return snapshot.files.filter(pc.and_(places.is_valid(), differ))


def _places_in(snapshot: Snapshot, other: Snapshot) -> pa.Array:
    """For each file of the snapshot its row in the files of the other one; null if it lacks the file."""
    own, others = (file_keys(each.files, each.path) for each in (snapshot, other))
    return pc.index_in(own, value_set=others)


def _missing(files: pa.Table, snapshot: Snapshot) -> list[str]:
    """The paths of these files of the snapshot, and of their deletion vectors, that are missing."""
    uris = [*files["path"].to_pylist(), *vector_uris(files["deletion_vector"])]
    paths: list[str] = store_paths(snapshot.path, pa.chunked_array([uris], pa.string())).to_pylist()
    return absent(paths)


def _files_missing(snapshot: Snapshot, missing: Sequence[str], what: str, advice: str) -> StoreError:
    more = len(missing) - _MISSING_FILES_NAMED
    named = ", ".join(missing[:_MISSING_FILES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return StoreError(
        f"{what} Missing: {named}. {advice}",
        error_class="DELTA_FILE_NOT_FOUND_DETAILED",
        table=snapshot.path,
        version=snapshot.version,
        file=missing[0],
    )
