"""Accounts for every row of the files that an operation removes: it is written again, or leaves the table.

The log's numRecords tells how many rows a file has. Those that its deletion vector deletes are not in the
table, and so in no account. The file's Parquet footer tells it where the log does not, and for a file that is
removed unread because, by the log, all of its rows leave the table.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.errors import DeltaIllegalStateException, DeltaUnsupportedOperationException, StoreError
from deltaflow.log import AddFile, RemoveFile, Snapshot, remove_files
from deltaflow.log.files.data_path import sized_paths
from deltaflow.log.files.footers import numbers_of_rows
from deltaflow.log.files.partition_values import NULL_FOLDER

_SHOWN = 3


def check_partitions_stay(operation: str, snapshot: Snapshot, files: pa.Table) -> None:
    """DELTA_PARTITION_VALUE_OF_NULL_FOLDER if rows of these files, written by Spark, would get null for the
    value of a partition column: other writers keep the name of its folder for null as a text."""
    for file, values in zip(files["path"], files["partition_values"], strict=True) if _has(files) else ():
        if any(value == NULL_FOLDER for _, value in values.as_py()):
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_PARTITION_VALUE_OF_NULL_FOLDER",
                operation=operation,
                value=NULL_FOLDER,
                table=snapshot.path,
                file=file.as_py(),
            )


def _has(files: pa.Table) -> bool:
    return any(pc.any(pc.equal(part.items, NULL_FOLDER)).as_py() for part in files["partition_values"].chunks)


class RowAccount:
    """The rows of the files that an operation removes, and how many of them leave the table."""

    def __init__(
        self, operation: str, snapshot: Snapshot, files: pa.Table, gone: pa.ChunkedArray | None = None
    ) -> None:
        """`files` are rows of the snapshot's `files`. `gone` tells how many rows of each file leave the
        table, as a job has counted them; by default no row does.

        Raises DELTA_NUM_RECORDS_MISMATCH if, by the log, all rows of a file leave, but the file has more.
        """
        files = files.select(snapshot.files.column_names)
        self.files = files
        self._operation = operation
        self._snapshot = snapshot
        self._records: pa.Array = snapshot.statistics_of(files).num_rows
        if gone is None:
            gone = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), files.num_rows)])
        self._gone = gone.combine_chunks()
        all_go = pc.and_(pc.equal(self._records, self._gone), pc.greater(self._gone, 0))
        self._stays = pc.invert(pc.fill_null(all_go, False))
        self.files_to_read = files.filter(self._stays)
        """The files that have rows which stay in the table: these rows have to be written again."""
        check_partitions_stay(operation, snapshot, self.files_to_read)
        unread = pc.invert(self._stays)
        self._check(unread, sum(self._footers(files.filter(unread))), 0)

    @property
    def gone(self) -> int:
        """How many rows leave the table."""
        number: int = pc.sum(self._gone, min_count=0).as_py()
        return number

    @property
    def needs_change_files(self) -> bool:
        """As MarkedRows: whether rows of the files are written again."""
        return self.files_to_read.num_rows > 0

    def check(self, kept: int) -> None:
        """Raises DELTA_NUM_RECORDS_MISMATCH unless `kept` is the number of rows that stay."""
        records = self._records.filter(self._stays)
        known: int = pc.sum(records, min_count=0).as_py()
        not_in_log = self.files_to_read.filter(records.is_null())
        self._check(self._stays, known + sum(self._footers(not_in_log)), kept)

    def check_recorded(self, before: int, updated: int) -> None:
        """As MarkedRows, of an operation that updates all rows of the files; after `check`."""
        if before != updated:
            raise self._mismatch(self.files, self._records, before, 0)

    def actions(self, new: NewFiles, now_ms: int) -> tuple[list[AddFile], list[RemoveFile]]:
        """The actions that remove the files; as those of MarkedRows."""
        return [], remove_files(self._snapshot.with_stats(self.files), now_ms)

    def _check(self, mask: pa.Array, rows: int, kept: int) -> None:
        gone = pc.sum(self._gone.filter(mask), min_count=0).as_py()
        if rows != kept + gone:
            raise self._mismatch(self.files.filter(mask), self._records.filter(mask), kept, gone)

    def _footers(self, files: pa.Table) -> list[int]:
        """The rows of the files that are in the table, by their footers."""
        rows = numbers_of_rows(sized_paths(self._snapshot.path, files))
        deleted = [
            0 if vector is None else vector["cardinality"] for vector in files["deletion_vector"].to_pylist()
        ]
        return [number - gone for number, gone in zip(rows, deleted, strict=True)]

    def _mismatch(self, files: pa.Table, records: pa.Array, kept: int, gone: int) -> Exception:
        names = files["path"].to_pylist()
        try:
            wrong = [
                (name, f"{name} (the log says {said} rows, the file has {has})")
                for name, said, has in zip(names, records.to_pylist(), self._footers(files), strict=True)
                if said is not None and said != has
            ] or [(name, name) for name in names]
        except StoreError as error:
            wrong = [(error.file or "", error.message)]
        shown = ", ".join(text for _, text in wrong[:_SHOWN])
        return DeltaIllegalStateException(
            error_class="DELTA_NUM_RECORDS_MISMATCH",
            operation=self._operation,
            kept=kept,
            gone=gone,
            files=f"{shown} and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else shown,
            table=self._snapshot.path,
            version=self._snapshot.version,
            file=wrong[0][0],
        )
