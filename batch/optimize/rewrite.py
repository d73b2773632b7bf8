"""Rewrites files of a table: their rows go into new files, and one commit puts those in their place.

The commit changes no data and depends on nothing but the files that it removes. Which ones, in which bins,
its caller has decided; Spark reads every bin in one task, which writes one file of it for the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.errors import DeltaConcurrentModificationException, DeltaIllegalStateException
from deltaflow.log import (
    AddFile,
    Committed,
    Operation,
    OptimisticTransaction,
    RemoveFile,
    as_nullable,
    remove_files,
)
from deltaflow.log.files.file_rows import refuse_deletion_vectors
from deltaflow.log.files.file_statistics import number_of_rows
from deltaflow.log.observer import observe
from deltaflow.log.protocol.features import check_writable
from deltaflow.spark.scan.file_index import ScannedFiles, relation, scan_kind
from deltaflow.spark.write.file_write import (
    FileRewrite,
    FileWrite,
    Quarantine,
    ReplaceWhere,
    RowPlan,
    WrittenFile,
    open_rewrite,
    write_kind,
)

_LOG = logging.getLogger(__name__)

_BINS_OF_A_JOB = 64
# The session's own settings might leave rows out, split what is to be one file, or bring bins together.
_SETTINGS = {
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.unionOutputPartitioning": "false",
    # A task has rows of one partition, so that the writer need not sort them.
    "spark.sql.maxConcurrentOutputFileWriters": "1",
}

Describe = Callable[[Sequence[AddFile], Sequence[RemoveFile]], Operation]


class Rewrite:
    """One rewrite, from the choice of files to its commit. See FileRewrite."""

    def __init__(
        self,
        transaction: OptimisticTransaction,
        bins: Sequence[pa.Table],
        describe: Describe,
        file_options: Mapping[str, str],
    ) -> None:
        """`bins` hold rows of the `files` of the transaction's snapshot, each of one partition.

        UnsupportedFeatureError and DeltaIllegalArgumentException where the table cannot be rewritten.
        """
        assert transaction.snapshot is not None
        self.bins = bins
        self.snapshot = transaction.snapshot
        self.files = pa.concat_tables(bins)
        self.file_options = {
            name: value for name, value in file_options.items() if name.lower() != "maxrecordsperfile"
        }
        self.committed: Committed | None = None
        self.adds: Sequence[AddFile] = ()
        self._transaction = transaction
        self._describe = describe
        self._written: list[WrittenFile] = []
        self._jobs_done = 0
        self._lost: DeltaConcurrentModificationException | None = None
        snapshot, path = self.snapshot, self.snapshot.path
        check_writable(snapshot.protocol, snapshot.metadata, path, snapshot.version)
        refuse_deletion_vectors(self.files, path, snapshot.version)
        self._data_files = DataFiles(snapshot.metadata, path)
        self.folder = self._data_files.folder
        transaction.read_files(self.files)

    @property
    def schema(self) -> StructType:
        """The table's columns, bare: what their metadata asks of writers and readers is done already."""
        return StructType([StructField(f.name, f.dataType) for f in as_nullable(self.snapshot.schema).fields])

    def request(self, handle: int) -> dict[str, Any]:
        """What the JVM needs to run it: the scans of the bins, job by job."""
        snapshot = self.snapshot
        scan = {
            "kind": "rewrite",
            "path": snapshot.path,
            "id": snapshot.table_id,
            "version": snapshot.version,
            "rewrite": handle,
        }
        scans = [msgspec.json.encode({**scan, "bin": i}).decode() for i in range(len(self.bins))]
        size = sum(self.files["size"].to_pylist())
        return {
            "relation": relation(scan, snapshot.path, self.schema, snapshot.partition_columns, size),
            "jobs": [scans[i : i + _BINS_OF_A_JOB] for i in range(0, len(scans), _BINS_OF_A_JOB)],
            "settings": _SETTINGS,
        }

    def add_files(self, files: Sequence[WrittenFile]) -> None:
        """Takes the files of one job; commits after the last one."""
        self._written += files
        self._jobs_done += _BINS_OF_A_JOB
        if self._jobs_done >= len(self.bins):
            self._commit()

    def _commit(self) -> None:
        path, transaction = self.snapshot.path, self._transaction
        observe("rewrite files written", path=path, files=len(self._written))
        adds, rows = self._data_files.add_actions(self._written, data_change=False)
        self._check_rows(rows)
        removes = remove_files(self.files, transaction.log.clock(), data_change=False)
        try:
            self.committed = transaction.commit([*adds, *removes], self._describe(adds, removes))
        except DeltaConcurrentModificationException as error:
            self._lost = error
            raise
        self.adds = adds
        version = self.committed.version
        observe("rewrite committed", path=path, version=version)
        _LOG.info("%s: version %s has %s files instead of %s", path, version, len(adds), len(removes))

    def _check_rows(self, rows: int) -> None:
        """The new files must have as many rows as the old ones, as far as the log knows that."""
        known = number_of_rows(self.files["stats"])
        if known is not None and known != rows:
            raise DeltaIllegalStateException(
                f"The {self.files.num_rows} files that were to be rewritten have {known} rows by the log, "
                f"and {rows} were read. Nothing was committed. Look for files that were changed in place.",
                error_class="DELTA_ROW_COUNT_OF_REWRITE",
                table=self.snapshot.path,
                version=self.snapshot.version,
            )

    def cancel(self, files: Sequence[WrittenFile] = ()) -> None:
        """No commit of it appears after this has returned; if none has, the new files are removed, those of a
        last job included."""
        is_certain = self._transaction.cancel()
        new = [*self._written, *(file for file in files if file not in self._written)]
        self._data_files.discard(new, is_certain=is_certain, log_level=logging.DEBUG)

    def end(self, error: str | None) -> FileRewrite | None:
        """To be called when it is over, with what failed it: the rewrite to run instead, or None."""
        if self.committed is not None:
            return None
        self.cancel()
        return None if error is None else self.after_failure(error, self._lost)

    def after_failure(
        self, error: str, lost: DeltaConcurrentModificationException | None
    ) -> FileRewrite | None:
        """What to run instead; `lost` if it was a race."""
        return None


