"""OPTIMIZE: small files of a table become larger ones (delta-spark's OptimizeTableCommand).

`execute_compaction` is the command; what its commits say of themselves, those of autoCompact say, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructField

from deltaflow.batch.compaction import bins_of_table
from deltaflow.batch.rewrite import Describe, Rewrite
from deltaflow.batch.row_plan import quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import AddFile, DeltaLog, Operation, RemoveFile, Snapshot
from deltaflow.log.features import check_writable
from deltaflow.log.properties import (
    DATA_SKIPPING_NUM_INDEXED_COLS,
    OPTIMIZE_MAX_FILE_SIZE,
    OPTIMIZE_MIN_FILE_SIZE,
)
from deltaflow.spark.rewrite import run_rewrite
from deltaflow.spark.scan import partitions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = "spark.databricks.delta."


def execute_compaction(spark: SparkSession, path: str, where: str | None = None) -> dict[str, Any]:
    """Rewrites the small files of a table, in the partitions for which `where` (SQL) is true; one commit.

    Returns delta-spark's metrics of OPTIMIZE, nested as there. Conflicts with nothing but changes to the same
    files. DELTA_NON_PARTITION_COLUMN_REFERENCE if `where` names other columns.
    """
    start_ms = time.time_ns() // 1_000_000
    session = {name: value for name, value in spark.conf.getAll.items() if name.startswith(_SETTINGS)}
    log = DeltaLog.for_table(path)
    log.snapshot()  # there has to be a table
    transaction = log.start_transaction(session)
    snapshot = transaction.snapshot
    assert snapshot is not None
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.path, snapshot.version)
    files = snapshot.files if where is None else _files_where(spark, snapshot, where)
    bins = bins_of_table(
        files,
        tuple(snapshot.partition_columns),
        smaller_than=OPTIMIZE_MIN_FILE_SIZE.of(session, log.path),
        max_size=OPTIMIZE_MAX_FILE_SIZE.of(session, log.path),
    )
    rewrite = None
    if bins:
        predicates = [] if where is None else [where]
        rewrite = Rewrite(transaction, bins, describe(predicates, auto=False), {})
        run_rewrite(spark, rewrite)
    parallelism = spark.sparkContext.defaultParallelism
    return _metrics_of_command(snapshot, files.num_rows, rewrite, start_ms, parallelism)


def _files_where(spark: SparkSession, snapshot: Snapshot, where: str) -> pa.Table:
    """The files of the partitions for which the condition is true: Spark evaluates it on their values."""
    columns = snapshot.partition_columns
    values, numbers = partitions_of(snapshot.files, tuple(columns))
    if not columns:
        values = pa.table({"partition": [None]})
    frame = spark.createDataFrame(values.append_column("\0", pa.array(range(values.num_rows), pa.int64())))
    casts = [
        f"try_cast(nullif({quoted(name)}, '') as {snapshot.schema[name].dataType.simpleString()}) "
        f"as {quoted(name)}"
        for name in columns
    ]
    try:
        chosen = frame.selectExpr(*casts, "`\0`").where(where).select("`\0`").toArrow()["\0"]
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN."):
            raise
        raise DeltaAnalysisException(
            f"The predicate {where} of OPTIMIZE references columns that are no partition columns, of which "
            f"there are [{', '.join(columns)}].",
            error_class="DELTA_NON_PARTITION_COLUMN_REFERENCE",
            table=snapshot.path,
        ) from error
    return snapshot.files.filter(pc.is_in(numbers.cast(pa.int64()), chosen.combine_chunks()))


def describe(predicates: Sequence[str], *, auto: bool) -> Describe:
    """How the commit of a compaction names itself; `predicates` are conditions, in SQL, on partitions."""
    parameters: dict[str, str | bool] = {
        "predicate": msgspec.json.encode(predicates).decode(),
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": auto,
    }

    def of(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> Operation:
        return Operation("OPTIMIZE", parameters, _metrics_of_commit(adds, removes))

    return of


def _metrics_of_commit(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, str]:
    sizes = sorted(add.size for add in adds) or [0]
    metrics = {
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "p25FileSize": sizes[len(sizes) // 4],
        "numDeletionVectorsRemoved": 0,
        "minFileSize": sizes[0],
        "numAddedFiles": len(adds),
        "maxFileSize": sizes[-1],
        "p75FileSize": sizes[len(sizes) * 3 // 4],
        "p50FileSize": sizes[len(sizes) // 2],
        "numAddedBytes": sum(add.size for add in adds),
    }
    return {name: str(number) for name, number in metrics.items()}


def _metrics_of_command(
    snapshot: Snapshot, considered: int, rewrite: Rewrite | None, start_ms: int, parallelism: int
) -> dict[str, Any]:
    """delta-spark's OptimizeMetrics."""
    adds = [] if rewrite is None else [add.size for add in rewrite.adds]
    removes = [] if rewrite is None else rewrite.files["size"].to_pylist()
    bins = [] if rewrite is None else rewrite.bins
    columns = len(snapshot.schema)
    indexed = DATA_SKIPPING_NUM_INDEXED_COLS.of(snapshot.metadata.configuration, snapshot.path)
    return {
        "numFilesAdded": len(adds),
        "numFilesRemoved": len(removes),
        "filesAdded": _sizes(adds),
        "filesRemoved": _sizes(removes),
        "partitionsOptimized": len({str(files["partition_values"][0]) for files in bins}),
        "zOrderStats": None,
        "clusteringStats": None,
        "numBins": len(bins),
        "numBatches": 1,
        "totalConsideredFiles": considered,
        "totalFilesSkipped": considered - len(removes),
        "preserveInsertionOrder": False,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "startTimeMs": start_ms,
        "endTimeMs": time.time_ns() // 1_000_000,
        "totalClusterParallelism": parallelism,
        "totalScheduledTasks": len(bins),
        "autoCompactParallelismStats": None,
        "deletionVectorStats": None,
        "numTableColumns": columns,
        "numTableColumnsWithStats": columns if indexed < 0 else min(columns, indexed),
    }


def _sizes(sizes: Sequence[int]) -> Mapping[str, Any]:
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": sum(sizes) / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": sum(sizes),
    }


def partition_predicates(snapshot: Snapshot, bins: Sequence[pa.Table]) -> list[str]:
    """One condition, in SQL, that the partitions of the bins satisfy; none without partitions."""
    columns = [snapshot.schema[name] for name in snapshot.partition_columns]
    if not columns:
        return []
    partitions = {tuple(files["partition_values"][0].as_py()): None for files in bins}
    return [_joined([_joined(_equal(columns, dict(values)), "AND") for values in partitions], "OR")]


def _equal(columns: Sequence[StructField], values: dict[str, str | None]) -> list[str]:
    return [
        f"({quoted(column.name)} <=> CAST({_literal(values[column.name])} AS "
        f"{column.dataType.simpleString().upper()}))"
        for column in columns
    ]


def _joined(conditions: Sequence[str], operator: str) -> str:
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = f"({joined} {operator} {condition})"
    return joined


def _literal(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
