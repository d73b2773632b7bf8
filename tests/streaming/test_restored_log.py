"""A log whose end was put back from a copy, and went on otherwise: readers find the new end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.tables import commit_file, ids, load, write_commit

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

FEED = {"readChangeFeed": "true", "startingVersion": "1"}


def append(table: str, version: int, number: int) -> None:
    """What another process appends: a row as this version."""
    pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), f"{table}/{number}.parquet")
    size = Path(table, f"{number}.parquet").stat().st_size
    add = {"path": f"{number}.parquet", "partitionValues": {}, "size": size, "modificationTime": 1}
    stats = json.dumps({"numRecords": 1})
    write_commit(table, version, {"add": {**add, "dataChange": True, "stats": stats}})


@pytest.fixture
def restored(spark: SparkSession, tmp_path: Path) -> tuple[str, Any]:
    """A table with rows 0 and 1, and a function that another process runs: version 2 with row 2 becomes one
    with row 200."""
    table = str(tmp_path / "table")
    feed = {"delta.enableChangeDataFeed": "true"}
    spark.range(1).write.format("delta").options(**feed).save(table)
    append(table, 1, 1)
    append(table, 2, 2)

    def restore() -> None:
        commit_file(table, 2).unlink()
        append(table, 2, 200)

    return table, restore


def test_queries(spark: SparkSession, restored: tuple[str, Any]) -> None:
    table, restore = restored
    changes = spark.read.format("delta").options(**FEED).load(table)
    frame, old = load(spark, table), load(spark, table, versionAsOf=2)
    assert ids(frame.select("id")) == ids(old) == [0, 1, 2]
    assert ids(changes.select("id")) == [1, 2]
    restore()
    assert ids(frame.select("id")) == ids(load(spark, table)) == [0, 1, 200]
    assert ids(spark.sql(f"SELECT * FROM delta.`{table}`")) == [0, 1, 200]
    assert ids(load(spark, table, versionAsOf=2)) == [0, 1, 200]
    assert ids(changes.select("id")) == ids(load(spark, table, **FEED)) == [1, 200]
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id BETWEEN 2 AND 100")
    load(spark, table).write.format("delta").mode("overwrite").save(table)
    assert ids(load(spark, table)) == [0, 1, 200]


@pytest.mark.parametrize("options", [{}, FEED], ids=["files", "changes"])
@pytest.mark.parametrize("is_planned", [False, True], ids=["new batch", "planned batch"])
@pytest.mark.sampled(2)
def test_a_stream_that_was_put_back_as_well(
    spark: SparkSession, restored: tuple[str, Any], tmp_path: Path, options: dict[str, str], is_planned: bool
) -> None:
    table, restore = restored
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def run() -> None:
        stream = spark.readStream.format("delta").options(**options).load(table).select("id")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(str(sink)).awaitTermination()

    first = [0, 1] if not options else [1]
    commit_file(table, 2).rename(f"{table}/later")
    run()
    assert ids(spark.read.parquet(str(sink))) == first
    for folder in (sink, checkpoint):
        shutil.copytree(folder, f"{folder}.copy")
    Path(f"{table}/later").rename(commit_file(table, 2))
    run()
    assert ids(spark.read.parquet(str(sink))) == [*first, 2]
    restore()
    planned = (checkpoint / "offsets" / "1").read_bytes()
    for folder in (sink, checkpoint):
        shutil.rmtree(folder)
        Path(f"{folder}.copy").rename(folder)
    if is_planned:
        (checkpoint / "offsets" / "1").write_bytes(planned)
    run()
    assert ids(spark.read.parquet(str(sink))) == [*first, 200]
