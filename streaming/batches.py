"""Plans micro-batches: where the next one ends, and which files lie between two offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import Commit
from deltaflow.log.files.change_files import CHANGE_FILES
from deltaflow.log.streams.source_offset import BASE_INDEX, METADATA_CHANGE, DeltaSourceOffset
from deltaflow.spark.expressions.java_regex import regex_found
from deltaflow.streaming.admission import Files, Limits
from deltaflow.streaming.change_feed import (
    CommitChanges,
    SnapshotInserts,
    check_commit,
    check_recorded,
    feed_selection,
)
from deltaflow.streaming.commits import COLUMNS, check_data_loss, checked_files, commits, emitted_files
from deltaflow.streaming.initial_snapshot import initial_snapshot
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.schema_tracking import is_barrier
from deltaflow.streaming.source_filter import file_selection

Changes = SnapshotInserts | CommitChanges


@dataclass(frozen=True)
class _Version:
    """The files of a version, and the number of the first file that the stream has still to read."""

    version: int
    is_initial: bool
    files: Files | Changes
    first: int
    is_barrier: bool = False
    """Whether the version changes the metadata: a batch of the stream's schema ends before its files."""


def next_batch(
    reading: Reading, start: DeltaSourceOffset, last_version: int, limits: Limits
) -> tuple[DeltaSourceOffset, pa.Table]:
    """The offset after the files that the limits admit, at most after `last_version`; and these files.

    The batch of a stream that tracks its schema ends at the next barrier, too.
    """
    if reading.options.read_change_feed:
        return _next_batch_of_changes(reading, start, last_version, limits)
    offset = start
    pieces: list[pa.Table] = []
    selects = file_selection(reading)
    for version in _versions(reading, start, last_version):
        if version.is_barrier:
            offset = _offset_at(start, version.version, METADATA_CHANGE, False)
            return offset, _files_to_read(reading, pieces)
        admitted, next_index = limits.admit(version.files, version.first, selects)
        pieces.extend(admitted)
        if next_index < version.files.num_rows:
            if next_index > version.first:
                offset = _offset_at(start, version.version, next_index - 1, version.is_initial)
            return offset, _files_to_read(reading, pieces)
        # A version without files is passed even if the limits admit no more.
        offset = _offset_at(start, version.version + 1, BASE_INDEX, False)
    if offset.reservoir_version <= last_version:
        check_data_loss(reading, offset.reservoir_version, last_version + 1)
    return offset, _files_to_read(reading, pieces)


def _next_batch_of_changes(
    reading: Reading, start: DeltaSourceOffset, last_version: int, limits: Limits
) -> tuple[DeltaSourceOffset, pa.Table]:
    """As `next_batch`, for change rows: some commits are admitted as a whole or not at all.

    Of a commit with cdc actions the offset is its last file, and not the version after it, unless there is no
    limit: so it is in delta-spark's checkpoints.
    """
    offset = start
    pieces: list[pa.Table] = []
    selects = feed_selection(reading)
    has_none, is_first, seen = limits.are_none, True, start.reservoir_version - 1
    for version in _versions(reading, start, last_version):
        seen, files, count = version.version, version.files, version.files.num_rows
        if version.is_barrier:
            return _offset_at(start, seen, METADATA_CHANGE, False), _files_to_read(reading, pieces)
        assert isinstance(files, Changes)
        behind = _offset_at(start, seen + 1, BASE_INDEX, False)
        stop = count
        if files.is_whole:
            left = files.slice(version.first, count - version.first)
            numbers = pa.array(range(left.num_rows), pa.int64())
            if selects is not None:
                numbers = pc.indices_nonzero(selects(left))
                left = left.take(numbers)
            if files.is_recorded and not has_none:
                if len(numbers):
                    behind = _offset_at(start, seen, version.first + numbers[-1].as_py(), False)
                elif version.first:
                    continue  # The batch before has read this commit.
            # delta-spark counts the beginning and the end of a commit with vectors as files.
            places = 0 if files.is_recorded else 1 if seen == start.reservoir_version else 2
            if not limits.admit_together(left, is_first=is_first, places=places):
                return offset, _files_to_read(reading, pieces)
        else:
            _, stop = limits.admit(files, version.first, selects)
        pieces.append(files.read(version.first, stop))
        if stop < count:
            return _offset_at(start, seen, stop - 1, version.is_initial), _files_to_read(reading, pieces)
        offset, is_first = behind, False
        if limits.are_used_up:
            return offset, _files_to_read(reading, pieces)
    if seen < last_version:
        check_data_loss(reading, seen + 1, last_version + 1)
    return offset, _files_to_read(reading, pieces)


