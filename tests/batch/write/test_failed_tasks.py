"""Tasks that fail: once, and the write succeeds without their files; always, and nothing is committed."""

from __future__ import annotations

import json

import pytest

from tests.batch.write.script_process import result_of_script
from tests.tables import actions, rows_by_deltalake, versions

pytestmark = pytest.mark.spark

# Only another Spark master retries tasks, so the script runs in a process of its own.
SCRIPT = """
import json, os, sys
from pathlib import Path
import deltaflow
from pyspark.sql import functions as F

root = Path(sys.argv[1])
spark = deltaflow.session("failing tasks", master="local[2,3]", config={
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2"})

def fails_once(marker):
    # Fails late in its first task, after files have been begun.
    def look(value):
        if value % 1000 == 990 and not os.path.exists(f"{marker}-{value}"):
            Path(f"{marker}-{value}").touch()
            raise RuntimeError("on purpose")
        return value
    return F.udf(look, "long")

def data(marker, function=fails_once):
    marker = str(root / marker)
    numbers = spark.range(0, 2000, 1, 2).withColumn("n", function(marker)("id"))
    return numbers.withColumn("p", F.expr("id div 300 % 4"))

data("plain").write.format("delta").save(str(root / "plain table"))
parts = data("parts").write.format("delta").partitionBy("p")
parts.option("maxRecordsPerFile", 100).save(str(root / "parts table"))
data("shuffled").repartition(3).write.format("delta").save(str(root / "shuffled table"))

def mapped(batches):
    for batch in batches:
        marker = root / f"mapped-{batch['id'].iloc[0]}"
        if not marker.exists():
            yield batch
            marker.touch()
            raise RuntimeError("on purpose")
        yield batch

spark.range(0, 2000, 1, 2).selectExpr("id", "id as n", "id % 4 as p").mapInPandas(
    mapped, "id long, n long, p long").write.format("delta").save(str(root / "mapped table"))

def fails_always(marker):
    def look(value):
        if value == 1990:
            raise RuntimeError("always")
        return value
    return F.udf(look, "long")

error = None
try:
    data("plain", fails_always).write.format("delta").mode("overwrite").save(str(root / "plain table"))
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"
created = None
try:
    data("never", fails_always).write.format("delta").partitionBy("p").save(str(root / "never table"))
except Exception as raised:
    created = f"{type(raised).__name__}: {raised}"

counts = {}
for name in ("plain", "parts", "shuffled", "mapped"):
    frame = spark.read.format("delta").load(str(root / f"{name} table"))
    counts[name] = [frame.count(), frame.where("n = id").select("id").distinct().count()]
from deltaflow.spark.bridge.dispatcher import dispatcher
print("RESULT", json.dumps({"counts": counts, "error": error, "created": created,
                            "handles": dispatcher.open_handles}), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    root = tmp_path_factory.mktemp("failed tasks")
    return root, result_of_script(SCRIPT, root, timeout_s=280)


@pytest.mark.parametrize("name", ["plain", "parts", "shuffled", "mapped"])
@pytest.mark.sampled(2)
def test_only_the_attempt_that_succeeded_counts(outcome, name):
    root, result = outcome
    path = str(root / f"{name} table")
    assert len(list(root.glob(f"{name}-*"))) > 0  # a task did fail
    assert result["counts"][name] == [2000, 2000]
    assert len(rows_by_deltalake(path)) == 2000
    adds = actions(path, "add")
    assert sum(json.loads(add["stats"])["numRecords"] for add in adds) == 2000
    assert actions(path, "commitInfo")[0]["operationMetrics"]["numOutputRows"] == "2000"
    assert len({add["path"] for add in adds}) == len(adds)
    assert len(versions(path)) == 1


def test_a_write_that_fails_commits_nothing(outcome):
    root, result = outcome
    assert "always" in result["error"]
    assert "always" in result["created"]
    assert not (root / "never table" / "_delta_log").exists()
    assert result["handles"] == 0
