"""The clauses of MERGE: what a user may say, and the analysed conditions and values that it means for a table
and a source.

Source: delta-spark's DeltaMergeInto, ResolveDeltaMergeInto and PreprocessTableMerge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.dml.assignments import Assigner, Assignment, Value, values_or_defaults
from deltaflow.batch.rows.char_varchar import with_declarations_of
from deltaflow.batch.rows.column_expressions import (
    check_no_numbers_given,
    check_no_numbers_set,
    generation_expressions,
)
from deltaflow.batch.rows.schema_on_write import as_table_schema
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.interface.merge_builder import When
from deltaflow.log import merge_schemas
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, with_inner_fields, with_type
from deltaflow.log.protocol.identity_columns import identity_columns
from deltaflow.log.protocol.schema import READS_VOID
from deltaflow.log.protocol.type_widening import can_widen
from deltaflow.spark.expressions.analysis import Analysed, analysed, analysed_if_resolved

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Clause:
    """One clause, as its user gives it."""

    when: When
    action: str
    """update, delete or insert."""
    condition: Column | None = None
    assignments: Sequence[tuple[Column, Column]] | None = ()
    """Columns of the table, by name, and their values; None: all columns, from those of the source (*)."""


@dataclass(frozen=True)
class ResolvedClause:
    """One clause, analysed."""

    when: When
    action: str
    condition: Analysed | None
    values: Sequence[Column] = ()
    """Of the whole row, in the order of the table's schema; none for a delete."""
    computed: frozenset[str] = frozenset()
    """The generated columns that are computed of these values, and in an insert the identity columns that get
    numbers; the clause gives the others itself."""

    @property
    def holds(self) -> Column:
        """Whether the clause applies to one of the rows that it is about, unless an earlier clause does."""
        return F.lit(True) if self.condition is None else self.condition.column


@dataclass(frozen=True)
class ResolvedMerge:
    """A whole MERGE, analysed."""

    condition: Analysed
    clauses: Sequence[ResolvedClause]
    schema: T.StructType
    """Of the table afterwards."""
    copied: Sequence[Column]
    """The values of a row that stays."""

    def of(self, when: When) -> list[ResolvedClause]:
        """The clauses about these rows, in order."""
        return [clause for clause in self.clauses if clause.when is when]

    @property
    def columns(self) -> list[Column]:
        """Every analysed expression."""
        conditions = [clause.condition.column for clause in self.clauses if clause.condition is not None]
        return [
            self.condition.column,
            *conditions,
            *(value for clause in self.clauses for value in clause.values),
        ]

    def with_columns(self, columns: Sequence[Column]) -> ResolvedMerge:
        """The same of other expressions, in the order of `columns`."""
        left = iter(columns)

        def condition(of: Analysed) -> Analysed:
            return replace(of, column=next(left))

        search = condition(self.condition)
        conditions = [
            None if clause.condition is None else condition(clause.condition) for clause in self.clauses
        ]
        clauses: list[ResolvedClause] = []
        for clause, given in zip(self.clauses, conditions, strict=True):
            values: list[Column] = [next(left) for _ in clause.values]
            clauses.append(replace(clause, condition=given, values=values))
        return replace(self, condition=search, clauses=clauses)


def check_clauses(clauses: Sequence[Clause]) -> None:
    """DELTA_MERGE_MISSING_WHEN, or DELTA_NON_LAST_…_CLAUSE_OMIT_CONDITION."""
    if not clauses:
        raise DeltaAnalysisException(error_class="DELTA_MERGE_MISSING_WHEN")
    for when in When:
        of_these_rows = [clause for clause in clauses if clause.when is when]
        if any(clause.condition is None for clause in of_these_rows[:-1]):
            raise DeltaAnalysisException(error_class=f"DELTA_NON_LAST_{when.value}_CLAUSE_OMIT_CONDITION")


@dataclass(frozen=True)
class _Assigned:
    clause: Clause
    condition: Analysed | None
    assignments: Sequence[Assignment]


