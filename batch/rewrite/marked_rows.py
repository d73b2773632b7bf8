"""Rows that an operation marks as deleted, instead of writing the other rows of their files again.

Spark finds the rows: it gives a file, and the positions of the rows in it as bitmaps of fixed size (buckets).
A bitmap takes 4 KB for 32,768 rows of a file, of which one at least is marked: all of them take at most a bit
for each row of the files.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.row_account import check_partitions_stay
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import AddFile, RemoveFile, Snapshot, add_files, remove_files
from deltaflow.log.files.data_path import sized_paths
from deltaflow.log.files.deletion_vectors import DeletionVector, read_deletion_vectors
from deltaflow.log.files.footers import numbers_of_rows
from deltaflow.log.untrusted_json import decode_json

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import Column

# Of Spark's functions for bitmaps: rows of a bucket, which are numbered from 1 together with the buckets.
_ROWS_OF_A_BUCKET = 8 * 4096
# Of so many, all positions as numbers take 8 MB.
_BUCKETS_AT_ONCE = 32
# Rows are kept if at most one of so many rows of their files is marked.
_SPARSE = 10


def bucket_of(position: Column) -> Column:
    """The bucket that has the row at a position in its file."""
    return F.bitmap_bucket_number(position + 1)


def bucket_with(position: Column) -> Column:
    """Aggregates the positions of one bucket to a bitmap; null is none."""
    return F.bitmap_construct_agg(F.bitmap_bit_position(position + 1))


def positions(buckets: Sequence[tuple[int, bytes]]) -> BitMap64:
    """The positions in a file that its buckets, each with its number, say."""
    from pyroaring import BitMap64  # most tables have no vectors

    found = BitMap64()
    for start in range(0, len(buckets), _BUCKETS_AT_ONCE):
        some = buckets[start : start + _BUCKETS_AT_ONCE]
        bitmaps = b"".join(bitmap for _, bitmap in some)
        bits = pa.BooleanArray.from_buffers(pa.bool_(), 8 * len(bitmaps), [None, pa.py_buffer(bitmaps)])
        marked = pc.indices_nonzero(bits).cast(pa.uint64())
        first = pa.array([(number - 1) * _ROWS_OF_A_BUCKET for number, _ in some], pa.uint64())
        before = first.take(pc.divide(marked, _ROWS_OF_A_BUCKET))
        marked = pc.add(before, pc.bit_wise_and(marked, _ROWS_OF_A_BUCKET - 1))
        found |= BitMap64(array.array("Q", marked.buffers()[1].to_pybytes()[: 8 * len(marked)]))
    return found


class RowsOfFiles(NamedTuple):
    """Some rows of some files."""

    files: pa.Table
    without: Sequence[DeletionVector]
    """The rows of each file that do not belong to them; its own deletion vector does not count."""


class MarkedRows:
    """Rows of files that an operation marks as deleted, and the account of them."""

    def __init__(
        self,
        operation: str,
        snapshot: Snapshot,
        files: pa.Table,
        marks: Sequence[BitMap64],
        rewritten: Sequence[BitMap64] | None = None,
    ) -> None:
        """`files` are rows of the snapshot's `files`, and `marks` the positions of rows in each of them. The
        operation writes new versions of those that are `rewritten`, too; by default of none.

        Reads the footers of the files, and their deletion vectors. DELTA_NUM_RECORDS_MISMATCH if a file has
        another number of rows than the log says; DeltaIllegalStateException if it does not have these rows.
        """
        self.files = files = files.select(snapshot.files.column_names)
        self._operation = operation
        self._snapshot = snapshot
        self._marks = marks
        self._rewritten = [_no_rows() for _ in marks] if rewritten is None else rewritten
        self._records = self._numbers_of_records()
        old = read_deletion_vectors(snapshot.with_stats(files), snapshot.path, snapshot.version)
        self._vectors = [
            self._merged(row, marks[row], None if vector is None else vector.rows)
            for row, vector in enumerate(old)
        ]
        for written in (self.files_to_read, self.unmarked.files):
            check_partitions_stay(operation, snapshot, written)

    @property
    def unmarked(self) -> RowsOfFiles:
        """Rows that the operation has to copy."""
        return RowsOfFiles(self.files.slice(0, 0), [])

    @property
    def deleted(self) -> RowsOfFiles:
        """Rows that leave the table."""
        pairs = zip(self._marks, self._rewritten, strict=True)
        return self._only([marks - rewritten for marks, rewritten in pairs])

    def _only(self, chosen: Sequence[BitMap64]) -> RowsOfFiles:
        without = [
            _vector(rows.flip(0, records))
            for rows, records in zip(chosen, self._records, strict=True)
            if rows
        ]
        return RowsOfFiles(self.files.filter(pa.array(list(map(bool, chosen)), pa.bool_())), without)

    def _numbers_of_records(self) -> list[int]:
        """The rows of each file, deleted ones included, by its footer. Where the log tells the number, it has
        to be right: readers take it for that of the rows in the table."""
        paths = sized_paths(self._snapshot.path, self.files)
        found = numbers_of_rows(paths)
        told = self._snapshot.statistics_of(self.files).num_records.to_pylist()
        for row, (said, has) in enumerate(zip(told, found, strict=True)):
            if said is not None and said != has:
                raise self._error(
                    row,
                    f"Failed to validate the number of records in {self._operation}: of {paths[row][0]}, the "
                    f"log says {said} rows, and the file has {has}. Nothing was committed. Where the log is "
                    "wrong, overwrite the table with its own rows.",
                    error_class="DELTA_NUM_RECORDS_MISMATCH",
                )
        return found

    def _merged(self, row: int, marked: BitMap64, deleted: BitMap64 | None) -> BitMap64:
        if marked.max() >= self._records[row] or not (deleted is None or deleted.isdisjoint(marked)):
            raise self._error(
                row,
                f"Spark found rows for {self._operation} in {self.files['path'][row]} that are not there or "
                "are deleted. Nothing was committed.",
            )
        return marked.copy() if deleted is None else deleted | marked

    def _error(self, row: int, message: str, error_class: str | None = None) -> DeltaIllegalStateException:
        return DeltaIllegalStateException(
            message,
            error_class=error_class,
            table=self._snapshot.path,
            version=self._snapshot.version,
            file=self.files["path"][row].as_py(),
        )

    @cached_property
    def number(self) -> int:
        """How many rows are marked."""
        return sum(len(marks) for marks in self._marks)

    @property
    def gone(self) -> int:
        """How many rows leave the table: those that are marked and not rewritten."""
        return self.number - self._number_rewritten

    @property
    def _number_rewritten(self) -> int:
        return sum(map(len, self._rewritten))

    @property
    def _number_copied(self) -> int:
        return 0

    @property
    def needs_change_files(self) -> bool:
        """Whether a change data feed needs more than the actions that the operation commits."""
        return bool(self._number_rewritten or self._number_copied)

    @property
    def is_sparse(self) -> bool:
        """Whether most rows of the files are not marked, so that reading the files costs more than keeping
        the marked rows."""
        return self.number * _SPARSE < sum(self._records)

    @property
    def files_to_read(self) -> pa.Table:
        """The files with rows that are rewritten."""
        return self.files.filter(pa.array(list(map(bool, self._rewritten)), pa.bool_()))

    @cached_property
    def rewritten(self) -> RowsOfFiles:
        """The rows of which the operation writes new versions."""
        return self._only(self._rewritten)

    def check(self, kept: int) -> None:
        """Raises DELTA_NUM_RECORDS_MISMATCH unless `kept` rows are as many as are rewritten or copied."""
        expected = self._number_rewritten + self._number_copied
        if kept != expected:
            raise self._mismatch(
                f"{expected} rows of {self.files.num_rows} files were to be written anew, and {kept} rows "
                "were written"
            )

    def check_recorded(self, before: int, updated: int) -> None:
        """Raises DELTA_NUM_RECORDS_MISMATCH unless, in change files, `before` is the number of rows as they
        were, and `updated` that of rows with new values."""
        if (before, updated) != (self.number, self._number_rewritten):
            raise self._mismatch(
                f"{self.number} changed rows were to be recorded as they were, and "
                f"{self._number_rewritten} with new values; {before} and {updated} were recorded"
            )

    def _mismatch(self, text: str) -> DeltaIllegalStateException:
        return DeltaIllegalStateException(
            f"Failed to validate the number of records in {self._operation}: {text}. Nothing was committed. "
            "Run the operation again; if it fails again, look at the files.",
            error_class="DELTA_NUM_RECORDS_MISMATCH",
            table=self._snapshot.path,
            version=self._snapshot.version,
        )

    def actions(self, new: NewFiles, now_ms: int) -> tuple[list[AddFile], list[RemoveFile]]:
        """Writes the deletion vectors; the actions that put the files with them in the place of the files
        without, and that remove those of which no row is left."""
        stay = [row for row, vector in enumerate(self._vectors) if len(vector) < self._records[row]]
        descriptors = dict(zip(stay, new.write_vectors([self._vectors[row] for row in stay]), strict=True))
        adds, removes = [], []
        for row, file in enumerate(add_files(self._snapshot.with_stats(self.files))):
            records = self._records[row]
            removes.append(msgspec.structs.replace(file.remove(now_ms), stats=_json({"numRecords": records})))
            if row in descriptors:
                stats = _with_wide_bounds(file.stats, records)
                adds.append(msgspec.structs.replace(file, deletion_vector=descriptors[row], stats=stats))
        return adds, removes


class RewrittenFiles(MarkedRows):
    """The same for a table without deletion vectors: the files leave the table, and the rows of them that
    are not marked are copied."""

    @property
    def unmarked(self) -> RowsOfFiles:
        stays = [len(vector) < records for vector, records in zip(self._vectors, self._records, strict=True)]
        without = [_vector(vector) for vector, stay in zip(self._vectors, stays, strict=True) if stay]
        return RowsOfFiles(self.files.filter(pa.array(stays, pa.bool_())), without)

    @property
    def _number_copied(self) -> int:
        return sum(self._records) - sum(map(len, self._vectors))

    def actions(self, new: NewFiles, now_ms: int) -> tuple[list[AddFile], list[RemoveFile]]:
        """The actions that remove the files."""
        return [], remove_files(self._snapshot.with_stats(self.files), now_ms)


def _no_rows() -> BitMap64:
    from pyroaring import BitMap64

    return BitMap64()


def _vector(rows: BitMap64) -> DeletionVector:
    rows.run_optimize()
    return DeletionVector(rows, rows.serialize())


def _with_wide_bounds(stats: str | None, records: int) -> str:
    """The statistics of a file of which rows are deleted; bounds and counts stay as the text has them."""
    try:
        known = {} if stats is None else decode_json(stats, as_type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:  # they say nothing that could be kept
        known = {}
    return _json({**known, "numRecords": records, "tightBounds": False})


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
