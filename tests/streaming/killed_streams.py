"""Runs streams in a process of its own, which a test kills; no test module.

Arguments: a folder, and the streams as JSON: a list of (name, kind, point). First shows the source of
the first stream on the console. Then runs them all, each of which is held in its second batch, at its
point, and says so: "AT <name>".
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltaflow
from deltaflow.log.observer import set_observer


def stream(spark: SparkSession, folder: Path, kind: str) -> tuple[DataFrame, str]:
    """The stream that reads the folder's source, and its output mode."""
    if kind == "files":
        reader = spark.readStream.format("json").schema("id LONG").option("maxFilesPerTrigger", 1)
        return reader.load(str(folder / "source")), "append"
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    frame = reader.load(str(folder / "source"))
    if kind == "counts":
        return frame.groupBy((F.col("id") % 3).alias("id")).count(), "complete"
    return frame, "append"


def main(folder: Path, streams: list[tuple[str, str, str]]) -> None:
    """Runs the streams until the process is killed."""
    spark = deltaflow.session(
        "killed",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    shown, _ = stream(spark, folder / streams[0][0], streams[0][1])
    console = shown.writeStream.format("console").option("numRows", 100)
    console = console.option("checkpointLocation", str(folder / "console"))
    console.trigger(availableNow=True).start().awaitTermination()

    points = {str(folder / name / "sink"): (name, point) for name, _, point in streams}
    passed: set[str] = set()

    def hold(at: str, facts: dict[str, Any]) -> None:
        table = facts.get("path", facts.get("table"))
        name, point = points[table]
        if at != point:
            return
        if name not in passed:  # the first batch
            passed.add(name)
            return
        print(f"AT {name}", flush=True)
        threading.Event().wait()

    set_observer(hold)
    queries = []
    for name, kind, _ in streams:
        frame, mode = stream(spark, folder / name, kind)
        writer = frame.writeStream.format("delta").outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / name / "checkpoint"))
        queries.append(writer.start(str(folder / name / "sink")))
    for query in queries:
        query.awaitTermination()
    raise AssertionError("nothing held the streams")


if __name__ == "__main__":
    main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=list[tuple[str, str, str]]))
