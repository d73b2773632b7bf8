"""The transaction log of one table: its versions, and the way to the next one."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from deltaflow.errors import (
    CorruptLogError,
    DeltaTableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltaflow.log.commits.transaction import OptimisticTransaction
from deltaflow.log.maintenance.checkpoint_hook import checkpoint
from deltaflow.log.maintenance.last_vacuum import record_vacuumed_version
from deltaflow.log.maintenance.manifests import write_manifests
from deltaflow.log.maintenance.missing_files import MissingFiles, find_missing_files
from deltaflow.log.maintenance.vacuum_candidates import Find, in_directory
from deltaflow.log.maintenance.vacuum_plan import VacuumPlan, paths_added_since, plan_vacuum
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.replay.commit_history import CommitRecord, read_history
from deltaflow.log.replay.feature_history import has_feature_history, has_v2_checkpoint_history
from deltaflow.log.replay.listing import Listing
from deltaflow.log.replay.log_files import Clock, Ids, LogFiles, no_table, random_id, system_clock
from deltaflow.log.replay.segment import load_newest, load_state
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.time_travel import (
    available_versions,
    first_version_since,
    monotonic_file_times,
    version_at,
)
from deltaflow.log.replay.version_checksum import checksum_differences
from deltaflow.log.streams.expiry import Expiry, log_expiry, removed_files, vacuum_expiry
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.log.streams.stream_needs import check_streams
from deltaflow.store import LogStore, store_for

_LOG = logging.getLogger(__name__)
_CACHED_LOGS = 100
# Later files may have earlier times, where clocks differ; delta-spark looks at as many before a range.
_COMMITS_WITH_ONE_TIME = 100
_RECENT_COMMITS = 16
_RECENT_ACTIONS = 2_000
# What statistics may take in memory before they are left in a newer checkpoint: a quarter of the rest of the
# files' state, about, so that reading it again costs each file that commits bring the same.
_TEXT_BYTES = 4 << 20
_TEXT_BYTES_OF_A_FILE = 40
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class DeltaLog:
    """A table's log; safe for use by several threads. Use `for_table`."""

    _cache: ClassVar[OrderedDict[tuple[LogStore, str, bool], DeltaLog]] = OrderedDict()
    _cache_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        store: LogStore,
        path: str,
        *,
        clock: Clock = system_clock,
        ids: Ids = random_id,
        with_files: bool = True,
    ) -> None:
        self._files = LogFiles(store, path, clock, ids, None if with_files else frozenset())
        self._with_files = with_files
        self._update_lock = threading.Lock()
        self._newest: tuple[Snapshot, str] | None = None
        """The newest snapshot known, and the etag of its commit file."""
        self._directory_state: str | None = None
        """The state of the log's directory before the newest snapshot was read."""
        self._recent: Mapping[int, Commit] = {}
        """The newest commits that a log without files has read: few and small ones."""
        self._most_text_bytes = _TEXT_BYTES

    @property
    def path(self) -> str:
        """The table's directory, as its store knows it."""
        return self._files.path

    @classmethod
    def for_table(
        cls,
        path: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        single_writer: bool = False,
        clock: Clock = system_clock,
        ids: Ids = random_id,
        with_files: bool = True,
    ) -> DeltaLog:
        """The log of the table at `path`, which need not exist; one per path and options in this process.

        A log without files is for callers that follow the commits: its snapshots lack `files` and
        `tombstones`, and their cost does not grow with the table. Its transactions have them.

        `storage_options` are those of the path's file system in fsspec. `single_writer` states that nobody
        else writes the table: stores that cannot exclude other writers are written only then. A log with
        another clock or other ids than the default is not shared.
        """
        store, root = store_for(path, storage_options, single_writer=single_writer)
        if clock is not system_clock or ids is not random_id:
            return cls(store, root, clock=clock, ids=ids, with_files=with_files)
        key = store, root, with_files
        with cls._cache_lock:
            log = cls._cache.pop(key, None) or cls(store, root, with_files=with_files)
            cls._cache[key] = log
            while len(cls._cache) > _CACHED_LOGS:
                cls._cache.popitem(last=False)
        return log

    def exists(self) -> bool:
        """Whether there is a Delta table."""
        try:
            return self.latest_version() >= 0
        except DeltaTableNotFoundError:
            return False

    def latest_version(self) -> int:
        """The newest version; -1 without a table."""
        newest = self._newest
        start = 0 if newest is None else newest[0].version
        latest = self._files.list(start).latest_version
        return self._files.list(0).latest_version if latest < 0 < start else latest

    def snapshot(self) -> Snapshot:
        """The table at its newest version; DeltaTableNotFoundError without a table."""
        snapshot = self.snapshot_if_exists()
        if snapshot is None:
            raise no_table(self.path)
        return snapshot

    def snapshot_if_exists(self) -> Snapshot | None:
        """The table at its newest version; None without a table.

        CommitReplacedError, once, if another writer's commit has replaced one of this process.
        """
        newest = self._refreshed()
        return None if newest is None else newest[0]

    def _refreshed(self) -> tuple[Snapshot, str] | None:
        """As `snapshot_if_exists`, with the etag of its commit file."""
        with self._update_lock:
            # Asked before the update: a file that comes during it then lets the next one list the directory.
            state = self._files.store.directory_state(self._files.directory)
            is_unchanged = state is not None and state == self._directory_state
            self._newest = self._update(self._newest, is_unchanged=is_unchanged)
            self._directory_state = state
            table_id = None if self._newest is None else self._newest[0].table_id
            self._files.own_commits.check(self.path, table_id)
            return self._newest

    def snapshot_at(self, version: int) -> Snapshot:
        """The table at a version; VersionNotFoundError, with the available ones, if the log lacks it."""
        try:
            newest = self.snapshot()
        except (UnsupportedFeatureError, CorruptLogError):
            # An older version may be readable all the same.
            newest = None
        if newest is not None and version == newest.version:
            return newest
        return self._built(self._files, version)

    def _built(self, files: LogFiles, version: int) -> Snapshot:
        listing = files.list(0)
        self._check_rebuildable(listing, version)
        try:
            return Snapshot(self.path, load_state(files, listing, version))
        except CorruptLogError:
            now = files.list(0)
            if now.latest_version >= 0:
                self._check_rebuildable(now, version)  # log clean-up may have taken it since
            raise

    def _check_rebuildable(self, listing: Listing, version: int) -> None:
        if version not in listing.rebuildable_versions():
            raise VersionNotFoundError(
                f"Cannot time travel Delta table to version {version}. "
                f"Available versions: {available_versions(listing)}.",
                table=self.path,
            )

    def snapshot_with_fields(self, version: int, fields: frozenset[str]) -> Snapshot:
        """The table at a version with only these fields of its files, by their names in the log.

        The snapshot is not kept. The other columns of its `files` are null, and it has no tombstones.
        """
        return self._built(replace(self._files, file_fields=fields), version)

    def version_at_timestamp(self, timestamp_ms: int) -> int:
        """The version that was the newest at a time, in milliseconds since the epoch.

        VersionNotFoundError before the earliest version that the log can give, and after the newest.
        """
        return version_at(self._files, self._files.list(0), self.snapshot(), timestamp_ms)

    def first_version_since(self, timestamp_ms: int, *, may_be_later: bool = False) -> int:
        """The first version that was committed at a time or after it, in milliseconds since the epoch; the
        earliest one for an earlier time. The log has its commit, and need not be able to give the version.

        After the newest version: the one that comes next if `may_be_later`, else VersionNotFoundError.
        """
        newest = self.snapshot()
        version = first_version_since(self._files, self._files.list(0), newest, timestamp_ms)
        if version <= newest.version:
            return version
        if not may_be_later:
            # Raises that the time is too late, unless a commit has come meanwhile.
            self.version_at_timestamp(timestamp_ms)
        return newest.version + 1

    def commit_times_ms(self, start: int, end: int) -> dict[int, int]:
        """When the versions `start` to `end` that are there were committed, in milliseconds since the epoch,
        by the modification times of their files, each later than the one before. In-commit timestamps are
        in the commits.
        """
        listing = self._files.list(max(0, start - _COMMITS_WITH_ONE_TIME))
        versions = [version for version in sorted(listing.commits) if version <= end]
        times = zip(versions, monotonic_file_times(listing, versions), strict=True)
        return {version: time_ms for version, time_ms in times if version >= start}

    def snapshot_at_timestamp(self, timestamp_ms: int) -> Snapshot:
        """The table as it was at a time: `snapshot_at` of its `version_at_timestamp`."""
        return self.snapshot_at(self.version_at_timestamp(timestamp_ms))

    def available_versions(self) -> list[int]:
        """The versions, ascending, that `snapshot_at` can give; some may be missing in between."""
        return self._files.list(0).rebuildable_versions()

    def commits(self, start: int, end: int | None = None) -> Iterator[Commit]:
        """The commits of versions `start` to `end` (both included; without `end` to the newest), read lazily.

        Empty if `start` is after the newest version. CorruptLogError names versions that are missing.
        """
        listing = self._files.list(start)
        return self._files.commits(listing, start, listing.latest_version if end is None else end)

    def commits_present(self, start: int, end: int) -> Iterator[Commit]:
        """As `commits`, without those that are missing. The newest ones are not read again if `snapshot` has
        just read them.
        """
        recent = self._recent
        if all(version in recent for version in range(start, end + 1)):
            return (recent[version] for version in range(start, end + 1))
        return self._files.commits_present(start, end)

    def commit_versions(self) -> list[int]:
        """The versions, ascending, whose commits are there."""
        return sorted(self._files.list(0).commits)

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """The commitInfo of the commits that are there, newest first."""
        return read_history(self._files, self.snapshot(), limit)

    def modification_time_ms(self, version: int) -> int | None:
        """When the file of a version was written, by its store; None where it has gone."""
        status = self._files.list(version).status(version)
        return None if status is None else status.modification_time_ms

    def start_transaction(
        self, session: Mapping[str, str] = _NO_SETTINGS, *, read_version: int | None = None
    ) -> OptimisticTransaction:
        """A transaction that reads `read_version`, by default the newest one, or finds no table. It commits
        the next version; commits since the version that it reads are checked for conflicts.

        `session` has Spark's settings: defaults of table properties
        (spark.databricks.delta.properties.defaults.*), the bound of a commit's attempts
        (spark.databricks.delta.maxCommitAttempts), those of checkpoints, and the time zone of partition
        values without one (spark.sql.session.timeZone). StoreError where the table's store cannot exclude
        other writers.
        """
        if not self._with_files:
            return self._complete.start_transaction(session, read_version=read_version)
        self._files.store.check_writable(self._files.directory)
        seen_ms = system_clock()  # Not later: what is found may take long to load.
        if read_version is None:
            found, etag = self._refreshed() or (None, None)
            return OptimisticTransaction(self._files, found, session=session, seen_ms=seen_ms, etag=etag)
        snapshot, newest = self.snapshot_at(read_version), self._newest
        if newest is None or newest[0] is not snapshot:
            return OptimisticTransaction(self._files, snapshot, session=session)
        return OptimisticTransaction(self._files, snapshot, session=session, seen_ms=seen_ms, etag=newest[1])

    def checkpoint(self, session: Mapping[str, str] = _NO_SETTINGS) -> None:
        """Write a checkpoint of the newest version, and delete the part of the log that has expired."""
        checkpoint(self._complete._files, self._complete.snapshot(), session)

    def write_manifests(self) -> None:
        """Write the manifests of the newest version, and remove those of partitions that it lacks."""
        write_manifests(self._complete._files, self._complete.snapshot())

    @cached_property
    def _complete(self) -> DeltaLog:
        """This log with the table's files, which whatever writes needs."""
        if self._with_files:
            return self
        files = replace(self._files, file_fields=None)
        log = DeltaLog(files.store, files.path)
        log._files = files
        return log

    def truncate_history(self, retention_ms: int, session: Mapping[str, str] = _NO_SETTINGS) -> None:
        """As `checkpoint`, but what is older is deleted, whatever the table's properties say (`clean_up`)."""
        checkpoint(self._complete._files, self._complete.snapshot(), session, retention_ms)

    def has_v2_checkpoint_history(self) -> bool:
        """Whether a V2 checkpoint is in the log, or a commit that asks for them."""
        return has_v2_checkpoint_history(self._files)

    def has_feature_history(self, feature: str) -> bool:
        """Whether a version that the log still has uses the feature (feature_history)."""
        return has_feature_history(self._files, feature)

    def plan_vacuum(self, retention_ms: int, find: Find = in_directory) -> VacuumPlan:
        """What a vacuum with this retention, in milliseconds, may delete of the files that it finds, by
        default in the table's directory (vacuum_plan, vacuum_candidates)."""
        return plan_vacuum(self._files, self.snapshot(), retention_ms, find)

    def missing_files(self, snapshot: Snapshot) -> MissingFiles:
        """The files of a snapshot that are not there, or whose deletion vectors are not (missing_files)."""
        return find_missing_files(self._files, snapshot)

    def record_vacuum(self, plan: VacuumPlan) -> None:
        """Remember, for the next VACUUM LITE, that everything of the plan has been deleted."""
        record_vacuumed_version(self._files, plan.done_version, plan.version)

    def check_streams(self, plan: VacuumPlan, checkpoints: Sequence[str]) -> None:
        """DELTA_VACUUM_BREAKS_STREAM if a stream with one of these checkpoints has yet to read a file that
        the plan deletes (deltaflow.log.streams.stream_needs).
        """
        check_streams(self._files, self.snapshot().metadata, plan, checkpoints)

    def stream_expiry(
        self, position: DeltaSourceOffset, *, of_changes: bool
    ) -> tuple[Expiry | None, Expiry | None]:
        """When the log's clean-up and a vacuum may take what a stream at the position has yet to read
        (deltaflow.log.streams.expiry); None for what is not in danger. `of_changes`: whether the stream reads
        change rows.
        """
        newest = self.snapshot()
        by_vacuum = vacuum_expiry(self._files, newest, position, of_changes=of_changes)
        return log_expiry(self._files, newest, position), by_vacuum

    def removed_files(self, position: DeltaSourceOffset, *, of_changes: bool) -> pa.Table:
        """The files that a stream at the position has yet to read and that the table no longer has: version
        and path, as in the log.
        """
        return removed_files(self._files, self.snapshot().version, position, of_changes=of_changes)

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths, as the table's store knows them, at which there is no file."""
        return self._files.store.absent(paths)

    def paths_added_since(self, version: int) -> tuple[int, list[str]]:
        """The newest version, and the paths, as in the log, of all files that commits after `version` add,
        and of the files of their deletion vectors."""
        return paths_added_since(self._files, version)

    def checksum_differences(self, snapshot: Snapshot) -> dict[str, tuple[Any, Any]] | None:
        """The fields in which the checksum file of a snapshot's version differs from the log, which is what
        counts: name -> (log's value, file's value). None without a checksum file.
        """
        return checksum_differences(self._files, snapshot)

    def _update(
        self, known: tuple[Snapshot, str] | None, *, is_unchanged: bool
    ) -> tuple[Snapshot, str] | None:
        if known is not None:
            newer = self._follow(known, self._files.list_next(known[0].version))
            is_doubtful = newer is None or (newer is known and not is_unchanged)
            if is_doubtful and self._files.store.lists_whole_directories:
                # Nothing new, or it does not follow: only a listing tells that for certain.
                newer = self._follow(known, self._files.list(known[0].version))
            if newer is not None:
                few = newer[0].text_bytes <= self._most_text_bytes
                return newer if few else self._with_statistics_in_checkpoint(newer)
        return self._load()

    def _load(self) -> tuple[Snapshot, str] | None:
        self._recent = {}
        found = load_newest(self._files)
        if found is None:
            return None
        listing, state = found
        snapshot, status = Snapshot(self.path, state), listing.status(state.version)
        self._most_text_bytes = max(_TEXT_BYTES, 2 * snapshot.text_bytes)
        return snapshot, "" if status is None else status.etag

    def _with_statistics_in_checkpoint(self, followed: tuple[Snapshot, str]) -> tuple[Snapshot, str]:
        """The newest version read anew: the statistics that commits have brought stay in a checkpoint that
        has come since. As it was followed where they are few for so many files, or it cannot be read anew."""
        snapshot, _ = followed
        # Asked only now: to count the files, the newest actions have to be folded into them.
        of_files = _TEXT_BYTES_OF_A_FILE * snapshot.num_files
        if snapshot.text_bytes <= of_files:
            self._most_text_bytes = of_files
            return followed
        try:
            found = self._load()
        except CorruptLogError as error:
            _LOG.warning("Statistics of files stay in memory: %s", error)
            found = None
        if found is None or found[0].version < snapshot.version:
            self._most_text_bytes = 2 * snapshot.text_bytes
            return followed
        return found

    def _follow(self, known: tuple[Snapshot, str], listing: Listing) -> tuple[Snapshot, str] | None:
        """The newest version of a listing that begins with the known one; None if it does not follow on."""
        snapshot, etag = known
        own = listing.status(snapshot.version)
        # Another file under the known version's name: the table was deleted and made anew.
        if own is None or own.etag != etag:
            return None
        # Every later snapshot would have to look for the statistics again.
        if snapshot.has_lost_statistics:
            return None
        latest = listing.latest_version
        if latest == snapshot.version:
            return known
        # Where commits are missing a checkpoint may bridge the gap.
        if listing.missing_versions(snapshot.version + 1, latest):
            return None
        newer = self._files.commits_or_compactions(listing, snapshot.version + 1, latest, is_same_log=True)
        recent = dict(self._recent)
        if not self._with_files:
            newer = _remembering_recent(newer, snapshot.version, recent)
        try:
            followed = snapshot.after(newer), listing.commits[latest].etag
        except CorruptLogError as error:
            if error.error_class != "DELTA_LOG_FILE_NOT_FOUND":
                raise
            return None  # log clean-up has deleted a commit since the listing
        self._recent = recent
        return followed


def _remembering_recent(
    commits: Iterable[Commit], version: int, recent: dict[int, Commit]
) -> Iterator[Commit]:
    """The commits after `version`. Those that have passed are kept in `recent`: the newest, few and small."""
    for commit in commits:
        version += 1
        if commit.version != version:  # a log compaction: what its commits were is not known
            recent.clear()
            version = commit.version
        else:
            recent[version] = commit
        while recent and (
            len(recent) > _RECENT_COMMITS or sum(len(c.actions) for c in recent.values()) > _RECENT_ACTIONS
        ):
            del recent[next(iter(recent))]
        yield commit
