"""The core of DELETE, UPDATE and MERGE: from the version that is read to the one commit.

An operation opens a `RowLevelOperation`, finds with its frames the files that hold rows to change, and gives
it the frame of all rows that the new files are to hold: changed ones and, as they were, those beside them:

    with RowLevelOperation(spark, path, "DELETE") as operation:
        if not operation.is_repeated:
            matching = operation.rows().where(condition)
            operation.partition_filter(matching)  # records what is read; no job
            touched = operation.touched_files(matching)
            operation.write(rows_of_new_files, touched, describe, expected_rows)

Per operation: one listing of the log; two Spark jobs: the one that finds the files, by a scan of the
condition's columns with a count a file, and the one that writes the new ones, without a shuffle; one footer a
new file, one put. Between Python and the JVM about 10 calls
of row_operations, 4 to 8 for the scans, 2 for the write, and PySpark's own for Columns and frames (some 300
for an UPDATE of one column, 50 µs each). An operation that whole partitions decide has no job, and reads no
file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.batch.files.file_layout import optimized_write_bytes
from deltaflow.batch.files.partition_conditions import known_conditions
from deltaflow.batch.idempotent import idempotent_write
from deltaflow.batch.optimize.auto_compaction import auto_compaction
from deltaflow.batch.read.load_path import no_table_at
from deltaflow.batch.rows.row_checks import checks_of_table
from deltaflow.batch.rows.row_plan import row_plan
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import (
    AddFile,
    Committed,
    DeltaLog,
    Operation,
    RemoveFile,
    Snapshot,
    remove_files,
    schema_from_string,
)
from deltaflow.log.files.file_rows import refuse_deletion_vectors
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.footers import numbers_of_rows
from deltaflow.log.observer import observe
from deltaflow.log.protocol.features import check_writable, is_append_only
from deltaflow.log.protocol.isolation import isolation_of_table
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.expressions.expressions import has_subquery, sql_text
from deltaflow.spark.expressions.merge_plans import scanned_like
from deltaflow.spark.expressions.row_operations import (
    PartitionFilter,
    delta_settings,
    expressions,
    new_handle,
    partition_filter,
    recache,
    scanned,
    with_one_reducer,
    write_rows,
)
from deltaflow.spark.scan.file_index import (
    READ_ALL,
    ScannedFiles,
    complete_paths,
    in_partitions,
    relation,
    scan_kind,
)
from deltaflow.spark.write.file_write import (
    FileRewrite,
    FileWrite,
    RowPlan,
    WrittenFile,
    local_path,
    write_kind,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
_ALL = "all"

TOUCHED = pa.field("changed_rows", pa.int64())
"""The column that `touched_files` adds to rows of the snapshot's `files`."""


@dataclass(frozen=True)
class Changed:
    """What the commit of an operation puts in the place of what: the new files, and the removed ones."""

    adds: Sequence[AddFile]
    rows: int
    """Rows of the new files."""
    removes: Sequence[RemoveFile]

    @property
    def metrics(self) -> dict[str, int]:
        """The figures that every operation on rows reports, by delta-spark's names for DELETE and UPDATE."""
        return {
            "numRemovedFiles": len(self.removes),
            "numRemovedBytes": sum(remove.size or 0 for remove in self.removes),
            "numAddedFiles": len(self.adds),
            "numAddedBytes": sum(add.size for add in self.adds),
            "numAddedChangeFiles": 0,
            "numDeletionVectorsAdded": 0,
            "numDeletionVectorsRemoved": 0,
            "numDeletionVectorsUpdated": 0,
        }


Describe = Callable[[Changed], Operation]
"""How the commit names itself, with parameters and metrics (delta-spark's DeltaOperations)."""