class Resolution:
    """Analyses a MERGE over frames of the table and of the source, without a job. What it finds has no time
    for now yet, so that all of it, and the source, can have one."""

    def __init__(
        self,
        target: DataFrame,
        source: DataFrame,
        table: T.StructType,
        path: str,
        *,
        evolves: bool,
        may_widen: bool,
    ) -> None:
        self._target = target
        self._source = source
        self._both = target.crossJoin(source)
        self._table = table
        self._path = path
        self._evolves = evolves
        self._may_widen = may_widen
        self._assigner = Assigner(target.sparkSession, path, may_lack_fields=evolves)
        self.reads_metadata = False
        """Whether something that was resolved may need Spark's column `_metadata`."""
        self.has_subqueries = False
        """Whether something that was resolved has a subquery."""

    def resolve(self, condition: Column, clauses: Sequence[Clause]) -> ResolvedMerge:
        """DELTA_MERGE_UNRESOLVED_EXPRESSION, or what else delta-spark raises for what is wrong."""
        search = self._condition(self._both, condition, "search")
        assigned = [self._assigned(clause) for clause in clauses]
        schema = self._schema_after(assigned)
        row = {
            name: Value(found.column, found.type)
            for name, found in zip(
                [field.name.lower() for field in self._table.fields],
                analysed(self._target, [F.col(quoted(name)) for name in self._table.names]),
                strict=True,
            )
        }
        copied = self._assigner.updated(schema, (), row)
        return ResolvedMerge(
            search,
            [self._resolved(found, schema, row) for found in assigned],
            schema,
            [found.column for found in analysed(self._target, copied)],
        )

    def _frame(self, when: When) -> DataFrame:
        frames = {
            When.MATCHED: self._both,
            When.NOT_MATCHED: self._source,
            When.NOT_MATCHED_BY_SOURCE: self._target,
        }
        return frames[when]

    def _assigned(self, clause: Clause) -> _Assigned:
        frame, action = self._frame(clause.when), clause.action.upper()
        condition = None if clause.condition is None else self._condition(frame, clause.condition, action)
        return _Assigned(clause, condition, self._assignments(clause, frame, f"{action} clause"))

    def _assignments(self, clause: Clause, frame: DataFrame, where: str) -> list[Assignment]:
        if clause.assignments is None:
            names = self._source.columns if self._evolves else self._names_of_star()
            values = self._analysed(self._source, [F.col(quoted(name)) for name in names], where)
            keeps = self._evolves and clause.when is When.MATCHED
            return [
                Assignment((name,), Value(value.column, value.type), keeps)
                for name, value in zip(names, values, strict=True)
            ]
        may_be_new = self._evolves and clause.when is not When.NOT_MATCHED_BY_SOURCE
        paths = self._paths_of([key for key, _ in clause.assignments], where, may_be_new)
        values = self._analysed(frame, [value for _, value in clause.assignments], where, paths)
        return [
            Assignment(path, Value(value.column, value.type))
            for path, value in zip(paths, values, strict=True)
        ]

    def _names_of_star(self) -> list[str]:
        """The columns to which * assigns: all but generated and identity ones that the source lacks."""
        given = {name.lower() for name in self._source.columns}
        computed = {*generation_expressions(self._table), *identity_columns(self._table)}
        return [name for name in self._table.names if name.lower() in given or name not in computed]

    def _paths_of(self, keys: Sequence[Column], where: str, may_be_new: bool) -> list[Sequence[str]]:
        """The names of what is assigned to: of the table, or of the source if it may give new columns."""
        found = self._of_target(keys, where) if may_be_new else self._analysed(self._target, keys, where)
        if found is None:
            found = [self._target_or_new(key, where) for key in keys]
        paths = []
        for one in found:
            if one.path is None:
                raise DeltaAnalysisException(
                    error_class="DELTA_MERGE_UNRESOLVED_EXPRESSION",
                    sql_expr=one.sql,
                    clause=where,
                    cols=", ".join(self._table.names),
                    table=self._path,
                )
            paths.append(one.path)
        return paths

    def _target_or_new(self, key: Column, where: str) -> Analysed:
        [found] = self._of_target([key], where) or self._analysed(self._source, [key], where)
        return found

    def _of_target(self, keys: Sequence[Column], where: str) -> list[Analysed] | None:
        """None where the table lacks one of them."""
        found = analysed_if_resolved(self._target, keys, at_one_time=False)
        return None if found is None else self._checked(found, where)

    def _resolved(self, found: _Assigned, schema: T.StructType, row: dict[str, Value]) -> ResolvedClause:
        clause = found.clause
        values: Sequence[Column] = ()
        paths = [assignment.path for assignment in found.assignments]
        if clause.action == "insert":
            check_no_numbers_given(schema, [path[0] for path in paths], self._path)
            values = self._assigner.inserted(schema, found.assignments)
        elif clause.action == "update":
            check_no_numbers_set(schema, paths, self._path)
            values = self._assigner.updated(schema, found.assignments, row)
        # Analysed once more, so that a cast that cannot be fails before any job.
        found_values = analysed(self._frame(clause.when), values, at_one_time=False)
        checked = [value.column for value in found_values]
        assigned = {assignment.path[0].lower() for assignment in found.assignments}
        numbered = identity_columns(schema) if clause.action == "insert" else {}
        made = [*generation_expressions(schema), *numbered]
        computed = frozenset(name for name in made if name.lower() not in assigned)
        return ResolvedClause(clause.when, clause.action, found.condition, checked, computed)

    def _condition(self, frame: DataFrame, condition: Column, name: str) -> Analysed:
        [found] = self._analysed(frame, [condition], f"{name} condition")
        if found.nondeterministic is not None:
            error_class = "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"
            raise self._refusal(error_class, name, expression=f"(condition = {found.sql}).")
        if not isinstance(found.type, T.BooleanType):
            frame.where(found.column)  # raises Spark's error for what is no condition, and lets NULL be one
        return found

    def _refusal(self, error_class: str, name: str, **shown: Any) -> DeltaAnalysisException:
        operation = f"{name} condition of MERGE operation"
        return DeltaAnalysisException(error_class=error_class, operation=operation, table=self._path, **shown)

    def _analysed(
        self,
        frame: DataFrame,
        columns: Sequence[Column],
        where: str,
        paths: Sequence[Sequence[str]] = (),
    ) -> list[Analysed]:
        """With the `paths` to which they are assigned, the word DEFAULT stands for a column's default."""
        try:
            found = (
                values_or_defaults(frame, columns, paths, self._table, self._path, at_one_time=False)
                if paths
                else analysed(frame, columns, at_one_time=False)
            )
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise
            raise DeltaAnalysisException(
                error_class="DELTA_MERGE_UNRESOLVED_EXPRESSION",
                sql_expr=(error.getMessageParameters() or {}).get("objectName", str(columns)),
                clause=where,
                cols=", ".join(frame.columns),
                table=self._path,
            ) from error
        return self._checked(found, where)

    def _checked(self, found: list[Analysed], where: str) -> list[Analysed]:
        """The expressions, of which none is a correlated subquery or an aggregate."""
        self.reads_metadata |= any("_metadata" in one.sql for one in found)
        self.has_subqueries |= any(one.has_subquery for one in found)
        for one in found:
            if one.is_correlated:
                raise DeltaAnalysisException(
                    error_class="DELTA_UNSUPPORTED_SUBQUERY",
                    operation=f"{where} of MERGE operation",
                    cond=one.sql,
                    table=self._path,
                )
            if one.aggregate is not None or not one.of_row:
                raise DeltaAnalysisException(
                    error_class="DELTA_AGGREGATION_NOT_SUPPORTED",
                    operation=f"{where} of MERGE operation",
                    predicate=f"(condition = {one.sql})",
                    table=self._path,
                )
        return found

    def _schema_after(self, assigned: Sequence[_Assigned]) -> T.StructType:
        """The table's schema with the columns and fields of the source that clauses assign to, and with
        their types where those are wider."""
        if not self._evolves:
            return self._table
        by_clauses = [found for found in assigned if found.clause.when is not When.NOT_MATCHED_BY_SOURCE]
        paths = [
            [name.lower() for name in assignment.path]
            for found in by_clauses
            if found.clause.assignments is not None
            for assignment in found.assignments
        ]
        star = any(found.clause.assignments is None for found in by_clauses)
        assigned_to = _assigned_fields(as_table_schema(self._source.schema), paths, (), star)
        new = _typed_as(assigned_to, self._table, may_widen=self._may_widen)
        assert isinstance(new, T.StructType)
        _refuse_void(new, self._table, self._path)
        merged = merge_schemas(self._table, new, table=self._path, may_widen=self._may_widen)
        return with_declarations_of(merged, self._table)


