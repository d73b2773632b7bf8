"""Rewrites bins of files for OPTIMIZE and autoCompact: one commit replaces the files of all bins by new ones.

The commit changes no data, and conflicts only with changes of the files that it removes, unless the caller
has recorded other reads or changes the metadata. The caller chooses
the files and the bins. Spark reads each bin in one task, which writes one file, unless the caller lays the
rows out in another way. Python calls the JVM about 10 times for a bin and 20 times for a job.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import TouchedFiles
from deltaflow.errors import OperationCancelledError
from deltaflow.log import AddFile, Operation, OptimisticTransaction, RemoveFile, remove_files
from deltaflow.log.observer import observe
from deltaflow.log.protocol.column_mapping import with_mapping_alone
from deltaflow.log.protocol.features import check_writable
from deltaflow.spark.expressions.frames import session_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger(__name__)

_BINS_OF_A_JOB = 64
# Other values of these settings would split a file, or bring bins together.
_SETTINGS = {
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.unionOutputPartitioning": "false",
    # A task has rows of one partition, so the writer need not sort them.
    "spark.sql.maxConcurrentOutputFileWriters": "1",
}

Describe = Callable[[Sequence[AddFile], Sequence[RemoveFile]], Operation]
LayOut = Callable[[int, "Sequence[DataFrame]"], "Sequence[DataFrame]"]
"""Makes the frames to write of the rows of some bins, the first of which has the given number.

Each Spark partition of a frame becomes a file.
"""


def one_file_each(first: int, bins: Sequence[DataFrame]) -> Sequence[DataFrame]:
    """The layout of a compaction: one file for each bin."""
    return [rows.coalesce(1) for rows in bins]


class BinRewrite:
    """One rewrite of given files, with its commit. Another thread may call `cancel`."""

    def __init__(
        self,
        transaction: OptimisticTransaction,
        bins: Sequence[pa.Table],
        describe: Describe,
        file_options: Mapping[str, str],
        lay_out: LayOut = one_file_each,
        operation: str = "OPTIMIZE",
        tagged: Callable[[Sequence[AddFile]], list[AddFile]] | None = None,
    ) -> None:
        """Each bin holds `files` of the transaction's snapshot that are in one partition. The new files are
        those of the table with the transaction's metadata. `operation` is the name that errors show.
        `tagged` marks the new files of each bin.

        Raises UnsupportedFeatureError or DeltaIllegalArgumentException if the table cannot be rewritten.
        """
        assert transaction.snapshot is not None
        assert transaction.metadata is not None
        self.bins = bins
        self.snapshot = transaction.snapshot
        self.files = pa.concat_tables(bins)
        self._transaction = transaction
        self._describe = describe
        self._lay_out = lay_out
        self._operation = operation
        self._tagged = tagged
        self._cancelled = threading.Event()
        snapshot, path = self.snapshot, self.snapshot.path
        check_writable(snapshot.protocol, snapshot.metadata, path, snapshot.version)
        self._new = NewFiles(
            transaction,
            DataFiles(transaction.metadata, path),
            file_options={k: v for k, v in file_options.items() if k.lower() != "maxrecordsperfile"},
            optimized_write_bytes=None,
            data_change=False,
            log_level=logging.DEBUG,
        )
        transaction.record_read_of_files(self.files)

    @property
    def adds(self) -> Sequence[AddFile]:
        """The new files."""
        return self._new.adds

    def run(self, spark: SparkSession) -> None:
        """Writes the new files and commits. If that fails, it removes the new files and raises the error."""
        try:
            self._write(session_with(spark, _SETTINGS))
            self._commit()
        except BaseException:
            self._new.discard(is_certain=self._transaction.cancel())
            raise

    def _write(self, spark: SparkSession) -> None:
        schema = with_mapping_alone(self.snapshot.schema)
        with TouchedFiles(spark, self._transaction, self._operation, schema) as files:
            bins_of_a_job = _BINS_OF_A_JOB if self._tagged is None else 1
            for first in range(0, len(self.bins), bins_of_a_job):
                rows = [
                    files.with_row_ids(files.rows(of_bin))
                    for of_bin in self.bins[first : first + bins_of_a_job]
                ]
                laid_out = functools.reduce(_union, self._lay_out(first, rows))
                if self._cancelled.is_set():
                    raise OperationCancelledError("The rewrite was stopped.", table=self.snapshot.path)
                before = len(self._new.adds)
                self._new.copy(laid_out, self._operation)
                if self._tagged is not None:
                    self._new.adds[before:] = self._tagged(self._new.adds[before:])

    def _commit(self) -> None:
        path, transaction = self.snapshot.path, self._transaction
        observe("rewrite files written", path=path, files=len(self.adds))
        RowAccount(self._operation, self.snapshot, self.files).check(self._new.rows)
        files = self.snapshot.with_stats(self.files)
        removes = remove_files(files, transaction.log.clock(), data_change=False)
        committed = transaction.commit([*self.adds, *removes], self._describe(self.adds, removes))
        observe("rewrite committed", path=path, version=committed.version)
        _LOG.info(
            "%s: version %s has %s files instead of %s", path, committed.version, len(self.adds), len(removes)
        )

    def cancel(self) -> None:
        """Keeps the rewrite from committing from now on."""
        self._cancelled.set()
        self._transaction.cancel()


def _union(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.union(right)
