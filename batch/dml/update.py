"""UPDATE: rows for which a condition is true get other values (delta-spark's UpdateCommand).

Their files are written anew, with the rows beside them as they are. Where the table allows deletion vectors,
the rows are marked as deleted instead, and written anew alone. The values are made as MERGE makes them
(assignments); of a struct whose fields are set, the other fields stay. Generated columns that are not set are
computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from deltaflow.batch.dml.assignments import Assigner, Assignment, Value, values_or_defaults
from deltaflow.batch.dml.materialized_rows import MaterializedRows
from deltaflow.batch.dml.row_level_operation import Changed, RowLevelOperation
from deltaflow.batch.rewrite.marked_rows import MarkedRows
from deltaflow.batch.rewrite.recorded_changes import change_type
from deltaflow.batch.rewrite.row_account import RowAccount
from deltaflow.batch.rows.column_expressions import (
    check_no_numbers_set,
    generation_expressions,
)
from deltaflow.batch.rows.computed_columns import with_computed
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Operation
from deltaflow.log.files.change_files import CHANGE_TYPE, UPDATE_POSTIMAGE
from deltaflow.spark.expressions.analysis import Analysed, analysed
from deltaflow.spark.expressions.expressions import has_subquery

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_UPDATED = "\0updated"


def update(
    spark: SparkSession,
    path: str,
    values: Sequence[tuple[Column, Column]],
    condition: Column | None,
    *,
    named: Callable[[DataFrame], DataFrame],
) -> int:
    """Sets columns, or fields of structs, to values in the rows for which the condition is true, in all
    without one; returns the number of those rows. `values`: pairs of a name and its value.

    `named` gives rows of the table at `path` the name by which the expressions call it. Where no row is
    updated, a commit is made only to record a txnVersion; none is made of one that the table has already.
    """
    where = F.lit(True) if condition is None else condition
    with RowLevelOperation(spark, path, "UPDATE") as operation:
        if operation.is_repeated:
            return 0
        rows = named(operation.rows())
        new_values = _NewValues(operation, rows, values)
        materialized = None
        if any(map(has_subquery, [where, *(value for _, value in values)])):
            materialized = MaterializedRows(operation, rows, where, new_values.over(rows))
        found = operation.find(rows, where, None if materialized is None else materialized.places)
        touched = found.files
        updated: int | None = None
        if not found.all_rows_match:
            updated = found.matching_rows

        def describe(changed: Changed) -> Operation:
            return _operation(operation, changed, [] if condition is None else [found.condition], updated)

        if not touched.num_rows:
            operation.commit_if_needed(describe)
            return 0
        account: RowAccount | MarkedRows
        if found.marks is None:
            account = operation.account(touched)
            is_updated = found.where
            if materialized is None:
                rows = operation.rows(touched, like=rows)
            else:
                rows = operation.rows(touched, places=True)
        else:
            # By their positions: no other rows are written, whatever the condition is the next time.
            account = operation.mark(touched, found.marks, rewritten=found.marks)
            rows = operation.rows(account.rewritten, places=materialized is not None)
            if materialized is None:
                rows = named(rows)
            is_updated = F.lit(True)
        rows = operation.with_row_ids(rows)
        if materialized is not None:
            rows = materialized.beside(rows, found.matching_rows)
            if found.marks is None:
                is_updated = materialized.found
        before = operation.before(rows, account) if operation.records(account) else None
        new = new_values.over(rows) if materialized is None else materialized.values
        columns = [
            F.when(is_updated, new[column]).otherwise(F.col(quoted(column))).alias(column)
            if column in new
            else F.col(quoted(column))
            for column in operation.snapshot.schema.names
        ]
        more = operation.row_ids(is_updated)
        others = list(operation.row_id_names)
        if before is not None:
            more.append(change_type(UPDATE_POSTIMAGE))
            others.append(CHANGE_TYPE)
        computed = generation_expressions(operation.snapshot.schema).keys() - new.keys()
        if computed:
            marked = rows.select(*columns, is_updated.alias(_UPDATED), *more)
            conditions = {name: F.col(_UPDATED) for name in computed}
            snapshot = operation.snapshot
            rows = with_computed(
                marked, snapshot.schema, snapshot.partition_columns, conditions, others, snapshot.path
            )
        else:
            rows = rows.select(*columns, *more)
        copied = operation.copied(account) if isinstance(account, MarkedRows) else None
        changed = operation.replace(account, rows, describe, copied=copied, before=before)
        return changed.rows if updated is None else updated


def _operation(
    operation: RowLevelOperation, changed: Changed, predicates: Sequence[str], updated: int | None
) -> Operation:
    """delta-spark's DeltaOperations.Update. Without `updated`, all rows of the files are."""
    updated = changed.rows if updated is None else updated
    metrics = {
        **changed.metrics,
        **operation.times_ms(),
        "numUpdatedRows": updated,
        "numCopiedRows": changed.rows - updated,
    }
    return Operation(
        "UPDATE",
        {"predicate": msgspec.json.encode(predicates).decode()},
        {key: str(value) for key, value in metrics.items()},
    )


