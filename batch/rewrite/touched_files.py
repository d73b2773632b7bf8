"""Finds the files of one version of a table that hold rows for which a condition is true.

DELETE, UPDATE, MERGE and replaceWhere find their files here; compaction and ADD CONSTRAINT read their rows
here. The frames read every row of their files, even in a session that ignores corrupt or missing files.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from deltaflow.batch.files.partition_conditions import implied_condition
from deltaflow.batch.rewrite.marked_rows import RowsOfFiles, bucket_of, bucket_with, positions
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalStateException
from deltaflow.log import OptimisticTransaction, Snapshot
from deltaflow.log.files.deletion_vectors import DeletionVector
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.row_tracking import row_id_columns
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.expressions.analysis import FilterFacts, analysed, filter_facts
from deltaflow.spark.expressions.call_sites import without_call_sites
from deltaflow.spark.expressions.expressions import simple_string
from deltaflow.spark.expressions.frames import new_handle, scanned, scanned_like, with_one_reducer
from deltaflow.spark.scan.file_index import (
    FILE,
    POSITION,
    READ_ALL,
    ScannedFiles,
    finds_files,
    in_partitions,
    relation,
    row_ids_of,
)
from deltaflow.spark.scan.messages import Relation

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ALL = "all"

_BUCKET, _BITMAP, _ROWS = "bucket", "bitmap", "rows"

MATCHING_ROWS = pa.field("matching_rows", pa.int64())
"""The column that `record_touched_files` adds to the snapshot's `files`: how many rows of a file match."""


