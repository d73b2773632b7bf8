"""Which rows a MERGE is about: the files that may hold them, and what the join with the source finds."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.merge_changes import ACTION, IS_MATCH, ChangedRows, changed_rows
from deltaflow.batch.dml.merge_clauses import ResolvedClause, ResolvedMerge
from deltaflow.batch.dml.merge_expressions import all_of, any_of, comparable, is_comparable, numbered
from deltaflow.batch.dml.merge_source import MergeSource
from deltaflow.batch.dml.row_level_operation import RowLevelOperation
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.interface.merge_builder import When
from deltaflow.log import FILES_SCHEMA
from deltaflow.log.files.data_skipping import may_match
from deltaflow.spark.expressions.analysis import (
    Analysed,
    equal_sides,
    references,
    within,
    without_subqueries,
)
from deltaflow.spark.scan.file_index import FILE, POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS = "\0keys"
_SHOWN = 3


@dataclass
class MergeJoin:
    """The join of a table with the source of a MERGE."""

    operation: RowLevelOperation
    source: MergeSource
    target: DataFrame
    """Over all files; the frames of the jobs have its attributes."""
    merge: ResolvedMerge
    _kept: list[DataFrame] = field(default_factory=list)

    def __enter__(self) -> MergeJoin:
        return self

    def __exit__(self, *exception: object) -> None:
        for frame in self._kept:
            frame.unpersist()

    @functools.cached_property
    def matching(self) -> list[ResolvedClause]:
        return self.merge.of(When.MATCHED)

    @functools.cached_property
    def by_source(self) -> list[ResolvedClause]:
        return self.merge.of(When.NOT_MATCHED_BY_SOURCE)

    @functools.cached_property
    def inserting(self) -> list[ResolvedClause]:
        return self.merge.of(When.NOT_MATCHED)

    @property
    def changing(self) -> list[ResolvedClause]:
        """The clauses that change rows of the table, numbered from 1 by their places here."""
        return [*self.matching, *self.by_source]

    @property
    def updates(self) -> list[tuple[int, ResolvedClause]]:
        """The clauses that update rows, with their numbers."""
        return [(i, clause) for i, clause in enumerate(self.changing, 1) if clause.action == "update"]

    def candidates(self) -> pa.Table:
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
        search = self._told(merge.condition)
        sides = equal_sides(search, target, self.source.frame)
        of_source = within(search, self.source.frame)
        if of_source is not None:  # no other row's key need have a value: a cast of it may fail
            sides = [(side, F.when(of_source, key)) for side, key in sides]
        partitions = {name.lower() for name in self.operation.snapshot.partition_columns}
        by_list = [self._is_of(side, partitions) for side, _ in sides]
        known = [within(search, target), self.source.key_bounds(sides, by_list=by_list)]
        if not self.inserting and not self.by_source:
            known.append(any_of([within(self._told(clause.condition), target) for clause in self.matching]))
        matching = all_of([condition for condition in known if condition is not None])
        if not self.by_source:
            return matching
        changed = [self._told(clause.condition) if clause.condition else None for clause in self.by_source]
        return any_of([matching, *changed])

    def _told(self, condition: Analysed | None) -> Column:
        """What a condition says without its subqueries."""
        if condition is None or not condition.has_subquery:
            return F.lit(True) if condition is None else condition.column
        told = without_subqueries(condition.column, self.operation.spark)
        return F.lit(True) if told is None else told

    def _is_of(self, side: Column, names: set[str]) -> bool:
        found = self.target.select(*references(self.target, [side])).columns
        return all(column.lower() in names for column in found)

    def joined(
        self,
        files: pa.Table | DataFrame,
        how: str,
        *,
        places: bool = False,
        row_ids: bool = False,
    ) -> DataFrame:
        """The files' rows, or those of a frame, with those of the source that match; `row_ids`: with the
        columns in which they keep their ids. For `places` see TouchedFiles.rows."""
        frame = files
        if isinstance(files, pa.Table):
            frame = self.operation.rows(files, like=self.target, places=places)
        if row_ids:
            frame = self.with_row_ids(frame)
        source = self.source.with_broadcast_hint()
        if how == "left":
            source = source.withColumn(IS_MATCH, F.lit(True))
        return frame.join(source, self.merge.condition.column, how)

    def with_row_ids(self, rows: DataFrame) -> DataFrame:
        names = self.target.columns
        # It comes after the table's columns, one of which may be named _metadata, too.
        has_metadata = len(names) > len(self.operation.snapshot.schema.names)
        return self.operation.with_row_ids(rows, F.col(quoted(names[-1])) if has_metadata else None)

    def action(self, *, matched: Column) -> Column:
        """The number of the clause that applies to a row; 0 for none."""
        cases = [matched & clause.holds for clause in self.matching]
        cases += [~matched & clause.holds for clause in self.by_source]
        return numbered(cases)

    def matches(self, candidates: pa.Table) -> DataFrame | None:
        """The candidates' rows that match or that a clause changes: place and action of each, and what the
        source has in the condition's columns. None if there is no candidate."""
        if not candidates.num_rows:
            return None
        if self.by_source:
            joined = self.joined(candidates, "left", places=True)
            matched = F.col(IS_MATCH).isNotNull()
        else:
            joined = self.joined(candidates, "inner", places=bool(self.changing))
            matched = F.lit(True)
        columns = []
        if self._finds_by_keys:
            # In a struct, since Spark's cache takes a batch of columns with NaN for one that has none.
            columns.append(F.struct(*self._comparable_keys, F.lit(True)).alias(_KEYS))
        if self.changing:
            columns += [F.col(FILE), F.col(POSITION), self.action(matched=matched).alias(ACTION)]
            columns += self.read_at_once or ()
        found = joined.select(*columns, matched.alias(IS_MATCH))
        if self.by_source:
            found = found.where(F.col(IS_MATCH) | (F.col(ACTION) > 0))
        return self._keep(found) if self.is_kept else found

    @functools.cached_property
    def read_at_once(self) -> list[Column] | None:
        """What the new values of marked rows are made of, if the job that finds the rows reads these columns
        of the table anyway: then no job reads them again. The rows of a table with row ids are read again,
        and those that are recorded as they were."""
        operation = self.operation
        if not operation.may_mark or operation.records_changes or operation.row_id_names or not self.updates:
            return None
        merge, target = self.merge, self.target
        values = [value for _, clause in self.updates for value in clause.values]
        of_target = references(target, values)
        conditions = [merge.condition.column, *(clause.holds for clause in self.changing)]
        read = set(target.select(*references(target, conditions)).columns)
        if of_target and not read.issuperset(target.select(*of_target).columns):
            return None
        return [*of_target, *references(self.source.frame, values)]

    @property
    def is_kept(self) -> bool:
        """Whether Spark keeps the rows that the first join finds."""
        return self._finds_by_keys or self.read_at_once is not None

    @property
    def _finds_by_keys(self) -> bool:
        """Whether the keys of the rows that the first join finds tell which source rows have no match."""
        return bool(self.inserting) and all(is_comparable(field.dataType) for field in self._key_fields)

    @functools.cached_property
    def _source_keys(self) -> list[Column]:
        """The source's columns in the condition: they decide which of its rows match."""
        return references(self.source.frame, [self.merge.condition.column])

    @functools.cached_property
    def _key_fields(self) -> list[T.StructField]:
        keys = self._source_keys
        return self.source.frame.select(*keys).schema.fields if keys else []

    @functools.cached_property
    def _comparable_keys(self) -> list[Column]:
        """Those of the type void tell no rows apart, and Spark's hash joins find no match by them."""
        pairs = zip(self._source_keys, self._key_fields, strict=True)
        keys = [(key, field.dataType) for key, field in pairs if not isinstance(field.dataType, T.NullType)]
        return [comparable(key, data_type).alias(f"\0{i}") for i, (key, data_type) in enumerate(keys)]

    @property
    def compares_floats(self) -> bool:
        """Whether the condition names floating-point columns of the table. Of rows that Spark keeps, a filter
        on such a column leaves out a batch whose values are all NaN."""
        keys = references(self.target, [self.merge.condition.column])
        fields = self.target.select(*keys).schema.fields if keys else []
        return any(isinstance(field.dataType, T.FloatType | T.DoubleType) for field in fields)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return frame

    def changed(self, found: DataFrame | None, candidates: pa.Table) -> ChangedRows:
        """The rows that clauses change.

        DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE if one of them has several matches.
        """
        if found is None or not self.changing:
            return ChangedRows()
        is_delete = [(clause.action, clause.condition) for clause in self.matching] == [("delete", None)]
        changed = changed_rows(
            self.operation,
            found,
            self.changing,
            may_have_several_matches=is_delete,
            with_positions=self.operation.finds_positions,
            is_kept=self.is_kept,
        )
        if changed.has_several_matches:
            raise self._multiple_matches(candidates)
        return changed

    def _multiple_matches(self, candidates: pa.Table) -> Exception:
        """The error, which shows some of the rows by the columns that the condition compares."""
        keys = references(self.target, [self.merge.condition.column])
        shown = (
            self.joined(candidates, "inner", places=True)
            .groupBy(FILE, POSITION)
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

    def unmatched(self, found: DataFrame | None, candidates: pa.Table) -> DataFrame:
        """The source's rows to insert, with the number of their clause. Where their keys cannot be compared,
        the candidates are read once more."""
        source = self.source.frame
        if found is not None and self._finds_by_keys:
            matched = found if not self.by_source else found.where(F.col(IS_MATCH))
            keys = self._comparable_keys
            same = [key.eqNullSafe(F.col(_KEYS).getField(f"\0{i}")) for i, key in enumerate(keys)]
            source = source.join(matched.select(_KEYS), all_of(same) if same else F.lit(True), "left_anti")
        elif found is not None:
            rows = self.operation.rows(candidates, like=self.target)
            source = source.join(rows, self.merge.condition.column, "left_anti")
        action = numbered([clause.holds for clause in self.inserting])
        return source.withColumn(ACTION, action).where(F.col(ACTION) > 0)
