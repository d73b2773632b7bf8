"""The commits that this process has made to a table, and whether the log still has them.

A file system that lets a rename replace a file may lose a commit to another writer, long after its put.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from deltaflow.errors import CommitReplacedError
from deltaflow.log.protocol.commit import Commit
from deltaflow.store import FileStatus

_REMEMBERED = 100
_KEPT_BYTES = 1_000_000
_CLOCKS_DIFFER_MS = 2_000
"""By how much the time of a file, which may be in whole seconds, may differ from this machine's clock."""


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit that this process has put."""

    version: int
    table_id: str
    operation: str
    txn_id: str


@dataclass(frozen=True, slots=True)
class _Content:
    """The bytes of a commit, and between which times they were put."""

    version: int
    data: bytes
    began_ms: int
    ended_ms: int

    def is_of(self, version: int, status: FileStatus) -> bool:
        first, last = self.began_ms - _CLOCKS_DIFFER_MS, self.ended_ms + _CLOCKS_DIFFER_MS
        is_of_time = first <= status.modification_time_ms <= last
        return is_of_time and (self.version, len(self.data)) == (version, status.size)


class OwnCommits:
    """The newest commits of this process; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_version: dict[int, OwnCommit] = {}
        self._replaced: tuple[OwnCommit, Commit] | None = None
        self._newest: _Content | None = None

    def add(self, commit: Commit, table_id: str, data: bytes) -> None:
        """Remember a commit that has been put, and the bytes of it; `table_id` is the table's since then."""
        info = commit.commit_info
        operation = (info.operation if info else None) or "an unnamed operation"
        own = OwnCommit(commit.version, table_id, operation, _txn_id(commit) or "")
        ended_ms = time.time_ns() // 1_000_000
        began_ms = ended_ms if info is None or info.timestamp is None else info.timestamp
        with self._lock:
            self._by_version.pop(commit.version, None)
            self._by_version[commit.version] = own
            if len(self._by_version) > _REMEMBERED:
                del self._by_version[next(iter(self._by_version))]
            is_kept = len(data) <= _KEPT_BYTES
            self._newest = _Content(commit.version, data, began_ms, ended_ms) if is_kept else None

    def content(self, version: int, status: FileStatus) -> bytes | None:
        """The bytes of the commit that this process has put last, if the file that is there has its size and
        the time of the put. This saves a request.

        For logs of which the version before is known to be there: a table that another process drops and
        makes anew by the same statements has commits of the same sizes, and may have them at the same time.
        """
        with self._lock:
            newest = self._newest
        return newest.data if newest is not None and newest.is_of(version, status) else None

    def compare(self, found: Commit) -> None:
        """Note a commit that was read where this process had put another one."""
        with self._lock:
            own = self._by_version.get(found.version)
            if own is not None and _txn_id(found) != own.txn_id:
                del self._by_version[found.version]
                self._replaced = self._replaced or (own, found)

    def check(self, path: str, table_id: str | None) -> None:
        """CommitReplacedError, once, if a commit of this process was found to have been replaced.

        Not where `table_id`, that of the newest version, is another one: the table was made anew.
        """
        with self._lock:
            replaced, self._replaced = self._replaced, None
        if replaced is None or replaced[0].table_id != table_id:
            return
        own, found = replaced
        info = found.commit_info
        operation = (info.operation if info else None) or "an unnamed operation"
        engine = (info.engine_info if info else None) or "an unnamed writer"
        raise CommitReplacedError(
            f"This process committed version {own.version} of {path} ({own.operation}, transaction "
            f"{own.txn_id}), and the log now has another commit as that version: {operation} of {engine}, "
            f"transaction {_txn_id(found) or 'unknown'}. The changes of the first one are not in the table "
            "any more. Run that operation again, and let one writer at a time write to the table, as the "
            "other one replaces commits that are there.",
            table=path,
            version=own.version,
            operation=own.operation,
        )


def _txn_id(commit: Commit) -> str | None:
    return None if commit.commit_info is None else commit.commit_info.txn_id
