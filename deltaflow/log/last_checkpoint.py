"""_last_checkpoint: where the newest checkpoint is, as a hint (PROTOCOL.md, "Last Checkpoint File")."""

from __future__ import annotations

import logging

import msgspec

from deltaflow.errors import StoreError
from deltaflow.log.log_files import LogFiles

LAST_CHECKPOINT = "_last_checkpoint"
_LOG = logging.getLogger(__name__)


class _Hint(msgspec.Struct):
    version: int


def hinted_version(log: LogFiles) -> int:
    """The version that the hint names; 0 without a hint, and, with a warning, if it is unreadable."""
    path = f"{log.directory}/{LAST_CHECKPOINT}"
    try:
        return max(0, msgspec.json.decode(log.store.read(path), type=_Hint).version)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (msgspec.DecodeError, UnicodeDecodeError, StoreError) as error:
        _LOG.warning("%s is ignored, the log is listed from its start: %s", path, error)
        return 0
