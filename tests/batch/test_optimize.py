"""OPTIMIZE: which files it rewrites, what it reports, and with what it conflicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentDeleteReadException,
    DeltaAnalysisException,
    DeltaTableNotFoundError,
)
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.observer import set_observer
from deltaflow.spark.dispatcher import dispatcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_left_open(spark: SparkSession) -> Iterator[None]:
    before = dispatcher.open_handles
    yield
    set_observer(None)
    spark.conf.unset("spark.databricks.delta.optimize.minFileSize")
    spark.conf.unset("spark.databricks.delta.optimize.maxFileSize")
    assert dispatcher.open_handles == before


def compact(spark: SparkSession, path: str, where: str | None = None) -> dict[str, Any]:
    """Runs OPTIMIZE; returns its metrics."""
    builder = DeltaTable.forPath(spark, path).optimize()
    [row] = (builder if where is None else builder.where(where)).executeCompaction().collect()
    assert row.path == f"file:{path}"
    metrics: dict[str, Any] = row.metrics.asDict(recursive=True)
    return metrics


def files_of_partitions(spark: SparkSession, path: str, commits: int) -> None:
    """In each commit a file of each partition d, of two days."""
    for i in range(commits):
        rows = spark.sql(f"select {i} i, date'2024-01-01' + cast(id as int) d from range(2)")
        rows.coalesce(1).write.format("delta").mode("append").partitionBy("d").save(path)


def test_metrics_and_commit(spark: SparkSession, table: str, actions: Any) -> None:
    files_of_partitions(spark, table, 3)
    metrics = compact(spark, table)
    adds, removes = actions(table, "add"), actions(table, "remove")
    sizes = [add["size"] for add in adds]
    assert len(adds) == 2
    assert len(removes) == 6
    assert metrics["startTimeMs"] <= metrics["endTimeMs"]
    assert {name: value for name, value in metrics.items() if not name.endswith("TimeMs")} == {
        "numFilesAdded": 2,
        "numFilesRemoved": 6,
        "filesAdded": {
            "min": min(sizes),
            "max": max(sizes),
            "avg": sum(sizes) / 2,
            "totalFiles": 2,
            "totalSize": sum(sizes),
        },
        "filesRemoved": {
            "min": min(remove["size"] for remove in removes),
            "max": max(remove["size"] for remove in removes),
            "avg": sum(remove["size"] for remove in removes) / 6,
            "totalFiles": 6,
            "totalSize": sum(remove["size"] for remove in removes),
        },
        "partitionsOptimized": 2,
        "zOrderStats": None,
        "clusteringStats": None,
        "numBins": 2,
        "numBatches": 1,
        "totalConsideredFiles": 6,
        "totalFilesSkipped": 0,
        "preserveInsertionOrder": False,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "totalClusterParallelism": 2,
        "totalScheduledTasks": 2,
        "autoCompactParallelismStats": None,
        "deletionVectorStats": None,
        "numTableColumns": 2,
        "numTableColumnsWithStats": 2,
    }
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "OPTIMIZE"
    assert json.dumps(info["operationParameters"]) == (
        '{"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": false}'
    )
    assert info["isolationLevel"] == "SnapshotIsolation"
    # There is nothing left to do, so nothing is committed.
    again = compact(spark, table)
    assert again["numFilesAdded"] == again["numFilesRemoved"] == again["numBins"] == 0
    assert again["totalFilesSkipped"] == again["totalConsideredFiles"] == 2
    assert again["filesAdded"] == {"min": None, "max": None, "avg": 0.0, "totalFiles": 0, "totalSize": 0}
    assert DeltaLog.for_table(table).latest_version() == 3


@pytest.mark.parametrize(
    "where", ["d > '2024-01-01'", "D = date'2024-01-02' and d is not null", "day(d) = 2"]
)
def test_where(spark: SparkSession, table: str, actions: Any, where: str) -> None:
    files_of_partitions(spark, table, 2)
    metrics = compact(spark, table, where)
    assert metrics["totalConsideredFiles"] == 2
    [add] = actions(table, "add")
    assert add["partitionValues"] == {"d": "2024-01-02"}
    [info] = actions(table, "commitInfo")
    assert json.loads(info["operationParameters"]["predicate"]) == [where]


@pytest.mark.parametrize("where", ["i = 1", "d > '2024-01-01' or j = 2"])
def test_where_names_partition_columns_only(spark: SparkSession, table: str, where: str) -> None:
    files_of_partitions(spark, table, 1)
    with pytest.raises(DeltaAnalysisException) as raised:
        compact(spark, table, where)
    assert raised.value.getCondition() == "DELTA_NON_PARTITION_COLUMN_REFERENCE"
    assert raised.value.getSqlState() == "42P10"


def test_a_path_without_a_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundError):
        compact(spark, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_sizes(spark: SparkSession, table: str, actions: Any) -> None:
    """Files are small below one size, and become no larger than another."""
    for i in range(6):
        spark.range(i, i + 1).coalesce(1).write.format("delta").mode("append").save(table)
    spark.range(20_000).coalesce(1).write.format("delta").mode("append").save(table)
    small = actions(table, "add", 0)[0]["size"]
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(small * 2))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(small * 3))
    metrics = compact(spark, table)
    assert (metrics["numBins"], metrics["numFilesRemoved"], metrics["numFilesAdded"]) == (2, 6, 2)
    assert metrics["totalFilesSkipped"] == 1


def test_conflicts(spark: SparkSession, table: str) -> None:
    """An append meanwhile is none; that one of its files goes is one, and the new files are removed."""
    files_of_partitions(spark, table, 2)
    set_observer(once("rewrite files written", lambda: files_of_partitions(spark, table, 1)))
    compact(spark, table)
    assert spark.read.format("delta").load(table).count() == 6

    def remove_one() -> None:
        transaction = DeltaLog.for_table(table).start_transaction()
        assert transaction.snapshot is not None
        first = transaction.snapshot.files.slice(0, 1)
        transaction.commit(remove_files(first, 0), Operation("DELETE"))

    set_observer(once("rewrite files written", remove_one))
    before = set(Path(table).rglob("*.parquet"))
    with pytest.raises(ConcurrentDeleteReadException):
        compact(spark, table)
    assert set(Path(table).rglob("*.parquet")) == before


def once(point: str, act: Any) -> Any:
    left = [1]

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == point and left:
            left.clear()
            act()

    return observer
