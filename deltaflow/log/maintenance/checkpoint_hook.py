"""Every delta.checkpointInterval commits a checkpoint, and once a day the cleanup of the log.

A cleanup lists the whole log, and its limit is a midnight: until the next one it would find nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from deltaflow.errors import traceback_text
from deltaflow.log.maintenance.checkpoint_writer import write_checkpoint
from deltaflow.log.maintenance.log_cleanup import clean_up, limit_of
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.properties import CHECKPOINT_INTERVAL
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot, snapshot_at
from deltaflow.log.replay.version_checksum import warn_of_differences

_LOG = logging.getLogger(__name__)


def checkpoint_if_due(
    log: LogFiles, version: int, metadata: Metadata, read: Snapshot | None, session: Mapping[str, str]
) -> None:
    """Write a checkpoint and clean the log up, if that is due after the commit of `version`.

    `metadata` is the table's since then; `read` is an earlier version, if one is known. The commit is in the
    log, so a failure is only a warning in this module's log.
    """
    try:
        if version == 0 or version % CHECKPOINT_INTERVAL.of(metadata.configuration, log.path) != 0:
            return
        snapshot = snapshot_at(log, version, read)
        _write(log, snapshot, session)
        limit_ms = limit_of(log, snapshot)
        if limit_ms != log.own_work.cleaned_up_to_ms:
            clean_up(log, snapshot)
            log.own_work.cleaned_up_to_ms = limit_ms
    # No error here may look like a failure of the commit.
    except Exception as error:
        _LOG.warning(
            "Version %d of %s is committed, but its checkpoint or the log's cleanup failed\n%s",
            version,
            log.path,
            traceback_text(error),
        )


def checkpoint(
    log: LogFiles, snapshot: Snapshot, session: Mapping[str, str], retention_ms: int | None = None
) -> None:
    """Write a checkpoint of the snapshot, and delete the part of the log that has expired; see `clean_up`.

    UnsupportedFeatureError if the table has features that deltaflow does not write.
    """
    _write(log, snapshot, session)
    clean_up(log, snapshot, retention_ms)


def _write(log: LogFiles, snapshot: Snapshot, session: Mapping[str, str]) -> None:
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    warn_of_differences(log, snapshot)
    write_checkpoint(log, snapshot, session)
