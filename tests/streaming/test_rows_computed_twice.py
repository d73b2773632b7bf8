"""Rows of which Spark has two copies, from two attempts of a task at once, are never committed; nor are
others in the place of those that it has lost.

With speculation, executors of two hosts have them now and then. Here Spark's driver is told that another
block manager has a copy of the first part of each checkpoint, as it is told then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.expressions.checkpoints import Checkpoints
from deltaflow.streaming import apply_changes
from tests.tables import ids, load, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Copy = Callable[[], int]
Copies = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def copy_kept_rows(spark: SparkSession) -> Iterator[Copy]:
    """Spark is told of a second copy of each part that it keeps; gives how many parts."""
    context, jvm = spark.sparkContext, spark.sparkContext._jvm
    assert jvm is not None
    manager = jvm.io.deltaflow.spark.expressions.Checkpoints.blocks(context._jsc.sc())
    master, own = manager.master(), manager.blockManagerId()
    no_topology = jvm.scala.Option.empty()
    other = jvm.org.apache.spark.storage.BlockManagerId.apply("other", own.host(), own.port(), no_topology)
    endpoint = manager.getClass().getDeclaredField("storageEndpoint")
    endpoint.setAccessible(True)
    directories = context._gateway.new_array(jvm.java.lang.String, 0)
    master.registerBlockManager(other, directories, 1 << 30, 0, endpoint.get(manager), False)
    level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_AND_DISK()
    more = [] if context.version < "4.3" else [jvm.scala.Option.empty()]

    def copy() -> int:
        copied = 0
        for kept in context._jsc.getPersistentRDDs().values():
            for part in range(kept.getNumPartitions()):
                block = jvm.org.apache.spark.storage.RDDBlockId(kept.id(), part)
                if master.getLocations(block).size() == 1:
                    copied += master.updateBlockInfo(other, block, level, 1, 0, *more)
        return copied

    try:
        yield copy
    finally:
        master.removeExecutor("other")


@pytest.fixture
def copies(copy_kept_rows: Copy, monkeypatch: pytest.MonkeyPatch) -> Copies:
    """In the context that it gives, an operation's kept rows have second copies before it looks for such."""

    @contextmanager
    def second_copies() -> Iterator[None]:
        check = Checkpoints.check

        def check_after_copying(self: Checkpoints) -> None:
            assert copy_kept_rows()
            check(self)

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "check", check_after_copying)
            yield

    return second_copies


@pytest.fixture
def loses(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """In the context that it gives, Spark loses the rows that an operation keeps."""

    @contextmanager
    def lost() -> Iterator[None]:
        keep, add = Checkpoints.keep, Checkpoints.add

        def forget(frame: DataFrame) -> None:
            frame.sparkSession._jvm.io.deltaflow.spark.expressions.Checkpoints.release(frame._jdf)

        def keep_and_lose(self: Checkpoints, frame: DataFrame) -> DataFrame:
            kept = keep(self, frame)
            forget(kept)
            return kept

        def add_and_lose(self: Checkpoints, frames: Sequence[DataFrame]) -> None:
            add(self, frames)
            for frame in frames:
                forget(frame)

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "keep", keep_and_lose)
            patch.setattr(Checkpoints, "add", add_and_lose)
            yield

    return lost


def make(spark: SparkSession, path: str, *, is_marked: bool) -> None:
    properties = "delta.enableDeletionVectors = true, delta.enableChangeDataFeed = true"
    clause = f"TBLPROPERTIES ({properties})" if is_marked else ""
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, v DOUBLE) USING delta {clause}")
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "1D AS v")
    rows.write.format("delta").mode("append").save(path)


AMONG = "(SELECT id FROM delta.`{other}` WHERE v > 0 AND id % 2 = 0)"
STATEMENTS = {
    "merge": "MERGE INTO delta.`{table}` t USING drawn s ON t.id = s.id "
    "WHEN MATCHED AND s.r < 0.5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.r "
    "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.r)",
    "merge that deletes": "MERGE INTO delta.`{table}` t USING drawn s ON t.id = s.id "
    "WHEN MATCHED THEN DELETE",
    "merge that inserts": "MERGE INTO delta.`{table}` t USING drawn s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.r)",
    "merge without a match": "MERGE INTO delta.`{table}` t USING drawn s ON t.id = s.id + 1000 "
    "WHEN MATCHED THEN DELETE",
    "merge with a subquery": "MERGE INTO delta.`{table}` t USING delta.`{other}` s "
    f"ON t.id = s.id AND t.id IN {AMONG} WHEN MATCHED THEN UPDATE SET v = 2",
    "delete with a subquery": f"DELETE FROM delta.`{{table}}` WHERE id IN {AMONG}",
    "update with a subquery": f"UPDATE delta.`{{table}}` SET v = 3 WHERE id IN {AMONG}",
}