class _NewValues:
    """Values for columns of the table, and for fields of its structs."""

    def __init__(
        self, operation: RowLevelOperation, rows: DataFrame, values: Sequence[tuple[Column, Column]]
    ) -> None:
        """`rows` resolve the names.

        DELTA_MISSING_SET_COLUMN, DELTA_CONFLICT_SET_COLUMN or DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE for
        names that are wrong, Spark's AnalysisException for those of nothing.
        """
        self._operation = operation
        self._table = operation.snapshot.path
        self._schema = operation.snapshot.schema
        if not values:
            raise DeltaIllegalArgumentException(
                f"{operation.name} needs at least one column to set.",
                error_class="DELTA_MISSING_SET_COLUMN",
                table=self._table,
            )
        self._values = [value for _, value in values]
        self._paths = [self._path(name) for name in analysed(rows, [name for name, _ in values])]
        check_no_numbers_set(self._schema, self._paths, self._table)
        self.over(rows)  # refuses wrong values before a job runs

    def over(self, rows: DataFrame) -> dict[str, Column]:
        """The new values of columns, by the columns' names, as expressions over a frame of the table's rows.

        DELTA_AGGREGATION_NOT_SUPPORTED and Spark's AnalysisException for a value that is none, or not of the
        column.
        """
        assignments = [
            Assignment(path, Value(value.column, value.type))
            for path, value in zip(self._paths, self._analysed(rows), strict=True)
        ]
        present = {
            field.name.lower(): Value(F.col(quoted(field.name)), field.dataType)
            for field in self._schema.fields
        }
        columns = Assigner(rows.sparkSession, self._table).updated(self._schema, assignments, present)
        assigned = {path[0].lower() for path in self._paths}
        new = {
            name: column
            for name, column in zip(self._schema.names, columns, strict=True)
            if name.lower() in assigned
        }
        # Analysed once more, so that a cast that cannot be fails before any job.
        return dict(zip(new, [found.column for found in analysed(rows, list(new.values()))], strict=True))

    def _analysed(self, rows: DataFrame) -> list[Analysed]:
        found = values_or_defaults(rows, self._values, self._paths, self._schema, self._table)
        if any(value.aggregate is not None or not value.of_row for value in found):
            raise DeltaAnalysisException(
                error_class="DELTA_AGGREGATION_NOT_SUPPORTED",
                operation=self._operation.name,
                predicate="values",
                table=self._table,
            )
        return found

    def _path(self, name: Analysed) -> Sequence[str]:
        """The names of the table's column, and of the fields in it, that a name stands for."""
        if name.path is None:
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
                target=name.sql,
                table=self._table,
            )
        return name.path
