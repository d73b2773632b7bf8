"""MERGE: rows of a source update, delete and insert rows of a table (delta-spark's MergeIntoCommand).

The jobs, over one version of the table and one state of the source (see merge_source):

1. How many rows the source has, and the range of its keys: files that can hold none of them are left out.
2. The candidates' columns that the conditions need, joined with the source: which files have rows to change,
   how many by which clause, whether several source rows match one row. Kept are the keys of the source rows
   that match.
3. The source rows without a match that a clause inserts: how many.
4. The write: the changed files' rows (left) joined with the source, and the rows to insert. Nothing else of
   the table is read, and its rows are not shuffled where the source is small enough to be broadcast. Where
   the table allows deletion vectors, rows that 2 has found are marked as deleted, and of the changed files
   only rows that are updated are written: those that Spark has kept of 2 or, if their new values need other
   columns of the table, those that are read again at the positions that 2 has found.

What is not needed of these is left out. The new files must have as many rows as 2 and 3 have counted.
Per operation: one listing of the log, one footer a new file, one put; about 40 crossings between Python and
the JVM, and 4 for each clause.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaflow.batch.dml.merge_changes import ACTION, FILE, POSITION, ROW, ChangedRows, changed_rows
from deltaflow.batch.dml.merge_clauses import (
    Clause,
    Resolution,
    ResolvedClause,
    ResolvedMerge,
    check_clauses,
)
from deltaflow.batch.dml.merge_expressions import all_of, any_of, comparable, numbered, union
from deltaflow.batch.dml.merge_metrics import MergeCounts, MergedRows, operation_of_merge
from deltaflow.batch.dml.merge_source import MergeSource
from deltaflow.batch.dml.row_level_operation import Changed, RowLevelOperation
from deltaflow.batch.rewrite.marked_rows import MarkedRows
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS
from deltaflow.batch.rows.column_expressions import with_generated
from deltaflow.batch.rows.widened_schema import widened
from deltaflow.builders import When
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import FILES_SCHEMA, DeltaLog, Operation, check_writable_schema, schema_to_string
from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.deletion_vectors import DeletionVector
from deltaflow.log.files.file_statistics import number_of_rows
from deltaflow.log.protocol.features import widens_types
from deltaflow.log.protocol.identity_columns import identity_columns
from deltaflow.log.protocol.properties import (
    MERGE_MATERIALIZE_SOURCE,
    MERGE_REPARTITION_BEFORE_WRITE,
    SCHEMA_AUTO_MERGE_ENABLED,
)
from deltaflow.spark.expressions.analysis import equal_sides, references, within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_MATCHED, _KEYS = "\0matched", "\0keys"
# Of a task that writes inserted rows, or rows of partitions.
_BYTES_OF_A_TASK = 128 << 20
_SHOWN = 3


def merge(
    spark: SparkSession,
    path: str,
    source: DataFrame,
    condition: Column,
    clauses: Sequence[Clause],
    *,
    named: Callable[[DataFrame], DataFrame],
    with_schema_evolution: bool = False,
) -> MergedRows | None:
    """Merges the source into the table at `path`, in one commit; None if the table has this merge already
    (txnVersion). Where there is nothing to do, a commit is made only to record a txnVersion.

    `named` gives rows of the table the name by which the expressions call it.
    """
    check_clauses(clauses)
    path = DeltaLog.for_table(path).path
    with MergeSource(source) as merge_source, _operation(spark, path, merge_source, clauses) as operation:
        if operation.is_repeated:
            return None
        target = named(operation.rows())
        schema, settings = operation.snapshot.schema, operation.transaction.session
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
        return _Merge(operation, merge_source, target, resolved).run()


def _operation(
    spark: SparkSession, path: str, source: MergeSource, clauses: Sequence[Clause]
) -> RowLevelOperation:
    """A source that reads the table itself reads the version that is merged into."""
    only_inserts = all(clause.when is When.NOT_MATCHED for clause in clauses)
    version = source.version_read(path)
    operation = RowLevelOperation(spark, path, "MERGE", read_version=version, only_appends=only_inserts)
    if version is not None:
        operation.transaction.record_read_of_whole_table()
    return operation


@dataclass
class _Merge:
    """One MERGE on its way."""

    operation: RowLevelOperation
    source: MergeSource
    target: DataFrame
    """Over all files; the frames of the jobs have its attributes."""
    merge: ResolvedMerge
    counts: MergeCounts = field(default_factory=MergeCounts)
    _kept: list[DataFrame] = field(default_factory=list)

    def run(self) -> MergedRows:
        self._update_schema()
        operation = self.operation
        mode = MERGE_MATERIALIZE_SOURCE.of(operation.transaction.session, operation.snapshot.path)
        self.source.materialize(self.merge.columns, mode)
        candidates = self._candidates()
        try:
            found = self._matches(candidates)
            changed = self._changed(found, candidates) if self._changing else ChangedRows()
            unmatched = self._unmatched(found) if self._inserting else None
            self._write(changed, found, unmatched)
        finally:
            for frame in self._kept:
                frame.unpersist()
        counts = self.counts
        affected = counts.updated + counts.deleted + counts.inserted
        return MergedRows(affected, counts.updated, counts.deleted, counts.inserted)

    @functools.cached_property
    def _matching(self) -> list[ResolvedClause]:
        return self.merge.of(When.MATCHED)

    @functools.cached_property
    def _by_source(self) -> list[ResolvedClause]:
        return self.merge.of(When.NOT_MATCHED_BY_SOURCE)

    @functools.cached_property
    def _inserting(self) -> list[ResolvedClause]:
        return self.merge.of(When.NOT_MATCHED)

    @property
    def _changing(self) -> list[ResolvedClause]:
        """The clauses that change rows of the table, numbered from 1 by their places here."""
        return [*self._matching, *self._by_source]

    def _update_schema(self) -> None:
        transaction, snapshot = self.operation.transaction, self.operation.snapshot
        schema = widened(snapshot, self.merge.schema)
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

    def _candidates(self) -> pa.Table:
        """The files that may hold rows that match or that a clause changes; recorded as read, with all rows
        that a rival may put into their partitions."""
        operation = self.operation
        condition = self._of_candidates()
        if condition is None:
            operation.transaction.record_read_of_whole_table()
            return operation.snapshot.files
        matching = self.target.where(condition)
        found = operation.filter_facts(matching)
        predicate = found.predicate
        if predicate is not None and predicate["op"] == "never":
            return FILES_SCHEMA.empty_table()
        operation.record_read(found)
        files = operation.record_files_of_partitions(found)
        if predicate is None:
            return files
        may = operation.snapshot.files.filter(may_match(predicate, operation.snapshot.statistics))
        return files.filter(pc.is_in(files["path"], value_set=may["path"].combine_chunks()))

    def _of_candidates(self) -> Column | None:
        """What is true of the table's rows that the merge is about; None if that may be all of them."""
        merge, target = self.merge, self.target
        search = merge.condition.column
        sides = equal_sides(search, target, self.source.frame)
        partitions = {name.lower() for name in self.operation.snapshot.partition_columns}
        by_list = [self._is_of(side, partitions) for side, _ in sides]
        known = [within(search, target), self.source.key_bounds(sides, by_list=by_list)]
        if not self._inserting and not self._by_source:
            known.append(any_of([within(clause.holds, target) for clause in self._matching]))
        matching = all_of([condition for condition in known if condition is not None])
        if not self._by_source:
            return matching
        return any_of([matching, *(clause.holds if clause.condition else None for clause in self._by_source)])

    def _is_of(self, side: Column, names: set[str]) -> bool:
        found = self.target.select(*references(self.target, [side])).columns
        return all(column.lower() in names for column in found)

    def _joined(
        self,
        files: pa.Table,
        how: str,
        *,
        rows: bool = False,
        row_ids: bool = False,
        without: Sequence[DeletionVector] | None = None,
    ) -> DataFrame:
        """The files' rows with those of the source that match; `rows`: with the place of each, `row_ids`:
        with the columns in which they keep their ids. For `without` see TouchedFiles.rows."""
        frame = self.operation.rows(files, like=self.target, without=without)
        if row_ids:
            frame = self.operation.with_row_ids(frame)
        if rows:
            place = frame.metadataColumn("_metadata")
            frame = frame.withColumns({FILE: place.getField("file_path"), ROW: place.getField("row_index")})
        source = self.source.with_broadcast_hint()
        if how == "left":
            source = source.withColumn(_MATCHED, F.lit(True))
        return frame.join(source, self.merge.condition.column, how)

    def _action(self, *, matched: Column) -> Column:
        """The number of the clause that applies to a row; 0 for none."""
        cases = [matched & clause.holds for clause in self._matching]
        cases += [~matched & clause.holds for clause in self._by_source]
        return numbered(cases)

    def _matches(self, candidates: pa.Table) -> DataFrame | None:
        """The candidates' rows that match or that a clause changes: place and action of each, and what the
        source has in the condition's columns. None if there is no candidate."""
        if not candidates.num_rows:
            return None
        if self._by_source:
            joined = self._joined(candidates, "left", rows=True)
            matched = F.col(_MATCHED).isNotNull()
        else:
            joined = self._joined(candidates, "inner", rows=bool(self._changing))
            matched = F.lit(True)
        columns = []
        if self._inserting:
            # In a struct, since Spark's cache takes a batch of columns with NaN for one that has none.
            columns.append(F.struct(*self._comparable_keys, F.lit(True)).alias(_KEYS))
        if self._changing:
            place = [F.col(FILE), F.when(matched, F.col(ROW)).alias(ROW)]
            if self.operation.may_mark:
                place.append(F.col(ROW).alias(POSITION))
            columns += [*place, self._action(matched=matched).alias(ACTION), *(self._read_at_once or ())]
        found = joined.select(*columns, F.lit(True).alias(_MATCHED))
        if self._by_source:
            found = found.where(F.col(ROW).isNotNull() | (F.col(ACTION) > 0))
        return self._keep(found) if self._is_kept else found

    @property
    def _updates(self) -> list[tuple[int, ResolvedClause]]:
        """The clauses that update rows, with their numbers."""
        return [(i, clause) for i, clause in enumerate(self._changing, 1) if clause.action == "update"]

    @functools.cached_property
    def _read_at_once(self) -> list[Column] | None:
        """What the new values of marked rows are made of, if the job that finds the rows reads these columns
        of the table anyway: then no job reads them again. The rows of a table with row ids are read again."""
        if not self.operation.may_mark or not self._updates or self.operation.row_id_names:
            return None
        merge, target = self.merge, self.target
        values = [value for _, clause in self._updates for value in clause.values]
        of_target = references(target, values)
        conditions = [merge.condition.column, *(clause.holds for clause in self._changing)]
        read = set(target.select(*references(target, conditions)).columns)
        if of_target and not read.issuperset(target.select(*of_target).columns):
            return None
        return [*of_target, *references(self.source.frame, values)]

    @property
    def _is_kept(self) -> bool:
        """Whether Spark keeps the rows that the first join finds."""
        return bool(self._inserting) or self._read_at_once is not None

    @functools.cached_property
    def _source_keys(self) -> list[Column]:
        """The source's columns in the condition: they decide which of its rows match."""
        return references(self.source.frame, [self.merge.condition.column])

    @functools.cached_property
    def _comparable_keys(self) -> list[Column]:
        keys = self.source.frame.select(*self._source_keys).schema.fields if self._source_keys else []
        return [
            comparable(key, field.dataType).alias(f"\0{i}")
            for i, (key, field) in enumerate(zip(self._source_keys, keys, strict=True))
        ]

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return frame

    def _changed(self, found: DataFrame | None, candidates: pa.Table) -> ChangedRows:
        """The rows that clauses change; counts them. An error if one has several matches."""
        if found is None:
            return ChangedRows()
        is_delete = [(clause.action, clause.condition) for clause in self._matching] == [("delete", None)]
        changed = changed_rows(
            self.operation,
            found,
            self._changing,
            may_have_several_matches=is_delete,
            with_positions=self.operation.may_mark,
            is_kept=self._is_kept,
        )
        if changed.has_several_matches:
            raise self._multiple_matches(candidates)
        for clause, number in zip(self._changing, changed.of_clauses, strict=True):
            self.counts.add(clause, number)
        return changed

    def _multiple_matches(self, candidates: pa.Table) -> Exception:
        """The error, which shows some of the rows by the columns that the condition compares."""
        keys = references(self.target, [self.merge.condition.column])
        shown = (
            self._joined(candidates, "inner", rows=True)
            .groupBy(FILE, ROW)
            .agg(F.count(F.lit(1)).alias("n"), F.first(F.struct(*keys)).alias("keys"))
            .where("n > 1")
            .limit(_SHOWN)
            .collect()
        )
        rows = "; ".join(
            ", ".join(f"{name} = {value}" for name, value in row["keys"].asDict().items())
            + f" ({row['n']} source rows)"
            for row in shown
        )
        return DeltaUnsupportedOperationException(
            error_class="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
            rows=rows,
            table=self.operation.snapshot.path,
            version=self.operation.snapshot.version,
        )

    def _unmatched(self, found: DataFrame | None) -> DataFrame | None:
        """The source's rows to insert, with the number of their clause, counted; None if there are none."""
        source = self.source.frame
        if found is not None:
            matched = found if not self._by_source else found.where(F.col(ROW).isNotNull())
            keys = self._comparable_keys
            same = [key.eqNullSafe(F.col(_KEYS).getField(f"\0{i}")) for i, key in enumerate(keys)]
            source = source.join(matched.select(_KEYS), all_of(same) if same else F.lit(True), "left_anti")
        action = numbered([clause.holds for clause in self._inserting])
        inserted = source.withColumn(ACTION, action).where(F.col(ACTION) > 0)
        self.counts.inserted = inserted.count()
        return inserted if self.counts.inserted else None

    def _write(self, changed: ChangedRows, found: DataFrame | None, unmatched: DataFrame | None) -> None:
        operation, touched = self.operation, changed.files
        if not touched.num_rows and unmatched is None:
            operation.commit_if_needed(self._describe)
            return
        account: RowAccount | MarkedRows
        frames = []
        if changed.marks is None:
            account = operation.account(touched, gone=touched[MATCHING_ROWS.name])
            if account.files_to_read.num_rows:
                frames.append(self._rewritten(account.files_to_read))
        else:
            account = operation.mark(touched, changed.marks, rewritten=changed.updated)
            if account.files_to_read.num_rows:
                frames.append(self._updated(account, found))
        if unmatched is not None:
            frames.append(self._inserted(unmatched))
        rows = union(frames) if frames else None
        session, path = operation.transaction.session, operation.snapshot.path
        size = _BYTES_OF_A_TASK if MERGE_REPARTITION_BEFORE_WRITE.of(session, path) else None
        operation.replace(
            account,
            rows,
            self._describe,
            inserted=self.counts.inserted,
            bytes_of_partitions=size,
            numbered=() if unmatched is None else self._numbered,
        )

    @property
    def _numbered(self) -> set[str]:
        """The identity columns whose numbers the table gives to inserted rows."""
        identities = identity_columns(self.merge.schema).keys()
        return {name for clause in self._inserting for name in clause.computed & identities}

    def _rewritten(self, touched: pa.Table) -> DataFrame:
        """The rows of the touched files as they are to be."""
        changing = self._changing
        joined = self._joined(touched, "left", row_ids=True)
        action = self._action(matched=F.col(_MATCHED).isNotNull())
        rows = joined.withColumn(ACTION, action)
        deletes = [i for i, clause in enumerate(changing, 1) if clause.action == "delete"]
        if deletes:
            rows = rows.where(~F.col(ACTION).isin(deletes))
        updates = [(i, clause) for i, clause in enumerate(changing, 1) if clause.action == "update"]
        row_ids = self.operation.row_ids(F.col(ACTION).isin([number for number, _ in updates]))
        return self._selected(rows, updates, self.merge.copied, row_ids)

    def _updated(self, account: MarkedRows, found: DataFrame | None) -> DataFrame:
        """The rows that are updated, with their new values: those that the first join has kept, or those at
        the positions that it has found."""
        updates = self._updates
        if self._read_at_once is not None and found is not None:
            kept = found.where(F.col(ACTION).isin([number for number, _ in updates]))
            return self._selected(kept, updates, None, ())
        by_source = any(clause.when is When.NOT_MATCHED_BY_SOURCE for _, clause in updates)
        how = "left" if by_source else "inner"
        joined = self._joined(account.files_to_read, how, row_ids=True, without=account.others())
        matched = F.col(_MATCHED).isNotNull() if by_source else F.lit(True)
        rows = joined.withColumn(ACTION, self._action(matched=matched))
        return self._selected(rows, updates, None, self.operation.row_ids(F.lit(True)))

    def _inserted(self, unmatched: DataFrame) -> DataFrame:
        """The new rows, in as few tasks as fit."""
        snapshot = self.operation.snapshot
        known = number_of_rows(snapshot.files) or 0
        bytes_of_row = snapshot.size_in_bytes / known if known else 0
        tasks = int(self.counts.inserted * bytes_of_row // _BYTES_OF_A_TASK) + 1
        inserts = list(enumerate(self._inserting, 1))
        return self._selected(unmatched.coalesce(tasks), inserts, None, self.operation.new_row_ids())

    def _selected(
        self,
        rows: DataFrame,
        clauses: Sequence[tuple[int, ResolvedClause]],
        otherwise: Sequence[Column] | None,
        row_ids: Sequence[Column],
    ) -> DataFrame:
        """The table's columns: the values of the clause whose number a row has. Then those of row ids."""
        values = [(number, clause.values) for number, clause in clauses]
        columns = []
        for place, column in enumerate(self.merge.schema.fields):
            if otherwise is None:
                value = values[-1][1][place]
                cases = values[:-1]
            else:
                value = otherwise[place]
                cases = values
            for number, given in reversed(cases):
                value = F.when(F.col(ACTION) == number, given[place]).otherwise(value)
            columns.append(value.alias(column.name))
        computed = {
            name: F.col(ACTION).isin([number for number, clause in clauses if name in clause.computed])
            for name in frozenset().union(*(clause.computed for _, clause in clauses))
        }
        if not computed:
            return rows.select(*columns, *row_ids)
        selected = rows.select(*columns, F.col(ACTION), *row_ids)
        return with_generated(selected, self.merge.schema, computed, self.operation.row_id_names)

    def _describe(self, changed: Changed) -> Operation:
        source, times = self.source, self.operation.times_ms()
        return operation_of_merge(self.merge, self.counts, changed, source.rows, source.time_ms, times)