@pytest.mark.parametrize("is_marked", [False, True], ids=["copied", "marked"])
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(3)
def test_operations_on_rows(
    spark: SparkSession, table: str, tmp_path: Path, copies: Copies, statement: str, is_marked: bool
) -> None:
    other = str(tmp_path / "other")
    make(spark, other, is_marked=False)
    make(spark, table, is_marked=is_marked)
    spark.range(20, 60, 1, 2).withColumn("r", F.rand()).createOrReplaceTempView("drawn")
    text = STATEMENTS[statement].format(table=table, other=other)
    before, rows = versions(table), sorted(load(spark, table).collect())
    with copies(), pytest.raises(DeltaIllegalStateException, match="two copies of some rows") as raised:
        spark.sql(text).collect()
    assert raised.value.getCondition() == "DELTA_ROWS_COMPUTED_TWICE"
    assert table in str(raised.value)
    assert (versions(table), sorted(load(spark, table).collect())) == (before, rows)
    spark.sql(text).collect()
    assert len(versions(table)) == len(before) + (statement != "merge without a match")


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(3)
def test_operations_on_rows_that_are_lost(
    spark: SparkSession, table: str, tmp_path: Path, loses: Copies, statement: str
) -> None:
    other = str(tmp_path / "other")
    make(spark, other, is_marked=False)
    make(spark, table, is_marked=False)
    spark.range(20, 60, 1, 2).withColumn("r", F.rand()).createOrReplaceTempView("drawn")
    text = STATEMENTS[statement].format(table=table, other=other)
    with loses(), pytest.raises(DeltaIllegalStateException, match="lost, with an executor") as raised:
        spark.sql(text).collect()
    assert raised.value.getCondition() == "DELTA_ROWS_LOST"
    assert table in str(raised.value)
    assert versions(table) == [0, 1]
    spark.sql(text).collect()


def stream_of_changes(
    spark: SparkSession, table: str, sink: str, checkpoint: str, scd_type: int
) -> Callable[[], None]:
    """Writes 40 changes into the table; the function applies to the sink what the query has not done."""
    spark.range(0, 40, 1, 4).selectExpr("id", "1 AS at").write.format("delta").save(table)

    def run() -> None:
        changes = spark.readStream.format("delta").load(table)
        writer = apply_changes(changes, sink, keys="id", sequence_by="at", scd_type=scd_type)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    return run


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.sampled(1)
def test_changes_that_are_lost(
    spark: SparkSession, table: str, sink: str, checkpoint: str, loses: Copies, scd_type: int
) -> None:
    run = stream_of_changes(spark, table, sink, checkpoint, scd_type)
    with loses(), pytest.raises(StreamingQueryException, match="DELTA_ROWS_LOST"):
        run()
    run()
    assert ids(load(spark, sink)) == list(range(40))


def test_a_source_that_its_user_has_checkpointed(
    spark: SparkSession, table: str, copies: Copies, settings: Callable[..., Any]
) -> None:
    make(spark, table, is_marked=False)
    text = f"MERGE INTO delta.`{table}` t USING drawn s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.r"
    drawn = spark.range(20).withColumn("r", F.rand())
    kept = drawn.localCheckpoint()
    kept.createOrReplaceTempView("drawn")
    with settings({"spark.databricks.delta.merge.materializeSource": "none"}):
        with copies(), pytest.raises(DeltaIllegalStateException, match="DELTA_ROWS_COMPUTED_TWICE"):
            spark.sql(text).collect()
        assert versions(table) == [0, 1]
        drawn.localCheckpoint().createOrReplaceTempView("drawn")
        spark.sql(text).collect()
    assert versions(table) == [0, 1, 2]


@pytest.mark.parametrize("scd_type", [1, 2])
def test_changes(
    spark: SparkSession, table: str, sink: str, checkpoint: str, copies: Copies, scd_type: int
) -> None:
    run = stream_of_changes(spark, table, sink, checkpoint, scd_type)
    with copies(), pytest.raises(StreamingQueryException, match="DELTA_ROWS_COMPUTED_TWICE"):
        run()
    assert ids(load(spark, sink)) == []
    run()
    assert ids(load(spark, sink)) == list(range(40))


def test_a_batch_with_a_quarantine(
    spark: SparkSession,
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    tmp_path: Path,
    copy_kept_rows: Copy,
) -> None:
    half = "TBLPROPERTIES ('delta.constraints.half' = 'r < 0.5')"
    spark.sql(f"CREATE TABLE delta.`{sink}` (id BIGINT, r DOUBLE) USING delta {half}")
    streams.append(table, 0, 20_000, files=2)
    drawn = streams.read(table).repartition(40).withColumn("r", F.rand())
    quarantine = tmp_path / "quarantine"
    query = streams.write(drawn, sink, checkpoint, quarantinePath=str(quarantine))
    # The rows are judged, and the first of 40 tasks has written those of the quarantine.
    streams.until(lambda: any(quarantine.glob("*.parquet")), query)
    assert copy_kept_rows() >= 40
    message = streams.failed(query)
    assert message.startswith("[DELTA_ROWS_COMPUTED_TWICE]")
    assert sink in message
    assert versions(sink) == [0]
    assert not (quarantine / "_delta_log").exists()
    assert not [*Path(sink).glob("*.parquet"), *quarantine.glob("*.parquet")]
    streams.copy(drawn, sink, checkpoint, quarantinePath=str(quarantine))
    found = ids(load(spark, sink)) + ids(load(spark, str(quarantine)).select("row.id"))
    assert sorted(found) == list(range(20_000))
