"""_last_vacuum_info: up to which version vacuums have deleted what commits removed.

It is delta-spark's LastVacuumInfo. VACUUM LITE goes on from there. The file is a hint: without it, VACUUM
LITE needs the log from its start.
"""

from __future__ import annotations

import logging

import msgspec

from deltaflow.errors import StoreError
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.untrusted_json import decode_json

LAST_VACUUM_INFO = "_last_vacuum_info"
_LOG = logging.getLogger(__name__)


class _Info(msgspec.Struct, omit_defaults=True):
    version: int | None = msgspec.field(name="latestCommitVersionOutsideOfRetentionWindow", default=None)


def last_vacuumed_version(log: LogFiles) -> int:
    """The last version whose removed files a vacuum has deleted; -1 if the log does not say, with a warning
    if its file is unreadable."""
    path = _path(log)
    try:
        version = decode_json(log.store.read(path), as_type=_Info).version
    except (FileNotFoundError, NotADirectoryError):
        return -1
    except (msgspec.DecodeError, StoreError) as error:
        _LOG.warning("%s is ignored: %s", path, error)
        return -1
    return -1 if version is None else version


def record_vacuumed_version(log: LogFiles, version: int, newest: int) -> None:
    """Let the file say that a vacuum has deleted what commits up to a version removed, unless it says that of
    a later one already, which is not beyond the newest version."""
    if version < 0 or version <= last_vacuumed_version(log) <= newest:
        return
    try:
        with log.store.open_output(_path(log)) as file:
            file.write(msgspec.json.encode(_Info(version)))
    except StoreError as error:
        # The next VACUUM LITE reads more commits than it has to.
        _LOG.warning("%s could not be written: %s", _path(log), error)


def _path(log: LogFiles) -> str:
    return f"{log.directory}/{LAST_VACUUM_INFO}"
