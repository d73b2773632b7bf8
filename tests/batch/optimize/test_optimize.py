"""OPTIMIZE: which files it rewrites, what it reports, and with what it conflicts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import (
    ConcurrentDeleteReadException,
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaIllegalStateException,
    DeltaTableNotFoundError,
    DeltaUnsupportedOperationException,
    StoreError,
)
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.tables import actions, commit_file, data_files, load, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture(autouse=True)
def nothing_left_open(spark: SparkSession) -> Iterator[None]:
    before = dispatcher.open_handles
    yield
    set_observer(None)
    assert dispatcher.open_handles == before


def compact(spark: SparkSession, path: str, where: str | None = None) -> dict[str, Any]:
    """Runs OPTIMIZE; returns its metrics."""
    builder = DeltaTable.forPath(spark, path).optimize()
    [row] = (builder if where is None else builder.where(where)).executeCompaction().collect()
    assert row.path == f"file:{path}"
    metrics: dict[str, Any] = row.metrics.asDict(recursive=True)
    return metrics


def files_of_partitions(spark: SparkSession, path: str, commits: int) -> None:
    """Each commit adds a file to each of the two partitions d."""
    for i in range(commits):
        rows = spark.sql(f"select {i} i, date'2024-01-01' + cast(id as int) d from range(2)")
        rows.coalesce(1).write.format("delta").mode("append").partitionBy("d").save(path)


def test_metrics_and_commit(spark: SparkSession, table: str) -> None:
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
    ("where", "shown"),
    [
        ("d > '2024-01-01'", "('d > 2024-01-01)"),
        ("D = date'2024-01-02' and d is not null", "(('D = 2024-01-02) AND isnotnull('d))"),
        ("day(d) = 2", "('day('d) = 2)"),
    ],
)
@pytest.mark.parametrize("by_sql", [False, True])
@pytest.mark.sampled(3)
def test_where(spark: SparkSession, table: str, where: str, shown: str, *, by_sql: bool) -> None:
    files_of_partitions(spark, table, 2)
    if by_sql:
        metrics = spark.sql(f"OPTIMIZE delta.`{table}` WHERE {where}").head().metrics
    else:
        metrics = compact(spark, table, where)
    assert metrics["totalConsideredFiles"] == 2
    [add] = actions(table, "add")
    assert add["partitionValues"] == {"d": "2024-01-02"}
    [info] = actions(table, "commitInfo")
    assert json.loads(info["operationParameters"]["predicate"]) == [shown]


@pytest.mark.parametrize(
    ("where", "column"), [("i = 1", "i"), ("d > '2024-01-01' or J = 2", "J"), ("`a b`.c = 1", "a b.c")]
)
def test_where_names_partition_columns_only(spark: SparkSession, table: str, where: str, column: str) -> None:
    files_of_partitions(spark, table, 1)
    message = f"Predicate references non-partition column '{column}'. Only the partition columns may be "
    with pytest.raises(DeltaAnalysisException, match=re.escape(message + "referenced: [d]")) as raised:
        compact(spark, table, where)
    assert raised.value.getCondition() == "DELTA_NON_PARTITION_COLUMN_REFERENCE"
    assert raised.value.getSqlState() == "42P10"


def test_conditions_on_partitions(spark: SparkSession, table: str) -> None:
    """All of several predicates have to be true. A predicate with a subquery is refused."""
    files_of_partitions(spark, table, 2)
    builder = DeltaTable.forPath(spark, table).optimize()
    builder.where("d > '2024-01-01'").where("d < '2024-01-02'")
    assert builder.executeCompaction().collect()[0].metrics.totalConsideredFiles == 0
    subquery = "d in (select current_date())"
    for run in (
        lambda: compact(spark, table, subquery),
        lambda: spark.sql(f"OPTIMIZE delta.`{table}` WHERE {subquery}"),
    ):
        with pytest.raises(DeltaAnalysisException) as raised:
            run()
        assert raised.value.getCondition() == "DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES"
    assert DeltaLog.for_table(table).latest_version() == 1


def test_a_path_without_a_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundError):
        compact(spark, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_sizes(spark: SparkSession, table: str, setting: Any) -> None:
    """One setting says which files are small, the other how large new files may be."""
    for i in range(6):
        spark.range(i, i + 1).coalesce(1).write.format("delta").mode("append").save(table)
    spark.range(20_000).coalesce(1).write.format("delta").mode("append").save(table)
    small = actions(table, "add", 0)[0]["size"]
    setting("spark.databricks.delta.optimize.minFileSize", str(small * 2))
    setting("spark.databricks.delta.optimize.maxFileSize", str(small * 3))
    metrics = compact(spark, table)
    assert (metrics["numBins"], metrics["numFilesRemoved"], metrics["numFilesAdded"]) == (2, 6, 2)
    assert metrics["totalFilesSkipped"] == 1


@pytest.fixture(params=["compaction", "z-order"])
def run(request: pytest.FixtureRequest, spark: SparkSession) -> Callable[[str], Any]:
    """Runs OPTIMIZE in one way or the other."""

    def of(path: str, where: str = "true") -> Any:
        builder = DeltaTable.forPath(spark, path).optimize().where(where)
        frame = builder.executeCompaction() if request.param == "compaction" else builder.executeZOrderBy("i")
        return frame.collect()[0].metrics

    return of


def test_an_append_meanwhile_is_no_conflict(spark: SparkSession, table: str, run: Any) -> None:
    files_of_partitions(spark, table, 2)
    set_observer(once("rewrite files written", lambda: files_of_partitions(spark, table, 1)))
    assert run(table).numFilesRemoved == 4
    assert load(spark, table).count() == 6
    assert DeltaLog.for_table(table).snapshot().num_files == 4


def test_that_one_of_its_files_goes_is_a_conflict(spark: SparkSession, table: str, run: Any) -> None:
    """The new files are removed."""
    files_of_partitions(spark, table, 2)

    def remove_one() -> None:
        transaction = DeltaLog.for_table(table).start_transaction()
        assert transaction.snapshot is not None
        first = transaction.snapshot.files.slice(0, 1)
        transaction.commit(remove_files(transaction.snapshot.with_stats(first), 0), Operation("DELETE"))

    set_observer(once("rewrite files written", remove_one))
    before = data_files(table)
    with pytest.raises(ConcurrentDeleteReadException):
        run(table)
    assert data_files(table) == before


@pytest.mark.parametrize("rival", ["d = '2024-01-01'", "d = '2024-01-02'"])
@pytest.mark.sampled(2)
def test_another_optimize_meanwhile(spark: SparkSession, table: str, run: Any, rival: str) -> None:
    """Two runs on the same files exclude each other, two runs on different partitions do not."""
    files_of_partitions(spark, table, 2)
    before = rows(load(spark, table))
    set_observer(once("rewrite files written", lambda: compact(spark, table, rival)))
    if rival == "d = '2024-01-01'":
        with pytest.raises(DeltaConcurrentModificationException):
            run(table, "d = '2024-01-01'")
    else:
        assert run(table, "d = '2024-01-01'").numFilesAdded == 1
    assert rows(load(spark, table)) == before


def test_a_delete_of_other_files_meanwhile_is_no_conflict(spark: SparkSession, table: str, run: Any) -> None:
    files_of_partitions(spark, table, 2)
    delete = DeltaTable.forPath(spark, table).delete
    set_observer(once("rewrite files written", lambda: delete("d = '2024-01-02'")))
    assert run(table, "d = '2024-01-01'").numFilesAdded == 1
    assert load(spark, table).count() == 2


@pytest.mark.sampled(2)
def test_cancelled_it_leaves_nothing(spark: SparkSession, table: str, run: Any) -> None:
    files_of_partitions(spark, table, 2)
    before = data_files(table)

    def cancel() -> None:
        raise KeyboardInterrupt

    set_observer(once("rewrite files written", cancel))
    with pytest.raises(KeyboardInterrupt):
        run(table)
    assert data_files(table) == before
    assert DeltaLog.for_table(table).latest_version() == 1
    assert run(table).numFilesAdded == 2


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path, run: Any) -> None:
    table = str(tmp_path / "table")
    files_of_partitions(spark, table, 2)
    # With one partition there is one task. Spark removes files of a second task after it reports the failure.
    missing = next(Path(table, "d=2024-01-01").glob("*.parquet"))
    missing.rename(tmp_path / "kept")
    before = data_files(table)
    with pytest.raises(StoreError, match=missing.name):
        run(table, "d = '2024-01-01'")
    assert data_files(table) == before
    assert DeltaLog.for_table(table).latest_version() == 1


def test_a_wrong_number_of_rows_is_not_committed(spark: SparkSession, tmp_path: Path, run: Any) -> None:
    table = str(tmp_path / "table")
    files_of_partitions(spark, table, 2)
    commit = commit_file(table, 1)
    commit.write_text(commit.read_text().replace('\\"numRecords\\":1', '\\"numRecords\\":2', 1))
    DeltaLog._cache.clear()
    before = data_files(table)
    with pytest.raises(DeltaIllegalStateException, match="the log says 2 rows, the file has 1"):
        run(table)
    assert data_files(table) == before
    assert DeltaLog.for_table(table).latest_version() == 1


def test_its_jobs_are_of_the_callers_job_group(spark: SparkSession, table: str, run: Any) -> None:
    """So cancelling the job group cancels these jobs."""
    files_of_partitions(spark, table, 2)
    context = spark.sparkContext
    context.setJobGroup("an optimize", "")
    try:
        run(table)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert context.statusTracker().getJobIdsForGroup("an optimize")


@pytest.mark.sampled(2)
def test_what_only_appends_may_be_optimized(spark: SparkSession, table: str, run: Any) -> None:
    """A stream out of the table ignores the commit."""
    files_of_partitions(spark, table, 2)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    copy = f"{table} copy"

    def run_stream() -> None:
        writer = spark.readStream.format("delta").load(table).writeStream.format("delta")
        query = (
            writer.option("checkpointLocation", f"{copy} checkpoint").trigger(availableNow=True).start(copy)
        )
        query.awaitTermination()

    run_stream()
    assert run(table).numFilesRemoved == 4
    files_of_partitions(spark, table, 1)
    run_stream()
    assert rows(load(spark, copy)) == rows(load(spark, table))


@pytest.mark.sampled(2)
def test_target_size_of_the_table(spark: SparkSession, table: str, run: Any) -> None:
    files_of_partitions(spark, table, 4)
    size = actions(table, "add")[0]["size"]
    properties = f"'delta.targetFileSize' = '{2 * size}'"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties})")
    assert run(table).numFilesAdded == 4


def once(point: str, act: Any) -> Any:
    left = [1]

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == point and left:
            left.clear()
            act()

    return observer


@pytest.mark.parametrize("by", ["path", "text", "name"])
@pytest.mark.sampled(3)
def test_by_sql(spark: SparkSession, table: str, database: Path, by: str) -> None:
    files_of_partitions(spark, table, 2)
    name = {"path": f"delta.`{table}`", "text": f"'{table}'", "name": "optimized_by_name"}[by]
    if by == "name":
        spark.sql(f"CREATE TABLE optimized_by_name USING delta LOCATION '{table}'")
    frame = spark.sql(f"OPTIMIZE {name} WHERE d > '2024-01-01' AND day(d) = 2")
    assert frame.columns == ["path", "metrics"]
    [row] = frame.collect()
    assert (row.path, row.metrics.numFilesRemoved, row.metrics.totalConsideredFiles) == (
        f"file:{table}",
        2,
        2,
    )
    [add] = actions(table, "add")
    assert add["partitionValues"] == {"d": "2024-01-02"}
    [row] = spark.sql(f"OPTIMIZE {name} ZORDER BY (i)").collect()
    assert row.metrics.zOrderStats.strategyName == "all"
    [info] = actions(table, "commitInfo")
    assert json.loads(info["operationParameters"]["zOrderBy"]) == ["i"]
    with pytest.raises(DeltaUnsupportedOperationException) as raised:
        spark.sql(f"OPTIMIZE {name} FULL").collect()
    assert raised.value.getCondition() == "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"