class TouchedFiles:
    """The files of the version that a transaction reads. Its frames can be read inside of the `with` alone.

    The methods named `record_…` record in the transaction what they find as read.
    """

    def __init__(
        self,
        spark: SparkSession,
        transaction: OptimisticTransaction,
        operation: str,
        schema: StructType | None = None,
    ) -> None:
        """`operation` is the name that errors and Spark's UI show. `schema` is the schema of the frames,
        which may have columns that no file has yet; by default it is the version's own."""
        assert transaction.snapshot is not None
        self.spark = spark
        self.transaction = transaction
        self.name = operation
        self.snapshot: Snapshot = transaction.snapshot
        self.schema = self.snapshot.schema if schema is None else schema
        snapshot = self.snapshot
        self._row_ids = row_id_columns(snapshot.protocol, snapshot.metadata, snapshot.path)
        self._handle = new_handle(spark)
        self._quiet = without_call_sites()
        self._scanned = {_ALL: self._files(self.snapshot.files, self.snapshot.statistics)}
        self._started_ns = self._found_ns = time.perf_counter_ns()

    def __enter__(self) -> Self:
        dispatcher.keep(self._handle, self)
        self._quiet.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._quiet.__exit__(None, None, None)
        dispatcher.release(self._handle)

    def rows(
        self,
        files: pa.Table | RowsOfFiles | None = None,
        like: DataFrame | None = None,
        *,
        places: bool = False,
    ) -> DataFrame:
        """A frame over `files` of the snapshot, by default all of them. It has Spark's column `_metadata`,
        and a filter on it skips files by their statistics.

        If `like` is given, another frame of this object, or filters and projections over it, the new frame
        has the same attributes. `places`: with the places of the rows, in columns FILE (the row of the
        snapshot's `files`) and POSITION.
        """
        key, chosen = _ALL, self.snapshot.files
        without: Sequence[DeletionVector] | None = None
        statistics = self.snapshot.statistics
        if isinstance(files, RowsOfFiles):
            chosen, without = files
        elif files is not None:
            chosen = files
        if files is not None:
            chosen = chosen.select(self.snapshot.files.column_names)
            statistics = self.snapshot.statistics_of(chosen)
        if files is not None or places:
            key = str(len(self._scanned))
            numbers = self._numbers(chosen) if places else None
            self._scanned[key] = self._files(chosen, statistics, without, numbers)
        described = self._relation(key, chosen, None if without is None else len(without), places=places)
        return scanned(self.spark, described) if like is None else scanned_like(like, described)

    @property
    def row_id_names(self) -> tuple[str, ...]:
        """The names of the columns in which rows keep their ids; empty without row tracking."""
        return self._row_ids or ()

    def with_row_ids(self, rows: DataFrame, metadata: Column | None = None) -> DataFrame:
        """A frame that `rows` has made, with the columns in which the rows keep their ids in new files; the
        frame itself if the table has no row tracking. `metadata`: its column `_metadata`, if it has one."""
        if self._row_ids is None:
            return rows
        metadata = rows.metadataColumn("_metadata") if metadata is None else metadata
        return rows.withColumns(
            {
                self._row_ids.row_id: metadata.getField("row_id"),
                self._row_ids.row_commit_version: metadata.getField("row_commit_version"),
            }
        )

    def row_ids(self, changed: Column) -> list[Column]:
        """These columns of rows that are written again. A row that is `changed` keeps its id, and gets the
        version of this commit."""
        if self._row_ids is None:
            return []
        version = self._row_ids.row_commit_version
        kept = F.when(changed, F.lit(None)).otherwise(F.col(quoted(version)))
        return [F.col(quoted(self._row_ids.row_id)), kept.alias(version)]

    def new_row_ids(self) -> list[Column]:
        """These columns of new rows, which get an id by their place in the file."""
        return [F.lit(None).cast("bigint").alias(name) for name in self._row_ids or ()]

    def _files(
        self,
        files: pa.Table,
        statistics: FileStatistics | None,
        vectors: Sequence[DeletionVector] | None = None,
        numbers: pa.Array | None = None,
    ) -> ScannedFiles:
        snapshot = self.snapshot
        columns = snapshot.physical_partition_columns
        return ScannedFiles(snapshot.path, columns, files, statistics, vectors, numbers, snapshot.with_stats)

    def _numbers(self, files: pa.Table) -> pa.Array:
        """Of each file the row of the snapshot's `files`."""
        found = pc.index_in(files["path"], self.snapshot.files["path"])
        return found.combine_chunks()

    def _relation(
        self, key: str, files: pa.Table, vectors: int | None = None, *, places: bool = False
    ) -> Relation:
        snapshot = self.snapshot
        scan = {
            "reads": "touched files",
            "path": snapshot.path,
            "version": snapshot.version,
            "handle": self._handle,
            "files": key,
        }
        columns, mode = snapshot.partition_columns, snapshot.mapping_mode
        size = snapshot.size_in_bytes if key == _ALL else pc.sum(files["size"]).as_py() or 0
        if vectors is None:
            vectors = files.num_rows - files["deletion_vector"].null_count
        return relation(
            scan,
            snapshot.path,
            self.schema,
            columns,
            size,
            mode,
            READ_ALL,
            vectors=vectors,
            row_ids=row_ids_of(snapshot),
            places=places,
        )

    def scanned_files(self, key: str) -> ScannedFiles:
        """The files of one of the frames that `rows` has made."""
        return self._scanned[key]

    def deterministic_condition(self, rows: DataFrame, condition: Column) -> tuple[str, Column]:
        """A condition on rows, as a commit names it, and for frames like `rows`: with one time for now, but
        one that reads `_metadata`, of which each frame has its own.

        DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED for one that may be true of other rows each time it is
        evaluated.
        """
        [found] = analysed(rows, [condition])
        if found.nondeterministic is not None:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED",
                operation=self.name,
                expression=f"(condition = {found.sql}).",
                table=self.snapshot.path,
            )
        return simple_string(found.column), condition if "_metadata" in found.sql else found.column

    def filter_facts(self, matching: DataFrame) -> FilterFacts:
        """What a filter over `rows()` says of the table's files. No job."""
        return filter_facts(matching, self.snapshot.partition_columns)

    def record_read(self, found: FilterFacts) -> None:
        """Records as read all rows, future ones included, of the partitions for which a filter may be true:
        of the whole table where it says nothing that the log could compare."""
        columns = {name: self.snapshot.schema[name] for name in self.snapshot.partition_columns}
        condition = implied_condition(found.partition_predicate, columns)
        if condition is None:
            self.transaction.record_read_of_whole_table()
        else:
            self.transaction.record_read_of_partitions(condition)

    def record_files_of_partitions(self, found: FilterFacts) -> pa.Table:
        """The files of the partitions that a filter keeps."""
        files = self.snapshot.files
        if found.partitions is not None:
            scan = self._relation(_ALL, files).scan
            files = files.filter(in_partitions(scan, found.partitions))
        self.transaction.record_read_of_files(files)
        self._found_ns = time.perf_counter_ns()
        return files

    def record_touched_files(self, matching: DataFrame) -> pa.Table:
        """The files that hold rows of a filter over `rows()`, with the number of those rows (MATCHING_ROWS).

        `matching` may be a frame with FILE and POSITION instead. Runs one job. It reads the columns of the
        condition, in the files that partitions and statistics keep.
        """
        counted = with_one_reducer(self._placed(matching).groupBy(FILE).count()).collect()
        return self.record_files_at({row[FILE]: row["count"] for row in counted})

    def _placed(self, matching: DataFrame) -> DataFrame:
        return matching if FILE in matching.columns else self.rows(like=matching, places=True)

    def record_marked_rows(self, matching: DataFrame) -> tuple[pa.Table, list[BitMap64]]:
        """As `record_touched_files`, with the positions of the rows in each file, too. Runs one job."""
        position = F.col(POSITION)
        buckets = self._placed(matching).groupBy(FILE, bucket_of(position).alias(_BUCKET))
        found = buckets.agg(bucket_with(position).alias(_BITMAP), F.count(F.lit(1)).alias(_ROWS))
        rows = with_one_reducer(found).collect()
        counts: defaultdict[int, int] = defaultdict(int)
        bitmaps: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for row in rows:
            counts[row[FILE]] += row[_ROWS]
            bitmaps[row[FILE]].append((row[_BUCKET], row[_BITMAP]))
        touched = self.record_files_at(counts)
        marks = [positions(bitmaps[file]) for file in sorted(bitmaps)]
        found_rows = touched[MATCHING_ROWS.name].to_pylist()
        for path, number, marked in zip(touched["path"].to_pylist(), found_rows, marks, strict=True):
            if len(marked) != number:
                raise DeltaIllegalStateException(
                    f"Spark found {number} rows for {self.name} in {path}, at {len(marked)} positions. "
                    "Nothing was committed.",
                    table=self.snapshot.path,
                    version=self.snapshot.version,
                    file=path,
                )
        return touched, marks

    def record_files_at(self, matching_rows: Mapping[int, int]) -> pa.Table:
        """The files of these numbers (FILE) in their order, with their numbers of rows (MATCHING_ROWS)."""
        numbers = sorted(matching_rows)
        touched = self.snapshot.files.take(pa.array(numbers, pa.int64()))
        self.transaction.record_read_of_files(touched)
        self._found_ns = time.perf_counter_ns()
        rows = pa.array([matching_rows[number] for number in numbers], pa.int64())
        return touched.append_column(MATCHING_ROWS, rows)

    def times_ms(self) -> dict[str, int]:
        """The metrics of time until now, divided at the moment when the touched files were found."""
        now = time.perf_counter_ns()
        spent = {
            "executionTimeMs": now - self._started_ns,
            "scanTimeMs": self._found_ns - self._started_ns,
            "rewriteTimeMs": now - self._found_ns,
        }
        return {name: ns // 1_000_000 for name, ns in spent.items()}


@finds_files("touched files")
def _files_of_operation(description: dict[str, Any]) -> ScannedFiles:
    found: TouchedFiles | None = dispatcher.find(description["handle"])
    if found is None:
        raise DeltaIllegalStateException(
            "The operation that made this DataFrame has ended, and its files can no longer be read."
        )
    return found.scanned_files(description["files"])
