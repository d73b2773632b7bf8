"""Measures how far a stream is behind its table, for the progress of its query."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from deltaflow.log import Commit
from deltaflow.log.replay.log_files import Clock, system_clock
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.streaming.commits import files_of_adds
from deltaflow.streaming.initial_snapshot import InitialSnapshot
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.source_filter import file_selection

# One progress counts at most this many commits, which takes some tenths of a second.
_COMMITS_PER_PROGRESS = 1_000


class _FilesOfCommit(NamedTuple):
    """The files of a commit that a stream reads."""

    timestamp_ms: int
    sizes: array[int]
    """The size of each file in the commit's order; -1 for a file that the stream's filter leaves out."""

    def left(self, index: int) -> tuple[int, int]:
        """Number and bytes of the files, beginning with number `index`."""
        sizes = [size for size in self.sizes[index:] if size >= 0]
        return len(sizes), sum(sizes)


@dataclass
class Backlog:
    """The files that a stream has still to read. Every commit is counted once."""

    reading: Reading
    clock: Clock = system_clock
    _counts: dict[int, _FilesOfCommit] = field(default_factory=dict)

    def metrics(
        self, last_version: int, done: DeltaSourceOffset, initial: InitialSnapshot | None
    ) -> dict[str, str]:
        """What is left after `done`, up to `last_version`, by the names of the metrics in Spark's progress.

        `initial` is the initial snapshot if `done` is inside of it. A long backlog is counted over several
        progresses; until it is counted, the numbers of files and bytes are missing.
        """
        index = max(done.index, -1) + 1
        first = done.reservoir_version + (0 if initial is None else 1)
        self._count(first, last_version)
        counts = [self._counts[v] for v in range(first, last_version + 1) if v in self._counts]
        metrics = {
            "versionsBehind": max(0, last_version + 1 - done.reservoir_version),
            "secondsBehind": self._seconds_since(counts[0].timestamp_ms if counts else None, initial),
        }
        # The filter is applied to the files of the initial snapshot only when a batch reaches them.
        is_known = initial is None or file_selection(self.reading) is None
        if is_known and first + len(counts) > last_version:
            left = [count.left(index if initial is None and i == 0 else 0) for i, count in enumerate(counts)]
            if initial is not None:
                left.append((initial.num_rows - index, initial.bytes_from(index)))
            metrics["numFilesOutstanding"] = sum(files for files, _ in left)
            metrics["numBytesOutstanding"] = sum(size for _, size in left)
        return {name: str(value) for name, value in metrics.items()}

    def _seconds_since(self, first_ms: int | None, initial: InitialSnapshot | None) -> int:
        """The age of the oldest version that is not completely read."""
        oldest_ms = first_ms if initial is None else initial.timestamp_ms
        return 0 if oldest_ms is None else max(0, self.clock() - oldest_ms) // 1_000

    def _count(self, first: int, last: int) -> None:
        for version in [version for version in self._counts if version < first]:
            del self._counts[version]
        start = next((version for version in range(first, last + 1) if version not in self._counts), last + 1)
        expected = start
        for commit in self.reading.log.commits_present(start, min(last, start + _COMMITS_PER_PROGRESS - 1)):
            for missing in range(expected, commit.version):
                self._counts[missing] = _FilesOfCommit(commit.timestamp_ms, array("q"))
            self._counts[commit.version] = self._files_of(commit)
            expected = commit.version + 1

    def _files_of(self, commit: Commit) -> _FilesOfCommit:
        skips = self.reading.options.skip_change_commits and any(r.data_change for r in commit.removes)
        adds = [] if skips else [add for add in commit.adds if add.data_change]
        sizes = array("q", [add.size for add in adds])
        selects = file_selection(self.reading)
        if selects is not None:
            for number, is_wanted in enumerate(selects(files_of_adds(adds, with_stats=True)).to_pylist()):
                sizes[number] = sizes[number] if is_wanted else -1
        return _FilesOfCommit(commit.timestamp_ms, sizes)
