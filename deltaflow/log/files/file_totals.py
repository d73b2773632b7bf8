"""The number of a version's files, their total size, and the histogram of their sizes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.protocol.actions import AddFile
from deltaflow.log.protocol.commit import Commit

_MIB = 1 << 20
SIZE_BINS = (
    0,
    *(1 << power for power in range(13, 22)),
    *(size * _MIB for size in range(4, 40, 4)),
    *(size * _MIB for size in range(40, 120, 8)),
    *(size * _MIB for size in range(120, 144, 4)),
    *(size * _MIB for size in range(144, 576, 16)),
    *(size * _MIB for size in range(576, 1_408, 64)),
    *(size * _MIB for size in range(1_408, 2_048, 128)),
    *(size * _MIB for size in range(2_048, 4_096, 256)),
    *(1 << power for power in range(32, 39)),
)
"""Where the bins of delta-spark's histograms of file sizes begin, in bytes (FileSizeHistogramUtils)."""

# A histogram is counted file by file: larger tables go without one.
_MOST_FILES_TO_COUNT = 10_000
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class FileSizeHistogram:
    """Numbers of files and their bytes in each of SIZE_BINS."""

    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Iterable[int]) -> FileSizeHistogram:
        """The histogram of files of these sizes."""
        none = (0,) * len(SIZE_BINS)
        return cls(none, none).with_files(sizes)

    def with_files(self, sizes: Iterable[int]) -> FileSizeHistogram:
        """The histogram with files of these sizes added."""
        counts, total_bytes = list(self.file_counts), list(self.total_bytes)
        for size in sizes:
            position = bisect_right(SIZE_BINS, size) - 1
            counts[position] += 1
            total_bytes[position] += size
        return FileSizeHistogram(tuple(counts), tuple(total_bytes))


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Number, size and histogram of the active files of a version."""

    num_files: int
    size_in_bytes: int
    histogram: FileSizeHistogram | None
    """None where there are too many files to count."""

    @classmethod
    def of(cls, files: pa.Table) -> FileTotals:
        """The totals of a snapshot's files."""
        sizes = files["size"]
        histogram = None
        if files.num_rows <= _MOST_FILES_TO_COUNT:
            histogram = FileSizeHistogram.of(sizes.to_pylist())
        return cls(files.num_rows, pc.sum(sizes, min_count=0).as_py(), histogram)

    def after(self, commit: Commit) -> FileTotals | None:
        """The totals after the next commit; None where its actions alone do not determine them.

        An `add` may name a file that is active already, and a `remove` one that is not. Files are certainly
        new only if deltaflow itself committed them with random names, as new data and without removing any.
        """
        if not commit.adds and not commit.removes:
            return self
        if commit.removes or not _is_own(commit) or not all(map(_is_new_data, commit.adds)):
            return None
        sizes = [add.size for add in commit.adds]
        histogram = None if self.histogram is None else self.histogram.with_files(sizes)
        return FileTotals(self.num_files + len(sizes), self.size_in_bytes + sum(sizes), histogram)


def _is_own(commit: Commit) -> bool:
    engine = None if commit.commit_info is None else commit.commit_info.engine_info
    return engine is not None and engine.partition("/")[0] == "deltaflow"


def _is_new_data(add: AddFile) -> bool:
    return add.data_change and _UUID.search(add.path) is not None
