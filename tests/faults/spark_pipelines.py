"""Pipelines of Spark. Each makes the tables that it begins with in one step, which no fault disturbs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import deltaflow
from deltaflow import DeltaTable
from deltaflow.streaming import apply_changes
from deltaflow.testing.steps import unwatched
from tests.tables import INTERPRETED

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
_TXN = "spark.databricks.delta.write.txn"


def session() -> SparkSession:
    """The session of the process, as small as it can be."""
    return deltaflow.session(
        "faults",
        master="local[2]",
        config={
            **INTERPRETED,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        },
    )


def given(path: str, make: Callable[[str], object]) -> None:
    """Makes a table that is there before the pipeline begins, all at once."""
    if not os.path.exists(path):
        with unwatched():
            shutil.rmtree(f"{path}-new", ignore_errors=True)
            make(f"{path}-new")
            os.rename(f"{path}-new", path)


def files(*batches: Sequence[int], **configuration: str) -> Callable[[str], None]:
    """A table with the columns id, part and v, and a commit of one file for each batch of ids."""

    def make(path: str) -> None:
        for number, ids in enumerate(batches):
            rows = pa.table(
                {"id": pa.array(ids, pa.int64()), "part": [i % 2 for i in ids], "v": [0] * len(ids)}
            )
            properties = configuration if number == 0 else None
            deltalake.write_deltalake(path, rows, mode="append", configuration=properties)

    return make


def once(spark: SparkSession, path: str, number: int, operation: Callable[[], object]) -> None:
    """An operation that takes its application and number from the session, as UPDATE, DELETE and MERGE do."""
    spark.conf.set(f"{_TXN}AppId", "pipeline")
    spark.conf.set(f"{_TXN}Version", str(number))
    try:
        operation()
    finally:
        spark.conf.unset(f"{_TXN}AppId")
        spark.conf.unset(f"{_TXN}Version")


def _write(frame: DataFrame, path: str, number: int, mode: str = "append", **options: str) -> None:
    writer = (
        frame.write.format("delta").mode(mode).option("txnAppId", "pipeline").option("txnVersion", number)
    )
    writer.options(**options).partitionBy("part").save(path)


def _rows(spark: SparkSession, start: int, end: int, partitions: int = 1) -> DataFrame:
    return spark.range(start, end, 1, partitions).selectExpr("id", "CAST(id % 2 AS LONG) AS part", "0L AS v")


def batch(folder: str) -> None:
    """A partitioned table: created, appended to, a partition replaced, and appended to with a checkpoint."""
    spark, path = session(), f"{folder}/table"
    _write(_rows(spark, 0, 20), path, 0, **{"delta.checkpointInterval": "3"})
    _write(_rows(spark, 20, 30), path, 1)
    _write(_rows(spark, 30, 36).where("part = 1"), path, 2, "overwrite", replaceWhere="part = 1")
    _write(_rows(spark, 40, 50), path, 3)


def overwrite(folder: str) -> None:
    """A table whose rows are all replaced, twice."""
    spark, path = session(), f"{folder}/table"
    for number in range(3):
        _write(_rows(spark, 10 * number, 10 * number + 10), path, number, "overwrite")


def stream(folder: str) -> None:
    """A table streamed into another, a file a batch; the sink is partitioned."""
    _stream(folder, files(range(10), range(10, 20), range(20, 30)))


def compacted_stream(folder: str) -> None:
    """A table streamed into another that is compacted automatically."""
    _stream(
        folder,
        files(range(10), range(10, 20), range(20, 30)),
        files(range(100, 102), **{"delta.autoOptimize.autoCompact": "true"}),
    )


def quarantine(folder: str) -> None:
    """A stream into a table that refuses every fifth row, which go to the quarantine."""

    def constrained(path: str) -> None:
        files(range(101, 102))(path)
        deltalake.DeltaTable(path).alter.add_constraint({"fives": "id % 5 != 0"})

    quarantined = f"{folder}/quarantine"
    _stream(folder, files(range(10), range(10, 20)), constrained, quarantinePath=quarantined)


def _stream(
    folder: str, source: Callable[[str], None], sink: Callable[[str], None] | None = None, **options: str
) -> None:
    spark = session()
    if sink is not None:
        given(f"{folder}/sink", sink)
    given(f"{folder}/source", source)
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    frame = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(f"{folder}/source")
    writer = frame.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    writer = writer.options(**options).trigger(availableNow=True)
    writer.start(f"{folder}/sink").awaitTermination()


def schema_tracking(folder: str) -> None:
    """A table that gets a column, streamed into another: the stream stops there, and is started again."""

    def widened(path: str) -> None:
        files(range(10), range(10, 20))(path)
        rows = pa.table({"id": [20, 21], "part": [0, 1], "v": [0, 0], "w": [1, 2]})
        deltalake.write_deltalake(path, rows, mode="append", schema_mode="merge")

    spark, checkpoint = session(), f"{folder}/checkpoint"
    given(f"{folder}/source", widened)
    while True:
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        frame = reader.option("schemaTrackingLocation", f"{checkpoint}/schemas").load(f"{folder}/source")
        writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint)
        query = writer.option("mergeSchema", "true").trigger(availableNow=True).start(f"{folder}/sink")
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if "DELTA_STREAMING_METADATA_EVOLUTION" not in str(error):
                raise


def optimize(folder: str) -> None:
    """OPTIMIZE of six small files, then OPTIMIZE with ZORDER BY."""
    spark, path = session(), f"{folder}/table"
    given(path, files(*(range(5 * n, 5 * n + 5) for n in range(6))))
    table = DeltaTable.forPath(spark, path)
    table.optimize().executeCompaction()
    table.optimize().executeZOrderBy("id")


def _change(folder: str, configuration: dict[str, str]) -> None:
    spark, path = session(), f"{folder}/table"
    given(path, files(range(20), range(20, 40), **configuration))
    table = DeltaTable.forPath(spark, path)
    once(spark, path, 1, lambda: table.update("id % 4 = 0", {"v": "v + 1"}))
    once(spark, path, 2, lambda: table.delete("id % 10 = 3"))
    changes = spark.range(30, 46).selectExpr("id", "id % 2 AS part", "7L AS v")
    merge = table.alias("t").merge(changes.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedDelete("s.id = 31").whenMatchedUpdate(set={"v": "t.v + s.v"})
    once(spark, path, 3, merge.whenNotMatchedInsertAll().execute)


def dml(folder: str) -> None:
    """UPDATE, DELETE and MERGE by new files."""
    _change(folder, {})


def dml_with_vectors(folder: str) -> None:
    """UPDATE, DELETE and MERGE by deletion vectors."""
    _change(folder, VECTORS)


def dml_with_feed(folder: str) -> None:
    """UPDATE, DELETE and MERGE by deletion vectors, with a change data feed."""
    _change(folder, VECTORS | FEED)


def vacuum(folder: str) -> None:
    """Half of the rows are deleted, then VACUUM deletes their files and what no version has, and a write."""
    spark, path = session(), f"{folder}/table"

    def make(new: str) -> None:
        files(range(10), range(10, 20), range(20, 30))(new)
        deltalake.DeltaTable(new).delete("id < 20")
        for name in ("stray-1.parquet", "stray-2.parquet"):
            with open(f"{new}/{name}", "wb") as file:
                file.write(b"stray")

    given(path, make)
    DeltaTable.forPath(spark, path).vacuum(0)
    rows = _rows(spark, 50, 55).write.format("delta").mode("append")
    rows.option("txnAppId", "pipeline").option("txnVersion", 1).save(path)


_BATCHES = (((1, 2, "u"), (2, 2, "u")), ((1, 5, "d"), (2, 4, "u")), ((3, 6, "u"), (1, 3, "u")))
"""Two changes each: key, time and kind."""


def _apply(folder: str, scd_type: int, horizon: str = "7 days", batches: Any = _BATCHES) -> None:
    spark = session()

    def changes(path: str) -> None:
        for first, second in batches:
            ids, times, kinds = zip(first, second, strict=True)
            rows = pa.table(
                {"id": list(ids), "ts": list(times), "op": list(kinds), "v": [10 * t for t in times]}
            )
            deltalake.write_deltalake(path, rows, mode="append")

    given(f"{folder}/changes", changes)
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    query: Any = apply_changes(
        reader.load(f"{folder}/changes"),
        f"{folder}/target",
        keys="id",
        sequence_by="ts",
        deletes="op = 'd'",
        scd_type=scd_type,
        except_columns=["op", "ts"],
        delete_horizon=horizon,
    )
    query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query.start().awaitTermination()


def apply_changes_1(folder: str) -> None:
    """Changes applied to a table of the newest state."""
    _apply(folder, 1)


def apply_changes_2(folder: str) -> None:
    """Changes applied to a table of the history."""
    _apply(folder, 2)


def apply_changes_forgetting(folder: str) -> None:
    """Changes applied to a table of the newest state, where deletes are forgotten at once: by the batch after
    the delete, however often it is killed, before a change comes too late."""
    between = ((4, 7, "u"), (2, 8, "u"))
    _apply(folder, 1, "0 seconds", (*_BATCHES[:2], between, _BATCHES[2]))
