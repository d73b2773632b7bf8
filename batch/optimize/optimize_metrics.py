"""The metrics of OPTIMIZE, in its commit and for its caller (delta-spark's OptimizeMetrics)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType, StructField, StructType

from deltaflow.batch.optimize.bin_rewrite import BinRewrite, Describe
from deltaflow.log import AddFile, Operation, RemoveFile, Snapshot
from deltaflow.log.protocol.properties import DATA_SKIPPING_NUM_INDEXED_COLS


def _numbers(*names: str) -> list[StructField]:
    return [StructField(name, LongType(), nullable=False) for name in names]


def _structs(data_type: DataType, *names: str) -> list[StructField]:
    return [StructField(name, data_type) for name in names]


_SIZES = StructType(
    [
        *_structs(LongType(), "min", "max"),
        StructField("avg", DoubleType(), nullable=False),
        *_numbers("totalFiles", "totalSize"),
    ]
)
_CUBE_FILES = StructType(_numbers("num", "size"))
_Z_ORDER = StructType(
    [
        StructField("strategyName", StringType()),
        *_structs(_CUBE_FILES, "inputCubeFiles", "inputOtherFiles"),
        *_numbers("inputNumCubes"),
        *_structs(_CUBE_FILES, "mergedFiles"),
        *_numbers("numOutputCubes"),
        *_structs(LongType(), "mergedNumCubes"),
    ]
)
_CLUSTERED_FILES = StructType(_numbers("numFiles", "size"))
_CLUSTERING = StructType(
    [
        *_structs(_CLUSTERED_FILES, "inputZCubeFiles", "inputOtherFiles"),
        *_numbers("inputNumZCubes"),
        *_structs(_CLUSTERED_FILES, "mergedFiles"),
        *_numbers("numOutputZCubes"),
    ]
)
_PARALLELISM = StructType(
    _structs(
        LongType(),
        "maxClusterActiveParallelism",
        "minClusterActiveParallelism",
        "maxSessionActiveParallelism",
        "minSessionActiveParallelism",
    )
)
_DELETION_VECTORS = StructType(_numbers("numDeletionVectorsRemoved", "numDeletionVectorRowsRemoved"))
_METRICS = StructType(
    [
        *_numbers("numFilesAdded", "numFilesRemoved"),
        *_structs(_SIZES, "filesAdded", "filesRemoved"),
        *_numbers("partitionsOptimized"),
        *_structs(_Z_ORDER, "zOrderStats"),
        *_structs(_CLUSTERING, "clusteringStats"),
        *_numbers("numBins", "numBatches", "totalConsideredFiles", "totalFilesSkipped"),
        StructField("preserveInsertionOrder", BooleanType(), nullable=False),
        *_numbers(
            "numFilesSkippedToReduceWriteAmplification",
            "numBytesSkippedToReduceWriteAmplification",
            "startTimeMs",
            "endTimeMs",
            "totalClusterParallelism",
            "totalScheduledTasks",
        ),
        *_structs(_PARALLELISM, "autoCompactParallelismStats"),
        *_structs(_DELETION_VECTORS, "deletionVectorStats"),
        *_numbers("numTableColumns", "numTableColumnsWithStats"),
    ]
)
OPTIMIZED = StructType([StructField("path", StringType()), StructField("metrics", _METRICS)])
"""The output of OPTIMIZE."""


def describe(
    predicates: Sequence[str],
    z_order_by: Sequence[str] = (),
    cluster_by: Sequence[str] | None = None,
    *,
    auto: bool,
    full: bool = False,
) -> Describe:
    """Makes the operation of the commit. `predicates` are conditions on partitions, as Spark shows them.

    `cluster_by`: the clustering columns, None for a table without them. `full`: OPTIMIZE FULL.
    """
    parameters: dict[str, str | bool] = {
        "predicate": msgspec.json.encode(predicates).decode(),
        "zOrderBy": msgspec.json.encode(z_order_by).decode(),
        "clusterBy": msgspec.json.encode(cluster_by or []).decode(),
        "auto": auto,
        **({} if cluster_by is None else {"isFull": full}),
    }

    return _operation("OPTIMIZE", parameters)


def describe_purge(predicates: Sequence[str]) -> Describe:
    """Makes the operation of the commit of REORG TABLE … APPLY (PURGE)."""
    return _operation("REORG", {"predicate": msgspec.json.encode(predicates).decode(), "applyPurge": True})


def _operation(name: str, parameters: Mapping[str, str | bool]) -> Describe:
    def of(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> Operation:
        return Operation(name, parameters, _metrics_of_commit(adds, removes))

    return of


def _metrics_of_commit(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, str]:
    sizes = sorted(add.size for add in adds) or [0]
    metrics = {
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(remove.size or 0 for remove in removes),
        "p25FileSize": sizes[len(sizes) // 4],
        "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in removes),
        "minFileSize": sizes[0],
        "numAddedFiles": len(adds),
        "maxFileSize": sizes[-1],
        "p75FileSize": sizes[len(sizes) * 3 // 4],
        "p50FileSize": sizes[len(sizes) // 2],
        "numAddedBytes": sum(add.size for add in adds),
    }
    return {name: str(number) for name, number in metrics.items()}


def metrics_of_command(
    snapshot: Snapshot,
    considered: int,
    rewrite: BinRewrite | None,
    *,
    z_order: bool,
    start_ms: int,
    parallelism: int,
) -> dict[str, Any]:
    """The struct `metrics` of OPTIMIZED. `rewrite` is None if there was nothing to do."""
    adds = [] if rewrite is None else [add.size for add in rewrite.adds]
    removes = [] if rewrite is None else rewrite.files["size"].to_pylist()
    bins = [] if rewrite is None else rewrite.bins
    partitions = len({str(files["partition_values"][0]) for files in bins})
    columns = len(snapshot.schema)
    indexed = DATA_SKIPPING_NUM_INDEXED_COLS.of(snapshot.metadata.configuration, snapshot.path)
    return {
        "numFilesAdded": len(adds),
        "numFilesRemoved": len(removes),
        "filesAdded": _sizes(adds),
        "filesRemoved": _sizes(removes),
        "partitionsOptimized": partitions,
        "zOrderStats": _z_order_stats(removes, partitions) if z_order else None,
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
        "deletionVectorStats": None if rewrite is None else _deletion_vector_stats(rewrite.files),
        "numTableColumns": columns,
        "numTableColumnsWithStats": columns if indexed < 0 else min(columns, indexed),
    }


def _z_order_stats(sizes: Sequence[int], partitions: int) -> Mapping[str, Any]:
    """The metrics of a Z-order: all files of a partition are read, and none counts as ordered already."""
    files = {"num": len(sizes), "size": sum(sizes)}
    return {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": files,
        "inputNumCubes": 0,
        "mergedFiles": files,
        "numOutputCubes": partitions,
        "mergedNumCubes": None,
    }


def _deletion_vector_stats(files: pa.Table) -> Mapping[str, int] | None:
    rows = pc.struct_field(files["deletion_vector"].drop_null(), "cardinality")
    if not len(rows):
        return None
    return {"numDeletionVectorsRemoved": len(rows), "numDeletionVectorRowsRemoved": pc.sum(rows).as_py()}


def _sizes(sizes: Sequence[int]) -> Mapping[str, Any]:
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": sum(sizes) / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": sum(sizes),
    }
