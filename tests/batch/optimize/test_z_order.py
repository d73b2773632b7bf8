"""OPTIMIZE … ZORDER BY: the files that a predicate reads afterwards, unchanged rows, refused columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.batch.optimize import z_order as z_order_module
from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from tests.plans import files_read
from tests.tables import actions, load, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]
MAX_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"


def z_order(spark: SparkSession, path: str, *columns: str, where: str | None = None) -> dict[str, Any]:
    """Runs the command; returns its metrics."""
    builder = DeltaTable.forPath(spark, path).optimize()
    [row] = (builder if where is None else builder.where(where)).executeZOrderBy(*columns).collect()
    metrics: dict[str, Any] = row.metrics.asDict(recursive=True)
    return metrics


def scattered(spark: SparkSession, rows: int, *columns: str) -> DataFrame:
    """Rows in four tasks, each with values of the whole range: x, y and z are permutations of the ids."""
    factors = {"x": 7919, "y": 104729, "z": 1299709}
    permuted = [f"(id * {factor}) % {rows} {name}" for name, factor in factors.items()]
    frame = spark.range(rows).selectExpr("id", *permuted).repartition(4, "id")
    return frame.selectExpr("id", *columns) if columns else frame


def scanned_files(frame: DataFrame) -> int:
    frame.collect()
    return files_read(frame)


def size_of(path: str) -> int:
    return DeltaLog.for_table(path).snapshot().size_in_bytes


@pytest.mark.long
def test_predicates_on_each_column_read_few_files(spark: SparkSession, table: str, setting: Any) -> None:
    scattered(spark, 4096).write.format("delta").save(table)
    frame = load(spark, table)
    before = rows(frame)
    predicates = ["x between 100 and 140", "y between 4000 and 4050", "z < 30"]
    assert [scanned_files(frame.where(predicate)) for predicate in predicates] == [4, 4, 4]
    setting(MAX_FILE_SIZE, str(size_of(table) // 64))
    metrics = z_order(spark, table, "x", "Y", "z")
    # Sampling makes files of about the same size.
    assert 50 <= metrics["numFilesAdded"] <= 64
    # A cube of 4 × 4 × 4 files: a narrow range of one column is in 16 of them, and in some that are across.
    assert all(scanned_files(frame.where(predicate)) <= 28 for predicate in predicates)
    assert rows(load(spark, table)) == before
    removed = {"num": 4, "size": metrics["filesRemoved"]["totalSize"]}
    assert metrics["zOrderStats"] == {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": removed,
        "inputNumCubes": 0,
        "mergedFiles": removed,
        "numOutputCubes": 1,
        "mergedNumCubes": None,
    }
    [info] = actions(table, "commitInfo")
    assert info["operation"] == "OPTIMIZE"
    assert json.loads(info["operationParameters"]["zOrderBy"]) == ["x", "Y", "z"]
    # Each run rewrites all files.
    again = z_order(spark, table, "x")
    assert again["numFilesRemoved"] == metrics["numFilesAdded"]
    assert scanned_files(frame.where(predicates[0])) <= 4


@pytest.mark.long
def test_columns_of_every_kind(spark: SparkSession, table: str, setting: Any) -> None:
    """Nulls, few values, and types without arithmetic: each column still leaves files out."""
    scattered(
        spark,
        2048,
        "if(x % 8 = 0, null, timestamp_micros(x * 86400000001)) t",
        "concat('ключ-', lpad(cast(y as string), 5, '0')) s",
        "cast(z % 4 as tinyint) b",
        "cast(x as decimal(20, 3)) / 7 d",
        "named_struct('in-side', date_add(date'2020-01-01', cast(y as int))) n",
    ).write.format("delta").save(table)
    frame = load(spark, table)
    before = rows(frame)
    setting(MAX_FILE_SIZE, str(size_of(table) // 32))
    for columns, predicates in {
        ("t", "s", "b"): ["t < timestamp'1970-02-01'", "s like 'ключ-0000%'", "b = 3"],
        ("d", "n.`in-side`"): ["d < 3", "n.`in-side` > date'2025-08-01'"],
    }.items():
        metrics = z_order(spark, table, *columns)
        assert rows(load(spark, table)) == before
        for predicate in predicates:
            assert scanned_files(frame.where(predicate)) <= metrics["numFilesAdded"] * 0.6, predicate


@pytest.mark.long
def test_the_bounds_of_long_texts_are_short(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole texts of a sample, and their bounds, would fill the memory of Spark and of Python."""
    long = "concat(id * 7919 % 2000, repeat('x', 5000))"
    spark.range(2000).selectExpr(f"{long} s", f"cast({long} as binary) b").write.format("delta").save(table)
    before = rows(load(spark, table))
    found: list[Any] = []
    z_ordered_bin = z_order_module._z_ordered_bin

    def seen(bin_: Any, columns: Any, bounds: Any, path: str) -> Any:
        found.extend(bounds)
        return z_ordered_bin(bin_, columns, bounds, path)

    monkeypatch.setattr(z_order_module, "_z_ordered_bin", seen)
    z_order(spark, table, "s", "b")
    assert [max(map(len, bounds)) for bounds in found] == [128, 256]
    assert [len(set(bounds)) > 1000 for bounds in found] == [True, True]
    assert rows(load(spark, table)) == before