@dataclass(frozen=True)
class _Job:
    """Spark's write of some of the bins."""

    rewrite: Rewrite
    optimized_write_bytes: int | None = None
    replace_where: ReplaceWhere | None = None
    settings_to_unset: Sequence[str] = ()
    quarantine: Quarantine | None = None

    @property
    def path(self) -> str:
        return self.rewrite.snapshot.path

    @property
    def folder(self) -> str | None:
        return self.rewrite.folder

    @property
    def rows(self) -> RowPlan:
        return RowPlan(frame=self.rewrite.schema, table=self.rewrite.schema)

    @property
    def partition_columns(self) -> Sequence[str]:
        return self.rewrite.snapshot.partition_columns

    @property
    def file_options(self) -> Mapping[str, str]:
        return self.rewrite.file_options

    def commit(self, files: Sequence[WrittenFile], kept: Sequence[WrittenFile]) -> None:
        self.rewrite.add_files(files)

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        self.rewrite.cancel(files or ())


@write_kind("rewrite")
def _begin(request: dict[str, Any]) -> FileWrite:
    return _Job(_rewrite(request["rewrite"]))


@scan_kind("rewrite")
def _files_of_bin(description: dict[str, Any]) -> ScannedFiles:
    rewrite = _rewrite(description["rewrite"])
    return ScannedFiles(
        rewrite.snapshot.path, tuple(rewrite.snapshot.partition_columns), rewrite.bins[description["bin"]]
    )


def _rewrite(handle: int) -> Rewrite:
    rewrite = open_rewrite(handle)
    assert isinstance(rewrite, Rewrite)
    return rewrite
