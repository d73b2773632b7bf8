"""MERGE: rows of a source update, delete and insert rows of a table (delta-spark's MergeIntoCommand).

The jobs, over one version of the table and one state of the source (see merge_source):

1. How many rows and bytes the source has, and the range of its keys: files that can hold none of them are
   left out. Of a source that is a Delta table, its log mostly tells this.
2. The candidates' columns that the conditions need, joined with the source: which files have rows to change,
   how many by which clause, whether several source rows match one row. Kept are the keys of the source rows
   that match.
3. The write: the source rows without a match that a clause inserts, which Spark counts before it writes them,
   and the changed files' rows (left) joined with the source. Nothing else of the table is read, and its rows
   are not shuffled where the source is small enough to be broadcast. Where the table allows deletion vectors,
   rows that 2 has found are marked as deleted, and of the changed files only rows that are updated are
   written: those that Spark has kept of 2 or, if their new values need other columns of the table, those that
   are read again at the positions that 2 has found. Of a write that shuffles its rows, the inserted ones are
   counted by a job of their own.

What is not needed of these is left out. The new files must have as many rows as 2 and 3 have counted.
Per operation: one listing of the log, one footer a new file, one put; about 40 crossings between Python and
the JVM, and 4 for each clause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from deltaflow.batch.dml.merge_changes import ChangedRows
from deltaflow.batch.dml.merge_clauses import Clause, Resolution, check_clauses
from deltaflow.batch.dml.merge_expressions import union
from deltaflow.batch.dml.merge_join import MergeJoin
from deltaflow.batch.dml.merge_metrics import MergeCounts, MergedRows, operation_of_merge
from deltaflow.batch.dml.merge_rows import MergeRows
from deltaflow.batch.dml.merge_source import MergeSource
from deltaflow.batch.dml.merge_subqueries import with_evaluated_subqueries
from deltaflow.batch.dml.row_level_operation import Changed, RowLevelOperation
from deltaflow.batch.rewrite.marked_rows import MarkedRows
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS
from deltaflow.batch.rows.widened_schema import widened
from deltaflow.errors import MetadataChangedException
from deltaflow.interface.merge_builder import When
from deltaflow.log import DeltaLog, Operation, check_writable_schema, schema_to_string
from deltaflow.log.protocol.features import widens_types
from deltaflow.log.protocol.identity_columns import without_marks
from deltaflow.log.protocol.properties import (
    MERGE_MATERIALIZE_SOURCE,
    MERGE_REPARTITION_BEFORE_WRITE,
    SCHEMA_AUTO_MERGE_ENABLED,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Of a task that writes inserted rows, or rows of partitions.
_BYTES_OF_A_TASK = 128 << 20


def merge(
    spark: SparkSession,
    path: str,
    source: DataFrame,
    condition: Column,
    clauses: Sequence[Clause],
    *,
    named: Callable[[DataFrame], DataFrame],
    with_schema_evolution: bool = False,
    read_version: int | None = None,
    known_schema: StructType | None = None,
) -> MergedRows | None:
    """Merges the source into the table at `path`, in one commit; None if the table has this merge already
    (txnVersion). Where there is nothing to do, a commit is made only to record a txnVersion.

    `read_version`: the version of the table whose rows the source was made of, where its plan does not tell.
    `known_schema`: the table's when the clauses were made; MetadataChangedException if it has another one.
    `named` gives rows of the table the name by which the expressions call it.
    """
    check_clauses(clauses)
    path = DeltaLog.for_table(path).path
    merge_source = MergeSource(source)
    with _operation(spark, path, merge_source, clauses, read_version) as operation:
        if operation.is_repeated:
            return None
        schema, settings = operation.snapshot.schema, operation.transaction.session
        if known_schema is not None and without_marks(schema) != without_marks(known_schema):
            raise MetadataChangedException(
                f"The schema of {path} was changed, by version {operation.snapshot.version} or before, "
                "after a MERGE into it had been prepared. Nothing was committed. Run the operation again "
                "on the table as it is now.",
                table=path,
                version=operation.snapshot.version,
            )
        target = named(operation.rows())
        evolves = with_schema_evolution or SCHEMA_AUTO_MERGE_ENABLED.of(settings, path)
        resolution = Resolution(
            target,
            merge_source.frame,
            schema,
            path,
            evolves=evolves,
            may_widen=widens_types(operation.snapshot.protocol, operation.snapshot.metadata),
        )
        resolved = resolution.resolve(condition, clauses)
        resolved = resolved.with_columns(merge_source.at_one_time(resolved.columns))
        if resolution.reads_metadata:
            target = target.select("*", target.metadataColumn("_metadata"))
        if resolution.has_subqueries:
            resolved = with_evaluated_subqueries(operation, resolved)
        with MergeJoin(operation, merge_source, target, resolved) as join:
            return _Merge(join).run()


def _operation(
    spark: SparkSession,
    path: str,
    source: MergeSource,
    clauses: Sequence[Clause],
    read_version: int | None,
) -> RowLevelOperation:
    """A source that reads the table itself reads the version that is merged into."""
    only_inserts = all(clause.when is When.NOT_MATCHED for clause in clauses)
    version = source.version_read(path) if read_version is None else read_version
    operation = RowLevelOperation(spark, path, "MERGE", read_version=version, only_appends=only_inserts)
    if version is not None:
        operation.transaction.record_read_of_whole_table()
    return operation


@dataclass
class _Merge:
    """One MERGE on its way."""

    join: MergeJoin
    counts: MergeCounts = field(default_factory=MergeCounts)

    def run(self) -> MergedRows:
        self._update_schema()
        join, operation, counts = self.join, self.join.operation, self.counts
        mode = MERGE_MATERIALIZE_SOURCE.of(operation.transaction.session, operation.snapshot.path)
        join.source.materialize(join.merge.columns, mode, operation.checkpoints)
        candidates = join.candidates()
        found = join.matches(candidates)
        changed = join.changed(found, candidates)
        # Without candidates, no clause changes a row.
        for clause, number in zip(join.changing, changed.of_clauses, strict=False):
            counts.add(clause, number)
        self._write(changed, found, candidates)
        affected = counts.updated + counts.deleted + counts.inserted
        return MergedRows(affected, counts.updated, counts.deleted, counts.inserted)

    def _update_schema(self) -> None:
        transaction, snapshot = self.join.operation.transaction, self.join.operation.snapshot
        schema = widened(snapshot, self.join.merge.schema)
        if schema == snapshot.schema:
            return
        check_writable_schema(
            schema,
            snapshot.partition_columns,
            table=snapshot.path,
            is_mapped=snapshot.mapping_mode != "none",
        )
        transaction.update_metadata(
            msgspec.structs.replace(snapshot.metadata, schema_string=schema_to_string(schema))
        )

    def _write(self, changed: ChangedRows, found: DataFrame | None, candidates: pa.Table) -> None:
        join, operation, touched = self.join, self.join.operation, changed.files
        account: RowAccount | MarkedRows
        if changed.marks is None:
            account = operation.account(touched, gone=touched[MATCHING_ROWS.name])
        else:
            account = operation.mark(touched, changed.marks, rewritten=changed.updated)
        records = operation.records(account)
        rows = MergeRows(join, self.counts, records=records)
        session, path = operation.transaction.session, operation.snapshot.path
        size = _BYTES_OF_A_TASK if MERGE_REPARTITION_BEFORE_WRITE.of(session, path) else None
        inserted: int | None = 0
        frames = []
        if join.inserting and join.source.rows:
            unmatched = join.unmatched(found, candidates)
            # What is counted before a shuffle may be counted again when a task of it is repeated.
            inserted = None if operation.bytes_of_a_task(size) is None else unmatched.count()
            if inserted != 0:
                frames.append(rows.inserted(unmatched))
        if not touched.num_rows and not frames:
            operation.commit_if_needed(self._describe)
            return
        copied = before = None
        if isinstance(account, MarkedRows):
            updated = None
            if join.read_at_once is not None and found is not None:
                if account.files_to_read.num_rows:
                    frames.append(rows.updated_at_once(found))
            else:
                updated = rows.as_they_were(account.rewritten)
                if updated is not None:
                    frames.append(rows.updated(updated))
            before = rows.before(account, updated) if records else None
            copied = rows.copied(account)
        elif account.files_to_read.num_rows:
            frames.append(rows.rewritten(account.files_to_read))
        operation.replace(
            account,
            union(frames) if frames else None,
            self._describe,
            inserted=inserted,
            bytes_of_partitions=size,
            numbered=rows.numbered,
            copied=copied,
            before=before,
        )

    def _describe(self, changed: Changed) -> Operation:
        source, times = self.join.source, self.join.operation.times_ms()
        self.counts.inserted = changed.inserted
        return operation_of_merge(self.join.merge, self.counts, changed, source.rows, source.time_ms, times)
