"""The way from one version of a table to the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata as distribution

import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalStateException,
    OperationCancelledError,
    StoreError,
)
from deltaflow.log.actions import (
    AnyAction,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    decode_actions,
    encode_actions,
)
from deltaflow.log.commit import Commit
from deltaflow.log.conflicts import Loser, check_created_meanwhile, check_winner, check_winner_of_creation
from deltaflow.log.features import check_writable, has_in_commit_timestamps
from deltaflow.log.files import FILES_SCHEMA
from deltaflow.log.in_commit_timestamps import next_timestamp, with_enablement
from deltaflow.log.isolation import IsolationLevel, isolation_of_commit, isolation_of_table
from deltaflow.log.log_files import LogFiles
from deltaflow.log.observer import observe
from deltaflow.log.protocols import protocol_for, without_protocol_properties
from deltaflow.log.reads import PartitionPredicate, Reads
from deltaflow.log.retries import RetryPolicy
from deltaflow.log.schema import check_writable_schema, schema_from_string
from deltaflow.log.snapshot import Snapshot
from deltaflow.log.validation import WritableAction, check_actions

_RETRIES = RetryPolicy()


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
class _Head:
    """What a commit must know of the version that it follows."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata


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

    def __init__(self, log: LogFiles, snapshot: Snapshot | None, retries: RetryPolicy = _RETRIES) -> None:
        self.log = log
        self.snapshot = snapshot
        """The version that is read; None without a table."""
        self._retries = retries
        self._reads = Reads(log.path, _partition_schema(snapshot))
        self._new_metadata: Metadata | None = None
        self._new_protocol: Protocol | None = None
        self._used = False
        self._put_lock = threading.Lock()
        self._cancelled = threading.Event()
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
        self._reads.app_ids.add(app_id)
        return None if self.snapshot is None else self.snapshot.txn_version(app_id)

    def read_whole_table(self) -> None:
        """Record that the commit depends on all of the table (or on there being none): it is not blind."""
        self._reads.whole_table = True

    def files_matching(self, predicate: PartitionPredicate) -> pa.Table:
        """The files, rows of the snapshot's `files`, whose partition values the predicate is true for.

        Records that the commit depends on all rows of these partitions, future ones included.
        DeltaIllegalArgumentException if it is no condition on the partition columns.
        """
        if self.snapshot is None:
            self.read_whole_table()
            return FILES_SCHEMA.empty_table()
        self._reads.check_predicate(predicate)
        return self._reads.add_predicate(predicate, self.snapshot.files)

    def read_files(self, files: pa.Table) -> None:
        """Record that the commit depends on these files, rows of the snapshot's `files`."""
        self._reads.add_files(files)

    def update_metadata(self, metadata: Metadata) -> None:
        """Give the table this metadata with the commit, and the protocol that it asks for; once.

        Its properties may name the protocol's versions and features (delta.minReaderVersion,
        delta.minWriterVersion, delta.feature.<name>); a new table needs metadata. Raises
        UnsupportedFeatureError and DeltaIllegalArgumentException for wrong ones.
        """
        if self._new_metadata is not None:
            raise DeltaIllegalStateException(
                "A commit changes the metadata at most once.",
                error_class="DELTA_MULTIPLE_METADATA_UPDATES",
                table=self.path,
            )
        current = None if self.snapshot is None else self.snapshot.protocol
        self._new_protocol = protocol_for(metadata, current, self.path)
        self._new_metadata = without_protocol_properties(metadata)

    def cancel(self) -> bool:
        """Keep the transaction from committing: True if it never will, False if it has (or may have).

        Waits for a put that has begun. Once this has returned, no commit of the transaction appears.
        """
        self._cancelled.set()
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
        isolation = self._check(actions)
        txn_id = self.log.ids()
        head = self._head_read()
        for pause_ms in self._retries.pauses_ms():
            self._cancelled.wait(pause_ms / 1_000)
            version = 0 if head is None else head.version + 1
            data = self._content(head, actions, operation, isolation, txn_id)
            match self._put(version, data, txn_id):
                case _Lost():
                    try:
                        head = self._rebase(head, actions, isolation)
                    except DeltaConcurrentModificationException as error:
                        return Conflict(error)
                case Committed() | Unknown() as outcome:
                    return outcome
        return Conflict(
            ConcurrentWriteException(
                f"The commit lost {self._retries.max_attempts} races for the next version in a row. Try "
                "again when fewer writers are at work.",
                error_class="DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
                table=self.path,
            )
        )

    def _head_read(self) -> _Head | None:
        snapshot = self.snapshot
        if snapshot is None:
            return None
        return _Head(snapshot.version, snapshot.timestamp_ms, snapshot.protocol, snapshot.metadata)

    def _check(self, actions: Sequence[WritableAction]) -> IsolationLevel:
        """Refuse what may not be committed to the version that was read; the isolation level otherwise."""
        metadata = self.metadata
        protocol = self._protocol
        if metadata is None or protocol is None:
            raise DeltaAnalysisException(
                f"There is no table at {self.path}, and the first commit of a table needs its metadata.",
                error_class="DELTA_METADATA_ABSENT",
                table=self.path,
            )
        check_writable(protocol, metadata, self.path)
        if self._new_metadata is not None:
            check_writable_schema(
                schema_from_string(metadata.schema_string, table=self.path),
                metadata.partition_columns,
                table=self.path,
            )
        check_actions(actions, protocol, metadata, self.path)
        of_table = isolation_of_table(metadata, self.path)
        return isolation_of_commit(actions, of_table, changes_metadata=self._new_metadata is not None)

    @property
    def _protocol(self) -> Protocol | None:
        if self._new_protocol is not None:
            return self._new_protocol
        return None if self.snapshot is None else self.snapshot.protocol

    @property
    def _changes_metadata(self) -> bool:
        if self._new_metadata is None:
            return False
        return self.snapshot is None or (self._new_metadata, self._new_protocol) != (
            self.snapshot.metadata,
            self.snapshot.protocol,
        )

    def _is_blind_append(self, actions: Sequence[WritableAction]) -> bool:
        return not self._reads.any_data and not any(isinstance(action, RemoveFile) for action in actions)

    def _content(
        self,
        head: _Head | None,
        actions: Sequence[WritableAction],
        operation: Operation,
        isolation: IsolationLevel,
        txn_id: str,
    ) -> bytes:
        """The commit file for the version after `head`."""
        now_ms = self.log.clock()
        protocol, metadata = self._protocol, self.metadata
        if head is not None and (self.snapshot is None or not self._changes_metadata):
            # Also where another writer made the table meanwhile: the files go into that one.
            protocol, metadata = head.protocol, head.metadata
        assert protocol is not None
        assert metadata is not None
        timestamp_ms = None
        if has_in_commit_timestamps(protocol, metadata):
            timestamp_ms = now_ms if head is None else next_timestamp(now_ms, head.timestamp_ms)
            if head is not None and metadata is not head.metadata:
                were_enabled = has_in_commit_timestamps(head.protocol, head.metadata)
                metadata = with_enablement(
                    metadata, head.metadata, head.version + 1, timestamp_ms, were_enabled=were_enabled
                )
        table: list[AnyAction] = []
        if head is None or protocol != head.protocol:
            table.append(protocol)
        if head is None or metadata != head.metadata:
            table.append(metadata)
        read_version = self.read_version if self.snapshot is not None or head is None else head.version
        info = CommitInfo(
            timestamp=now_ms,
            in_commit_timestamp=timestamp_ms,
            operation=operation.name,
            operation_parameters=dict(operation.parameters),
            read_version=read_version if read_version >= 0 else None,
            isolation_level=isolation.value,
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
            if self._cancelled.is_set():
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

    def _rebase(
        self, head: _Head | None, actions: Sequence[WritableAction], isolation: IsolationLevel
    ) -> _Head:
        """The newest version, after checking each commit since `head` against what this one read and does."""
        first = 0 if head is None else head.version + 1
        listing = self.log.list(first)
        winners = list(self.log.read(listing, first, listing.latest_version))
        if not winners:
            raise ConcurrentWriteException(
                f"The table at {self.path} was deleted while this operation ran. Run it again.",
                table=self.path,
            )
        loser = Loser(
            table=self.path,
            read_version=self.read_version,
            reads=self._reads,
            actions=actions,
            isolation=isolation,
            changes_metadata=self._changes_metadata,
        )
        for winner in winners:
            (check_winner_of_creation if head is None else check_winner)(winner, loser)
        newest = _head_after(head, winners, self.path)
        if head is None:
            assert self._new_metadata is not None
            check_created_meanwhile(winners, newest.metadata, self._new_metadata, loser)
            check_writable(newest.protocol, newest.metadata, self.path, newest.version)
            check_actions(actions, newest.protocol, newest.metadata, self.path)
        return newest


def _partition_schema(snapshot: Snapshot | None) -> StructType:
    if snapshot is None:
        return StructType([])
    return StructType([snapshot.schema[name] for name in snapshot.partition_columns])


def _head_after(head: _Head | None, commits: Sequence[Commit], table: str) -> _Head:
    """The newest of the commits that follow `head`; CorruptLogError if they begin a table and do not say
    of what kind.
    """
    protocol = None if head is None else head.protocol
    metadata = None if head is None else head.metadata
    for commit in commits:
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
    return _Head(newest.version, newest.timestamp_ms, protocol, metadata)