def _assigned_fields(
    source: T.StructType, paths: Sequence[Sequence[str]], prefix: Sequence[str], star: bool
) -> T.StructType:
    """The source's columns, and the fields in them, to which something is assigned."""
    fields = []
    for field in source.fields:
        path = [*prefix, field.name.lower()]
        data_type = field.dataType
        if path not in paths:
            inside = any(list(other[: len(path)]) == path for other in paths)
            if isinstance(data_type, T.StructType) and (inside or star):
                data_type = _assigned_fields(data_type, paths, path, star)
            elif not star:
                continue
        fields.append(T.StructField(field.name, data_type, field.nullable, field.metadata))
    return T.StructType(fields)


def _typed_as(data_type: T.DataType, own: T.DataType | None, *, may_widen: bool) -> T.DataType:
    """The type, with the table's own wherever both are atomic and that does not grow: values are cast."""
    if isinstance(data_type, T.AtomicType) and isinstance(own, T.AtomicType):
        return data_type if may_widen and can_widen(own, data_type) else own
    if own is None or not have_one_shape(data_type, own):
        return data_type
    ours = {field.name.lower(): field.dataType for field in inner_fields(own)}
    return with_inner_fields(
        data_type,
        [
            with_type(f, _typed_as(f.dataType, ours.get(f.name.lower()), may_widen=may_widen))
            for f in inner_fields(data_type)
        ],
    )


def _refuse_void(new: T.StructType, table: T.StructType, path: str) -> None:
    names = {name.lower() for name in table.names}
    for field in new.fields:
        is_void = isinstance(field.dataType, T.NullType) and not READS_VOID
        if is_void and field.name.lower() not in names:
            raise DeltaAnalysisException(
                error_class="DELTA_MERGE_ADD_VOID_COLUMN",
                new_column=field.name,
                table=path,
                column=field.name,
            )