def files_between(reading: Reading, start: DeltaSourceOffset, end: DeltaSourceOffset) -> pa.Table:
    """The files after `start` up to `end`: those of a batch that was planned earlier."""
    if end.position <= start.position:
        return COLUMNS.empty_table()
    last = end.reservoir_version if end.index >= 0 else end.reservoir_version - 1
    seen = start.reservoir_version - 1
    pieces: list[pa.Table] = []
    for version in _versions(reading, start, last, stops_at_barrier=False):
        ends_here = (version.version, version.is_initial) == (end.reservoir_version, end.is_starting_version)
        stop = max(version.first, end.index + 1 if ends_here else version.files.num_rows)
        files = version.files
        if isinstance(files, Changes):
            pieces.append(files.read(version.first, stop))
        else:
            pieces.append(files.slice(version.first, stop - version.first))
        seen = version.version
    if seen < last and reading.options.validate_trailing_commit:
        raise DeltaIllegalStateException(
            error_class="DELTA_STREAMING_TRAILING_COMMIT_MISSING",
            expected_version=last,
            seen_version=seen,
            table=reading.path,
        )
    return _files_to_read(reading, pieces)


_NO_FILES = COLUMNS.empty_table()


def _offset_at(offset: DeltaSourceOffset, version: int, index: int, initial: bool) -> DeltaSourceOffset:
    return DeltaSourceOffset(offset.reservoir_id, version, index, initial)


def _versions(
    reading: Reading, start: DeltaSourceOffset, last_version: int, *, stops_at_barrier: bool = True
) -> Iterator[_Version]:
    """The versions after `start`, up to `last_version`, read lazily; a barrier is the last one."""
    first = max(start.index, -1) + 1
    next_version = start.reservoir_version
    contents = _Contents(reading, next_version, last_version)
    if start.is_starting_version:
        yield _Version(next_version, True, contents.of_snapshot(), first)
        next_version += 1
        first = 0
    for commit in commits(reading, next_version, last_version):
        if stops_at_barrier and is_barrier(reading, commit, start):
            if not reading.options.read_change_feed:
                checked_files(reading, commit)
            yield _Version(commit.version, False, _NO_FILES, 0, is_barrier=True)
            return
        is_begun = commit.version == next_version
        yield _Version(commit.version, False, contents.of_commit(commit), first if is_begun else 0)


class _Contents:
    """What a stream reads of versions, which are given in order: files of the table, or change files."""

    def __init__(self, reading: Reading, start: int, last_version: int) -> None:
        self._reading = reading
        self._start, self._last_version = start, last_version

    def of_snapshot(self) -> Files | Changes:
        """The files of the initial snapshot, which is that of the first version."""
        reading, version = self._reading, self._start
        snapshot = initial_snapshot(reading, version)
        if not reading.options.read_change_feed:
            return snapshot
        check_recorded(reading, snapshot.metadata, version, version, self._last_version)
        timestamp_ms = snapshot.timestamp_ms
        if not snapshot.has_in_commit_timestamp:
            timestamp_ms = reading.commit_times.of_file(version, timestamp_ms, reading.log)
        return SnapshotInserts(snapshot, version, timestamp_ms)

    def of_commit(self, commit: Commit) -> Files | Changes:
        """The files of the next commit."""
        reading = self._reading
        if not reading.options.read_change_feed:
            return emitted_files(reading, commit)
        check_commit(reading, commit, self._start, self._last_version)
        return CommitChanges(reading, commit, reading.commit_times.of(commit, reading.log))


def _files_to_read(reading: Reading, pieces: Iterable[pa.Table]) -> pa.Table:
    """The files of a batch that the stream reads. The others count for its offsets, too."""
    columns = CHANGE_FILES if reading.options.read_change_feed else COLUMNS
    files = pa.concat_tables(list(pieces) or [columns.empty_table()])
    selects = file_selection(reading)
    if selects is not None:
        files = files.filter(selects(files))
    pattern = reading.options.exclude_regex
    if pattern is None or files.num_rows == 0:
        return files
    return files.filter(pc.invert(regex_found(pattern, files["path"])))
