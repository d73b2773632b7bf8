"""UPDATE: rows for which a condition is true get other values (delta-spark's UpdateCommand).

Their files are written anew, with the rows beside them as they are. A value is cast to its column's type by
Spark's store assignment; of a struct whose fields are set, the other fields stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from deltaflow.batch.dml.row_level_operation import Changed, RowLevelOperation
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import Operation, as_nullable
from deltaflow.spark.expressions.expressions import sql_text
from deltaflow.spark.expressions.row_operations import assigned, expressions, fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_Path = tuple[str, ...]
Assignment: TypeAlias = "tuple[Column, Column]"
"""The name of a column or field, and its value."""


def update(
    spark: SparkSession,
    path: str,
    values: Sequence[Assignment],
    condition: Column | None,
    *,
    named: Callable[[DataFrame], DataFrame],
) -> int:
    """Sets columns, or fields of structs, to values in the rows for which the condition is true, in all
    without one; returns the number of those rows.

    `named` gives rows of the table at `path` the name by which the expressions call it. Where no row is
    updated, a commit is made only to record a txnVersion; none is made of one that the table has already.
    """
    where = F.lit(True) if condition is None else condition
    with RowLevelOperation(spark, path, "UPDATE") as operation:
        if operation.is_repeated:
            return 0
        operation.refuse_subquery(where)
        rows = named(operation.rows())
        assignments = Assignments(operation, rows, values)
        assignments.over(rows)  # refused before a job runs
        matching = rows.where(where)
        text = operation.deterministic_condition(matching)
        found = operation.record_partition_filter(matching)
        if found.has_data_filters:
            touched = operation.record_touched_files(matching)
        else:
            touched = operation.record_files_of_partitions(found)
        updated: int | None = None
        if found.has_data_filters:
            updated = pc.sum(touched[MATCHING_ROWS.name], min_count=0).as_py()

        def describe(changed: Changed) -> Operation:
            return _operation(operation, changed, [] if condition is None else [text], updated)

        if not touched.num_rows:
            operation.commit_if_needed(describe)
            return 0
        rows = named(operation.rows(touched))
        new = assignments.over(rows)
        columns = [
            F.when(where, new[column]).otherwise(F.col(quoted(column))).alias(column)
            if column in new
            else F.col(quoted(column))
            for column in operation.snapshot.schema.names
        ]
        changed = operation.replace(operation.account(touched), rows.select(*columns), describe)
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


class Assignments:
    """Values for columns of the table, and for fields of its structs."""

    def __init__(self, operation: RowLevelOperation, rows: DataFrame, values: Sequence[Assignment]) -> None:
        """`rows` resolve the names.

        DELTA_MISSING_SET_COLUMN, DELTA_CONFLICT_SET_COLUMN or DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE for
        names that are wrong, Spark's AnalysisException for those of nothing; DELTA_UNSUPPORTED_SUBQUERY.
        """
        self._operation = operation
        self._table = operation.snapshot.path
        self._schema = as_nullable(operation.snapshot.schema)
        if not values:
            raise DeltaIllegalArgumentException(
                f"{operation.name} needs at least one column to set.",
                error_class="DELTA_MISSING_SET_COLUMN",
                table=self._table,
            )
        for _, value in values:
            operation.refuse_subquery(value)
        paths = [self._path(rows, target) for target, _ in values]
        self._check_conflicts(paths)
        self._values = dict(zip(paths, (value for _, value in values), strict=True))

    def over(self, rows: DataFrame) -> dict[str, Column]:
        """The new values of columns, by the columns' names, as expressions over a frame of the table's rows.

        DELTA_AGGREGATION_NOT_SUPPORTED and Spark's AnalysisException for a value that is none, or not of the
        column.
        """
        types = StructType([StructField(_shown(path), self._type(path)) for path in self._values])
        values = rows.select(
            *(value.alias(name) for value, name in zip(self._values.values(), types.names, strict=True))
        )
        if len(expressions(values)) != len(types):
            raise DeltaAnalysisException(
                error_class="DELTA_AGGREGATION_NOT_SUPPORTED",
                operation=self._operation.name,
                predicate="values",
                table=self._table,
            )
        cast = dict(zip(self._values, assigned(values, types, self._table), strict=True))
        return {
            column.name: _built((column.name,), column.dataType, F.col(quoted(column.name)), cast)
            for column in self._schema.fields
            if any(path[0] == column.name for path in cast)
        }

    def _path(self, rows: DataFrame, target: Column) -> _Path:
        """The names of the table's column, and of the fields in it, that a name stands for."""
        found = fields(rows.select(target))
        if len(found) != 1 or found[0] is None:
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
                target=sql_text(target),
                table=self._table,
            )
        column, *inside = found[0]
        names = {name.lower(): name for name in self._schema.names}
        if column.lower() not in names:
            raise DeltaAnalysisException(
                error_class="DELTA_MISSING_SET_COLUMN",
                column_name=sql_text(target),
                column_list=", ".join(self._schema.names),
                table=self._table,
            )
        return (names[column.lower()], *inside)

    def _check_conflicts(self, paths: Sequence[_Path]) -> None:
        for i, path in enumerate(paths):
            others = [other for j, other in enumerate(paths) if j != i and other[: len(path)] == path]
            if others:
                raise DeltaAnalysisException(
                    error_class="DELTA_CONFLICT_SET_COLUMN",
                    column_list=", ".join(map(_shown, (path, *others))),
                    table=self._table,
                )

    def _type(self, path: _Path) -> DataType:
        kind: DataType = self._schema
        for name in path:
            assert isinstance(kind, StructType)
            kind = kind[name].dataType
        return kind


def _shown(path: _Path) -> str:
    return ".".join(quoted(name) if "." in name or "`" in name else name for name in path)


def _built(path: _Path, kind: DataType, old: Column, values: Mapping[_Path, Column]) -> Column:
    """The new value of a column or field: its own, a struct with new fields, or the old one."""
    if path in values:
        return values[path]
    if not any(other[: len(path)] == path for other in values):
        return old
    assert isinstance(kind, StructType)
    return F.struct(
        *(
            _built((*path, field.name), field.dataType, old.getField(field.name), values).alias(field.name)
            for field in kind.fields
        )
    )
