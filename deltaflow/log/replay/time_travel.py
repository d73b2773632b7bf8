"""From a point in time to the version that was current then (delta-spark's DeltaHistoryManager)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from deltaflow.errors import VersionNotFoundError
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.protocol.in_commit_timestamps import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltaflow.log.replay.listing import Listing, version_runs
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot

_LATEST_MS = 2**63 - 1


def available_versions(listing: Listing) -> str:
    """The versions that a listing from version 0 can give, for a message."""
    return ", ".join(f"[{first}, {last}]" for first, last in version_runs(listing.rebuildable_versions()))


def version_at(
    log: LogFiles,
    listing: Listing,
    newest: Snapshot,
    timestamp_ms: int,
    versions: Sequence[int] | None = None,
) -> int:
    """The last version committed at `timestamp_ms` or before, of the given ones or, without any, of those
    that a listing from 0 can give.

    VersionNotFoundError before the first of them, and after the last. A commit's time is its in-commit
    timestamp from the version on that enabled them; before, the modification time of its file, made at
    least 1 ms later than that of the version before. Without its commit it is that of its checkpoint's file.
    """
    versions = listing.rebuildable_versions() if versions is None else versions
    first_in_commit, enabled_at_ms = len(versions), None
    in_commit_since = first_in_commit_version(newest)
    if in_commit_since is not None:
        first_in_commit = bisect_left(versions, in_commit_since)
        enabled_at_ms = _number(newest.metadata, ENABLEMENT_TIMESTAMP)
    file_times = monotonic_file_times(listing, versions[:first_in_commit])

    def time_of(index: int) -> int:
        if index < first_in_commit:
            return file_times[index]
        if versions[index] not in listing.commits:  # its checkpoint alone is there, and was written later
            status = listing.status(versions[index])
            latest = time_of(index + 1) - 1 if index + 1 < len(versions) else _LATEST_MS
            return min(latest, 0 if status is None else status.modification_time_ms)
        (commit,) = log.commits(listing, versions[index], versions[index])
        return commit.timestamp_ms

    start, end = 0, len(versions)
    if enabled_at_ms is not None:
        start, end = (first_in_commit, end) if timestamp_ms >= enabled_at_ms else (0, first_in_commit)
    index = bisect_right(range(end), timestamp_ms, lo=start, key=time_of) - 1
    if index < 0 or (index == len(versions) - 1 and time_of(index) < timestamp_ms):
        raise _out_of_range(listing, versions, time_of, timestamp_ms, log.path)
    return versions[index]


def first_version_since(log: LogFiles, listing: Listing, newest: Snapshot, timestamp_ms: int) -> int:
    """The first version committed at `timestamp_ms` or after it, of those with a commit in a listing from 0;
    the one that comes next if all are earlier."""
    # A clean-up may leave the checkpoint of a version without its commit.
    versions = sorted(listing.commits) or listing.known_versions()
    try:
        return version_at(log, listing, newest, timestamp_ms - 1, versions) + 1
    except VersionNotFoundError as error:
        if error.error_class == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION":
            return versions[0]
        return newest.version + 1


def first_in_commit_version(newest: Snapshot) -> int | None:
    """The version that enabled in-commit timestamps; None where they are not on."""
    if not has_in_commit_timestamps(newest.protocol, newest.metadata):
        return None
    return _number(newest.metadata, ENABLEMENT_VERSION)


def _number(metadata: Metadata, name: str) -> int:
    """A property that a writer sets where in-commit timestamps are enabled later than at version 0."""
    try:
        return int(metadata.configuration.get(name, "0"))
    except ValueError:
        return 0


def monotonic_file_times(listing: Listing, versions: Sequence[int]) -> list[int]:
    """When ascending versions were committed, in ms, by their files: each later than the one before.

    A version of which the checkpoint alone is left, which was written later, is earlier than the next commit.
    """
    times: list[int] = []
    for version in versions:
        status = listing.status(version)
        modified_ms = 0 if status is None else status.modification_time_ms
        following = listing.commits.get(version + 1)
        if version not in listing.commits and following is not None:
            modified_ms = min(modified_ms, following.modification_time_ms - 1)
        times.append(max(modified_ms, times[-1] + 1) if times else modified_ms)
    return times


def _out_of_range(
    listing: Listing, versions: Sequence[int], time_of: Callable[[int], int], timestamp_ms: int, table: str
) -> VersionNotFoundError:
    first, last = _text(time_of(0)), _text(time_of(len(versions) - 1))
    is_early = timestamp_ms < time_of(0)
    return VersionNotFoundError(
        error_class="DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
        if is_early
        else "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
        timestamp=_text(timestamp_ms),
        earliest=first,
        latest=last,
        available=f"versions {available_versions(listing)}, from {first} to {last}",
        table=table,
    )


def _text(timestamp_ms: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # Spark's years go beyond those of Python
        return f"{timestamp_ms} ms from 1970 on"
    return moment.isoformat(sep=" ", timespec="milliseconds")
