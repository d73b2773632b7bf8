"""Sessions and contexts, several at once and one after the other, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.spark

SESSIONS = """
import threading, time
from pyspark.sql import SparkSession
import deltaflow
from deltaflow.spark.bridge.dispatcher import dispatcher

def plain_session():
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

def in_threads(*functions):
    start, errors = threading.Barrier(len(functions)), []
    def run(function):
        start.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [], errors

def jars_of_ours(spark):
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return [url.toString() for url in loader.getURLs() if "deltaflow" in url.toString()]

def drained(spark, source, sink, checkpoint):
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source)
    sink_of = stream.writeStream.format("delta").option("checkpointLocation", checkpoint)
    sink_of.trigger(availableNow=True).start(sink).awaitTermination()

def works(spark, name):
    spark.range(5).write.format("delta").save(name)
    spark.range(5, 7).write.format("delta").mode("append").save(name)
    assert ids(load(spark, name)) == list(range(7))
    drained(spark, name, name + "-sink", name + "-checkpoint")
    assert ids(load(spark, name + "-sink")) == list(range(7))
    by_path = f"delta.`{os.getcwd()}/{name}`"
    spark.sql(f"INSERT INTO {by_path} VALUES (7L)")
    assert spark.sql(f"SELECT count(*) FROM {by_path}").first()[0] == 8

# A session that has run queries already.
spark = plain_session()
assert spark.range(3).count() == 3
before = spark.newSession()
started = time.perf_counter()
in_threads(*[lambda: deltaflow.register(spark)] * 8)
print(f"registered by 8 threads in {time.perf_counter() - started:.2f} s")
assert len(jars_of_ours(spark)) == 1
started = time.perf_counter()
assert deltaflow.register(spark) is spark
print(f"registered again in {time.perf_counter() - started:.2f} s")
assert deltaflow.session("ignored").sparkContext is spark.sparkContext
assert len(jars_of_ours(spark)) == 1
works(spark, "registered")
works(spark.newSession(), "new-session")
works(deltaflow.register(before), "registered-later")

# Two streams and a batch write into one table at once, from threads of their own.
spark.range(0, 20, 1, 4).write.format("delta").save("first")
spark.range(20, 40, 1, 4).write.format("delta").save("second")
spark.range(0).write.format("delta").save("all")
in_threads(
    lambda: drained(spark, "first", "all", "checkpoint-1"),
    lambda: drained(spark.newSession(), "second", "all", "checkpoint-2"),
    lambda: [spark.range(n, n + 10).write.format("delta").mode("append").save("all") for n in (40, 50)],
)
assert ids(load(spark, "all")) == list(range(60))
assert dispatcher.open_handles == 0

# The context ends and another one begins in the same process, and the same JVM.
running = (
    spark.readStream.format("delta").load("first").writeStream.format("delta")
    .option("checkpointLocation", "checkpoint-3").start("third")
)
running.processAllAvailable()
running.stop()
for how in ("session", "register"):
    spark.stop()
    if how == "session":
        spark = deltaflow.session("again", master="local[2]", config=SETTINGS)
        assert spark.sparkContext.appName == "again"
    else:
        spark = deltaflow.register(plain_session())
    assert len(jars_of_ours(spark)) == 1
    works(spark, "after-" + how)
    works(spark.newSession(), "new-session-after-" + how)
    assert ids(load(spark, "third")) == list(range(20))
assert dispatcher.open_handles == 0
spark.stop()
"""


@pytest.mark.long
@pytest.mark.parametrize("pin_thread", ["true", "false"])
def test_sessions_and_contexts(run: Callable[..., str], pin_thread: str) -> None:
    print(run(SESSIONS, environment={"PYSPARK_PIN_THREAD": pin_thread}))


JOB = """
import deltaflow
spark = deltaflow.session("my app", config={"spark.sql.shuffle.partitions": 3})
assert spark.sparkContext.master == "local[2]", spark.sparkContext.master
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
spark.range(5).write.format("delta").save(sys.argv[1])
print(spark.sparkContext.appName, ids(load(spark, sys.argv[1])))
spark.stop()
"""


def test_spark_submit(run: Callable[..., str], tmp_path: Path) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.driver.host=127.0.0.1",
    ]
    printed = run(JOB, tmp_path / "table", command=[str(submit), *settings])
    assert "my app [0, 1, 2, 3, 4]" in printed
