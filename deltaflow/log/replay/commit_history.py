"""The history of a table: the commitInfo of its commits (delta-spark's DeltaHistoryManager)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from deltaflow.errors import CorruptLogError
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.time_travel import first_in_commit_version, monotonic_file_times

_THREADS = 8


class CommitRecord(NamedTuple):
    """A version, its time, and the commitInfo of its commit."""

    version: int
    timestamp_ms: int
    info: Mapping[str, Any] | None
    """By the names in the log, with values of any type; None where the commit has none."""


class _Line(msgspec.Struct):
    commit_info: dict[str, Any] | None = msgspec.field(default=None, name="commitInfo")


def read_history(log: LogFiles, newest: Snapshot, limit: int | None) -> list[CommitRecord]:
    """The commits whose files are there, newest first; with `limit`, of so many versions up to the newest.

    Times are those of time travel. Only the lines up to the commitInfo are decoded, mostly the first one.
    """
    listing = log.list(0)
    versions = sorted(version for version in listing.commits if version <= newest.version)
    file_times = dict(zip(versions, monotonic_file_times(listing, versions), strict=True))
    if limit is not None:
        versions = [version for version in versions if version > newest.version - limit]
    versions.reverse()
    in_commit_since = first_in_commit_version(newest)

    def records(some: Sequence[int]) -> Iterator[CommitRecord]:
        contents = log.store.read_together(log.directory, [listing.commits[version] for version in some])
        for version, content in zip(some, contents, strict=True):
            if content is not None:  # otherwise log cleanup has removed it since the listing
                yield record(version, _commit_info(content, log.commit_path(version)))

    def record(version: int, info: dict[str, Any] | None) -> CommitRecord:
        timestamp_ms = file_times[version]
        if info is not None and in_commit_since is not None and version >= in_commit_since:
            in_commit = info.get("inCommitTimestamp")
            timestamp_ms = in_commit if isinstance(in_commit, int) else timestamp_ms
        return CommitRecord(version, timestamp_ms, info)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="deltaflow-history") as pool:
        together = log.store.files_read_together
        parts = [versions[start : start + together] for start in range(0, len(versions), together)]
        found = pool.map(lambda part: list(records(part)), parts)
        return [record for part in found for record in part]


def _commit_info(data: bytes, path: str) -> dict[str, Any] | None:
    decoder = msgspec.json.Decoder(_Line)
    try:
        infos = (decoder.decode(line).commit_info for line in data.splitlines() if line.strip())
        return next((info for info in infos if info is not None), None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(
            f"{path} is no commit: {error}. Restore the file from a copy.", file=path
        ) from error
