"""The content of a commit file: commitInfo, then protocol and metadata, then the other actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import metadata as distribution

import msgspec

from deltaflow.log.commits.head import Head
from deltaflow.log.protocol.actions import AnyAction, CommitInfo, Metadata, Protocol
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.protocol.in_commit_timestamps import next_timestamp, with_enablement


def content_after(
    head: Head | None,
    protocol: Protocol,
    metadata: Metadata,
    info: CommitInfo,
    actions: Sequence[AnyAction],
) -> tuple[AnyAction, ...]:
    """The actions of the commit that follows `head` and leaves the table with this protocol and metadata.

    `info.timestamp` is the time of the commit. Where the table has in-commit timestamps, the commit carries
    one that is later than that of `head`.
    """
    now_ms = info.timestamp
    assert now_ms is not None
    if has_in_commit_timestamps(protocol, metadata):
        timestamp_ms = now_ms if head is None else next_timestamp(now_ms, head.timestamp_ms)
        info = msgspec.structs.replace(info, in_commit_timestamp=timestamp_ms)
        if head is not None and metadata is not head.metadata:
            were_enabled = has_in_commit_timestamps(head.protocol, head.metadata)
            metadata = with_enablement(
                metadata, head.metadata, head.version + 1, timestamp_ms, were_enabled=were_enabled
            )
    changes: list[AnyAction] = []
    if head is None or protocol != head.protocol:
        changes.append(protocol)
    if head is None or metadata != head.metadata:
        changes.append(metadata)
    return info, *changes, *actions


@cache
def engine_info() -> str:
    """The engineInfo of deltaflow's commits."""
    try:
        return f"deltaflow/{distribution.version('deltaflow')}"
    except distribution.PackageNotFoundError:
        return "deltaflow"
