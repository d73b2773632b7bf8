"""Executors in processes of their own need nothing of deltaflow; tests/cluster has the short trial of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

SCRIPT = """
import os
import deltaflow
spark = deltaflow.session("executors", master="local-cluster[2,1,1024]", config={
    **SETTINGS,
    "spark.executor.memory": "1g",
    "spark.executor.extraClassPath": "",
    # Nothing of Python is needed there: a worker would not even start.
    "spark.executorEnv.PYTHONPATH": "/nowhere",
    "spark.pyspark.python": "/nowhere/python",
})
spark.range(2, numPartitions=2).count()

def on_executors(prop):
    what = f"java_method('java.lang.System', 'getProperty', '{prop}', 'absent')"
    # 1000 * rand() keeps the optimizer from working it out on the driver.
    frame = spark.range(0, 8, 1, 8).selectExpr(f"IF(1000 * rand() >= 0, {what}, '') AS value")
    return {row.value for row in frame.collect()}

# This JVM has our classes, those JVMs have not, nor on their class path, nor is a jar sent to them.
assert spark._jvm.java.lang.System.getProperty("io.deltaflow.spark.sources") is not None
assert on_executors("io.deltaflow.spark.sources") == {"absent"}
assert not any("deltaflow" in path for path in on_executors("java.class.path"))
def sent():
    context = spark.sparkContext._jsc.sc()
    return [context.listJars().size(), context.listFiles().size(), context.listArchives().size()]
assert sent() == [0, 0, 0], sent()

frame = spark.range(0, 100, 1, 4).selectExpr("id", "id % 3 AS m", "CAST(id AS STRING) AS s")
frame.write.format("delta").partitionBy("m").save("table")
frame.where("id < 10").write.format("delta").mode("append").save("table")
loaded = load(spark, "table").where("m = 1 AND id > 50").select("id")
assert ids(loaded) == [i for i in range(100) if i % 3 == 1 and i > 50]
files = loaded.inputFiles()
assert files and all("/m=" in file for file in files)
plan = loaded._jdf.queryExecution().executedPlan().toString()
assert "FileScan parquet" in plan and "PartitionFilters: [isnotnull(m" in plan, plan

joined = load(spark, "table").join(frame.select("id"), "id").groupBy("m").count()
assert sum(row["count"] for row in joined.collect()) == 110

def run():
    query = (
        spark.readStream.format("delta").option("maxFilesPerTrigger", 3).load("table")
        .writeStream.format("delta")
        .option("checkpointLocation", "checkpoint").trigger(availableNow=True).start("copy")
    )
    query.awaitTermination()
run()
assert ids(load(spark, "copy")) == ids(load(spark, "table"))
frame.where("id >= 90").write.format("delta").mode("append").save("table")
run()
assert len(ids(load(spark, "copy"))) == 120

counts = (
    spark.readStream.format("delta").load("copy").groupBy("m").count().writeStream.format("delta")
    .outputMode("complete").option("checkpointLocation", "checkpoint-2").trigger(availableNow=True)
    .start("counts")
)
counts.awaitTermination()
assert sum(row["count"] for row in load(spark, "counts").collect()) == 120

spark.range(0).selectExpr("CAST(id AS TINYINT) AS id").write.format("delta").save("tiny")
doubled = spark.readStream.format("delta").load("copy").selectExpr("id * 2 AS id").dropDuplicates(["id"])
parted = doubled.writeStream.format("delta").option("checkpointLocation", "checkpoint-3")
parted.option("quarantinePath", "aside").trigger(availableNow=True).start("tiny").awaitTermination()
assert ids(load(spark, "tiny")) == list(range(0, 128, 2))
aside = load(spark, "aside").selectExpr("row.id").collect()
assert sorted(row.id for row in aside) == list(range(128, 200, 2))

marked = f"delta.`{os.path.abspath('marked')}`"
spark.sql(f'''CREATE TABLE {marked} (id BIGINT, v STRING) USING delta TBLPROPERTIES (
    delta.enableDeletionVectors = true, delta.columnMapping.mode = 'name', delta.enableRowTracking = true)''')
