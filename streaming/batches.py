"""Plans micro-batches: where the next one ends, and which files lie between two offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.streams.source_offset import BASE_INDEX, METADATA_CHANGE, DeltaSourceOffset
from deltaflow.spark.expressions.java_regex import regex_found
from deltaflow.streaming.admission import Files, Limits
from deltaflow.streaming.commits import COLUMNS, check_data_loss, checked_files, commits, emitted_files
from deltaflow.streaming.initial_snapshot import initial_snapshot
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.schema_tracking import is_barrier
from deltaflow.streaming.source_filter import file_selection


@dataclass(frozen=True)
class _Version:
    """The files of a version, and the number of the first file that the stream has still to read."""

    version: int
    is_initial: bool
    files: Files
    first: int
    is_barrier: bool = False
    """Whether the version changes the metadata: a batch of the stream's schema ends before its files."""


def next_batch(
    reading: Reading, start: DeltaSourceOffset, last_version: int, limits: Limits
) -> tuple[DeltaSourceOffset, pa.Table]:
    """The offset after the files that the limits admit, at most after `last_version`; and these files.

    The batch of a stream that tracks its schema ends at the next barrier, too.
    """
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


def files_between(reading: Reading, start: DeltaSourceOffset, end: DeltaSourceOffset) -> pa.Table:
    """The files after `start` up to `end`: those of a batch that was planned earlier."""
    if end.position <= start.position:
        return COLUMNS.empty_table()
    last = end.reservoir_version if end.index >= 0 else end.reservoir_version - 1
    seen = start.reservoir_version - 1
    pieces: list[pa.Table] = []
    for version in _versions(reading, start, last, stops_at_barrier=False):
        ends_here = (version.version, version.is_initial) == (end.reservoir_version, end.is_starting_version)
        stop = end.index + 1 if ends_here else version.files.num_rows
        pieces.append(version.files.slice(version.first, max(0, stop - version.first)))
        seen = version.version
    if seen < last and reading.options.validate_trailing_commit:
        raise DeltaIllegalStateException(
            error_class="DELTA_STREAMING_TRAILING_COMMIT_MISSING",
            expected_version=last,
            seen_version=seen,
            table=reading.path,
        )
    return _files_to_read(reading, pieces)


def _offset_at(offset: DeltaSourceOffset, version: int, index: int, initial: bool) -> DeltaSourceOffset:
    return DeltaSourceOffset(offset.reservoir_id, version, index, initial)


def _versions(
    reading: Reading, start: DeltaSourceOffset, last_version: int, *, stops_at_barrier: bool = True
) -> Iterator[_Version]:
    """The versions after `start`, up to `last_version`, read lazily; a barrier is the last one."""
    first = max(start.index, -1) + 1
    next_version = start.reservoir_version
    if start.is_starting_version:
        yield _Version(next_version, True, initial_snapshot(reading, next_version), first)
        next_version += 1
        first = 0
    for commit in commits(reading, next_version, last_version):
        if stops_at_barrier and is_barrier(reading, commit, start):
            checked_files(reading, commit)
            yield _Version(commit.version, False, COLUMNS.empty_table(), 0, is_barrier=True)
            return
        is_begun = commit.version == next_version
        yield _Version(commit.version, False, emitted_files(reading, commit), first if is_begun else 0)


def _files_to_read(reading: Reading, pieces: Iterable[pa.Table]) -> pa.Table:
    """The files of a batch that the stream reads. The others count for its offsets, too."""
    files = pa.concat_tables([COLUMNS.empty_table(), *pieces])
    selects = file_selection(reading)
    if selects is not None:
        files = files.filter(selects(files))
    pattern = reading.options.exclude_regex
    if pattern is None or files.num_rows == 0:
        return files
    return files.filter(pc.invert(regex_found(pattern, files["path"])))
