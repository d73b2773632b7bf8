"""When what a stream has yet to read expires: commits by the log's clean-up, files by a vacuum.

Memory: the paths of the table's files and tombstones and those of the files that the stream needs, as
columns; nothing for a stream that has read everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.data_path import resolve_data_path
from deltaflow.log.files.data_places import LogPlaces
from deltaflow.log.files.deletion_vectors import file_uris
from deltaflow.log.maintenance.log_cleanup import first_cleanup_ms
from deltaflow.log.protocol.properties import (
    DELETED_FILE_RETENTION_MS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    LOG_RETENTION_MS,
)
from deltaflow.log.replay.listing import Listing
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot, newest_snapshot
from deltaflow.log.replay.time_travel import monotonic_file_times
from deltaflow.log.streams.needed_files import needed_files
from deltaflow.log.streams.source_offset import DeltaSourceOffset

_FIELDS = frozenset({"path", "deletionTimestamp"})


@dataclass(frozen=True, slots=True)
class Expiry:
    """The first thing that goes of what a stream has yet to read."""

    version: int
    """The version whose commit, or whose file, goes."""
    path: str | None
    """The file, as in the log; None for a commit."""
    at_ms: int
    """From when on it may be deleted, in milliseconds since the epoch."""
    is_gone: bool
    """Whether it has been deleted."""


def log_expiry(log: LogFiles, newest: Snapshot, position: DeltaSourceOffset) -> Expiry | None:
    """When the log's clean-up may delete the first commit that a stream at the position needs.

    None if it needs no commit yet, or if the table's log is not cleaned up. The clean-up deletes a commit
    with all earlier ones, once a later checkpoint has expired. Where there is no later checkpoint, there
    could be one of the newest version at any time.
    """
    version = position.reservoir_version
    if version > newest.version:
        return None
    listing = log.list(0)
    if position.is_starting_version:
        is_gone = version not in listing.rebuildable_versions()
    else:
        is_gone = version not in listing.commits
    if is_gone:
        return Expiry(version, None, log.clock(), is_gone=True)
    configuration = newest.metadata.configuration
    committed_ms = _time_of_later_checkpoint(listing, version)
    if committed_ms is None or not ENABLE_EXPIRED_LOG_CLEANUP.of(configuration, log.path):
        return None
    at_ms = first_cleanup_ms(committed_ms, LOG_RETENTION_MS.of(configuration, log.path))
    return Expiry(version, None, at_ms, is_gone=False)


def _time_of_later_checkpoint(listing: Listing, version: int) -> int | None:
    """When the first checkpoint after a version, or the newest version, was committed; None without one."""
    there = [checkpoint.version for checkpoint in listing.checkpoints if checkpoint.version > version]
    later = min([*there, listing.latest_version])
    versions = sorted(listing.commits)
    times = monotonic_file_times(listing, versions)
    # Where the checkpoint's own commit is missing, the next one stands for it.
    return next((time for v, time in zip(versions, times, strict=True) if v >= later > version), None)


def vacuum_expiry(
    log: LogFiles, newest: Snapshot, position: DeltaSourceOffset, *, of_changes: bool
) -> Expiry | None:
    """When a vacuum with the table's own retention may delete the first file that a stream at the position
    needs; None if the table still has all of them.

    A vacuum may come later, or keep a file for longer: a file is also kept as long as it is young.
    """
    if position.reservoir_version > newest.version:
        return None
    removed = removed_files(log, newest.version, position, of_changes=of_changes)
    if removed.num_rows == 0:
        return None
    retention_ms = DELETED_FILE_RETENTION_MS.of(newest.metadata.configuration, log.path)
    first = pc.sort_indices(removed, [("removed_ms", "ascending"), ("version", "ascending")])[0].as_py()
    row = removed.slice(first, 1).to_pylist()[0]
    is_gone = bool(log.store.absent([resolve_data_path(log.path, row["path"]).path]))
    return Expiry(row["version"], row["path"], row["removed_ms"] + retention_ms, is_gone)


def removed_files(
    log: LogFiles, last_version: int, position: DeltaSourceOffset, *, of_changes: bool
) -> pa.Table:
    """The files of `needed_files` that the table no longer has, and when they were removed (`removed_ms`).

    That is 0, long ago, where the tombstone has expired or has no time. A change file that the table has
    never had may be deleted by a vacuum as if its commit had removed it.
    """
    needed = needed_files(log, position, last_version, of_changes=of_changes)
    needed = needed.append_column("removed_ms", pa.repeat(pa.scalar(0, pa.int64()), needed.num_rows))
    if needed.num_rows == 0:
        return needed
    with_paths = replace(log, file_fields=_FIELDS)
    newest = newest_snapshot(with_paths)
    places = LogPlaces(log.store.data_directory(log.path))

    own = pa.chunked_array(list(places.of(needed["path"].chunks)), pa.string())
    active, _ = _places_with_times(places, newest.files, None)
    # Files outside of the table's directory have no place. No vacuum deletes them.
    is_removed = pc.and_(own.is_valid(), pc.invert(pc.is_in(own, value_set=active)))
    needed, own = needed.filter(is_removed), own.filter(is_removed)
    removed, times = _places_with_times(places, newest.tombstones, "deletion_timestamp")
    # A file may have been removed several times, with another deletion vector each time: the last one counts.
    last_first = pc.sort_indices(times, sort_keys=[("", "descending")])
    of_needed = pc.index_in(own, value_set=removed.take(last_first))
    removed_ms = pc.coalesce(times.take(last_first).take(of_needed), needed["recorded_ms"], pa.scalar(0))
    return needed.set_column(needed.column_names.index("removed_ms"), "removed_ms", removed_ms)


def _places_with_times(
    places: LogPlaces, files: pa.Table, times: str | None
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The places of files and of their deletion vectors, and the values of the column `times` for each."""
    found: list[pa.Array] = []
    of_each: list[pa.Array] = []
    for batch in files.to_batches():
        time = pa.nulls(batch.num_rows, pa.int64()) if times is None else batch.column(times)
        vectors = batch.column("deletion_vector")
        uris = file_uris(vectors)
        found += places.of([batch.column("path"), uris.drop_null()])
        of_each += [time, time.filter(uris.is_valid())]
    return pa.chunked_array(found, pa.string()), pa.chunked_array(of_each, pa.int64())
