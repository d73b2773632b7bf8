"""Finds the files of one version of a table that hold rows for which a condition is true.

DELETE, UPDATE, MERGE and replaceWhere look for their files here; compaction and ADD CONSTRAINT read here,
too. The frames read every row of their files, whatever the session's settings leave out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.files.partition_conditions import known_conditions
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalStateException
from deltaflow.log import OptimisticTransaction, Snapshot
from deltaflow.log.files.file_rows import refuse_deletion_vectors
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.expressions.expressions import has_subquery, sql_text
from deltaflow.spark.expressions.merge_plans import scanned_like
from deltaflow.spark.expressions.row_operations import (
    PartitionFilter,
    condition_of,
    expressions,
    new_handle,
    partition_filter,
    scanned,
    with_one_reducer,
)
from deltaflow.spark.scan.file_index import (
    READ_ALL,
    ScannedFiles,
    complete_paths,
    finds_files,
    in_partitions,
    relation,
)
from deltaflow.spark.scan.messages import Relation
from deltaflow.spark.write.file_write import local_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ALL = "all"

MATCHING_ROWS = pa.field("matching_rows", pa.int64())
"""The column that `touched_files` adds to rows of the snapshot's `files`: how many of a file's rows match."""


class TouchedFiles:
    """The files of the version that a transaction reads; a context manager, whose end ends its frames.

    What is found is recorded in the transaction as read.
    """

    def __init__(
        self,
        spark: SparkSession,
        transaction: OptimisticTransaction,
        operation: str,
        schema: StructType | None = None,
    ) -> None:
        """`operation` is its name, for errors and Spark's UI. `schema` is that of the frames, which may have
        columns that no file has yet; the version's own without it."""
        assert transaction.snapshot is not None
        self.spark = spark
        self.transaction = transaction
        self.name = operation
        self.snapshot: Snapshot = transaction.snapshot
        self.schema = self.snapshot.schema if schema is None else schema
        self._handle = new_handle(spark)
        self._sets: dict[str, tuple[pa.Table, FileStatistics | None]] = {
            _ALL: (self.snapshot.files, self.snapshot.statistics)
        }
        self._started_ns = self._found_ns = time.perf_counter_ns()

    def __enter__(self) -> Self:
        dispatcher.keep(self._handle, self)
        return self

    def __exit__(self, *exception: object) -> None:
        dispatcher.release(self._handle)

    def rows(self, files: pa.Table | None = None, like: DataFrame | None = None) -> DataFrame:
        """A frame over files of the snapshot, all of them without `files`; with the attributes of the frame
        `like`, another one of these files, if it is given.

        Filters skip files by their statistics. It has Spark's column `_metadata`.
        """
        key, chosen = _ALL, self.snapshot.files
        if files is not None:
            key, chosen = str(len(self._sets)), files.select(self.snapshot.files.column_names)
            self._sets[key] = (chosen, FileStatistics(chosen["stats"], self.schema))
        refuse_deletion_vectors(chosen, self.snapshot.path, self.snapshot.version)
        size = self.snapshot.size_in_bytes if files is None else pc.sum(chosen["size"]).as_py() or 0
        described = self._relation(key, size)
        return scanned(self.spark, described) if like is None else scanned_like(like, described)

    def _relation(self, key: str, size: int) -> Relation:
        snapshot = self.snapshot
        scan = {
            "reads": "touched files",
            "path": snapshot.path,
            "version": snapshot.version,
            "handle": self._handle,
            "files": key,
        }
        columns = list(snapshot.partition_columns)
        return relation(scan, snapshot.path, self.schema, columns, size, READ_ALL)

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
        """The condition of a filter, as a commit names it; DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED for
        one whose rows would be others each time that it is asked."""
        condition = expressions(matching)[0]
        if not condition.deterministic:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
                operation=self.name,
                expression=f"(condition = {condition.sql}).",
                table=self.snapshot.path,
            )
        return condition_of(matching)

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
            scan = self._relation(_ALL, self.snapshot.size_in_bytes).scan
            files = files.filter(in_partitions(scan, found.partitions))
        self.transaction.read_files(files)
        self._found_ns = time.perf_counter_ns()
        return files

    def touched_files(self, matching: DataFrame) -> pa.Table:
        """The files that hold rows of a filter over `rows()`, with the number of those rows (MATCHING_ROWS).

        One job, which reads the columns of the condition, in the files that partitions and statistics leave.
        """
        path = matching.metadataColumn("_metadata").getField("file_path")
        counted = with_one_reducer(matching.groupBy(path.alias("path")).count()).collect()
        return self.files_at({row["path"]: row["count"] for row in counted})

    def files_at(self, matching_rows: Mapping[str, int]) -> pa.Table:
        """The files at these paths, which are those of `_metadata.file_path`, with their numbers of rows
        (MATCHING_ROWS); recorded as read."""
        files, path = self.snapshot.files, self.snapshot.path
        wanted = pa.table(
            {
                "path": pa.array([local_path(found) for found in matching_rows], pa.string()),
                MATCHING_ROWS.name: pa.array(matching_rows.values(), pa.int64()),
            }
        )
        positions = pc.index_in(local_paths(path, files), value_set=wanted["path"])
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
        return touched.append_column(MATCHING_ROWS, wanted[MATCHING_ROWS.name].take(positions.drop_null()))

    def times_ms(self) -> dict[str, int]:
        """The metrics of time, up to now: what was spent before and since the touched files were found."""
        now = time.perf_counter_ns()
        spent = {
            "executionTimeMs": now - self._started_ns,
            "scanTimeMs": self._found_ns - self._started_ns,
            "rewriteTimeMs": now - self._found_ns,
        }
        return {name: ns // 1_000_000 for name, ns in spent.items()}


def local_paths(table: str, files: pa.Table) -> pa.ChunkedArray:
    """The complete local paths of rows of a snapshot's `files`."""
    return pc.replace_substring_regex(complete_paths(table, files["path"]), "^file:(//)?", "")


@finds_files("touched files")
def _files(description: dict[str, Any]) -> ScannedFiles:
    found: TouchedFiles | None = dispatcher.find(description["handle"])
    if found is None:
        raise DeltaIllegalStateException("The operation whose rows these are has ended.")
    return found.files_of_set(description["files"])
