"""DELETE: rows for which a condition is true leave the table (delta-spark's DeleteCommand).

Where the table allows deletion vectors, the rows are marked as deleted; elsewhere the other rows of their
files are copied. Without a condition, or with one on partition columns alone, files are removed and none is
read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from deltaflow.batch.dml.materialized_rows import MaterializedRows
from deltaflow.batch.dml.row_level_operation import Changed, RowLevelOperation
from deltaflow.batch.rewrite.recorded_changes import change_type
from deltaflow.batch.rewrite.touched_files import MATCHING_ROWS
from deltaflow.batch.sql_names import quoted
from deltaflow.log import Operation
from deltaflow.log.files.change_files import DELETE
from deltaflow.spark.expressions.expressions import has_subquery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import Column, DataFrame, SparkSession


def delete(
    spark: SparkSession, path: str, condition: Column | None, *, named: Callable[[DataFrame], DataFrame]
) -> int | None:
    """Deletes the rows for which the condition is true, all without one; how many, None if nobody knows.

    `named` gives rows of the table at `path` the name by which the condition calls it. Where no row is
    deleted, a commit is made only to record a txnVersion; none is made of one that the table has already.
    """
    where = F.lit(True) if condition is None else condition
    with RowLevelOperation(spark, path, "DELETE") as operation:
        if operation.is_repeated:
            return 0
        rows = named(operation.rows())
        materialized = MaterializedRows(operation, rows, where, {}) if has_subquery(where) else None
        found = operation.find(rows, where, None if materialized is None else materialized.places)
        touched = found.files
        predicates = [] if condition is None else [found.condition]
        if not touched.num_rows:
            operation.commit_if_needed(lambda changed: _operation(operation, changed, predicates, 0))
            return 0
        if found.all_rows_match:
            return _remove(operation, touched, predicates)
        if found.marks is not None:
            return _mark(operation, touched, found.marks, predicates)

        def kept(files: pa.Table) -> DataFrame:
            if materialized is None:  # Rows for which the condition is null stay, too.
                there = operation.with_row_ids(operation.rows(files, like=rows))
                return there.where(~found.where.eqNullSafe(True))
            there = operation.with_row_ids(operation.rows(files, places=True))
            columns = map(quoted, [*operation.snapshot.schema.names, *operation.row_id_names])
            return materialized.beside(there, found.matching_rows).where(~materialized.found).select(*columns)

        return _rewrite(operation, touched, kept, predicates)


def _remove(operation: RowLevelOperation, files: pa.Table, predicates: Sequence[str]) -> int | None:
    """Files of which all rows go, as their partitions tell."""
    deleted = operation.snapshot.number_of_rows(files)
    operation.remove(files, lambda changed: _operation(operation, changed, predicates, deleted))
    return deleted


def _mark(
    operation: RowLevelOperation, touched: pa.Table, marks: Sequence[BitMap64], predicates: Sequence[str]
) -> int:
    """The rows are marked as deleted; files of which no row stays are removed. For a change data feed without
    deletion vectors, the rows are recorded, and the others copied."""
    account = operation.mark(touched, marks)
    before = None
    if operation.records(account):
        before = operation.rows(account.deleted).select("*", change_type(DELETE))
    operation.replace(
        account,
        None,
        lambda changed: _operation(operation, changed, predicates, account.gone),
        copied=operation.copied(account),
        before=before,
    )
    return account.gone


def _rewrite(
    operation: RowLevelOperation,
    touched: pa.Table,
    kept: Callable[[pa.Table], DataFrame],
    predicates: Sequence[str],
) -> int:
    """The other rows of the files are copied by one job; files of which no row stays are removed unread.
    `kept`: those of some files, with their row ids."""
    account = operation.account(touched, gone=touched[MATCHING_ROWS.name])

    def describe(changed: Changed) -> Operation:
        return _operation(operation, changed, predicates, account.gone)

    rows = None
    if account.files_to_read.num_rows:
        rows = kept(account.files_to_read)
    operation.replace(account, rows, describe, as_they_are=True)
    return account.gone


def _operation(
    operation: RowLevelOperation, changed: Changed, predicates: Sequence[str], deleted: int | None
) -> Operation:
    """delta-spark's DeltaOperations.Delete."""
    metrics = {**changed.metrics, **operation.times_ms()}
    if deleted is None:
        del metrics["numAddedFiles"]
    else:
        metrics |= {"numDeletedRows": deleted, "numCopiedRows": changed.rows}
    return Operation(
        "DELETE",
        {"predicate": msgspec.json.encode(predicates).decode()},
        {key: str(value) for key, value in metrics.items()},
    )