class RowLevelOperation:
    """One operation that changes rows of the table at `path`; a context manager, whose end frees its frames.

    `transaction` records what is read, and may be given new metadata before `write`. Refused before a file is
    read: a table that cannot be written, that is append-only, or that is none (`no_table_at`).
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
        self.spark = spark
        self.name = name
        settings = delta_settings(spark)
        self.transaction = DeltaLog.for_table(path).start_transaction(settings, read_version=read_version)
        if self.transaction.snapshot is None:
            raise no_table_at(path)
        self.snapshot: Snapshot = self.transaction.snapshot
        snapshot = self.snapshot
        check_writable(snapshot.protocol, snapshot.metadata, snapshot.path, snapshot.version)
        isolation_of_table(snapshot.metadata, snapshot.path)  # a wrong value would stop the commit
        if is_append_only(snapshot.metadata) and not only_appends:
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=snapshot.path
            )
        self._idempotent = idempotent_write({}, settings, snapshot.path)
        self.is_repeated = self._idempotent is not None and self._idempotent.is_done(self.transaction)
        """Whether the table has this very operation already, by spark.databricks.delta.write.txnVersion."""
        self._handle = new_handle(spark)
        self._sets: dict[str, tuple[pa.Table, FileStatistics | None]] = {
            _ALL: (snapshot.files, snapshot.statistics)
        }
        self.committed: Committed | None = None
        self._started_ns = self._found_ns = time.perf_counter_ns()
        self._write: _Write | None = None

    def __enter__(self) -> RowLevelOperation:
        dispatcher.keep(self._handle, self)
        return self

    def __exit__(self, *exception: object) -> None:
        dispatcher.release(self._handle)
        if exception[0] is not None:
            return
        if self._idempotent is not None:
            for setting in self._idempotent.settings_to_unset:
                self.spark.conf.unset(setting)
        if self.committed is not None:
            recache(self.spark, self.snapshot.path)

    def rows(self, files: pa.Table | None = None, like: DataFrame | None = None) -> DataFrame:
        """A frame over files of the snapshot, all of them without `files`; with the attributes of the frame
        `like`, another one of this operation, if it is given.

        Filters skip files by their statistics. It has Spark's column `_metadata`, and serves while the
        operation is open.
        """
        key, chosen = _ALL, self.snapshot.files
        if files is not None:
            key, chosen = str(len(self._sets)), files.select(self.snapshot.files.column_names)
            self._sets[key] = (chosen, FileStatistics(chosen["stats"], self.snapshot.schema))
        refuse_deletion_vectors(chosen, self.snapshot.path, self.snapshot.version)
        size = self.snapshot.size_in_bytes if files is None else pc.sum(chosen["size"]).as_py() or 0
        described = self._relation(key, size)
        return scanned(self.spark, described) if like is None else scanned_like(like, described)

    def _relation(self, key: str, size: int) -> dict[str, Any]:
        snapshot = self.snapshot
        scan = {
            "kind": "row level operation",
            "path": snapshot.path,
            "version": snapshot.version,
            "operation": self._handle,
            "files": key,
        }
        columns = list(snapshot.partition_columns)
        return relation(scan, snapshot.path, snapshot.schema, columns, size, READ_ALL)

    def files_of_set(self, key: str) -> ScannedFiles:
        """Of a scan of `rows`."""
        files, statistics = self._sets[key]
        return ScannedFiles(self.snapshot.path, tuple(self.snapshot.partition_columns), files, statistics)

    def refuse_subquery(self, expression: Column) -> None:
        """DELTA_UNSUPPORTED_SUBQUERY for one; to be asked before Spark analyses the expression."""
        if has_subquery(expression):
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_SUBQUERY",
                operation=self.name,
                cond=sql_text(expression),
                table=self.snapshot.path,
            )

    def check_condition(self, matching: DataFrame) -> str:
        """The condition of a filter, as SQL; DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED for one whose
        rows would be others each time that it is asked."""
        condition = expressions(matching)[0]
        if not condition.deterministic:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
                operation=self.name,
                expression=f"(condition = {condition.sql}).",
                table=self.snapshot.path,
            )
        return condition.sql

    def partition_filter(self, matching: DataFrame) -> PartitionFilter:
        """What a filter over `rows()` says of partitions; records that all their rows are read, future ones
        included: those of the whole table where it says nothing that the log could compare."""
        snapshot = self.snapshot
        found = partition_filter(matching, list(snapshot.partition_columns))
        columns = {name: snapshot.schema[name] for name in snapshot.partition_columns}
        condition = known_conditions(found.predicate, columns)
        if condition is None:
            self.transaction.read_whole_table()
        else:
            self.transaction.files_matching(condition)
        return found

    def files_of_partitions(self, found: PartitionFilter) -> pa.Table:
        """The files of the partitions that a filter keeps; recorded as read."""
        files = self.snapshot.files
        if found.partitions is not None:
            scan = self._relation(_ALL, self.snapshot.size_in_bytes)["scan"]
            files = files.filter(in_partitions(scan, found.partitions))
        self.transaction.read_files(files)
        self._found_ns = time.perf_counter_ns()
        return files

    def touched_files(self, matching: DataFrame) -> pa.Table:
        """The files that hold rows of a filter over `rows()`, with the number of those rows (TOUCHED).

        One job, which reads the columns of the condition, in the files that partitions and statistics leave.
        """
        path = matching.metadataColumn("_metadata").getField("file_path")
        counted = with_one_reducer(matching.groupBy(path.alias("path")).count()).collect()
        return self.files_at({row["path"]: row["count"] for row in counted})

    def files_at(self, changed_rows: Mapping[str, int]) -> pa.Table:
        """The files at these paths, which are those of `_metadata.file_path`, with their numbers of rows
        (TOUCHED); recorded as read."""
        files, path = self.snapshot.files, self.snapshot.path
        complete = _local_paths(path, files)
        wanted = pa.table(
            {
                "complete": pa.array([local_path(found) for found in changed_rows], pa.string()),
                TOUCHED.name: pa.array(changed_rows.values(), pa.int64()),
            }
        )
        positions = pc.index_in(complete, value_set=wanted["complete"])
        touched = files.filter(positions.is_valid())
        if touched.num_rows != wanted.num_rows:
            raise DeltaIllegalStateException(
                f"Spark found rows for {self.name} in {wanted.num_rows} files, of which the table has "
                f"{touched.num_rows}.",
                table=path,
                version=self.snapshot.version,
            )
        self.transaction.read_files(touched)
        self._found_ns = time.perf_counter_ns()
        return touched.append_column(TOUCHED, wanted[TOUCHED.name].take(positions.drop_null()))

    def check_rows(self, touched: pa.Table) -> None:
        """DELTA_NUM_RECORDS_MISMATCH unless files have as many rows as were counted (TOUCHED): statistics do
        not suffice to remove a file unread."""
        paths = _local_paths(self.snapshot.path, touched).to_pylist()
        rows = sum(numbers_of_rows(list(zip(paths, touched["size"].to_pylist(), strict=True))))
        counted = pc.sum(touched[TOUCHED.name], min_count=0).as_py()
        if rows != counted:
            raise DeltaIllegalStateException(
                f"{self.name}: by the log and the condition the {counted} rows that were found are all of "
                f"{touched.num_rows} files, and these have {rows}. Nothing was committed. The log's "
                "numRecords of them is wrong: rewrite the table.",
                error_class="DELTA_NUM_RECORDS_MISMATCH",
                table=self.snapshot.path,
                version=self.snapshot.version,
            )

    def write(
        self, rows: DataFrame, removed: pa.Table, describe: Describe, expected_rows: int | None
    ) -> Changed:
        """Writes the frame's rows, and commits their files and the removal of `removed` (rows of the
        snapshot's `files`); returns what was changed.

        The frame has the table's columns by name, of any types that store assignment allows; the table's
        checks are made. DELTA_NUM_RECORDS_MISMATCH, and no commit, if the new files have not
        `expected_rows`; None: nobody knows.
        """
        self._write = _Write(self, rows.schema, removed, describe, expected_rows)
        write_rows(rows, {"kind": "row level operation", "operation": self._handle}, self.name)
        assert self._write.changed is not None
        return self._write.changed

    def remove(self, removed: pa.Table, describe: Describe) -> Changed:
        """Commits the removal of files whose rows all go; no Spark job."""
        changed = Changed((), 0, remove_files(removed, self.transaction.log.clock()))
        self.commit(changed, describe)
        return changed

    def commit(self, changed: Changed, describe: Describe) -> None:
        """The commit; for `write` and `remove`."""
        actions: list[Any] = [*changed.adds, *changed.removes]
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

    def times_ms(self) -> dict[str, int]:
        """The metrics of time, up to now: what was spent before and since the touched files were found."""
        now = time.perf_counter_ns()
        spent = {
            "executionTimeMs": now - self._started_ns,
            "scanTimeMs": self._found_ns - self._started_ns,
            "rewriteTimeMs": now - self._found_ns,
        }
        return {name: ns // 1_000_000 for name, ns in spent.items()}

    def open_write(self) -> FileWrite:
        """The write that Spark runs."""
        assert self._write is not None
        return self._write


def _local_paths(table: str, files: pa.Table) -> pa.ChunkedArray:
    """The complete paths of a local table's files, as the operating system has them."""
    return pc.replace_substring_regex(complete_paths(table, files["path"]), "^file:(//)?", "")


