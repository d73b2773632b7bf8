"""FSCK REPAIR TABLE: removes files from a table's log that are not there any more (Databricks' statement).

Their rows are lost. A commit that removes the files says so, and queries can read the rest of the table. A
file whose deletion vector alone is missing has all of its rows, those that were deleted too: nobody can tell
which. It is removed only where the caller says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, LongType, StringType

from deltaflow.batch.result_rows import schema_of
from deltaflow.errors import StoreError
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.maintenance.missing_files import MissingFiles

_LOG = logging.getLogger(__name__)
_NAMED_FILES = 3
REPAIRED = schema_of(
    dataFilePath=StringType(),
    dataFileMissing=BooleanType(),
    deletionVectorPath=StringType(),
    deletionVectorFileMissing=BooleanType(),
    numRows=LongType(),
)
"""The output of FSCK REPAIR TABLE: one row for each file of which something is missing. numRows tells how
many rows of the table are in the file, by its log; null if the log does not say."""


def repair(
    path: str,
    settings: Mapping[str, str],
    *,
    dry_run: bool,
    removes_files_without_vectors: bool = False,
) -> pa.Table:
    """Removes the files that are not there from the newest version, and returns them: columns as in REPAIRED.

    With `dry_run` nothing is committed. DELTA_DELETION_VECTOR_FILES_MISSING, and no commit, if files are
    there whose deletion vectors are not; `removes_files_without_vectors` removes them with all their rows.
    Commits that changed one of the files meanwhile are conflicts. `settings` are the session's.
    """
    log = DeltaLog.for_table(path)
    if dry_run:
        return _rows(log.missing_files(log.snapshot()))
    transaction = log.start_transaction(settings, read_version=log.snapshot().version)
    assert transaction.snapshot is not None
    missing = log.missing_files(transaction.snapshot)
    if missing.files.num_rows == 0:
        return _rows(missing)
    without_vectors = missing.paths.filter(pc.invert(missing.is_missing))
    if len(without_vectors) and not removes_files_without_vectors:
        raise _refusal(without_vectors, log.path, transaction.read_version)
    transaction.record_read_of_files(missing.files)
    metrics = {
        "numRemovedFiles": str(missing.files.num_rows),
        "numRemovedBytes": str(pc.sum(missing.files["size"], min_count=0).as_py()),
        "numDeletedRows": str(pc.sum(missing.num_rows, min_count=0).as_py()),
    }
    if missing.num_rows.null_count:
        metrics["numFilesOfUnknownRows"] = str(missing.num_rows.null_count)
    removes = remove_files(transaction.snapshot.with_stats(missing.files), transaction.log.clock())
    committed = transaction.commit(removes, Operation("FSCK", {}, metrics))
    _LOG.warning(
        "Version %d of %s has lost %s rows with %d files that were not there%s",
        committed.version,
        log.path,
        metrics["numDeletedRows"],
        missing.files.num_rows,
        f", and the rows of {missing.num_rows.null_count} of them that the log has not counted"
        if missing.num_rows.null_count
        else "",
    )
    return _rows(missing)


def _rows(missing: MissingFiles) -> pa.Table:
    columns = [
        missing.paths,
        missing.is_missing,
        missing.vector_paths,
        missing.is_vector_missing,
        missing.num_rows,
    ]
    return pa.table(columns, names=REPAIRED.names)


def _refusal(without_vectors: pa.ChunkedArray, path: str, version: int) -> StoreError:
    names = ", ".join(without_vectors[:_NAMED_FILES].to_pylist())
    more = len(without_vectors) - _NAMED_FILES
    return StoreError(
        error_class="DELTA_DELETION_VECTOR_FILES_MISSING",
        number=len(without_vectors),
        files=f"{names} and {more} more" if more > 0 else names,
        table=path,
        version=version,
        file=without_vectors[0].as_py(),
    )