def test_many_columns(spark: SparkSession, table: str, setting: Any) -> None:
    """More bits than one number holds."""
    columns = [f"c{i}" for i in range(8)]
    bits = [f"shiftright(x, {i}) % 2 = 0 {name}" for i, name in enumerate(columns)]
    scattered(spark, 512, *bits).write.format("delta").save(table)
    before = rows(load(spark, table))
    setting(MAX_FILE_SIZE, str(size_of(table) // 4))
    z_order(spark, table, *columns)
    frame = load(spark, table)
    assert rows(frame) == before
    # The first bit of the first column divides the files.
    values = frame.groupBy("_metadata.file_name").agg({"c0": "bool_and", "c1": "count"}).collect()
    assert len([row for row in values if row["bool_and(c0)"]]) >= 1


def test_more_columns_than_a_number_has_bits() -> None:
    words = z_order_module._curve_position_sqls(70)
    assert sum(word.count("shiftleft") for word in words) == 70 * 10
    assert max(word.count("shiftleft") for word in words) == 63


def test_partitions(spark: SparkSession, table: str, setting: Any) -> None:
    """Each partition that `where` chooses is ordered separately."""
    scattered(spark, 600, "x", "id % 3 p").write.format("delta").partitionBy("p").save(table)
    before = rows(load(spark, table))
    setting(MAX_FILE_SIZE, str(size_of(table) // 12))
    metrics = z_order(spark, table, "x", where="p < 2")
    assert (
        metrics["partitionsOptimized"] == metrics["numBins"] == metrics["zOrderStats"]["numOutputCubes"] == 2
    )
    assert {add["partitionValues"]["p"] for add in actions(table, "add")} == {"0", "1"}
    assert metrics["totalConsideredFiles"] == metrics["numFilesRemoved"] == 8
    assert rows(load(spark, table)) == before


def test_values_that_are_all_the_same(spark: SparkSession, table: str, setting: Any) -> None:
    """Rows at one position of the curve go into several files. An empty table is not changed."""
    rows = spark.range(4000).selectExpr("id", "1 c", "cast(null as int) n")
    rows.write.format("delta").save(table)
    setting(MAX_FILE_SIZE, str(size_of(table) // 4))
    assert z_order(spark, table, "c", "n")["numFilesAdded"] == 4
    spark.range(0).selectExpr("id", "1 c", "cast(null as int) n").write.format("delta").mode(
        "overwrite"
    ).save(table)
    assert z_order(spark, table, "c")["numFilesAdded"] == 0
    assert DeltaLog.for_table(table).latest_version() == 2


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        (["p"], "DELTA_ZORDERING_ON_PARTITION_COLUMN"),
        (["P"], "DELTA_ZORDERING_ON_PARTITION_COLUMN"),
        (["nothing"], "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        (["s.nothing"], "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        (["a b"], "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        (["id", "ID"], "DELTA_DUPLICATE_COLUMNS_FOUND"),
        (["last"], "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS"),
        (["s"], "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS"),
    ],
)
@pytest.mark.sampled(3)
def test_refused_columns(spark: SparkSession, tmp_path: Path, columns: list[str], condition: str) -> None:
    table = str(tmp_path)
    rows = spark.range(2).selectExpr("id", "1 p", "named_struct('a', 1) s", "2 last")
    writer = rows.write.format("delta").partitionBy("p").option("delta.dataSkippingNumIndexedCols", "2")
    writer.save(table)
    with pytest.raises((DeltaAnalysisException, DeltaIllegalArgumentException)) as raised:
        z_order(spark, table, *columns)
    assert raised.value.getCondition() == condition
    assert DeltaLog.for_table(table).latest_version() == 0


def test_columns_without_statistics_on_demand(spark: SparkSession, tmp_path: Path, setting: Any) -> None:
    table = str(tmp_path)
    rows = spark.range(2).selectExpr("id", "2 last")
    rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", "1").save(table)
    setting("spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled", "false")
    assert z_order(spark, table, "last")["numFilesAdded"] == 1


def test_arguments(spark: SparkSession, table: str) -> None:
    spark.range(1).write.format("delta").save(table)
    builder = DeltaTable.forPath(spark, table).optimize()
    with pytest.raises(TypeError, match="Z-order column must be str"):
        builder.executeZOrderBy("id", 1)  # type: ignore[arg-type]
    assert builder.executeZOrderBy(["id"]).select("metrics.numFilesAdded").first() == (1,)
