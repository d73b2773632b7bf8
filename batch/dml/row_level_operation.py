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
from deltaflow.batch.rewrite.marked_rows import MarkedRows, RewrittenFiles
from deltaflow.batch.rewrite.new_files import NewFiles
from deltaflow.batch.rewrite.recorded_changes import change_type
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS, TouchedFiles
from deltaflow.batch.rows.char_varchar import check_finds_char
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import AddCDCFile, AddFile, Committed, DeltaLog, Operation, RemoveFile, remove_files
from deltaflow.log.files.change_files import UPDATE_PREIMAGE
from deltaflow.log.observer import observe
from deltaflow.log.protocol.features import (
    check_writable,
    has_change_data_feed,
    is_append_only,
    may_write_deletion_vectors,
)
from deltaflow.log.protocol.isolation import isolation_of_table
from deltaflow.log.protocol.properties import SYMLINK_MANIFEST_ENABLED
from deltaflow.spark.expressions.analysis import analysed, without_subqueries
from deltaflow.spark.expressions.checkpoints import Checkpoints
from deltaflow.spark.expressions.frames import delta_settings, recache

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
# Of a task that writes inserted rows, or rows as they were before.
_BYTES_OF_A_TASK = 128 << 20


@dataclass(frozen=True)
class Changed:
    """What the commit of an operation puts in the place of what: the new files, and the removed ones."""

    adds: Sequence[AddFile]
    rows: int
    """Rows of the new files."""
    removes: Sequence[RemoveFile]
    marked: Sequence[AddFile] = ()
    """The removed files that stay in the table with another deletion vector, as they are then."""
    inserted: int = 0
    """How many of the rows of the new files are in the place of none."""
    change_files: Sequence[AddCDCFile] = ()

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
            "numAddedChangeFiles": len(self.change_files),
            "numDeletionVectorsAdded": len(self.marked),
            "numDeletionVectorsRemoved": len(had_vectors),
            "numDeletionVectorsUpdated": len(staying.intersection(had_vectors)),
        }


INSERTED = "deltaflow: inserted rows"
"""The name of the observation (DataFrame.observe) by which a frame counts its new rows."""

Describe = Callable[[Changed], Operation]
"""How the commit names itself, with parameters and metrics (delta-spark's DeltaOperations)."""


