"""The files of one table's log directory."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from deltaflow.errors import CorruptLogError, DeltaTableNotFoundError
from deltaflow.log.commit import LOG_DIRECTORY, Commit, commit_name, commit_version, read_commit
from deltaflow.store import FileStatus, LogStore

_CHECKPOINT_NAME = re.compile(r"\d{20}\.checkpoint\.")

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


@dataclass(frozen=True, slots=True)
class Listing:
    """Commit files by version, ascending, and names of checkpoint files, from some version on."""

    commits: dict[int, FileStatus]
    checkpoints: list[str]

    @property
    def latest_version(self) -> int:
        """The newest version listed; -1 without any."""
        return max(self.commits, default=-1)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether commits from version 0 up to the newest checkpoint are missing, in a listing from 0."""
        if not self.checkpoints:
            return False
        newest = int(self.checkpoints[-1].split(".")[0])
        return any(version not in self.commits for version in range(newest + 1))


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The log directory of the table at `path` in `store`; `clock` and `ids` are for what is written."""

    store: LogStore
    path: str
    clock: Clock
    ids: Ids

    @property
    def directory(self) -> str:
        """The log directory."""
        return f"{self.path.rstrip('/')}/{LOG_DIRECTORY}"

    def commit_path(self, version: int) -> str:
        """Where the commit of a version is."""
        return f"{self.directory}/{commit_name(version)}"

    def list(self, start: int) -> Listing:
        """What is there from version `start` on; nothing where there is no directory."""
        try:
            # A version's checkpoint sorts before its commit.
            statuses = self.store.list_from(self.directory, f"{start:020}.")
        except FileNotFoundError:
            return Listing({}, [])
        except NotADirectoryError as error:
            raise DeltaTableNotFoundError(
                f"{self.path} cannot be a Delta table: a file is where a directory must be. "
                "Give the directory of the table, or move the file away.",
                error_class="DELTA_PATH_NOT_A_DIRECTORY",
                table=self.path,
            ) from error
        commits: dict[int, FileStatus] = {}
        checkpoints: list[str] = []
        for status in statuses:
            version = commit_version(status.name)
            if version is not None:
                commits[version] = status
            elif _CHECKPOINT_NAME.match(status.name):
                checkpoints.append(status.name)
        return Listing(commits, checkpoints)

    def read(self, listing: Listing, first: int, last: int) -> Iterator[Commit]:
        """The commits `first` to `last`, read lazily; CorruptLogError at once if the listing lacks some."""
        missing = [version for version in range(first, last + 1) if version not in listing.commits]
        if missing:
            raise CorruptLogError(
                f"Missing versions in {self.directory}: {_ranges(missing)}; all from {first} to {last} are "
                "needed. Restore their commit files from a copy.",
                error_class="DELTA_VERSIONS_NOT_CONTIGUOUS",
                table=self.path,
                missing=_ranges(missing),
            )
        return (
            read_commit(self.store, self.directory, listing.commits[version])
            for version in range(first, last + 1)
        )


def _ranges(versions: Iterable[int]) -> str:
    """Ascending numbers as "3 to 5, 8"."""
    ranges: list[list[int]] = []
    for version in versions:
        if ranges and ranges[-1][1] == version - 1:
            ranges[-1][1] = version
        else:
            ranges.append([version, version])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
