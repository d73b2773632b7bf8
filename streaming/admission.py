"""Admits files to a micro-batch, in their order, until one of its limits is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.log.files.file_statistics import FileStatistics

_FILES_PER_LOOK = 4_096

Selection = Callable[[pa.Table], pa.Array]
"""Makes one boolean for each file: whether the stream reads it."""


class Files(Protocol):
    """The files of a commit, or of the initial snapshot, in the order in which a stream reads them."""

    @property
    def num_rows(self) -> int:
        """The number of files."""

    def slice(self, first: int, count: int) -> pa.Table:
        """At most `count` files, beginning with number `first`."""


@dataclass
class Limits:
    """The capacity that a batch has left; None means no limit.

    A file is admitted as long as every limit has something left. So the last file may exceed a limit, and
    every batch has at least one file (delta-spark's AdmissionLimits). A file whose number of rows is unknown
    takes all rows that are left.
    """

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None

    def admit(self, files: Files, first: int, selects: Selection | None = None) -> tuple[list[pa.Table], int]:
        """Admits files, beginning with number `first`, and takes them off the limits.

        Returns them, and the number of the first file that is not admitted (the number of all files if there
        is none). Files that `selects` rules out are passed over.
        """
        pieces: list[pa.Table] = []
        while first < files.num_rows:
            look = files.slice(first, self._files_to_look_at(files.num_rows - first, selects))
            numbers = None if selects is None else pc.indices_nonzero(selects(look))
            counting = look if numbers is None else look.take(numbers)
            taken = counting.slice(0, self._room_for(counting))
            pieces.append(taken)
            self._take(taken)
            if taken.num_rows < counting.num_rows:
                return pieces, first + (
                    taken.num_rows if numbers is None else numbers[taken.num_rows].as_py()
                )
            first += look.num_rows
        return pieces, files.num_rows

    @property
    def are_used_up(self) -> bool:
        """Whether no further file is admitted."""
        return any(left is not None and left <= 0 for left in (self.files, self.bytes, self.rows))

    @property
    def are_none(self) -> bool:
        """Whether there is no limit at all."""
        return self.files is None and self.bytes is None and self.rows is None

    def admit_together(self, files: pa.Table, *, is_first: bool, places: int = 0) -> bool:
        """Admits all files or none of them, and takes them off the limits in either case.

        The first ones of a batch are always admitted, others if the limits have room for all of them.
        `places` are taken off the number of files besides. A file whose number of rows is unknown takes all
        rows that are left.
        """
        self._take(files)
        if self.files is not None:
            self.files -= places
        return is_first or all(left is None or left >= 0 for left in (self.files, self.bytes, self.rows))

    def _files_to_look_at(self, waiting: int, selects: Selection | None) -> int:
        """One file more than can be admitted, if that is known: the batch ends before this file."""
        if selects is not None or self.bytes is not None or self.rows is not None:
            return min(_FILES_PER_LOOK, waiting)
        return waiting if self.files is None else min(self.files + 1, waiting)

    def _room_for(self, files: pa.Table) -> int:
        return min(
            files.num_rows if self.files is None else min(files.num_rows, self.files),
            _count_within(files["size"], self.bytes),
            _count_within(self._rows_of(files), self.rows),
        )

    def _take(self, taken: pa.Table) -> None:
        if self.files is not None:
            self.files -= taken.num_rows
        if self.bytes is not None:
            self.bytes -= pc.sum(taken["size"]).as_py() or 0
        if self.rows is not None:
            self.rows -= pc.sum(self._rows_of(taken)).as_py() or 0

    def _rows_of(self, files: pa.Table) -> pa.ChunkedArray | None:
        if self.rows is None:
            return None
        return pc.fill_null(FileStatistics(files, StructType()).num_rows, self.rows)


def _count_within(amounts: pa.ChunkedArray | None, capacity: int | None) -> int:
    """How many amounts, taken in order, begin before the capacity is used up."""
    if amounts is None or capacity is None:
        return 2**63 - 1
    before = pc.subtract(pc.cumulative_sum(amounts), amounts)
    return int(pc.sum(pc.less(before, capacity)).as_py() or 0)
