"""The put of a commit: it never follows a cancellation, and is read back where its outcome is in doubt."""

from __future__ import annotations

import threading

from deltaflow.errors import (
    CommitOutcomeUnknownError,
    CorruptLogError,
    DeltaError,
    OperationCancelledError,
    StoreError,
    WriteRefusedError,
)
from deltaflow.log.commits.outcomes import Absent, Committed, Lost, Unknown
from deltaflow.log.observer import observe
from deltaflow.log.protocol.actions import CommitInfo, decode_actions
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.replay.log_files import LogFiles


class CommitPut:
    """Puts the commit of one transaction. `cancel` may be called by another thread."""

    def __init__(self, log: LogFiles) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._may_have_landed = False

    def wait(self, pause_ms: float) -> None:
        """Wait before the next attempt, or until the transaction is cancelled."""
        self._cancelled.wait(pause_ms / 1_000)

    def cancel(self) -> bool:
        """Keep the commit out of the log: True if it will never be there, False if it is there, or may be.

        Waits for a put that has begun. Once this has returned, no commit of the transaction appears.
        """
        self._cancelled.set()
        with self._lock:
            return not self._may_have_landed

    def put(self, version: int, data: bytes, txn_id: str) -> Committed | Unknown | Lost:
        """Put one version; raises the store's error if the commit is certainly not there."""
        path = self._log.commit_path(version)
        observe("commit prepared", table=self._log.path, version=version)
        with self._lock:
            if self._cancelled.is_set():
                raise OperationCancelledError(
                    "The operation was cancelled before its commit; nothing of it is in the table.",
                    table=self._log.path,
                )
            # Until the opposite is proved: an interrupt may end the put at any point.
            self._may_have_landed = True
            try:
                if version == 0:  # a later one must not bring back the log of a table that is gone
                    self._log.store.make_directory(self._log.directory)
                self._log.store.put_if_absent(path, data)
            except Exception as error:
                outcome = self._read_back(version, path, txn_id, error)
            else:
                outcome = Committed(version)
            is_lost = isinstance(outcome, Lost) and outcome.is_certain
            self._may_have_landed = not (is_lost or isinstance(outcome, Absent))
        match outcome:
            case Committed():
                observe("commit put", table=self._log.path, version=version)
            case Absent(DeltaError() as cause):
                raise cause
            case Absent(cause):
                raise StoreError(
                    f"Writing {path} failed: {cause}. Nothing was committed.", file=path
                ) from cause
        return outcome

    def _read_back(
        self, version: int, path: str, txn_id: str, error: Exception
    ) -> Committed | Unknown | Lost | Absent:
        """The outcome of a put that raised: the file at its path says whose commit it is."""
        try:
            actions = decode_actions(self._log.store.read(path), path)
        except (FileNotFoundError, NotADirectoryError):
            if isinstance(error, FileExistsError | FileNotFoundError):
                return Lost(is_certain=isinstance(error, FileNotFoundError))
            if self._log.store.failed_put_never_lands or isinstance(error, WriteRefusedError):
                return Absent(error)
            return Unknown(self._unknown(version, path, error))
        except CorruptLogError:
            return Lost(is_certain=False)
        except Exception as unreadable:
            unknown = self._unknown(version, path, error)
            unknown.add_note(f"Reading {path} back failed, too: {unreadable}")
            return Unknown(unknown)
        infos = [action for action in actions if isinstance(action, CommitInfo)]
        if not infos:  # of a writer that gives none, or the answer was cut off
            return Lost(is_certain=False)
        return Committed(version) if infos[0].txn_id == txn_id else Lost()

    def judge(self, winner: Commit, txn_id: str) -> Committed | Lost:
        """The outcome of a lost put, by the commit that the log has as its version."""
        if winner.commit_info is not None and winner.commit_info.txn_id == txn_id:
            observe("commit put", table=self._log.path, version=winner.version)
            return Committed(winner.version)
        with self._lock:
            self._may_have_landed = False
        return Lost()

    def unknown(self, version: int, error: Exception) -> Unknown:
        """The outcome of a lost put that is not certain, if the log cannot be read."""
        return Unknown(self._unknown(version, self._log.commit_path(version), error))

    def _unknown(self, version: int, path: str, error: Exception) -> CommitOutcomeUnknownError:
        unknown = CommitOutcomeUnknownError(
            f"Writing {path} failed ({error}), and it may still have been written, or appear later. Look at "
            f"version {version} of the table before you run the operation again. Its data files were kept.",
            table=self._log.path,
            version=version,
            file=path,
        )
        unknown.__cause__ = error
        return unknown
