"""Checkpoints that writes through Spark leave behind, as the table and the session ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from deltaflow.errors import DeltaIllegalArgumentException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DEFAULT_INTERVAL = "spark.databricks.delta.properties.defaults.checkpointInterval"


@pytest.fixture
def default_interval(spark: SparkSession) -> Iterator[str]:
    yield DEFAULT_INTERVAL
    spark.conf.unset(DEFAULT_INTERVAL)


def checkpoints(table: str) -> list[str]:
    return sorted(file.name for file in (Path(table) / "_delta_log").glob("*.checkpoint.parquet"))


def test_every_ten_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "grown")
    for version in range(12):
        spark.range(version, version + 1).coalesce(1).write.format("delta").mode("append").save(table)
    assert checkpoints(table) == [f"{10:020}.checkpoint.parquet"]
    for version in range(10):
        (Path(table) / "_delta_log" / f"{version:020}.json").unlink()
    assert spark.read.format("delta").load(table).count() == 12
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 12


def test_a_session_gives_new_tables_their_defaults(
    spark: SparkSession, tmp_path: Path, default_interval: str
) -> None:
    source, table = str(tmp_path / "source"), str(tmp_path / "table")
    spark.range(0, 6, 1, 6).write.format("delta").save(source)
    spark.conf.set(default_interval, "2")
    query = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(source)
        .writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(table)
    )
    assert query.awaitTermination(120)
    assert deltalake.DeltaTable(table).metadata().configuration == {"delta.checkpointInterval": "2"}
    assert checkpoints(table) == [f"{version:020}.checkpoint.parquet" for version in (2, 4)]
    assert checkpoints(source) == []


def test_a_default_that_is_no_value_is_refused(
    spark: SparkSession, tmp_path: Path, default_interval: str
) -> None:
    spark.conf.set(default_interval, "often")
    with pytest.raises(DeltaIllegalArgumentException, match=r"delta\.checkpointInterval is 'often'"):
        spark.range(1).write.format("delta").save(str(tmp_path / "table"))
