"""How much a micro-batch takes: files in their order, until one of its limits is reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_FILES_PER_LOOK = 4_096


class Files(Protocol):
    """Files of one version in a stream's order: those of a commit, or of the initial snapshot."""

    @property
    def num_rows(self) -> int:
        """The number of files."""

    def slice(self, first: int, count: int) -> pa.Table:
        """At most `count` files from the one numbered `first` on."""


@dataclass
class Limits:
    """What is left of a batch's capacity; None where it has no such limit.

    A file is admitted as long as anything is left of each, so the last one may go beyond, and a batch has
    one file at least (delta-spark's AdmissionLimits). A file that does not tell its rows takes all that are
    left.
    """

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None

    def admit(self, files: Files, first: int) -> list[pa.Table]:
        """The files from the one numbered `first` on that there is room for; takes their room away."""
        pieces: list[pa.Table] = []
        while first < files.num_rows and not self._is_used_up():
            look = files.slice(first, self._files_to_look_at(files.num_rows - first))
            count = min(
                look.num_rows if self.files is None else min(look.num_rows, self.files),
                _number_within(look["size"], self.bytes),
                _number_within(self._rows_of(look), self.rows),
            )
            taken = look.slice(0, count)
            pieces.append(taken)
            first += count
            self._take(taken)
        return pieces

    def _is_used_up(self) -> bool:
        return any(left is not None and left <= 0 for left in (self.files, self.bytes, self.rows))

    def _files_to_look_at(self, waiting: int) -> int:
        at_most = waiting if self.files is None else min(self.files, waiting)
        return at_most if self.bytes is None and self.rows is None else min(at_most, _FILES_PER_LOOK)

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
        return pa.chunked_array([_num_records(files["stats"].to_pylist(), self.rows)])


def _number_within(amounts: pa.ChunkedArray | None, capacity: int | None) -> int:
    """How many of them have some of the capacity left before them."""
    if amounts is None or capacity is None:
        return 2**63 - 1
    before = pc.subtract(pc.cumulative_sum(amounts), amounts)
    return int(pc.sum(pc.less(before, capacity)).as_py() or 0)


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


def _num_records(stats: Sequence[str | None], unknown: int) -> pa.Array:
    decoder = msgspec.json.Decoder(_Stats)

    def of(text: str | None) -> int:
        try:
            found = None if text is None else decoder.decode(text).num_records
        except msgspec.MsgspecError:
            found = None  # statistics are hints: what cannot be understood says nothing
        return unknown if found is None else found

    return pa.array([of(text) for text in stats], pa.int64())
