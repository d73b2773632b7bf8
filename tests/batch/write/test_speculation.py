"""Speculative copies of tasks: only one of two attempts with the same rows is in the table."""

from __future__ import annotations

import json

import pytest

from tests.batch.write.script_process import result_of_script
from tests.tables import actions, rows_by_deltalake, versions

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

# Spark starts no copy of a task on the host that has it already, nor any with a local master: so a master and
# two workers, each with a loopback address of its own.
SCRIPT = """
import json, sys, time, uuid
from pathlib import Path
import deltaflow
from pyspark import SparkContext
from pyspark.sql import functions as F

root = Path(sys.argv[1])
SparkContext._ensure_initialized()
jvm, deploy = SparkContext._jvm, SparkContext._jvm.org.apache.spark.deploy
conf = jvm.org.apache.spark.SparkConf(False)
master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
url = f"spark://127.0.0.1:{master._1().address().port()}"
urls = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
urls[0] = url
for number, host in enumerate(("127.0.0.1", "127.0.0.2")):
    deploy.worker.Worker.startRpcEnvAndEndpoint(
        host, 0, 0, 1, 1024, urls, str(root / "work"), jvm.scala.Some(number), conf, jvm.scala.Option.empty())

spark = deltaflow.session("speculation", master=url, config={
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.speculation": "true",
    "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "200ms"})

def slow_once(name):
    # The first attempt of the third task has begun files, and stops before its last rows.
    def look(value):
        if value == 2990:
            Path(f"{root}/{name}-{uuid.uuid4()}").touch()
            try:
                Path(f"{root}/{name} is slow").touch(exist_ok=False)
            except FileExistsError:
                return value
            while not (root / "end").exists():
                time.sleep(0.05)
        return value
    return F.udf(look, "long")

counts = {}
for name in ("plain", "parts"):
    rows = spark.range(0, 4000, 1, 4).withColumn("n", slow_once(name)("id"))
    rows = rows.withColumn("p", F.expr("id div 300 % 4"))
    writer = rows.write.format("delta").option("maxRecordsPerFile", 100)
    if name == "parts":
        writer = writer.partitionBy("p")
    writer.save(str(root / f"{name} table"))
    frame = spark.read.format("delta").load(str(root / f"{name} table"))
    counts[name] = [frame.count(), frame.where("n = id").select("id").distinct().count()]
(root / "end").touch()
print("RESULT", json.dumps(counts), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    root = tmp_path_factory.mktemp("speculation")
    return root, result_of_script(SCRIPT, root, timeout_s=400)


@pytest.mark.parametrize("name", ["plain", "parts"])
def test_one_of_two_attempts_is_in_the_table(outcome, name):
    root, counts = outcome
    table = str(root / f"{name} table")
    assert len(list(root.glob(f"{name}-*"))) > 1  # a copy was started
    assert counts[name] == [4000, 4000]
    assert len(rows_by_deltalake(table)) == 4000
    adds = actions(table, "add")
    assert sum(json.loads(add["stats"])["numRecords"] for add in adds) == 4000
    assert len({add["path"] for add in adds}) == len(adds)
    assert len(versions(table)) == 1
