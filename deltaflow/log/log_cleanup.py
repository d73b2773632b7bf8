"""Deletion of the expired part of a log (PROTOCOL.md, "Metadata Cleanup")."""

from __future__ import annotations

from deltaflow.log.log_files import LogFiles
from deltaflow.log.snapshot import Snapshot


def clean_up(log: LogFiles, snapshot: Snapshot) -> None:
    return
