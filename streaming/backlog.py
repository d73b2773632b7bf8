"""Measures how far a stream is behind its table, for the progress of its query and for `lag`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.log import Commit
from deltaflow.log.files.change_files import change_actions, changes_nothing, files_to_admit
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.replay.log_files import Clock, system_clock
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.streaming.commits import files_of_adds, totals
from deltaflow.streaming.initial_snapshot import InitialSnapshot
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.source_filter import file_selection

# One progress counts at most this many commits, which takes some tenths of a second.
_COMMITS_PER_PROGRESS = 1_000
_UNKNOWN = -1


class Outstanding(NamedTuple):
    """What a stream has still to read; None where it is unknown."""

    versions: int
    seconds: int
    """The age of the oldest version that is not completely read."""
    files: int | None
    bytes: int | None
    rows: int | None
    """By the files' statistics."""


class _FilesOfCommit(NamedTuple):
    """The files of a commit that a stream reads."""

    timestamp_ms: int
    sizes: array[int]
    """The size of each file in the commit's order; -1 for a file that the stream's filter leaves out."""
    rows: array[int]
    """The rows of each file, -1 where unknown; empty if rows are not counted."""

    def left(self, index: int) -> tuple[int, int, int | None]:
        """Number, bytes and rows of the files, beginning with number `index`."""
        sizes = [size for size in self.sizes[index:] if size >= 0]
        rows = [rows for size, rows in zip(self.sizes[index:], self.rows[index:], strict=False) if size >= 0]
        is_known = len(rows) == len(sizes) and _UNKNOWN not in rows
        return len(sizes), sum(sizes), sum(rows) if is_known else None


@dataclass
class Backlog:
    """The files that a stream has still to read. Every commit is counted once."""

    reading: Reading
    clock: Clock = system_clock
    _counts: dict[int, _FilesOfCommit] = field(default_factory=dict)

    def metrics(
        self, last_version: int, done: DeltaSourceOffset, initial: InitialSnapshot | None
    ) -> dict[str, str]:
        """What `outstanding` counts, by the names of the metrics in Spark's progress."""
        found = self.outstanding(last_version, done, initial)
        metrics = {
            "versionsBehind": found.versions,
            "secondsBehind": found.seconds,
            "numFilesOutstanding": found.files,
            "numBytesOutstanding": found.bytes,
        }
        return {name: str(value) for name, value in metrics.items() if value is not None}

    def outstanding(
        self, last_version: int, done: DeltaSourceOffset, initial: InitialSnapshot | None
    ) -> Outstanding:
        """What is left after `done`, up to `last_version`.

        `initial` is the initial snapshot if `done` is inside of it. A progress has little time: unless the
        reading counts rows, a long backlog is counted over several calls. Until it is counted, the numbers of
        files and bytes are None.
        """
        index, done_version = max(done.index, -1) + 1, done.reservoir_version
        first = done_version + (0 if initial is None else 1)
        self._count(first, last_version)
        begun = None if initial is not None or index == 0 else self._counts.get(first)
        if begun is not None and index >= len(begun.sizes):
            # A stream of change rows stays at the last file of a commit that it has read.
            index, first, done_version = 0, first + 1, done_version + 1
        counts = [self._counts[v] for v in range(first, last_version + 1) if v in self._counts]
        left: list[tuple[int | None, int | None, int | None]]
        left = [count.left(index if initial is None and i == 0 else 0) for i, count in enumerate(counts)]
        if initial is not None:
            left.append(self._left_of_snapshot(initial, index))
        # Without all commits nothing is known.
        is_counted = first + len(counts) > last_version
        return Outstanding(
            max(0, last_version + 1 - done_version),
            self._seconds_since(counts[0].timestamp_ms if counts else None, initial),
            _sum(files for files, _, _ in left) if is_counted else None,
            _sum(size for _, size, _ in left) if is_counted else None,
            _sum(rows for _, _, rows in left) if is_counted and self.reading.counts_rows else None,
        )

    def _left_of_snapshot(
        self, initial: InitialSnapshot, index: int
    ) -> tuple[int | None, int | None, int | None]:
        selects, count = file_selection(self.reading), initial.num_rows - index
        if selects is None:
            rows = initial.rows_from(index) if self.reading.counts_rows else None
            return count, initial.bytes_from(index), rows
        if not self.reading.counts_rows:
            # A batch applies the filter to the files that it reaches. To apply it to all takes too long.
            return None, None, None
        files = initial.slice(index, count)
        return totals(files.filter(selects(files)))

    def _seconds_since(self, first_ms: int | None, initial: InitialSnapshot | None) -> int:
        oldest_ms = first_ms if initial is None else initial.timestamp_ms
        return 0 if oldest_ms is None else max(0, self.clock() - oldest_ms) // 1_000

    def _count(self, first: int, last: int) -> None:
        for version in [version for version in self._counts if version < first]:
            del self._counts[version]
        start = next((version for version in range(first, last + 1) if version not in self._counts), last + 1)
        end = last if self.reading.counts_rows else min(last, start + _COMMITS_PER_PROGRESS - 1)
        expected = start
        for commit in self.reading.log.commits_present(start, end):
            for missing in range(expected, commit.version):
                self._counts[missing] = _FilesOfCommit(commit.timestamp_ms, array("q"), array("q"))
            self._counts[commit.version] = self._files_of(commit)
            expected = commit.version + 1

    def _files_of(self, commit: Commit) -> _FilesOfCommit:
        if self.reading.options.read_change_feed:
            return self._files_of_changes(commit)
        skips = self.reading.options.skip_change_commits and any(r.data_change for r in commit.removes)
        adds = [] if skips else [add for add in commit.adds if add.data_change]
        sizes = array("q", [add.size for add in adds])
        if file_selection(self.reading) is None and not self.reading.counts_rows:
            return _FilesOfCommit(commit.timestamp_ms, sizes, array("q"))
        return self._counted(commit, sizes, files_of_adds(adds, with_stats=True))

    def _files_of_changes(self, commit: Commit) -> _FilesOfCommit:
        actions = change_actions(commit)
        sizes = array("q", [action.size or 0 for action in actions])
        if changes_nothing(commit) and not commit.cdc:
            sizes = array("q", [-1] * len(actions))
        if file_selection(self.reading) is None and not self.reading.counts_rows:
            return _FilesOfCommit(commit.timestamp_ms, sizes, array("q"))
        return self._counted(commit, sizes, files_to_admit(actions, self.reading.path))

    def _counted(self, commit: Commit, sizes: array[int], files: pa.Table) -> _FilesOfCommit:
        rows, selects = array("q"), file_selection(self.reading)
        if self.reading.counts_rows:
            counted = FileStatistics(files, StructType()).num_rows
            rows.extend(counted.fill_null(_UNKNOWN).to_pylist())
        for number, is_wanted in enumerate(() if selects is None else selects(files).to_pylist()):
            sizes[number] = sizes[number] if is_wanted else -1
        return _FilesOfCommit(commit.timestamp_ms, sizes, rows)


def _sum(amounts: Iterable[int | None]) -> int | None:
    found = list(amounts)
    return None if None in found else sum(amount for amount in found if amount is not None)
