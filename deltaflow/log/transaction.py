"""The way from one version of a table to the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata as distribution

from deltaflow.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    OperationCancelledError,
    StoreError,
)
from deltaflow.log.actions import (
    AddFile,
    AnyAction,
    CommitInfo,
    Metadata,
    RemoveFile,
    SetTransaction,
    decode_actions,
    encode_actions,
)
from deltaflow.log.conflicts import (
    check_app_ids,
    check_created_meanwhile,
    check_metadata,
    check_protocol,
    dependent_write,
)
from deltaflow.log.features import NEW_TABLE_PROTOCOL, check_writable, is_append_only
from deltaflow.log.log_files import LogFiles
from deltaflow.log.observer import observe
from deltaflow.log.schema import check_writable_schema, schema_from_string
from deltaflow.log.snapshot import Snapshot, replay

MAX_COMMIT_ATTEMPTS = 1_000
WritableAction = AddFile | RemoveFile | SetTransaction


def _engine_info() -> str:
    try:
        return f"deltaflow/{distribution.version('deltaflow')}"
    except distribution.PackageNotFoundError:
        return "deltaflow"


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit tells about itself in commitInfo.

    Values of `parameters` are strings as delta-spark writes them: plain ("Append"), or the JSON text
    of what is no string ('["month"]'). Values of `metrics` are numbers as strings.
    """

    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    user_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is in the log, as this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The commit is not in the log: another writer won, and `error` says which rule forbids to go on."""

    error: DeltaConcurrentModificationException


@dataclass(frozen=True, slots=True)
class Unknown:
    """The put failed in a way that may still have landed."""

    error: CommitOutcomeUnknownError


Outcome = Committed | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class _Lost:
    """Another commit has the version."""


@dataclass(frozen=True, slots=True)
class _Absent:
    """The put failed with this error, and the version is not there and will not be."""

    error: Exception


class OptimisticTransaction:
    """Reads one version of a table, and commits once, by itself, to the end of the log.

    `cancel` may be called by another thread; everything else belongs to one.
    """

    def __init__(self, log: LogFiles, snapshot: Snapshot | None) -> None:
        self.log = log
        self.snapshot = snapshot
        """The version that is read; None without a table."""
        self._new_metadata: Metadata | None = None
        self._read_app_ids: set[str] = set()
        self._read_whole_table = False
        self._used = False
        self._put_lock = threading.Lock()
        self._cancelled = False
        self._landed = False

    @property
    def path(self) -> str:
        """The table's directory."""
        return self.log.path

    @property
    def read_version(self) -> int:
        """The version that is read; -1 without a table."""
        return -1 if self.snapshot is None else self.snapshot.version

    @property
    def metadata(self) -> Metadata | None:
        """The table's metadata as the commit will leave it; None if there is none yet."""
        if self._new_metadata is not None:
            return self._new_metadata
        return None if self.snapshot is None else self.snapshot.metadata

    def txn_version(self, app_id: str) -> int | None:
        """The version that an application committed last; a rival commit of it is a conflict from now on."""
        self._read_app_ids.add(app_id)
        return None if self.snapshot is None else self.snapshot.txn_version(app_id)

    def read_whole_table(self) -> None:
        """Record that the commit depends on all of the table (or on there being none): it is not blind."""
        self._read_whole_table = True

    def update_metadata(self, metadata: Metadata) -> None:
        """Give the table this metadata with the commit; a new table needs one."""
        self._new_metadata = metadata

    def cancel(self) -> bool:
        """Keep the transaction from committing: True if it never will, False if it has (or may have).

        Waits for a put that has begun. Once this has returned, no commit of the transaction appears.
        """
        self._cancelled = True
        with self._put_lock:
            return not self._landed

    def commit(self, actions: Sequence[WritableAction], operation: Operation) -> Committed:
        """Commit, or raise: a conflict, a refusal, a cancellation (nothing is in the log then), or
        CommitOutcomeUnknownError (it may be: keep the files).
        """
        match self.try_commit(actions, operation):
            case Committed() as committed:
                return committed
            case Conflict(error) | Unknown(error):
                raise error

    def try_commit(self, actions: Sequence[WritableAction], operation: Operation) -> Outcome:
        """As `commit`, with a lost race and an unknown outcome as values."""
        if self._used:
            raise DeltaIllegalStateException(
                "A transaction commits once. Start another one.",
                error_class="DELTA_TRANSACTION_USED",
                table=self.path,
            )
        self._used = True
        self._check(actions)
        txn_id = self.log.ids()
        base = self.snapshot
        attempt = self.read_version + 1
        for _ in range(MAX_COMMIT_ATTEMPTS):
            match self._put(attempt, self._content(base, actions, operation, txn_id), txn_id):
                case _Lost():
                    try:
                        base = self._rebase(base, actions)
                    except DeltaConcurrentModificationException as error:
                        return Conflict(error)
                    attempt = base.version + 1
                case Committed() | Unknown() as outcome:
                    return outcome
        return Conflict(
            ConcurrentWriteException(
                f"The commit lost {MAX_COMMIT_ATTEMPTS} races for the next version in a row. Try again when "
                "fewer writers are at work.",
                table=self.path,
                version=attempt,
            )
        )

    def _check(self, actions: Sequence[WritableAction]) -> None:
        """Refuse what may not be committed to the version that was read."""
        metadata = self.metadata
        if metadata is None:
            raise DeltaAnalysisException(
                f"There is no table at {self.path}, and the first commit of a table needs its metadata.",
                error_class="DELTA_METADATA_ABSENT",
                table=self.path,
            )
        protocol = NEW_TABLE_PROTOCOL if self.snapshot is None else self.snapshot.protocol
        check_writable(protocol, metadata, self.path)
        if self._new_metadata is not None:
            check_writable_schema(
                schema_from_string(metadata.schema_string, table=self.path),
                metadata.partition_columns,
                table=self.path,
            )
        _check_file_actions(actions, metadata, self.path)

    def _is_blind_append(self, actions: Sequence[WritableAction]) -> bool:
        return not self._read_whole_table and not any(isinstance(action, RemoveFile) for action in actions)

    def _content(
        self, base: Snapshot | None, actions: Sequence[WritableAction], operation: Operation, txn_id: str
    ) -> bytes:
        """The commit file for the version after `base`."""
        now_ms = self.log.clock()
        read_version = self.read_version if self.snapshot is not None or base is None else base.version
        table: list[AnyAction] = []
        if base is None:
            table.append(NEW_TABLE_PROTOCOL)
        # Rebasing never takes a change of metadata along: see _rebase.
        new_metadata = self._new_metadata if base is self.snapshot else None
        if new_metadata is not None and (base is None or new_metadata != base.metadata):
            table.append(new_metadata)
        info = CommitInfo(
            timestamp=now_ms,
            operation=operation.name,
            operation_parameters=dict(operation.parameters),
            read_version=read_version if read_version >= 0 else None,
            isolation_level="Serializable",
            is_blind_append=self._is_blind_append(actions),
            operation_metrics=dict(operation.metrics),
            user_metadata=operation.user_metadata,
            engine_info=_engine_info(),
            txn_id=txn_id,
        )
        return encode_actions([info, *table, *actions])

    def _put(self, version: int, data: bytes, txn_id: str) -> Committed | Unknown | _Lost:
        """Put one version; raises the store's error if the commit is certainly not there."""
        path = self.log.commit_path(version)
        observe("commit prepared", table=self.path, version=version)
        with self._put_lock:
            if self._cancelled:
                raise OperationCancelledError(
                    "The operation was cancelled before its commit; nothing of it is in the table.",
                    table=self.path,
                )
            # Until the opposite is proved: an interrupt may end the put at any point.
            self._landed = True
            try:
                self.log.store.put_if_absent(path, data)
            except Exception as error:
                outcome = self._read_back(version, path, txn_id, error)
            else:
                outcome = Committed(version)
            self._landed = not isinstance(outcome, _Lost | _Absent)
        match outcome:
            case Committed():
                observe("commit put", table=self.path, version=version)
            case _Absent(DeltaError() as cause):
                raise cause
            case _Absent(cause):
                raise StoreError(
                    f"Writing {path} failed: {cause}. Nothing was committed.", file=path
                ) from cause
        return outcome

    def _read_back(
        self, version: int, path: str, txn_id: str, error: Exception
    ) -> Committed | Unknown | _Lost | _Absent:
        """What became of a put that raised: the file at its path tells whose commit it is."""
        try:
            actions = decode_actions(self.log.store.read(path), path)
        except (FileNotFoundError, NotADirectoryError):
            if isinstance(error, FileExistsError):
                return _Lost()
            if self.log.store.failed_put_never_lands:
                return _Absent(error)
            return Unknown(self._unknown(version, path, error))
        except CorruptLogError:
            return _Lost()
        except Exception as unreadable:
            unknown = self._unknown(version, path, error)
            unknown.add_note(f"Reading {path} back failed, too: {unreadable}")
            return Unknown(unknown)
        infos = [action for action in actions if isinstance(action, CommitInfo)]
        return Committed(version) if infos and infos[0].txn_id == txn_id else _Lost()

    def _unknown(self, version: int, path: str, error: Exception) -> CommitOutcomeUnknownError:
        unknown = CommitOutcomeUnknownError(
            f"Writing {path} failed ({error}), and it may still have been written, or appear later. Look at "
            f"version {version} of the table before you run the operation again. Its data files were kept.",
            table=self.path,
            version=version,
            file=path,
        )
        unknown.__cause__ = error
        return unknown

    def _rebase(self, base: Snapshot | None, actions: Sequence[WritableAction]) -> Snapshot:
        """The newest version, after checking each commit since `base` against what this one read and does."""
        first = 0 if base is None else base.version + 1
        listing = self.log.list(first)
        winners = list(self.log.read(listing, first, listing.latest_version))
        if not winners:
            raise ConcurrentWriteException(
                f"The table at {self.path} was deleted while this operation ran. Run it again.",
                table=self.path,
            )
        app_ids = self._read_app_ids | {
            action.app_id for action in actions if isinstance(action, SetTransaction)
        }
        for winner in winners:
            check_app_ids(winner, app_ids, self.path)
        if base is None:
            newest = replay(self.path, winners)
            check_created_meanwhile(newest, None if self._read_whole_table else self._new_metadata)
        else:
            newest = base.after(winners)
            for winner in winners:
                check_protocol(winner, self.path)
                check_metadata(winner, self.path)
        if not self._is_blind_append(actions) or self._changes_metadata:
            raise dependent_write(winners[0], self.read_version, self.path)
        check_writable(newest.protocol, newest.metadata, self.path, newest.version)
        return newest

    @property
    def _changes_metadata(self) -> bool:
        return self.snapshot is not None and self._new_metadata not in (None, self.snapshot.metadata)


def _check_file_actions(actions: Sequence[WritableAction], metadata: Metadata, table: str) -> None:
    """Refuse removes from an append-only table, a path named twice, and adds with other partition columns."""
    paths: set[tuple[type, str]] = set()
    partition_columns = set(metadata.partition_columns)
    append_only = is_append_only(metadata)
    for action in actions:
        if isinstance(action, SetTransaction):
            continue
        if isinstance(action, RemoveFile) and action.data_change and append_only:
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=table
            )
        if (type(action), action.path) in paths:
            raise DeltaIllegalStateException(
                f"The file {action.path} is named twice in one commit.",
                error_class="DELTA_DUPLICATE_ACTIONS_FOUND",
                table=table,
                file=action.path,
            )
        paths.add((type(action), action.path))
        if isinstance(action, AddFile) and set(action.partition_values) != partition_columns:
            raise DeltaIllegalStateException(
                f"The file {action.path} has values of the partition columns "
                f"{sorted(action.partition_values)}, and the table's are {sorted(partition_columns)}.",
                error_class="DELTA_INVALID_PARTITIONING_SCHEMA",
                table=table,
                file=action.path,
            )
