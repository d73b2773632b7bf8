"""Writes the rows of a stream that do not fit its table to another table, the quarantine.

They fail a cast, NOT NULL, a CHECK constraint or the length of a CHAR or VARCHAR column.

In each batch the quarantine commits first, then the table, both with `txn(query id, batch id)`. If the
process ends between the two, the batch runs again, and replaces the rows that it has quarantined before,
because they may fit by now. So the two tables together hold every row once. A batch without such rows commits
nothing to the quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltaflow.batch.rows.schema_on_write import schema_rules
from deltaflow.batch.write.overwrites import OverwriteScope
from deltaflow.batch.write.transactional_write import WriteOperation, begin_write
from deltaflow.errors import DeltaInvariantViolationException
from deltaflow.log import FILES_SCHEMA, AddFile, DeltaLog, OptimisticTransaction, SetTransaction
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.spark.write.file_write import Quarantine, RowPlan
from deltaflow.streaming.messages import BatchRequest


def begin_quarantine(
    request: BatchRequest, path: str, frame: StructType, rows: RowPlan, operation: WriteOperation
) -> Quarantine:
    """Begins the quarantine's write of a batch; `rows` is the row plan of the stream's own table."""
    query_id, batch_id = request.query_id, request.batch_id
    log = DeltaLog.for_table(path)
    transaction = log.start_transaction(request.settings)
    transaction.record_read_of_txn(query_id)  # a rival with the same batch is a conflict
    schema = StructType(
        [
            StructField("reason", StringType()),
            StructField("batch_id", LongType()),
            StructField("query_id", StringType()),
            StructField("row", frame),
        ]
    )
    write = begin_write(
        schema,
        [],
        {},
        rules=schema_rules({"mergeSchema": "true"}, {}, store_assignment=request.store_assignment_policy),
        operation=operation,
        transaction=transaction,
        overwrite_scope=_EarlierRun(log, query_id, batch_id),
        application=SetTransaction(app_id=query_id, version=batch_id, last_updated=transaction.log.clock()),
        only_with_files=True,
    )
    return Quarantine(write, batch_id, query_id, _cast_errors(rows), _length_errors(rows))


class _EarlierRun(OverwriteScope):
    """Replaces the rows that an earlier run of the same batch has quarantined."""

    def __init__(self, log: DeltaLog, query_id: str, batch_id: int) -> None:
        self._log = log
        self._query_id = query_id
        self._batch_id = batch_id

    def record_removed_files(self, transaction: OptimisticTransaction, adds: Sequence[AddFile]) -> pa.Table:
        snapshot = transaction.snapshot
        done = None if snapshot is None else snapshot.txn_version(self._query_id)
        if snapshot is None or done is None or done < self._batch_id:
            return FILES_SCHEMA.empty_table()
        files = snapshot.files
        paths = self._paths_of_commit(snapshot.version)
        if paths is None:
            is_earlier = self._has_rows_of_batch_alone(snapshot.statistics)
        else:
            is_earlier = pc.is_in(files["path"], pa.array(paths, pa.string()))
        earlier = files.filter(is_earlier)
        transaction.record_read_of_files(earlier)
        return earlier

    def _paths_of_commit(self, newest: int) -> list[str] | None:
        """The files of the earlier run's commit; None if log cleanup has removed the commit.

        Reads the commits one by one from the newest on, because the commit is one of the newest.
        """
        for version in reversed([found for found in self._log.commit_versions() if found <= newest]):
            for commit in self._log.commits_present(version, version):
                if any((txn.app_id, txn.version) == (self._query_id, self._batch_id) for txn in commit.txns):
                    return [add.path for add in commit.adds]
        return None

    def _has_rows_of_batch_alone(self, statistics: FileStatistics) -> pa.Array:
        """One boolean for each file: whether its bounds show that all its rows are of this batch.

        A bound may be a prefix of the query id. No other query id has the same prefix.
        """
        batch, query = statistics.column(("batch_id",)), statistics.column(("query_id",))
        assert batch is not None
        assert query is not None
        batch_id = pa.scalar(self._batch_id, pa.int64())
        is_batch = pc.and_(pc.equal(batch.low, batch_id), pc.equal(batch.high, batch_id))
        is_query = [
            low is not None and high is not None and self._query_id.startswith(low) and high.startswith(low)
            for low, high in zip(query.low.to_pylist(), query.high.to_pylist(), strict=True)
        ]
        return pc.and_(is_batch, pa.array(is_query, pa.bool_()))


def _cast_errors(rows: RowPlan) -> list[str]:
    """For each column the error of a value that cannot be cast to its type, up to the value."""
    errors = []
    for target in () if rows.cast_schema is None else rows.cast_schema.fields:
        error = DeltaInvariantViolationException(
            error_class="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            source_type=rows.frame_schema[target.name].dataType.simpleString().upper(),
            target_type=target.dataType.simpleString().upper(),
            column_name=target.name,
        )
        errors.append(f"{error} Value: ")
    return errors


def _length_errors(rows: RowPlan) -> list[str]:
    """For each column the error of a value that is too long for its CHAR or VARCHAR, up to the value."""
    errors = []
    for target in rows.table_schema.fields:
        error = DeltaInvariantViolationException(
            f"The value exceeds the char/varchar length limitation of column {target.name}.",
            error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        )
        errors.append(f"{error} Value: ")
    return errors