spark.range(0, 100, 1, 4).selectExpr("id", "'old' AS v").write.format("delta").mode("append").save("marked")
spark.sql(f"DELETE FROM {marked} WHERE id % 10 = 3")
spark.sql(f"UPDATE {marked} SET v = 'set' WHERE id % 10 = 4")
spark.range(95, 110).selectExpr("id", "'merged' AS v").createOrReplaceTempView("source")
spark.sql(f'''MERGE INTO {marked} t USING source s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *''')
expected = {id: "set" if id % 10 == 4 else "old" for id in range(100) if id % 10 != 3}
expected |= {id: "merged" for id in range(95, 110)}
rows = load(spark, "marked")
assert {row.id: row.v for row in rows.collect()} == expected
assert rows.count() == len(expected)
assert rows.select("_metadata.row_id").distinct().count() == len(expected)
spark.sql(f"REORG TABLE {marked} APPLY (PURGE)")
assert {row.id: row.v for row in load(spark, "marked").collect()} == expected
assert sent() == [0, 0, 0], sent()
assert on_executors("io.deltaflow.spark.sources") == {"absent"}
spark.stop()
"""


def test_executors_in_their_own_processes_need_nothing_of_ours(run: Callable[..., str]) -> None:
    run(SCRIPT)


WITH_EXECUTORS_TO_LOSE = """
import threading, time
import deltaflow
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

