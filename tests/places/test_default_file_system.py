"""Paths without a scheme, and local ones, where Spark's default file system is not the local one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.hadoop.open_store import connect
from deltaflow.streaming import lag, plan_restart
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import ByConditions
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.target import Target
from tests.tables import ids, load, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Settings
    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def default(spark: SparkSession, webhdfs: Place, hadoop_settings: Settings) -> Iterator[Place]:
    """A file system that has the paths without a scheme."""
    java: Any = spark.sparkContext

    def look_again() -> None:
        connect(java_classes(spark).hadoop.HadoopFiles(java._jsc.hadoopConfiguration()))

    with hadoop_settings({"fs.defaultFS": webhdfs.root}):
        look_again()
        yield webhdfs
    look_again()


def test_no_directory_of_a_table_is_overwritten(spark: SparkSession, default: Place, tmp_path: Path) -> None:
    local = tmp_path / "l ocal"
    for path in ("/t", f"file:{local}"):
        write(spark.range(3), path)
    assert default.versions("t") == [0]
    for given in ("DIRECTORY '/t'", f"DIRECTORY 'file:{local}'", f"LOCAL DIRECTORY '{local}'"):
        with pytest.raises(Exception, match="INSERT OVERWRITE DIRECTORY"):
            spark.sql(f"INSERT OVERWRITE {given} USING parquet SELECT 1L AS id")
    for path in ("/t", f"file:{local}"):
        assert ids(load(spark, path)) == [0, 1, 2]


def test_the_tools_of_streams_find_tables_and_checkpoints_as_spark_does(
    spark: SparkSession, default: Place, tmp_path: Path
) -> None:
    for number, source in enumerate(("/source", f"file:{tmp_path}/source")):
        checkpoint, target = f"/checkpoint{number}", f"/target{number}"
        write(spark.range(3), source)
        stream = spark.readStream.format("delta").load(source).writeStream.format("delta")
        stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        stream.start(target).awaitTermination()
        write(spark.range(3, 5), source)
        for tables, sink in (((), None), ((source,), target)):
            [behind] = lag(checkpoint, tables=tables).sources
            assert (behind.rows, behind.error) == (2, None)
            plan = plan_restart(checkpoint, tables=tables, sink=sink)
            assert plan.obstacles == ()
            assert plan.batch is not None
            assert (plan.batch.rows, plan.sink_batch_id) == (2, 0)


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.long
def test_changes_are_applied_to_the_table_that_spark_finds(
    spark: SparkSession, default: Place, tmp_path: Path, is_local: bool
) -> None:
    target = f"file:{tmp_path}/target" if is_local else "/target"
    apply = Applier(
        target=Target(target, None),
        envelope=ByConditions(F.col("at"), F.col("op") == "d", None),
        data_columns=DataColumns(["id"], except_columns=("op", "at")),
        scd_type=1,
        ignore_null_updates=False,
        horizon_ms=10 * 86_400_000,
    )
    # The last change is older than the delete, which the tables beside the target remember.
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", str(uuid.uuid4()))
    try:
        for number, rows in enumerate(([(1, "u", 1), (2, "u", 1)], [(1, "d", 3)], [(1, "u", 2)])):
            apply(spark.createDataFrame(rows, "id INT, op STRING, at INT"), number)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert ids(load(spark, target)) == [2]
    assert is_local == (default.names() == [])
