"""Timestamps that commits carry themselves (PROTOCOL.md, "In-Commit Timestamps")."""

from __future__ import annotations

import msgspec

from deltaflow.log.protocol.actions import Metadata

ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def next_timestamp(now_ms: int, previous_ms: int) -> int:
    """The timestamp of a commit made now after one of `previous_ms`: later than that in any case."""
    return max(now_ms, previous_ms + 1)


def with_enablement(
    metadata: Metadata, before: Metadata, version: int, timestamp_ms: int, *, were_enabled: bool
) -> Metadata:
    """The metadata of a commit, with the version and the time at which in-commit timestamps were enabled:
    those of this commit, or those of the metadata `before`, if it had them enabled.
    """
    if were_enabled:
        names = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
        since = {name: before.configuration[name] for name in names if name in before.configuration}
    else:
        since = {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp_ms)}
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **since})
