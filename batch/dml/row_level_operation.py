"""The core of DELETE, UPDATE and MERGE: from the version that is read to the one commit.

An operation opens a `RowLevelOperation`, finds with its frames the files that hold rows to change, and gives
it the frame of all rows that the new files are to hold: changed ones and, as they were, those beside them:

    with RowLevelOperation(spark, path, "DELETE") as operation:
        if not operation.is_repeated:
            touched = operation.find(operation.rows(), condition).files
            account = operation.account(touched, gone=touched[MATCHING_ROWS.name])
            operation.replace(account, rows_that_stay(operation.rows(account.files_to_read)), describe)

Per operation: one listing of the log; two Spark jobs: the one that finds the files, by a scan of the
condition's columns with a count a file, and the one that writes the new ones, without a shuffle; one footer a
new file, and one a file that is removed unread, one put. Between Python and the JVM about 10 calls
of the analysis, 4 to 8 for the scans, 3 for the write, and PySpark's own for Columns and frames (some 300
for an UPDATE of one column, 50 µs each). An operation that whole partitions decide has no job, and reads no
file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.batch.files.file_layout import optimized_write_bytes
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.optimize.auto_compaction import auto_compaction
from deltaflow.batch.read.load_path import no_table_at
from deltaflow.batch.rewrite.marked_rows import MarkedRows
from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.recorded_changes import refuse_unrecorded_changes
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import AddFile, Committed, DeltaLog, Operation, RemoveFile, remove_files
from deltaflow.log.observer import observe
from deltaflow.log.protocol.features import check_writable, is_append_only, may_write_deletion_vectors
from deltaflow.log.protocol.isolation import isolation_of_table
from deltaflow.log.protocol.properties import SYMLINK_MANIFEST_ENABLED
from deltaflow.spark.expressions.analysis import analysed, without_subqueries
from deltaflow.spark.expressions.frames import delta_settings, recache

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Changed:
    """What the commit of an operation puts in the place of what: the new files, and the removed ones."""

    adds: Sequence[AddFile]
    rows: int
    """Rows of the new files."""
    removes: Sequence[RemoveFile]
    marked: Sequence[AddFile] = ()
    """The removed files that stay in the table with another deletion vector, as they are then."""

    @property
    def metrics(self) -> dict[str, int]:
        """The figures that every operation on rows reports, by delta-spark's names for DELETE and UPDATE."""
        staying = {file.path for file in self.marked}
        gone = [remove for remove in self.removes if remove.path not in staying]
        had_vectors = [remove.path for remove in self.removes if remove.deletion_vector is not None]
        return {
            "numRemovedFiles": len(gone),
            "numRemovedBytes": sum(remove.size or 0 for remove in gone),
            "numAddedFiles": len(self.adds),
            "numAddedBytes": sum(add.size for add in self.adds),
            "numAddedChangeFiles": 0,
            "numDeletionVectorsAdded": len(self.marked),
            "numDeletionVectorsRemoved": len(had_vectors),
            "numDeletionVectorsUpdated": len(staying.intersection(had_vectors)),
        }


Describe = Callable[[Changed], Operation]
"""How the commit names itself, with parameters and metrics (delta-spark's DeltaOperations)."""


@dataclass(frozen=True)
class Found:
    """The files that hold rows for which a condition is true."""

    condition: str
    """As a commit shows it."""
    files: pa.Table
    """Rows of the snapshot's `files`; with MATCHING_ROWS, unless all rows of them match."""
    all_rows_match: bool
    """Whether the condition is on partition columns alone."""
    marks: Sequence[BitMap64] | None = None
    """The positions of the rows in each file, if the operation may mark them as deleted."""

    @property
    def matching_rows(self) -> int:
        """How many rows match, unless all rows of the files do."""
        found: int = pc.sum(self.files[MATCHING_ROWS.name], min_count=0).as_py()
        return found


