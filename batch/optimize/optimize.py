"""OPTIMIZE: makes larger files of small ones, or orders the rows of all files (OptimizeTableCommand)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltaflow.batch.files.partition_predicates import files_where
from deltaflow.batch.optimize.bin_rewrite import BinRewrite, LayOut, one_file_each
from deltaflow.batch.optimize.clustering import (
    clustering_stats,
    cubes_of,
    files_to_cluster,
    names_of_columns,
    tagged,
)
from deltaflow.batch.optimize.compaction import (
    bins_of_table,
    check_all_are_in,
    files_to_compact,
    whole_partitions,
)
from deltaflow.batch.optimize.optimize_metrics import describe, describe_purge, metrics_of_command
from deltaflow.batch.optimize.purge import ChooseFiles
from deltaflow.batch.optimize.z_order import BinOfRows, ZColumn, columns_at, z_columns, z_ordered
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.interface.optimize_builder import DeltaOptimizeBuilder
from deltaflow.log import DeltaLog, Snapshot
from deltaflow.log.protocol.clustering import is_clustered
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.properties import (
    OPTIMIZE_MAX_DELETED_ROWS_RATIO,
    OPTIMIZE_MAX_FILE_SIZE,
    OPTIMIZE_MIN_FILE_SIZE,
    SESSION_TIME_ZONE,
    TARGET_FILE_SIZE_BYTES,
)
from deltaflow.spark.expressions.expressions import simple_string_of_text
from deltaflow.spark.sql.statements import NamedTable, run_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def optimize(
    spark: SparkSession,
    path: str,
    settings: Mapping[str, str],
    where: Sequence[str] = (),
    z_order_by: Sequence[str] = (),
    *,
    purge: ChooseFiles | None = None,
    full: bool = False,
) -> dict[str, Any]:
    """Rewrites files in the partitions for which all of `where` (SQL) is true, by one commit.

    Without `z_order_by` small files, and those of which many rows are deleted, become larger ones, and a
    second run finds nothing to do. With columns every run rewrites all files of the partitions, so that rows
    which are close in these columns are in one file. With `purge` (REORG TABLE … APPLY (PURGE)) it rewrites
    the files that this chooses, and no other. Of a clustered table those of `files_to_cluster` are clustered;
    `full` is OPTIMIZE FULL. The commit conflicts only with changes of the same files.

    Returns the metrics of optimize_metrics.OPTIMIZED. `settings` are the session's spark.databricks.delta.*.
    Raises DELTA_NON_PARTITION_COLUMN_REFERENCE if `where` names other columns, the errors of `z_columns`,
    DELTA_CLUSTERING_WITH_… for what a clustered table cannot have, and DELTA_OPTIMIZE_FULL_NOT_SUPPORTED for
    a table without clustering columns.
    """
    start_ms = time.time_ns() // 1_000_000
    log = DeltaLog.for_table(path)
    log.snapshot()  # raises an error if there is no table
    transaction = log.start_transaction(settings)
    snapshot = transaction.snapshot
    assert snapshot is not None
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.path, snapshot.version)
    clustering = snapshot.clustering_columns
    if is_clustered(snapshot.protocol):
        _check_clustered(snapshot, where, z_order_by)
    if full and not clustering:
        raise DeltaUnsupportedOperationException(error_class="DELTA_OPTIMIZE_FULL_NOT_SUPPORTED", table=path)
    columns = z_columns(snapshot, z_order_by, settings)
    time_zone = SESSION_TIME_ZONE.of(settings, path)
    files = files_where(spark, snapshot, where, time_zone) if where else snapshot.files
    target_size = _target_size(snapshot, settings)
    partition_columns = tuple(snapshot.physical_partition_columns.values())
    found = files if purge is None else purge(snapshot, files)
    if clustering:
        columns = columns_at(snapshot, clustering)
        found = files_to_cluster(found, clustering, settings, full=full) if purge is None else found
        bins = cubes_of(found, settings)
    elif purge is not None:
        bins = bins_of_table(found, partition_columns, max_size=target_size, at_least=1)
        check_all_are_in(bins, found, path)
    elif columns:
        bins = whole_partitions(files, partition_columns)
    else:
        found = _files_to_compact(snapshot, files, settings)
        bins = bins_of_table(found, partition_columns, max_size=target_size)
    rewrite = None
    if bins:
        lay_out = _z_order_layout(snapshot, bins, columns, target_size) if columns else one_file_each
        predicates = [simple_string_of_text(spark, condition) for condition in where]
        if purge is not None:
            operation = describe_purge(predicates)
        else:
            cluster_by = names_of_columns(clustering) if clustering else None
            operation = describe(predicates, z_order_by, cluster_by, auto=False, full=full)
        tag = tagged(clustering) if clustering else None
        rewrite = BinRewrite(transaction, bins, operation, {}, lay_out, tagged=tag)
        rewrite.run(spark)
    metrics = metrics_of_command(
        snapshot,
        files.num_rows,
        rewrite,
        z_order=bool(columns) and not clustering,
        start_ms=start_ms,
        parallelism=spark.sparkContext.defaultParallelism,
    )
    if clustering:
        merged = files.slice(0, 0) if rewrite is None else rewrite.files
        metrics["clusteringStats"] = clustering_stats(files, clustering, merged, len(bins))
    return metrics


def _check_clustered(snapshot: Snapshot, where: Sequence[str], z_order_by: Sequence[str]) -> None:
    """Raises for what OPTIMIZE of a clustered table cannot have."""
    if where:
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
            predicates=", ".join(where),
            table=snapshot.path,
        )
    if z_order_by:
        raise DeltaAnalysisException(
            error_class="DELTA_CLUSTERING_WITH_ZORDER_BY",
            columns=", ".join(z_order_by),
            table=snapshot.path,
        )


def _target_size(snapshot: Snapshot, settings: Mapping[str, str]) -> int:
    of_table = TARGET_FILE_SIZE_BYTES.of(snapshot.metadata.configuration, snapshot.path)
    return OPTIMIZE_MAX_FILE_SIZE.of(settings, snapshot.path) if of_table is None else of_table


def _files_to_compact(snapshot: Snapshot, files: pa.Table, settings: Mapping[str, str]) -> pa.Table:
    smaller_than = OPTIMIZE_MIN_FILE_SIZE.of(settings, snapshot.path)
    ratio = OPTIMIZE_MAX_DELETED_ROWS_RATIO.of(settings, snapshot.path)
    return files_to_compact(
        files, snapshot.statistics_of(files), smaller_than=smaller_than, max_deleted_ratio=ratio
    )


def _z_order_layout(
    snapshot: Snapshot, bins: Sequence[pa.Table], columns: Sequence[ZColumn], target_size: int
) -> LayOut:
    def lay_out(first: int, rows: Sequence[DataFrame]) -> Sequence[DataFrame]:
        sized = [
            BinOfRows(frame, snapshot.number_of_rows(files), _num_files(files, target_size))
            for frame, files in zip(rows, bins[first : first + len(rows)], strict=True)
        ]
        return z_ordered(sized, columns, snapshot.path)

    return lay_out


def _num_files(files: pa.Table, target_size: int) -> int:
    return max(1, sum(files["size"].to_pylist()) // max(1, target_size))


class OptimizeBuilder(DeltaOptimizeBuilder):
    """Optimizes as the statement does."""

    def __init__(self, spark: SparkSession, table: NamedTable) -> None:
        super().__init__()
        self._spark = spark
        self._table = table

    def _execute(self, z_order_by: list[str]) -> DataFrame:
        fields = {"where": self._where, "zOrderBy": z_order_by, "full": False}
        return run_statement(self._spark, "Optimize", self._table, fields)
