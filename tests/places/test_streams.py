"""Streams from and into tables on every file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.streaming import lag, plan_restart
from tests.tables import ids, load, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.places.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2), pytest.mark.usefixtures("interpreted")]


def run(frame: DataFrame, target: str, checkpoint: str, **options: Any) -> None:
    """Lets a stream write all that there is."""
    stream = frame.writeStream.format("delta").option("checkpointLocation", checkpoint).options(**options)
    query = stream.trigger(availableNow=True).start(target)
    query.awaitTermination()


@pytest.mark.sampled(4)
def test_from_table_to_table(spark: SparkSession, place: Place) -> None:
    source, target, checkpoint = (place.path(name) for name in ("source", "target", "checkpoint"))
    write(spark.range(5), source)
    run(spark.readStream.format("delta").load(source), target, checkpoint)
    write(spark.range(5, 8), source)
    run(spark.readStream.format("delta").load(source), target, checkpoint)
    run(spark.readStream.format("delta").load(source), target, checkpoint)
    assert ids(load(spark, target)) == [*range(8)]
    assert place.versions("target") == [0, 1]
    # The checkpoint names the tables, in the place where they are.
    write(spark.range(8, 11), source)
    [behind] = lag(checkpoint).sources
    assert (behind.versions, behind.rows, behind.error) == (1, 3, None)
    plan = plan_restart(checkpoint)
    assert plan.batch is not None
    assert (plan.batch.batch_id, plan.batch.rows, plan.sink_batch_id, plan.obstacles) == (2, 3, 1, ())


def test_a_checkpoint_in_another_file_system(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    write(spark.range(5), place.path("source"))
    checkpoint = str(tmp_path / "checkpoint")
    run(spark.readStream.format("delta").load(place.path("source")), place.path("target"), checkpoint)
    assert ids(load(spark, place.path("target"))) == [*range(5)]


@pytest.mark.sampled(4)
def test_changes_and_deletes_of_the_source(spark: SparkSession, place: Place) -> None:
    source, target = place.path("source"), place.path("target")
    write(spark.range(4).selectExpr("id", "id % 2 AS part"), source, partition_by=["part"])
    stream = spark.readStream.format("delta").option("ignoreChanges", "true")
    run(stream.load(source), target, place.path("checkpoint"))
    spark.sql(f"UPDATE delta.`{source}` SET id = 10 WHERE id = 0")
    run(stream.load(source), target, place.path("checkpoint"))
    assert ids(load(spark, target)) == [0, 1, 2, 2, 3, 10]


def test_for_each_batch(spark: SparkSession, place: Place) -> None:
    write(spark.range(4), place.path("source"))
    write(spark.range(2), place.path("target"))

    def merge(batch: DataFrame, _: int) -> None:
        from deltaflow.tables import DeltaTable

        target = DeltaTable.forPath(batch.sparkSession, place.path("target")).alias("t")
        target.merge(batch.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()

    stream = spark.readStream.format("delta").load(place.path("source")).writeStream.foreachBatch(merge)
    stream.option("checkpointLocation", place.path("checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert ids(load(spark, place.path("target"))) == [*range(4)]


@pytest.mark.sampled(4)
def test_quarantine(spark: SparkSession, place: Place) -> None:
    source, target, quarantine = (place.path(name) for name in ("source", "target", "bad"))
    write(spark.range(6), source)
    spark.sql(f"CREATE TABLE delta.`{target}` (id BIGINT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{target}` ADD CONSTRAINT small CHECK (id < 4)")
    stream = spark.readStream.format("delta").load(source)
    run(stream, target, place.path("checkpoint"), quarantinePath=quarantine)
    assert ids(load(spark, target)) == [*range(4)]
    assert load(spark, quarantine).count() == 2


def test_auto_compaction(spark: SparkSession, place: Place, setting: Callable[[str, str], None]) -> None:
    source, target = place.path("source"), place.path("target")
    for number in range(4):
        write(spark.range(number, number + 1), source)
    spark.sql(
        f"CREATE TABLE delta.`{target}` (id BIGINT) USING delta "
        "TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')"
    )
    setting("spark.databricks.delta.autoCompact.minNumFiles", "2")
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", "1").load(source)
    run(stream, target, place.path("checkpoint"))
    assert ids(load(spark, target)) == [*range(4)]
    operations = [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{target}`").collect()]
    assert "OPTIMIZE" in operations