class RowLevelOperation(TouchedFiles):
    """One operation that changes rows of the table at `path`; a context manager, whose end ends its frames.

    `transaction` records what is read, and may be given new metadata before the commit. Refused before a file
    is read: a table that cannot be written, that is append-only, or that is none (`no_table_at`).
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        name: str,
        *,
        read_version: int | None = None,
        only_appends: bool = False,
    ) -> None:
        """`name`: of the operation, for errors and Spark's UI. `read_version`: instead of the newest one.
        `only_appends`: it removes no file."""
        settings = delta_settings(spark)
        transaction = DeltaLog.for_table(path).start_transaction(settings, read_version=read_version)
        snapshot = transaction.snapshot
        if snapshot is None:
            raise no_table_at(path)
        check_writable(snapshot.protocol, snapshot.metadata, snapshot.path, snapshot.version)
        isolation_of_table(snapshot.metadata, snapshot.path)  # a wrong value would stop the commit
        if is_append_only(snapshot.metadata) and not only_appends:
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=snapshot.path
            )
        super().__init__(spark, transaction, name)
        self._idempotent = idempotent_write({}, settings, snapshot.path)
        self.is_repeated = self._idempotent is not None and self._idempotent.record_read_and_compare(
            transaction
        )
        """Whether the table has this very operation already, by spark.databricks.delta.write.txnVersion."""
        self.committed: Committed | None = None
        # Manifests cannot say that rows of a file are deleted.
        self.may_mark = may_write_deletion_vectors(
            snapshot.protocol, snapshot.metadata
        ) and not SYMLINK_MANIFEST_ENABLED.of(snapshot.metadata.configuration, snapshot.path)
        """Whether the operation marks rows as deleted, and does not write the others of their files again."""

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if exception[0] is not None:
            return
        if self._idempotent is not None:
            for setting in self._idempotent.settings_to_unset:
                self.spark.conf.unset(setting)
        if self.committed is not None:
            recache(self.spark, self.snapshot.path)

    def find(
        self, rows: DataFrame, condition: Column, places: Callable[[], DataFrame] | None = None
    ) -> Found:
        """The files that hold rows for which a condition over the frame `rows` of the whole table is true;
        records what is read. One job, unless partitions decide.

        `places`: for a condition with a subquery, finds the rows for which it is true (FILE and POSITION).
        """
        text = self.deterministic_condition(rows, condition)
        matching, filtered = rows.where(condition), condition
        if places is not None:
            [found] = analysed(rows, [condition])
            plain = without_subqueries(found.column, self.spark)
            filtered = F.lit(True) if plain is None else plain
        facts = self.filter_facts(rows.where(filtered))
        self.record_read(facts)
        if places is not None:
            matching = places()
        is_found_in_rows = facts.has_data_filters or places is not None
        if is_found_in_rows and self.may_mark:
            touched, marks = self.record_marked_rows(matching)
            return Found(text, touched, all_rows_match=False, marks=marks)
        if is_found_in_rows:
            return Found(text, self.record_touched_files(matching), all_rows_match=False)
        return Found(text, self.record_files_of_partitions(facts), all_rows_match=True)

    def account(self, touched: pa.Table, gone: pa.ChunkedArray | None = None) -> RowAccount:
        """The account of the rows of files that the operation removes. See RowAccount."""
        return RowAccount(self.name, self.snapshot, touched, gone)

    def mark(
        self, touched: pa.Table, marks: Sequence[BitMap64], rewritten: Sequence[BitMap64] | None = None
    ) -> MarkedRows:
        """The account of the rows that the operation marks as deleted. See MarkedRows."""
        return MarkedRows(self.name, self.snapshot, touched, marks, rewritten)

    def replace(
        self,
        account: RowAccount | MarkedRows,
        rows: DataFrame | None,
        describe: Describe,
        *,
        inserted: int = 0,
        as_they_are: bool = False,
        bytes_of_partitions: int | None = None,
        numbered: Iterable[str] = (),
    ) -> Changed:
        """Writes the frame's rows, and commits their files and what the account does with the old ones;
        returns what was changed.

        The frame has all rows of the account's `files_to_read` that stay (where rows are marked: those that
        are rewritten), and as many `inserted` ones besides; None where there are neither. For its columns
        see NewFiles.write and, of rows that are copied `as_they_are`, NewFiles.copy.
        DELTA_NUM_RECORDS_MISMATCH, and no commit, if rows are missing. `bytes_of_partitions`: the rows of a
        partition go to one task, or to several of that size; None: they stay in the tasks that have them.
        `numbered`: the identity columns for which the frame makes numbers.
        """
        transaction, path = self.transaction, self.snapshot.path
        metadata = transaction.metadata
        assert metadata is not None
        if rows is not None:
            refuse_unrecorded_changes(metadata, account.files_to_read, self.name, path)
        bytes_of_a_task = optimized_write_bytes(
            {},
            transaction.session,
            metadata.configuration,
            path,
            by_default=bytes_of_partitions if metadata.partition_columns else None,
        )
        data_files = DataFiles(metadata, path)
        data_files.track_numbers(numbered)
        new = NewFiles(transaction, data_files, file_options={}, optimized_write_bytes=bytes_of_a_task)
        compaction = auto_compaction(transaction, {}, {})
        try:
            if rows is not None:
                (new.copy if as_they_are else new.write)(rows, self.name)
                observe("files written", path=path, files=len(new.adds))
            account.check(new.rows - inserted)
            transaction.update_identity_marks(data_files.numbers)
            marked, removes = account.actions(new, transaction.log.clock())
            changed = Changed(new.adds, new.rows, removes, marked)
            self.commit(changed, describe)
        except BaseException:
            new.discard(is_certain=transaction.cancel())
            raise
        following = None if compaction is None else compaction.after_commit(new.adds)
        if following is not None:
            following.run(self.spark)
        return changed

    def remove(self, removed: pa.Table, describe: Describe) -> None:
        """Commits the removal of files whose rows all go, as their partitions tell; no Spark job."""
        self.commit(Changed((), 0, remove_files(removed, self.transaction.log.clock())), describe)

    def commit(self, changed: Changed, describe: Describe) -> None:
        """The commit; for `replace` and `remove`."""
        actions: list[Any] = [*changed.adds, *changed.marked, *changed.removes]
        if self._idempotent is not None:
            actions.insert(0, self._idempotent.action(self.transaction))
        self.committed = self.transaction.commit(actions, operation=describe(changed))
        version, path = self.committed.version, self.snapshot.path
        observe("write committed", path=path, version=version)
        _LOG.info("%s: version %s by %s: %s", path, version, self.name, changed.metrics)

    def commit_if_needed(self, describe: Describe) -> None:
        """The commit of an operation that changes no row: if it has new metadata, or is to be remembered."""
        if self._idempotent is not None or self.transaction.metadata != self.snapshot.metadata:
            self.commit(Changed((), 0, ()), describe)
