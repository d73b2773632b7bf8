"""What a commit needs to know about the version that it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltaflow.errors import CorruptLogError
from deltaflow.log.protocol.actions import Metadata, Protocol
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.row_tracking import DOMAIN, NO_ROW_ID, highest_row_id
from deltaflow.log.replay.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log: a version, without its files."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    highest_row_id: int = NO_ROW_ID
    """See deltaflow.log.protocol.row_tracking."""
    etag: str | None = None
    """That of its commit file, by which another one of that name is known; None if it is not known."""


def head_of(snapshot: Snapshot | None, etag: str | None = None) -> Head | None:
    """The head of a log that ends with the snapshot, whose commit file has the etag; None without a table."""
    if snapshot is None:
        return None
    return Head(
        snapshot.version,
        snapshot.timestamp_ms,
        snapshot.protocol,
        snapshot.metadata,
        highest_row_id(snapshot.domains, snapshot.path),
        etag,
    )


def head_after(head: Head | None, commits: Sequence[Commit], table: str) -> Head:
    """The head after commits, at least one, that follow `head`.

    CorruptLogError if they are the first ones of the table and lack its protocol or metadata.
    """
    protocol = None if head is None else head.protocol
    metadata = None if head is None else head.metadata
    highest = NO_ROW_ID if head is None else head.highest_row_id
    for commit in commits:
        set_here = {domain.domain: domain for domain in commit.domains}
        highest = highest_row_id(set_here, table) if DOMAIN in set_here else highest
        protocol = commit.protocol or protocol
        metadata = commit.metadata or metadata
    newest = commits[-1]
    if protocol is None or metadata is None:
        raise CorruptLogError(
            f"The log of {table} has no {'protocol' if protocol is None else 'metaData'} action up to "
            f"version {newest.version}. Restore the first commits from a copy.",
            error_class="DELTA_STATE_RECOVER_ERROR",
            table=table,
            version=newest.version,
        )
    return Head(newest.version, newest.timestamp_ms, protocol, metadata, highest)