@dataclass(frozen=True)
class Found:
    """The files that hold rows for which a condition is true."""

    condition: str
    """As a commit shows it."""
    where: Column
    """The same, for frames like that of the whole table (`deterministic_condition`)."""
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
        check_finds_char(spark, snapshot)
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
        self.records_changes = has_change_data_feed(snapshot.metadata)
        """Whether the table has a change data feed."""
        self.finds_positions = self.may_mark or self.records_changes
        """Whether the operation has to know which rows of a file it changes."""
        self._kept: list[DataFrame] = []
        self.checkpoints = Checkpoints(snapshot.path)
        """Of rows that several of its jobs read, and that may be others the next time. They end with it."""

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for frame in self._kept:
            frame.unpersist()
        self.checkpoints.__exit__(*exception)
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
        text, where = self.deterministic_condition(rows, condition)
        filtered = where
        if places is not None:
            [found] = analysed(rows, [condition])
            plain = without_subqueries(found.column, self.spark)
            filtered = F.lit(True) if plain is None else plain
        facts = self.filter_facts(rows.where(filtered))
        self.record_read(facts)
        matching = rows.where(where) if places is None else places()
        is_found_in_rows = facts.has_data_filters or places is not None
        if is_found_in_rows and self.finds_positions:
            touched, marks = self.record_marked_rows(matching)
            return Found(text, where, touched, all_rows_match=False, marks=marks)
        if is_found_in_rows:
            return Found(text, where, self.record_touched_files(matching), all_rows_match=False)
        return Found(text, where, self.record_files_of_partitions(facts), all_rows_match=True)

    def account(self, touched: pa.Table, gone: pa.ChunkedArray | None = None) -> RowAccount:
        """The account of the rows of files that the operation removes. See RowAccount."""
        return RowAccount(self.name, self.snapshot, touched, gone)

    def mark(
        self, touched: pa.Table, marks: Sequence[BitMap64], rewritten: Sequence[BitMap64] | None = None
    ) -> MarkedRows:
        """The account of the rows that the operation changes. See MarkedRows."""
        kind = MarkedRows if self.may_mark else RewrittenFiles
        return kind(self.name, self.snapshot, touched, marks, rewritten)

    def records(self, account: RowAccount | MarkedRows) -> bool:
        """Whether the commit has to record its change rows (deltaflow.batch.rewrite.recorded_changes)."""
        return self.records_changes and account.needs_change_files

    def before(
        self,
        rows: DataFrame,
        account: RowAccount | MarkedRows,
        select: Callable[[DataFrame, Sequence[Column]], DataFrame] | None = None,
        *,
        may_keep: bool = True,
    ) -> DataFrame:
        """The rows that are updated, as they were, for `replace`. `select` selects the columns that the table
        has afterwards, and the given ones; by default, the table has the same columns.

        Two jobs read `rows`, which Spark keeps for them (where it `may_keep` them) unless they are many of
        the rows that it reads for them. Then they are found by their positions again.
        """
        kind = change_type(UPDATE_PREIMAGE)
        if select is None:
            before = rows.select(*map(quoted, self.snapshot.schema.names), kind)
        else:
            before = select(rows, [kind])
        if isinstance(account, MarkedRows) and account.is_sparse:
            if may_keep:
                self._kept.append(rows.persist())
            before = before.coalesce(self.tasks_for(account.number))
        return before

    def tasks_for(self, rows: int) -> int:
        """How many tasks write so many rows of the table."""
        known = self.snapshot.number_of_rows(self.snapshot.files) or 0
        bytes_of_row = self.snapshot.size_in_bytes / known if known else 0
        return int(rows * bytes_of_row // _BYTES_OF_A_TASK) + 1

    def copied(self, account: MarkedRows) -> DataFrame | None:
        """The rows that the account wants to be copied; None without any."""
        rows = account.unmarked
        if not rows.files.num_rows:
            return None
        return self.with_row_ids(self.rows(rows))

    def replace(
        self,
        account: RowAccount | MarkedRows,
        rows: DataFrame | None,
        describe: Describe,
        *,
        inserted: int | None = 0,
        as_they_are: bool = False,
        bytes_of_partitions: int | None = None,
        numbered: Iterable[str] = (),
        copied: DataFrame | None = None,
        before: DataFrame | None = None,
    ) -> Changed:
        """Writes the frame's rows, and commits their files and what the account does with the old ones;
        returns what was changed.

        The frame has all rows of the account's `files_to_read` that stay (where rows are marked: those that
        are rewritten), and as many `inserted` ones besides; None where there are neither. Where `inserted` is
        None, the frame counts them itself, by the observation INSERTED. For the frame's columns see
        NewFiles.write and, of rows that are copied `as_they_are`, NewFiles.copy.
        DELTA_NUM_RECORDS_MISMATCH, and no commit, if rows are missing. `bytes_of_partitions`: see
        `bytes_of_a_task`. `numbered`: the identity columns for which the frame makes numbers.

        `copied`: more rows of the files that stay (MarkedRows.unmarked), for NewFiles.copy. `before`: where
        the commit `records` its changes, the rows of the files that do not stay as they are, for
        NewFiles.record; `rows` has the column CHANGE_TYPE then.
        """
        transaction, path = self.transaction, self.snapshot.path
        metadata = transaction.metadata
        assert metadata is not None
        bytes_of_a_task = self.bytes_of_a_task(bytes_of_partitions)
        data_files = DataFiles(metadata, path)
        data_files.track_numbers(numbered)
        new = NewFiles(transaction, data_files, file_options={}, optimized_write_bytes=bytes_of_a_task)
        compaction = auto_compaction(transaction, {}, {})
        try:
            if rows is not None:
                observed = (new.copy if as_they_are else new.write)(rows, self.name)
                inserted = observed[INSERTED] if inserted is None else inserted
            inserted = inserted or 0
            updated = new.rows - inserted
            if before is not None:
                new.record(before, self.name)
                observe("change files written", path=path, files=len(new.change_files))
            if copied is not None:
                new.copy(copied, self.name)
            if rows is not None or copied is not None:
                observe("files written", path=path, files=len(new.adds))
            account.check(new.rows - inserted)
            if before is not None:
                account.check_recorded(new.recorded_rows, updated)
            if inserted:
                transaction.update_identity_marks(data_files.numbers)
            marked, removes = account.actions(new, transaction.log.clock())
            changed = Changed(new.adds, new.rows, removes, marked, inserted, new.change_files)
            if not changed.adds and not changed.removes:
                self.commit_if_needed(describe)
                return changed
            self.commit(changed, describe)
        except BaseException:
            new.discard(is_certain=transaction.cancel())
            raise
        following = None if compaction is None else compaction.after_commit(new.adds)
        if following is not None:
            following.run(self.spark)
        return changed

    def bytes_of_a_task(self, of_partitions: int | None = None) -> int | None:
        """How many bytes of rows a task writes after a shuffle; None: the rows stay in the tasks that have
        them. `of_partitions`: what it is where a table has partitions and says nothing itself."""
        metadata = self.transaction.metadata
        assert metadata is not None
        return optimized_write_bytes(
            {},
            self.transaction.session,
            metadata.configuration,
            self.snapshot.path,
            by_default=of_partitions if metadata.partition_columns else None,
        )

    def remove(self, removed: pa.Table, describe: Describe) -> None:
        """Commits the removal of files whose rows all go, as their partitions tell; no Spark job."""
        removes = remove_files(self.snapshot.with_stats(removed), self.transaction.log.clock())
        self.commit(Changed((), 0, removes), describe)

    def commit(self, changed: Changed, describe: Describe) -> None:
        """The commit; for `replace` and `remove`."""
        self.checkpoints.check()
        actions: list[Any] = [*changed.adds, *changed.marked, *changed.removes, *changed.change_files]
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
        else:
            self.checkpoints.check()
