"""Checkpoints that writes through Spark leave behind, as the table and the session ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from deltaflow.errors import DeltaIllegalArgumentException
from tests.tables import checkpoint_versions, commit_file, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DEFAULT_INTERVAL = "spark.databricks.delta.properties.defaults.checkpointInterval"


def test_every_ten_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "grown")
    for version in range(12):
        spark.range(version, version + 1).coalesce(1).write.format("delta").mode("append").save(table)
    assert checkpoint_versions(table) == [10]
    for version in range(10):
        commit_file(table, version).unlink()
    assert load(spark, table).count() == 12
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 12


def test_a_session_gives_new_tables_their_defaults(spark: SparkSession, tmp_path: Path, setting: Any) -> None:
    source, table = str(tmp_path / "source"), str(tmp_path / "table")
    spark.range(0, 6, 1, 6).write.format("delta").save(source)
    setting(DEFAULT_INTERVAL, "2")
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
    assert checkpoint_versions(table) == [2, 4]
    assert checkpoint_versions(source) == []


def test_a_default_that_is_no_value_is_refused(spark: SparkSession, tmp_path: Path, setting: Any) -> None:
    setting(DEFAULT_INTERVAL, "often")
    with pytest.raises(DeltaIllegalArgumentException, match=r"delta\.checkpointInterval is 'often'"):
        spark.range(1).write.format("delta").save(str(tmp_path / "table"))
