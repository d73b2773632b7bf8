"""The way from one version of a table to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import msgspec
import pyarrow as pa

from deltaflow.errors import (
    ConcurrentWriteException,
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalStateException,
    DeltaTableNotFoundError,
    StoreError,
)
from deltaflow.log.commits.clustering_change import ClusteringChange
from deltaflow.log.commits.conflicts import (
    Loser,
    check_created_meanwhile,
    check_winner,
    check_winner_of_creation,
)
from deltaflow.log.commits.content import content_after, engine_info
from deltaflow.log.commits.head import Head, head_after, head_of
from deltaflow.log.commits.outcomes import (
    Committed,
    Conflict,
    Lost,
    Operation,
    Outcome,
    Unknown,
)
from deltaflow.log.commits.put import CommitPut
from deltaflow.log.commits.reads import PartitionPredicate, Reads
from deltaflow.log.commits.row_ids import RowIds, check_enablement
from deltaflow.log.commits.validation import WritableAction, check_actions, check_reserved_columns
from deltaflow.log.maintenance.checkpoint_hook import checkpoint_if_due
from deltaflow.log.maintenance.log_cleanup import KEPT_MS
from deltaflow.log.maintenance.manifests import check_manifests_possible, update_manifests
from deltaflow.log.protocol.actions import (
    AddFile,
    AnyAction,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    encode_actions,
)
from deltaflow.log.protocol.column_assignment import with_mapped_columns
from deltaflow.log.protocol.column_mapping import mapping_mode
from deltaflow.log.protocol.commit import Commit, to_commit
from deltaflow.log.protocol.configuration import (
    with_checked_properties,
    with_protected_checkpoints,
    with_session_defaults,
)
from deltaflow.log.protocol.features import (
    check_writable,
    columns_with_defaults,
    has_column_defaults,
    is_append_only,
    protects_checkpoints,
)
from deltaflow.log.protocol.identity_columns import UPDATE_TAG, with_values_seen
from deltaflow.log.protocol.isolation import IsolationLevel, isolation_of_commit, isolation_of_table
from deltaflow.log.protocol.properties import MAX_COMMIT_ATTEMPTS, SESSION_TIME_ZONE, USER_METADATA
from deltaflow.log.protocol.protocols import protocol_for, without_protocol_properties
from deltaflow.log.protocol.row_tracking import has_row_ids, with_row_id_columns
from deltaflow.log.protocol.schema import check_writable_schema, schema_from_string, schema_to_string
from deltaflow.log.replay.listing import Listing
from deltaflow.log.replay.log_files import LogFiles, system_clock
from deltaflow.log.replay.segment import load_newest
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.version_checksum import write_checksum
from deltaflow.store import RetryPolicy

_RETRIES = RetryPolicy()
_NOBODY_CLEANS_UP_MS = KEPT_MS // 2
"""So long after a version was the newest, no clean-up of the log takes the commit that follows it; the other
half is for the put."""


class OptimisticTransaction:
    """Reads one version of a table, and commits once, by itself, to the end of the log.

    `cancel` may be called by another thread; everything else belongs to one.
    """

    def __init__(
        self,
        log: LogFiles,
        snapshot: Snapshot | None,
        retries: RetryPolicy = _RETRIES,
        session: Mapping[str, str] = MappingProxyType({}),
        *,
        seen_ms: int | None = None,
        etag: str | None = None,
    ) -> None:
        """`session` has Spark's settings spark.databricks.delta.* and spark.sql.session.timeZone, the zone of
        partition values that name none. `seen_ms`: when the look began that found the snapshot to be the
        newest, by the machine's time; None if none did. `etag`: that of its commit file, if it is known."""
        self.log = log
        self.snapshot = snapshot
        """The version that is read; None without a table."""
        attempts = MAX_COMMIT_ATTEMPTS.of(session, log.path)
        self._retries = retries if attempts is None else replace(retries, max_attempts=attempts)
        self._etag = etag
        self.session = session
        """Spark's settings spark.databricks.delta.* and spark.sql.session.timeZone."""
        self._reads = Reads(log.path, snapshot, SESSION_TIME_ZONE.of(session, log.path))
        self._new_metadata: Metadata | None = None
        self._new_protocol: Protocol | None = None
        self.clustering = ClusteringChange(log.path, snapshot)
        self._changes_marks_alone = False
        self._used = False
        self._put = CommitPut(log)
        self._head_seen_ms = seen_ms
        """When the log was last seen to end with what the commit is to follow, by the machine's time."""
        self._row_ids = RowIds(log)
        self.keeps_row_ids = False
        """Whether rows that the commit copies from files that it removes keep their row ids."""

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

    def record_read_of_txn(self, app_id: str) -> int | None:
        """Record that the commit depends on how far an application has come; the version that it set last.

        A concurrent commit of the application is a conflict from now on.
        """
        self._reads.app_ids.add(app_id)
        return None if self.snapshot is None else self.snapshot.txn_version(app_id)

    def record_read_of_whole_table(self) -> None:
        """Record that the commit depends on all of the table (or on there being none): no blind append."""
        self._reads.whole_table = True

    def require_no_table(self) -> None:
        """Record that the commit is to create the table: it does not append to one that appears meanwhile."""
        self._reads.no_table = True

    def record_read_of_partitions(self, predicate: PartitionPredicate) -> pa.Table:
        """Record that the commit depends on all rows of these partitions, future ones included; their files.

        These are the rows of the snapshot's `files` for whose partition values the predicate is true.
        DeltaIllegalArgumentException if it is not a condition on the partition columns.
        """
        return self._reads.add_predicate(predicate)

    def record_read_of_files(self, files: pa.Table) -> None:
        """Record that the commit depends on these files, rows of the snapshot's `files`."""
        self._reads.add_files(files)

    def update_metadata(
        self, metadata: Metadata, *, replaces_table: bool = False, keeps_names: bool = False
    ) -> None:
        """Let the commit give the table this metadata and the protocol that it asks for; at most once.

        New columns of a mapped table get ids and physical names, which are their own if there are files with
        them (`keeps_names`). `replaces_table`: the commit removes all files of the table.

        Its properties may name the protocol's versions and features (delta.minReaderVersion,
        delta.minWriterVersion, delta.feature.<name>); a new table needs metadata. Raises
        UnsupportedFeatureError, DeltaAnalysisException or DeltaIllegalArgumentException for a wrong property.
        """
        if self._new_metadata is not None:
            raise DeltaIllegalStateException(
                "A commit changes the metadata at most once.",
                error_class="DELTA_MULTIPLE_METADATA_UPDATES",
                table=self.path,
            )
        if self.snapshot is None:
            metadata = with_session_defaults(metadata, self.session, self.path)
        old = None if self.snapshot is None else self.snapshot.metadata
        before = {} if old is None else old.configuration
        metadata = self.clustering.with_feature(metadata, replaces_table=replaces_table)
        metadata = with_checked_properties(metadata, before, self.session, self.path)
        metadata = with_mapped_columns(
            metadata,
            old,
            self.log.ids,
            self.path,
            replaces_table=replaces_table,
            keeps_names=keeps_names,
        )
        metadata = with_protected_checkpoints(metadata, before)
        current = None if self.snapshot is None else self.snapshot.protocol
        self._new_protocol = protocol_for(metadata, current, self.path)
        self._check_new_defaults(metadata, self._new_protocol)
        check_reserved_columns(metadata, old, self.path)
        metadata = with_row_id_columns(metadata, old, self._new_protocol, self.log.ids, self.path)
        self._new_metadata = without_protocol_properties(metadata)
        self.clustering.check_kept(self._new_metadata)

    def _check_new_defaults(self, metadata: Metadata, protocol: Protocol) -> None:
        """Refuse to give columns defaults that the protocol does not allow; older ones may be there."""
        before = {} if self.snapshot is None else columns_with_defaults(self.snapshot.metadata)
        if (
            not has_column_defaults(protocol)
            and not columns_with_defaults(metadata).items() <= before.items()
        ):
            raise DeltaAnalysisException(
                error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
                command_type="CREATE TABLE" if self.snapshot is None else "ALTER TABLE",
                table=self.path,
            )

    def update_protocol(self, protocol: Protocol, metadata: Metadata) -> None:
        """Let the commit give the table this protocol and this metadata, instead of `update_metadata`.

        The caller has made sure that the metadata asks for no feature that the protocol lacks.
        """
        if self.snapshot is not None and protects_checkpoints(protocol):
            metadata = with_protected_checkpoints(metadata, self.snapshot.metadata.configuration)
        self._new_protocol, self._new_metadata = protocol, metadata

    def update_identity_marks(self, values: Mapping[str, int], *, may_lower: bool = False) -> None:
        """Let the high-water marks of identity columns, by physical names, be at or beyond these values.

        The commit may change other metadata too. For `may_lower` see Identity.mark_with.
        """
        if not values:  # Most tables have no such columns: their schema is not parsed.
            return
        metadata = self.metadata
        assert metadata is not None
        schema = schema_from_string(metadata.schema_string, table=self.path)
        marked = with_values_seen(schema, values, may_lower=may_lower)
        if marked == schema:
            return
        self._changes_marks_alone = self._new_metadata is None
        self._new_protocol = self.protocol
        self._new_metadata = msgspec.structs.replace(metadata, schema_string=schema_to_string(marked))

    def cancel(self) -> bool:
        """Keep the transaction from committing: True if it never will, False if it has, or may have.

        Waits for a put that has begun. Once this has returned, no commit of the transaction appears.
        """
        return self._put.cancel()

    def commit(self, actions: Sequence[WritableAction], operation: Operation) -> Committed:
        """Commit, or raise. After a CommitOutcomeUnknownError the commit may be in the log: keep the files.
        After a PostCommitHookError it is there; after any other error it is not.
        """
        match self.try_commit(actions, operation):
            case Committed() as committed:
                return committed
            case Conflict(error) | Unknown(error):
                raise error

    def try_commit(self, actions: Sequence[WritableAction], operation: Operation) -> Outcome:
        """As `commit`, but a conflict and an unknown outcome are returned."""
        if self._used:
            raise DeltaIllegalStateException(
                "A transaction commits once. Start another one.",
                error_class="DELTA_TRANSACTION_USED",
                table=self.path,
            )
        self._used = True
        isolation = self._check(actions)
        assert self.metadata is not None
        assert self.protocol is not None
        actions = [*actions, *self.clustering.actions(self.metadata, self.protocol)]
        txn_id = self.log.ids()
        head = head_of(self.snapshot, self._etag)
        winners: list[Commit] = []
        for pause_ms in self._retries.pauses_ms():
            self._put.wait(pause_ms)
            version = 0 if head is None else head.version + 1
            content = self._content(head, actions, operation, isolation, txn_id)
            data = encode_actions(content)
            outcome = Lost() if self._is_overtaken(head) else self._put.put(version, data, txn_id)
            newer: list[Commit] = []
            etag: str | None = None
            if isinstance(outcome, Lost):
                try:
                    newer, etag = self._winners(head, is_certain=outcome.is_certain)
                except DeltaConcurrentModificationException as error:
                    return Conflict(error)
                except DeltaError as error:
                    if outcome.is_certain:
                        raise
                    return self._put.unknown(version, error)
                outcome = self._put.judge(newer[0], txn_id)
            match outcome:
                case Lost():
                    try:
                        head = replace(self._rebase(head, newer, actions, isolation), etag=etag)
                        winners += newer
                    except DeltaConcurrentModificationException as error:
                        return Conflict(error)
                case Committed() as committed:
                    own = to_commit(version, 0, content, self.log.commit_path(version))
                    self._after_commit(own, data, winners, head, actions)
                    return committed
                case Unknown() as unknown:
                    return unknown
        attempts = self._retries.max_attempts
        lost = "the race" if attempts == 1 else f"{attempts} races in a row"
        return Conflict(
            ConcurrentWriteException(
                f"The commit lost {lost} for the next version. Try again when fewer writers are at work.",
                error_class="DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
                table=self.path,
            )
        )

    def _after_commit(
        self,
        own: Commit,
        data: bytes,
        winners: Sequence[Commit],
        head: Head | None,
        actions: Sequence[WritableAction],
    ) -> None:
        is_own = head is None or (self.snapshot is not None and self._changes_metadata)
        metadata = self.metadata if is_own or head is None else head.metadata
        assert metadata is not None
        self.log.own_commits.add(own, metadata.id, data)
        write_checksum(self.log, self.snapshot, [*winners, own], self.session)
        checkpoint_if_due(self.log, own.version, metadata, self.snapshot, self.session)
        update_manifests(self.log, own.version, metadata, self.snapshot, actions)

    def _check(self, actions: Sequence[WritableAction]) -> IsolationLevel:
        """Refuse what may not be committed to the version that was read; the isolation level otherwise."""
        metadata = self.metadata
        protocol = self.protocol
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
                is_mapped=mapping_mode(metadata, self.path) != "none",
            )
        # The commit that turns delta.appendOnly off may not remove data itself.
        before = metadata if self.snapshot is None else self.snapshot.metadata
        check_actions(actions, protocol, metadata, self.path, append_only=is_append_only(before))
        if self._new_metadata is not None:
            if self.snapshot is not None:
                check_enablement(self.snapshot, protocol, metadata, actions)
            check_manifests_possible(self.snapshot, metadata, actions, self.path)
        of_table = isolation_of_table(metadata, self.path)
        return isolation_of_commit(actions, of_table, changes_metadata=self._changes_metadata)

    @property
    def protocol(self) -> Protocol | None:
        """The table's protocol as the commit will leave it; None if there is none yet."""
        if self._new_protocol is not None:
            return self._new_protocol
        return None if self.snapshot is None else self.snapshot.protocol

    @property
    def _changes_metadata(self) -> bool:
        """Whether the commit changes metadata or protocol of the table that was read; False without one."""
        if self.snapshot is None or self._new_metadata is None:
            return False
        before = self.snapshot
        return (self._new_metadata, self._new_protocol) != (before.metadata, before.protocol)

    def _is_blind_append(self, actions: Sequence[WritableAction]) -> bool:
        return not self._reads.has_read_data and not any(isinstance(action, RemoveFile) for action in actions)

    def _content(
        self,
        head: Head | None,
        actions: Sequence[WritableAction],
        operation: Operation,
        isolation: IsolationLevel,
        txn_id: str,
    ) -> tuple[AnyAction, ...]:
        """The actions of the commit file for the version after `head`."""
        protocol, metadata = self.protocol, self.metadata
        if head is not None and not self._changes_metadata:
            protocol, metadata = head.protocol, head.metadata
        assert protocol is not None
        assert metadata is not None
        read_version = self.read_version if self.snapshot is not None or head is None else head.version
        with_ids = self._row_ids.given(head, protocol, metadata, actions)
        tags = dict(operation.tags)
        if self._changes_marks_alone:
            tags[UPDATE_TAG] = "true"
        if has_row_ids(protocol, metadata, self.path) and self._changes_files(actions):
            tags.setdefault("delta.rowTracking.preserved", str(self._preserves_row_ids(actions)).lower())
        info = CommitInfo(
            timestamp=self.log.clock(),
            operation=operation.name,
            operation_parameters=dict(operation.parameters),
            read_version=read_version if read_version >= 0 else None,
            isolation_level=isolation.value,
            is_blind_append=self._is_blind_append(actions),
            data_change=any(getattr(action, "data_change", False) for action in actions),
            operation_metrics=dict(operation.metrics),
            user_metadata=self._user_metadata(operation),
            engine_info=engine_info(),
            txn_id=txn_id,
            source_offsets=operation.source_offsets,
            tags=tags or None,
        )
        return content_after(head, protocol, metadata, info, with_ids)

    @staticmethod
    def _changes_files(actions: Sequence[WritableAction]) -> bool:
        return any(isinstance(action, AddFile | RemoveFile) for action in actions)

    def _preserves_row_ids(self, actions: Sequence[WritableAction]) -> bool:
        """Whether no row gets another id: none is copied from a removed file to a new one, or all keep it."""
        removes = any(isinstance(action, RemoveFile) for action in actions)
        is_new = any(isinstance(action, AddFile) and action.base_row_id is None for action in actions)
        return self.keeps_row_ids or not (removes and is_new)

    def _user_metadata(self, operation: Operation) -> str | None:
        """The userMetadata of the commit: that of the operation, or else that of the session."""
        if operation.user_metadata is not None:
            return operation.user_metadata
        return USER_METADATA.of(self.session, self.path)

    def _is_overtaken(self, head: Head | None) -> bool:
        """Whether the log was found not to end with `head` any more. It is asked after some time alone, and
        where one file tells it.

        The name of the next version is taken then, or it is free: the log's clean-up has removed the commit
        that had it, or the table was deleted and another one has fewer versions. A commit of that name would
        be below a checkpoint, where nobody reads it, or after a gap.
        """
        now_ms, seen_ms = system_clock(), self._head_seen_ms
        is_recent = seen_ms is not None and 0 <= now_ms - seen_ms < _NOBODY_CLEANS_UP_MS
        if is_recent and not self._has_lost(head):
            return False
        version = -1 if head is None else head.version
        listing = self.log.list(max(version, 0))
        if listing.latest_version != version or self._is_of_another_table(head, listing):
            return True
        self._head_seen_ms = now_ms
        return False

    def _has_lost(self, head: Head | None) -> bool:
        """Whether the commit of `head` is gone, or is another file, or a table has come where there was none;
        False where it costs much to look."""
        if not self.log.store.lists_whole_directories:
            return False
        if head is None:
            try:
                return self.log.list(0).latest_version >= 0
            except DeltaTableNotFoundError:  # there can be none: the put says so
                return False
        if not head.etag:
            return False
        try:
            return self.log.store.status(self.log.commit_path(head.version)).etag != head.etag
        except (FileNotFoundError, NotADirectoryError):
            return True

    def _is_of_another_table(self, head: Head | None, listing: Listing) -> bool:
        """Whether the log, whose listing begins with `head` or before, is of a table that was made since."""
        if head is None or not head.etag:
            return False
        status = listing.status(head.version)
        if status is not None and status.etag == head.etag:
            return False
        found = load_newest(replace(self.log, file_fields=frozenset()))
        metadata = None if found is None else found[1].metadata
        return metadata is not None and metadata.id != head.metadata.id

    def _winners(self, head: Head | None, *, is_certain: bool) -> tuple[list[Commit], str]:
        """The commits since `head`, at least one, and the etag of the last one.

        StoreError if the log shows none, and it is not certain that the next one is not that of this
        transaction.
        """
        first = 0 if head is None else head.version + 1
        self._head_seen_ms = system_clock()
        listing = self.log.list(max(first - 1, 0))
        if not is_certain and listing.latest_version >= first - 1 and first not in listing.commits:
            raise StoreError(f"The log of {self.path} does not show the commit of version {first}.")
        if self._is_of_another_table(head, listing):
            raise ConcurrentWriteException(
                f"The table at {self.path} was deleted while this operation ran, and another one was made "
                f"there, so version {first} was not committed. Run the operation again on that table.",
                table=self.path,
                version=first,
            )
        if listing.latest_version >= first and first not in listing.commits:
            raise ConcurrentWriteException(
                f"Version {listing.latest_version} of {self.path} is in the log, and the commit of version "
                f"{first}, which came after what this operation has read, is not there any more: the log's "
                "clean-up removes old commits. Nothing was committed. Run the operation again on the table "
                "as it is now, and give the table a delta.logRetentionDuration that is longer than its "
                "operations.",
                table=self.path,
                version=first,
            )
        winners = list(self.log.commits(listing, first, listing.latest_version))
        if not winners:
            raise ConcurrentWriteException(
                f"The table at {self.path} was deleted or moved while this operation ran, so version {first} "
                "was not committed. Run the operation again on the table where it is now.",
                table=self.path,
                version=first,
            )
        return winners, listing.commits[winners[-1].version].etag

    def _rebase(
        self,
        head: Head | None,
        winners: Sequence[Commit],
        actions: Sequence[WritableAction],
        isolation: IsolationLevel,
    ) -> Head:
        """The newest version, once each commit since `head` has been checked for conflicts with this one."""
        loser = Loser(
            table=self.path,
            read_version=self.read_version,
            reads=self._reads,
            actions=actions,
            isolation=isolation,
            changes_metadata=self._changes_metadata,
            head=head,
        )
        for winner in winners:
            (check_winner_of_creation if head is None else check_winner)(winner, loser)
        newest = head_after(head, winners, self.path)
        if head is None:
            assert self._new_metadata is not None
            assert self._new_protocol is not None
            check_writable(newest.protocol, newest.metadata, self.path, newest.version)
            wanted = Head(0, 0, self._new_protocol, self._new_metadata)
            check_created_meanwhile(winners, newest, wanted, loser)
        return newest
