"""Deletion of the expired part of a log (PROTOCOL.md, "Metadata Cleanup")."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Sequence

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.file_key import decoded_path
from deltaflow.log.maintenance.checkpoint_writer import write_classic_copy
from deltaflow.log.protocol.actions import Sidecar, decode_actions
from deltaflow.log.protocol.features import has_v2_checkpoints, protects_checkpoints
from deltaflow.log.protocol.properties import (
    CHECKPOINTS_PROTECTED_BEFORE,
    ENABLE_EXPIRED_LOG_CLEANUP,
    LOG_RETENTION_MS,
)
from deltaflow.log.replay.checkpoint_file import CheckpointFile, part_of_checkpoint
from deltaflow.log.replay.checkpoint_reader import SIDECARS_DIRECTORY, check_checkpoint
from deltaflow.log.replay.listing import Checkpoint, Listing, listing_of
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.time_travel import monotonic_file_times
from deltaflow.store import EntryType, FileStatus

_LOG = logging.getLogger(__name__)
_DAY_MS = 86_400_000
KEPT_MS = 60_000
"""No clean-up deletes a commit as young as this where a look at the end of the log is a request: there a
transaction looks after some time alone."""
_DELETED_TOGETHER = 250
"""What S3A deletes by one request (fs.s3a.bulk.delete.page.size)."""
_OF_VERSION = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\.(?:.+\.)?(?:parquet|json))")
_COMPACTION = re.compile(r"(\d{20})\.\d{20}\.compacted\.json")


def clean_up(log: LogFiles, snapshot: Snapshot, retention_ms: int | None = None) -> None:
    """Delete what is older than delta.logRetentionDuration, unless delta.enableExpiredLogCleanup is false.

    The limit is the midnight (UTC) before that; with `retention_ms` it is exactly that long ago, whatever the
    properties say, but KEPT_MS at least on storages that are no local disks. A checkpoint has just been
    written: a clock that is ahead of the newest file makes no file older. The version that was the newest at
    the limit stays readable, and so does every later one: files are deleted only below a checkpoint of that
    version, or of an earlier one, that has just been read completely, sidecars included. No checkpoint is
    read if nothing is to be deleted. A broken one is a warning in this module's log, and the files that an
    older checkpoint needs stay. With the feature checkpointProtection, all versions before
    delta.requireCheckpointProtectionBeforeVersion go at once, or nothing does.
    """
    configuration = snapshot.metadata.configuration
    if retention_ms is None and not ENABLE_EXPIRED_LOG_CLEANUP.of(configuration, log.path):
        return
    statuses = log.store.list_from(log.directory, "")
    now_ms = min(log.clock(), max((status.modification_time_ms for status in statuses), default=0))
    limit_ms = _limit(log, snapshot, now_ms) if retention_ms is None else now_ms - retention_ms
    if not log.store.lists_whole_directories:
        limit_ms = min(limit_ms, now_ms - KEPT_MS)
    listing = listing_of(0, statuses)
    protected = 0
    if protects_checkpoints(snapshot.protocol):
        protected = CHECKPOINTS_PROTECTED_BEFORE.of(configuration, log.path)
    expired = _expired(log, statuses, listing, limit_ms, protected)
    if not expired:
        return
    if has_v2_checkpoints(snapshot.protocol):
        _ensure_classic_copy(log, listing)
    if protected:
        # Readers that lack a feature of some commits see no more than the checkpoints after them.
        _delete(log, [name for name in expired if ".checkpoint." not in name])
        _delete(log, [name for name in expired if ".checkpoint." in name])
    else:
        _delete(log, expired)
    _LOG.info("Deleted %d files of the log of %s that had expired", len(expired), log.path)
    if has_v2_checkpoints(snapshot.protocol):
        _delete_sidecars(log, min(limit_ms, _midnight_before(now_ms - _DAY_MS)))


def limit_of(log: LogFiles, snapshot: Snapshot) -> int | None:
    """The midnight before which the table's properties let files be deleted, in milliseconds since the epoch;
    None if they let none."""
    if not ENABLE_EXPIRED_LOG_CLEANUP.of(snapshot.metadata.configuration, log.path):
        return None
    return _limit(log, snapshot, log.clock())


def _limit(log: LogFiles, snapshot: Snapshot, now_ms: int) -> int:
    return _midnight_before(now_ms - LOG_RETENTION_MS.of(snapshot.metadata.configuration, log.path))


def first_cleanup_ms(committed_ms: int, retention_ms: int) -> int:
    """When the limit of `clean_up` reaches the time of a commit, in milliseconds since the epoch."""
    return _midnight_before(committed_ms + _DAY_MS - 1) + retention_ms


def _midnight_before(timestamp_ms: int) -> int:
    return timestamp_ms - timestamp_ms % _DAY_MS


def _expired(
    log: LogFiles, statuses: Sequence[FileStatus], listing: Listing, limit_ms: int, protected: int
) -> list[str]:
    """The files below the newest sound checkpoint of a version that was the newest at the limit, or of one
    before; none if versions before the one that is `protected` would stay.
    """
    versions = sorted(listing.commits)
    times = monotonic_file_times(listing, versions)
    current = [version for version, time in zip(versions, times, strict=True) if time <= limit_ms]
    for checkpoint in reversed(listing.checkpoints):
        if not current or checkpoint.version > current[-1]:
            continue
        if checkpoint.version < protected:
            return []
        below = _files_below(statuses, checkpoint.version)
        # An older checkpoint has no more below it.
        if not below or _is_sound(log, checkpoint):
            return below
    return []


def _is_sound(log: LogFiles, checkpoint: Checkpoint) -> bool:
    """Whether a reader can use the checkpoint without any earlier file of the log."""
    try:
        check_checkpoint(log, checkpoint)
    except CorruptLogError as error:
        _LOG.warning("What is older than %s is kept, because it is broken: %s", checkpoint, error)
        return False
    return True


def _files_below(statuses: Sequence[FileStatus], version: int) -> list[str]:
    found = []
    for status in statuses:
        of_version = _OF_VERSION.fullmatch(status.name)
        compaction = _COMPACTION.fullmatch(status.name)
        if (of_version and int(of_version[1]) < version) or (compaction and int(compaction[1]) <= version):
            found.append(status.name)
    return found


def _ensure_classic_copy(log: LogFiles, listing: Listing) -> None:
    """Without the first commits, a reader that does not know V2 checkpoints finds the protocol only there.

    It finds it in a checkpoint of several parts, too, one of which is no copy of all. A broken one is passed
    over.
    """
    for newest in reversed(listing.checkpoints):
        classic = f"{newest.version:020}.checkpoint.parquet"
        if len(newest.files) > 1 or any(str(checkpoint) == classic for checkpoint in listing.checkpoints):
            return
        try:
            write_classic_copy(log, newest)
        except CorruptLogError as error:
            _LOG.warning("%s is not copied to a classic name, because it is broken: %s", newest, error)
        else:
            return


def _delete(log: LogFiles, names: Sequence[str]) -> None:
    """Delete files of the log, the oldest first: if this is interrupted, those of later versions are still
    there, but for a few. Those few go together, since an object store has one request for many.
    """
    log.store.check_writable(log.directory)
    directory = log.store.data_directory(log.directory)
    for start in range(0, len(names), _DELETED_TOGETHER):
        _, failures = directory.delete("", names[start : start + _DELETED_TOGETHER])
        if failures:
            raise failures[0]


def _delete_sidecars(log: LogFiles, limit_ms: int) -> None:
    """Delete the sidecars before the limit that no checkpoint refers to; younger ones may belong to a
    checkpoint that is being written.
    """
    there = _old_sidecars(log, limit_ms)
    if not there:
        return
    # Also of incomplete and unknown checkpoints: whatever they refer to stays.
    named = (
        status
        for status in log.store.list_from(log.directory, "")
        if ".checkpoint." in status.name and status.name.endswith((".json", ".parquet"))
    )
    try:
        needed = {sidecar for status in named for sidecar in _sidecars_of(log, status)}
    except CorruptLogError as error:
        _LOG.warning("No sidecars of %s are deleted, because a checkpoint is broken: %s", log.path, error)
        return
    # If the directory is a link, what it leads to is nobody's to delete: DataDirectory follows none.
    unneeded = [name for name in there if name not in needed]
    _, failures = log.store.data_directory(log.directory).delete(SIDECARS_DIRECTORY, unneeded)
    if failures:
        raise failures[0]


def _old_sidecars(log: LogFiles, limit_ms: int) -> list[str]:
    return [
        entry.name
        for entry in log.store.data_directory(log.directory).entries(SIDECARS_DIRECTORY)
        if entry.type is EntryType.FILE and entry.modification_time_ms < limit_ms
    ]


def _sidecars_of(log: LogFiles, checkpoint: FileStatus) -> set[str]:
    """The names of the sidecars that one file of a checkpoint refers to."""
    path = f"{log.directory}/{checkpoint.name}"
    with part_of_checkpoint(path):
        if path.endswith(".json"):
            actions = decode_actions(log.store.read(path), path)
            paths = [action.path for action in actions if isinstance(action, Sidecar)]
        else:
            with log.store.open(path) as stream:
                file = CheckpointFile(stream)
                if "sidecar" not in file.parquet.schema_arrow.names:
                    return set()
                batches = file.batches(["sidecar.path"])
                rows = [row for batch in batches for row in batch.column("sidecar").to_pylist()]
            paths = [row["path"] for row in rows if row is not None and row["path"] is not None]
    return {posixpath.basename(decoded_path(path)) for path in paths}
