"""The files of one table's log directory."""

from __future__ import annotations

import logging
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from deltaflow.errors import CorruptLogError, DeltaTableNotFoundError
from deltaflow.log.files.file_key import file_key
from deltaflow.log.protocol.actions import AddFile, RemoveFile
from deltaflow.log.protocol.commit import (
    LOG_DIRECTORY,
    Commit,
    check_size,
    commit_name,
    parse_commit,
    read_commit,
)
from deltaflow.log.replay.listing import Compaction, Listing, listing_of
from deltaflow.log.replay.own_commits import OwnCommits
from deltaflow.store import FileStatus, LogStore, Stores, file_system_part, store_for

_LOOK_AHEAD = 8
_BYTES_TOGETHER = 8_000_000
_LOG = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Milliseconds since the epoch."""
Ids = Callable[[], str]
"""A new unique id."""


def system_clock() -> int:
    """The machine's time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def random_id() -> str:
    """A random UUID."""
    return str(uuid.uuid4())


@dataclass(slots=True)
class OwnWork:
    """What this process has done for a log."""

    cleaned_up_to_ms: int | None = None
    """The limit of the last cleanup after a commit, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The log directory of the table at `path` in `store`; `clock` and `ids` are for what is written."""

    store: LogStore
    path: str
    clock: Clock
    ids: Ids
    file_fields: frozenset[str] | None = None
    """The fields of file actions that snapshots keep, by their names in the log: all if None. Tombstones are
    kept only where `deletionTimestamp` is among them. Without fields a snapshot has no files at all."""
    own_commits: OwnCommits = field(default_factory=OwnCommits, compare=False)
    """What this process has committed here; commits that are read are compared with it."""
    own_work: OwnWork = field(default_factory=OwnWork, compare=False)

    @property
    def directory(self) -> str:
        """The log directory."""
        return f"{self.path.rstrip('/')}/{LOG_DIRECTORY}"

    @property
    def stores(self) -> Stores:
        """The table's store, for data files in its file system: a store that is opened by a path alone would
        not have the options that the user gave this one."""
        return {file_system_part(self.path): self.store}

    def commit_path(self, version: int) -> str:
        """Where the commit of a version is."""
        return f"{self.directory}/{commit_name(version)}"

    def list(self, start: int) -> Listing:
        """The files of version `start` and later; none where there is no directory."""
        try:
            # A version's checkpoint sorts before its commit.
            statuses = self.store.list_from(self.directory, f"{start:020}.")
            listing = listing_of(start, statuses)
            if self.store.lists_whole_directories and listing.lacks_commits:
                # While its files come in no order, a listing may have a commit and lack an earlier one that
                # was made meanwhile. The next listing has all that came before it begins.
                last = f"{listing.latest_version:020}"
                statuses = self.store.list_from(self.directory, f"{start:020}.")
                listing = listing_of(start, (status for status in statuses if status.name[:20] <= last))
        except FileNotFoundError:
            return Listing(start)
        except NotADirectoryError as error:
            raise DeltaTableNotFoundError(
                f"{self.path} cannot be a Delta table: a file is where a directory must be. "
                "Give the directory of the table, or move the file away.",
                error_class="DELTA_PATH_NOT_A_DIRECTORY",
                table=self.path,
            ) from error
        return listing

    def list_next(self, version: int) -> Listing:
        """The commit of `version` and those after it; looks up single files where that is cheaper.

        It ends where several versions in a row have no commit: the log may go on after such a gap.
        """
        if not self.store.lists_whole_directories:
            return self.list(version)
        commits: dict[int, FileStatus] = {}
        last_looked_at = version + _LOOK_AHEAD
        while version <= last_looked_at:
            try:
                commits[version] = self.store.status(self.commit_path(version))
            except (FileNotFoundError, NotADirectoryError):
                pass
            else:
                last_looked_at = version + _LOOK_AHEAD
            version += 1
        return Listing(min(commits, default=version), commits)

    def commits_present(self, first: int, last: int) -> Iterator[Commit]:
        """The commits from `first` to `last` that are there, read lazily; missing ones are left out.

        Looks up single files where that is cheaper than a listing, until one is missing.
        """
        if self.store.lists_whole_directories:
            for version in range(first, last + 1):
                try:
                    status = self.store.status(self.commit_path(version))
                except (FileNotFoundError, NotADirectoryError):
                    break
                yield self._read_commit(status, version)
                first = version + 1
        if first <= last:
            listing = self.list(first)
            versions = sorted(version for version in listing.commits if first <= version <= last)
            yield from self._commits(listing, versions)

    def commits(self, listing: Listing, first: int, last: int) -> Iterator[Commit]:
        """The commits `first` to `last`, read lazily; CorruptLogError at once if the listing lacks some."""
        self.check_contiguous(listing, first, last)
        return self._commits(listing, range(first, last + 1))

    def commits_or_compactions(
        self, listing: Listing, first: int, last: int, *, is_same_log: bool = False
    ) -> Iterator[Commit]:
        """As `commits`, with log compactions in place of the commits that they cover.

        The last one is always a commit: only that has the timestamp of the version. `is_same_log`: the
        listing has the file that was read as the version before `first`. Then the commit that this process
        has put last is not read again; a table that was made anew may have another one of its size and time.
        """
        self.check_contiguous(listing, first, last)
        return self._commits_or_compactions(listing, first, last, is_same_log=is_same_log)

    def check_contiguous(self, listing: Listing, first: int, last: int) -> None:
        """CorruptLogError naming the commits from `first` to `last` that the listing lacks."""
        missing = listing.missing_versions(first, last)
        if missing:
            named = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in missing)
            raise CorruptLogError(
                f"Missing versions in {self.directory}: {named}; all from {first} to {last} are "
                "needed. Restore their commit files from a copy.",
                error_class="DELTA_VERSIONS_NOT_CONTIGUOUS",
                table=self.path,
                missing=named,
            )

    def _commits(
        self, listing: Listing, versions: Sequence[int], *, is_same_log: bool = False
    ) -> Iterator[Commit]:
        """The commits of versions, read lazily: where that costs little, ever more of them together."""
        if self.store.files_read_together == 1:
            for version in versions:
                yield self._read_commit(listing.commits[version], version)
            return
        together = 1
        begin = 0
        while begin < len(versions):
            statuses = _small_enough([listing.commits[v] for v in versions[begin : begin + together]])
            check_size(f"{self.directory}/{statuses[0].name}", statuses[0].size)
            own = self.own_commits.content(versions[begin], statuses[0]) if is_same_log else None
            statuses = statuses if own is None else statuses[:1]
            contents = self.store.read_together(self.directory, statuses) if own is None else [own]
            for status, content in zip(statuses, contents, strict=True):
                yield self._compared(parse_commit(content, self.directory, status, versions[begin]))
                begin += 1
            together = min(2 * together, self.store.files_read_together)

    def _read_commit(self, status: FileStatus, version: int) -> Commit:
        return self._compared(read_commit(self.store, self.directory, status, version))

    def _compared(self, commit: Commit) -> Commit:
        self.own_commits.compare(commit)
        return commit

    def _commits_or_compactions(
        self, listing: Listing, first: int, last: int, *, is_same_log: bool
    ) -> Iterator[Commit]:
        longest: dict[int, Compaction] = {}
        for compaction in sorted(listing.compactions, key=lambda compaction: compaction.last):
            if compaction.first < compaction.last <= last:
                longest[compaction.first] = compaction
        begins = sorted(longest)
        version = first
        while version <= last:
            usable = longest.get(version) if version < last else None
            compacted = None if usable is None else self._compacted(usable)
            if compacted is None:
                place = bisect_right(begins, version)
                end = min(last + 1, begins[place]) if place < len(begins) else last + 1
                yield from self._commits(listing, range(version, end), is_same_log=is_same_log)
                version = end
            else:
                yield compacted
                version = min(compacted.version + 1, last)

    def _compacted(self, compaction: Compaction) -> Commit | None:
        """A log compaction as a commit; None, with a warning, if it is broken: its commits are there, too."""
        try:
            commit = read_commit(self.store, self.directory, compaction.file, compaction.last)
        except CorruptLogError as error:
            _LOG.warning("The commits themselves are read instead of a log compaction: %s", error)
            return None
        files: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
        keys = [file_key(file, self.path) for file in files]
        if len(set(keys)) < len(keys):
            # The order of a file's actions does not say which is the newest: writers differ.
            _LOG.warning("%s is not reconciled: its commits are read instead", compaction.file.name)
            return None
        return commit


def existing_log(path: str) -> LogFiles:
    """The log of the table at a path as a user gives it; DeltaTableNotFoundError if there is no table."""
    store, root = store_for(path)
    log = LogFiles(store, root, system_clock, random_id)
    if log.list(0).latest_version < 0:
        raise no_table(root)
    return log


def no_table(path: str) -> DeltaTableNotFoundError:
    """The error for a directory without a table."""
    return DeltaTableNotFoundError(
        f"{path} is not a Delta table: it has no commits in {LOG_DIRECTORY}. Check the path, "
        "or write a table there first.",
        table=path,
    )


def _small_enough(statuses: Sequence[FileStatus]) -> Sequence[FileStatus]:
    """The first of files, at least one, that are not too much to be read together."""
    total = 0
    for number, status in enumerate(statuses):
        total += status.size
        if number and total > _BYTES_TOGETHER:
            return statuses[:number]
    return statuses