class _Write:
    """The write of an operation's new files. See deltaflow.spark.write.file_write.FileWrite."""

    replace_where = None
    settings_to_unset: Sequence[str] = ()
    quarantine = None
    file_options: Mapping[str, str]

    def __init__(
        self,
        operation: RowLevelOperation,
        frame: StructType,
        removed: pa.Table,
        describe: Describe,
        expected_rows: int | None,
    ) -> None:
        transaction = operation.transaction
        metadata = transaction.metadata
        assert metadata is not None
        self.path = transaction.path
        self.partition_columns = tuple(metadata.partition_columns)
        table = schema_from_string(metadata.schema_string, table=self.path)
        checks = checks_of_table(metadata, table)
        self.rows: RowPlan = row_plan(frame, table, self.partition_columns, checks, self.path)
        self.file_options = {}
        session = transaction.session
        self.optimized_write_bytes = optimized_write_bytes({}, session, metadata.configuration, self.path)
        self.changed: Changed | None = None
        self._data_files = DataFiles(metadata, self.path)
        self.folder = self._data_files.folder
        self._compaction = auto_compaction(transaction, {}, self.file_options)
        self._operation = operation
        self._removed = removed
        self._describe = describe
        self._expected_rows = expected_rows

    def commit(self, files: Sequence[WrittenFile], kept: Sequence[WrittenFile]) -> FileRewrite | None:
        """Commits the files."""
        operation = self._operation
        observe("files written", path=self.path, files=len(files))
        adds, rows = self._data_files.add_actions(files)
        if self._expected_rows is not None and rows != self._expected_rows:
            raise DeltaIllegalStateException(
                error_class="DELTA_NUM_RECORDS_MISMATCH",
                operation=operation.name,
                added=rows,
                expected=self._expected_rows,
                table=self.path,
                version=operation.snapshot.version,
            )
        removes = remove_files(self._removed, operation.transaction.log.clock())
        changed = Changed(adds, rows, removes)
        operation.commit(changed, self._describe)
        self.changed = changed
        return None if self._compaction is None else self._compaction.after_commit(adds)

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        """No commit appears after this has returned; where none has, the files are removed."""
        self._data_files.discard(files, is_certain=self._operation.transaction.cancel())


@write_kind("row level operation")
def _begin(request: dict[str, Any]) -> FileWrite:
    return _operation(request["operation"]).open_write()


@scan_kind("row level operation")
def _files(description: dict[str, Any]) -> ScannedFiles:
    return _operation(description["operation"]).files_of_set(description["files"])


def _operation(handle: int) -> RowLevelOperation:
    operation: RowLevelOperation | None = dispatcher.find(handle)
    if operation is None:
        raise DeltaIllegalStateException("The operation whose rows these are has ended.")
    return operation
