"""What a stream keeps from batch to batch: Spark's functions that read a file. Making one is a broadcast."""

from __future__ import annotations

import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from tests.streaming.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REBASE_MODE = "spark.sql.parquet.datetimeRebaseModeInRead"


def broadcasts_of_batches(
    spark: SparkSession, streams: Streams, frame: DataFrame, checkpoint: str
) -> list[int]:
    """How many broadcasts each batch has made, if it is collected once."""
    ids = []

    def next_id() -> int:
        return int(spark.sparkContext._jsc.broadcast("counted").id())  # type: ignore[attr-defined]

    def collect(batch: DataFrame, batch_id: int) -> None:
        batch.collect()
        ids.append(next_id())

    ids.append(next_id())
    streams.ended(streams.foreach(frame, checkpoint, collect))
    return [after - before - 1 for before, after in pairwise(ids)]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_batch_broadcasts_its_tasks_alone(
    spark: SparkSession, streams: Streams, tmp_path: Path, checkpoint: str, mode: str
) -> None:
    table = f"{tmp_path}/table"
    rows = spark.range(0, 40, 1, 4).write.format("delta")
    rows.option("delta.columnMapping.mode", mode).save(table)
    frame = streams.read(table, maxFilesPerTrigger=1).where("id >= 0")
    first, *others = broadcasts_of_batches(spark, streams, frame, checkpoint)
    assert others == [first - 1] * 3 == [1] * 3


def test_a_setting_that_changes_between_two_batches_is_heeded(
    spark: SparkSession, streams: Streams, tmp_path: Path, checkpoint: str
) -> None:
    """Files of other writers do not say which calendar they have: a setting of the session does."""
    table, day = f"{tmp_path}/table", datetime.date(1500, 1, 1)
    for _ in range(4):
        deltalake.write_deltalake(table, pa.table({"day": [day]}), mode="append")
    modes, seen = iter(["CORRECTED", "LEGACY", "CORRECTED"]), []

    def see(batch: DataFrame, batch_id: int) -> None:
        seen.extend(row.day for row in batch.collect())
        spark.conf.set(REBASE_MODE, next(modes, "EXCEPTION"))

    try:
        spark.conf.set(REBASE_MODE, "LEGACY")
        streams.ended(streams.foreach(streams.read(table, maxFilesPerTrigger=1), checkpoint, see))
    finally:
        spark.conf.unset(REBASE_MODE)
    in_other_calendar = datetime.date(1499, 12, 23)
    assert seen == [in_other_calendar, day, in_other_calendar, day]