# A fetch from an executor that is lost fails soon.
FAILS_SOON = {"spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "200ms"}

def session(settings):
    return deltaflow.session("lost executors", master="local-cluster[2,1,512]", config={
        **SETTINGS, "spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1", **settings})

def executors(option=""):
    # The processes, with this text in their command line.
    processes = spark._jvm.java.lang.ProcessHandle.current().descendants().toArray()
    commands = [str(process.info().commandLine().orElse("")) for process in processes]
    return [process for process, command in zip(processes, commands, strict=True)
            if "CoarseGrainedExecutorBackend" in command and option in command]
"""

LOST = """
spark = session({
    "spark.sql.files.maxPartitionBytes": "300000", "spark.sql.files.openCostInBytes": "300000"})
spark.range(0, 20000, 1, 8).write.format("delta").save("source")
check = "TBLPROPERTIES ('delta.constraints.half' = 'r < 0.5')"
spark.sql(f"CREATE TABLE delta.`{os.getcwd()}/sink` (id BIGINT, r DOUBLE) USING delta {check}")

def run():
    # The rows come to a part in whatever order, and so get other numbers each time.
    rows = spark.readStream.format("delta").load("source").repartition(8, "id").withColumn("r", F.rand(1))
    writer = rows.writeStream.format("delta").option("checkpointLocation", "checkpoint")
    writer.option("quarantinePath", "aside").trigger(availableNow=True).start("sink").awaitTermination()

def kill_executors():
    # The rows of the quarantine are written, and those of the table are not yet.
    while not list(Path("sink").glob("*.parquet")):
        time.sleep(0.01)
    for process in executors():
        process.destroyForcibly()

killing = threading.Thread(target=kill_executors)
killing.start()
try:
    run()
except StreamingQueryException as error:
    assert "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error), error
    print("failed")
killing.join()
run()
found = ids(load(spark, "sink")) + ids(load(spark, "aside").select("row.id"))
assert sorted(found) == list(range(20000)), len(set(found))
spark.stop()
"""


def test_rows_of_a_quarantined_batch_are_judged_once_if_executors_are_lost(run: Callable[..., str]) -> None:
    run(WITH_EXECUTORS_TO_LOSE + LOST)


LOST_IN_SHUFFLE = """
spark = session({
    **FAILS_SOON,
    # Later Sparks find by these that rows have changed.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false"})
table = f"delta.`{os.getcwd()}/table`"
spark.sql(f'''CREATE TABLE {table} (id BIGINT, p INT, n BIGINT GENERATED ALWAYS AS IDENTITY) USING delta
    PARTITIONED BY (p) TBLPROPERTIES (
    'delta.autoOptimize.optimizeWrite' = 'true', 'delta.targetFileSize' = '20000')''')

def write():
    # The rows come to a part in whatever order, and so get other numbers and partitions each time.
    rows = spark.range(0, 200000, 1, 12).repartition(6, "id")
    rows = rows.withColumn("p", F.floor(24 * F.rand()).cast("int"))
    rows.write.format("delta").mode("append").save("table")

def kill_an_executor():
    tracker = spark.sparkContext.statusTracker()
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage and stage.numTasks > 12 and 4 <= stage.numCompletedTasks for stage in stages):
            break
        time.sleep(0.01)
    killed.append(executors()[0])
    killed[0].destroyForcibly()

killed = []
killing = threading.Thread(target=kill_an_executor, daemon=True)
killing.start()
try:
    write()
except Exception as error:
    assert "cannot rollback" in str(error), error
    print("failed")
    assert load(spark, "table").count() == 0
    write()
assert killed
rows = load(spark, "table").collect()
assert sorted(row.id for row in rows) == list(range(200000)), len({row.id for row in rows})
assert len({row.n for row in rows}) == 200000
spark.stop()
"""


def test_rows_of_an_optimized_write_are_not_lost_with_an_executor(run: Callable[..., str]) -> None:
    assert "failed" in run(WITH_EXECUTORS_TO_LOSE + LOST_IN_SHUFFLE)


LOST_WHILE_JUDGED = """
from deltaflow.spark.bridge.java_classes import java_classes
spark = session(FAILS_SOON)
spark.range(0, 4000, 1, 4).write.format("delta").save("source")
check = "TBLPROPERTIES ('delta.constraints.c' = 'k >= 0')"
spark.sql(f"CREATE TABLE delta.`{os.getcwd()}/sink` (id BIGINT, k INT) USING delta {check}")

def run(slow):
    rows = spark.readStream.format("delta").load("source").repartition(4, "id")
    rows = rows.withColumn("k", F.floor(16 * F.rand()).cast("int")).repartition(2, "k")
    if slow:  # while the other part is there already
        rows = rows.where('''IF(spark_partition_id() = 1 AND k >= 0 AND id % 20 = 0,
            reflect('java.lang.Thread', 'sleep', CAST(50 AS BIGINT)), 'x') IS NOT NULL''')
    writer = rows.writeStream.format("delta").option("checkpointLocation", "checkpoint")
    writer.option("quarantinePath", "aside").trigger(availableNow=True).start("sink").awaitTermination()

def executors_of_parts():
    master = java_classes(spark).expressions.Checkpoints.blocks(spark.sparkContext._jsc.sc()).master()
    for number in list(spark.sparkContext._jsc.getPersistentRDDs().keySet()):
        blocks = [spark._jvm.org.apache.spark.storage.RDDBlockId(number, part) for part in range(2)]
        places = [master.getLocations(block) for block in blocks]
        yield [place.apply(0).executorId() for place in places if place.size()]

def kill_the_executor_of_a_part():
    while not (found := [parts[0] for parts in executors_of_parts() if len(parts) == 1]):
        time.sleep(0.02)
    for process in executors(f"--executor-id {found[0]} "):
        process.destroyForcibly()
        killed.append(process)

killed = []
killing = threading.Thread(target=kill_the_executor_of_a_part, daemon=True)
killing.start()
try:
    run(slow=True)
except StreamingQueryException as error:
    assert "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error), error
    print("failed")
assert killed
assert load(spark, "sink").count() == 0
run(slow=False)
assert ids(load(spark, "sink")) == list(range(4000))
spark.stop()
"""


def test_rows_are_judged_by_one_job_if_an_executor_is_lost_in_it(run: Callable[..., str]) -> None:
    assert "failed" in run(WITH_EXECUTORS_TO_LOSE + LOST_WHILE_JUDGED)
