"""The files of a log directory by their names: commits, checkpoints and log compactions by version."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deltaflow.log.protocol.commit import commit_version
from deltaflow.store import FileStatus

_CHECKPOINT_NAME = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|(?:\.[0-9a-fA-F-]{36})?\.parquet|\.[0-9a-fA-F-]{36}\.json)"
)
_COMPACTION_NAME = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All files of one checkpoint: one (classic or V2), or every part of a multi-part one, in order."""

    version: int
    files: tuple[FileStatus, ...]

    def __str__(self) -> str:
        return self.files[0].name


@dataclass(frozen=True, slots=True)
class Compaction:
    """A file that reconciles the commits `first` to `last` (PROTOCOL.md, "Log Compaction Files")."""

    first: int
    last: int
    file: FileStatus


@dataclass(frozen=True, slots=True)
class Listing:
    """The log's files of version `start` and later; `checkpoints` are the complete ones, best last."""

    start: int = 0
    commits: dict[int, FileStatus] = field(default_factory=dict)
    checkpoints: Sequence[Checkpoint] = ()
    compactions: Sequence[Compaction] = ()
    incomplete_checkpoints: Sequence[int] = ()
    """Versions of multi-part checkpoints that lack parts: they are not readable, but the version existed."""

    @property
    def latest_version(self) -> int:
        """The newest version among the files' names; -1 without any."""
        checkpoint = self.checkpoints[-1].version if self.checkpoints else -1
        return max(max(self.commits, default=-1), checkpoint, max(self.incomplete_checkpoints, default=-1))

    def file_names(self) -> set[str]:
        """The names of the commits and of the complete checkpoints."""
        checkpoints = (file for checkpoint in self.checkpoints for file in checkpoint.files)
        return {file.name for file in (*self.commits.values(), *checkpoints)}

    def status(self, version: int) -> FileStatus | None:
        """The file that stands for a version: its commit, else its checkpoint."""
        checkpoints = (
            checkpoint.files[0] for checkpoint in self.checkpoints if checkpoint.version == version
        )
        return self.commits.get(version) or next(checkpoints, None)

    @property
    def lacks_commits(self) -> bool:
        """Whether commits are missing between others."""
        return bool(self.commits) and max(self.commits) - min(self.commits) >= len(self.commits)

    def missing_versions(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs of versions from `first` to `last` without a commit file."""
        found: list[tuple[int, int]] = []
        for version in sorted(self.commits):
            if first <= version <= last:
                if first < version:
                    found.append((first, version - 1))
                first = version + 1
        return [*found, (first, last)] if first <= last else found

    def known_versions(self) -> list[int]:
        """The versions with a commit or a complete checkpoint; ascending."""
        return sorted({*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)})

    def rebuildable_versions(self) -> list[int]:
        """The versions whose state a listing from version 0 can give, if all files are sound; ascending."""
        from_checkpoint = {checkpoint.version for checkpoint in self.checkpoints}
        found: list[int] = []
        for version in self.known_versions():
            follows = version == 0 or (bool(found) and found[-1] == version - 1)
            if version in from_checkpoint or follows:
                found.append(version)
        return found


def listing_of(start: int, statuses: Iterable[FileStatus]) -> Listing:
    """The listing of these files of a log directory, which are of version `start` and later."""
    commits: dict[int, FileStatus] = {}
    checkpoints: list[Checkpoint] = []
    compactions: list[Compaction] = []
    parts: defaultdict[tuple[int, int], dict[int, FileStatus]] = defaultdict(dict)
    for status in statuses:
        version = commit_version(status.name)
        if version is not None:
            commits[version] = status
        elif checkpoint := _CHECKPOINT_NAME.fullmatch(status.name):
            if checkpoint["part"] is None:
                checkpoints.append(Checkpoint(int(checkpoint["version"]), (status,)))
            else:
                key = int(checkpoint["version"]), int(checkpoint["parts"])
                parts[key][int(checkpoint["part"])] = status
        elif compaction := _COMPACTION_NAME.fullmatch(status.name):
            compactions.append(Compaction(int(compaction[1]), int(compaction[2]), status))
    incomplete: list[int] = []
    for (version, number), found in parts.items():
        if len(found) == number and set(found) == set(range(1, number + 1)):
            checkpoints.append(Checkpoint(version, tuple(found[part] for part in sorted(found))))
        else:
            incomplete.append(version)
    checkpoints.sort(key=lambda checkpoint: (checkpoint.version, -len(checkpoint.files)))
    return Listing(start, commits, checkpoints, compactions, incomplete)


def version_runs(versions: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of ascending versions."""
    found: list[tuple[int, int]] = []
    for version in versions:
        if found and found[-1][1] == version - 1:
            found[-1] = found[-1][0], version
        else:
            found.append((version, version))
    return found
