"""Runs streams in a process that a test kills. This is no test module.

Arguments: a folder, and the streams as JSON: a list of (name, source, query, point). First shows the source
of the first stream on the console. Then runs them all, each of which is held in its second batch, at its
point, and says so: "AT <name>". A file `go` in a stream's folder lets it go on; its end is told as well:
"END <name> <error>".
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltaflow
from deltaflow.log.observer import set_observer
from deltaflow.streaming import apply_changes
from deltaflow.streaming.cdc import ChangeRows
from tests.tables import INTERPRETED

ROWS_PER_BATCH = 30


def read(spark: SparkSession, folder: Path, source: str) -> DataFrame:
    """The column `id` of a source as a stream."""
    path = str(folder / "source")
    if source == "changing":
        options = {
            "schemaTrackingLocation": f"{folder}/checkpoint/schema",
            "allowSourceColumnRename": "always",
        }
        return spark.readStream.format("delta").options(**options).load(path).select("id")
    if source == "changes":
        options = {"readChangeFeed": "true", "startingVersion": "0", "maxFilesPerTrigger": "3"}
        return spark.readStream.format("delta").options(**options).load(path).drop("_commit_timestamp")
    if source == "rate":
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        return reader.load().select(F.col("value").alias("id"))
    if source == "files":
        return spark.readStream.format("json").schema("id LONG").option("maxFilesPerTrigger", 1).load(path)
    return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(path)


def stream(spark: SparkSession, folder: Path, source: str, query: str) -> tuple[DataFrame, str]:
    """The stream that a query makes of the folder's source, and its output mode."""
    frame = read(spark, folder, source)
    if query == "counts":
        return frame.groupBy((F.col("id") % 3).alias("id")).count(), "complete"
    if query == "distinct":
        return frame.select((F.col("id") % 50).alias("id")).dropDuplicates(["id"]), "append"
    return frame, "append"


def replica(spark: SparkSession, folder: Path, source: str) -> Any:
    """The writer of a stream of change rows that keeps a replica of their table."""
    return apply_changes(read(spark, folder, source), str(folder / "sink"), keys="id", envelope=ChangeRows())


def say(line: str) -> None:
    """Prints a line in one piece, while other threads print theirs."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def place(point: str) -> str:
    """What a point is about, in the stream's folder."""
    if point.startswith("schema entry"):
        return "checkpoint/schema/_schema_log_table-1"
    return "quarantine" if point.startswith("quarantine: ") else "sink"


def main(folder: Path, streams: list[tuple[str, str, str, str]]) -> None:
    """Runs the streams until the process is killed."""
    spark = deltaflow.session(
        "killed",
        master="local[2]",
        config={
            **INTERPRETED,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    shown = read(spark, folder / streams[0][0], streams[0][1])
    console = shown.writeStream.format("console").option("numRows", 100)
    console = console.option("checkpointLocation", str(folder / "console"))
    console.trigger(availableNow=True).start().awaitTermination()

    # "quarantine: " before a point means the write of the quarantine's table.
    points = {str(folder / name / place(point)): (name, point) for name, _, _, point in streams}
    # A stream whose table changes has run its first batch elsewhere.
    passed = {name for name, source, _, _ in streams if source == "changing"}

    def hold(at: str, facts: dict[str, Any]) -> None:
        name, point = points.get(facts.get("path", facts.get("table", "")), ("", ""))
        if at != point.removeprefix("quarantine: "):
            return
        if name not in passed:  # the first batch
            passed.add(name)
            return
        say(f"AT {name}")
        while not (folder / name / "go").exists():
            time.sleep(0.02)

    def run(name: str, source: str, query_name: str) -> None:
        if query_name == "replica":
            writer = replica(spark, folder / name, source)
        else:
            frame, mode = stream(spark, folder / name, source, query_name)
            writer = frame.writeStream.format("delta").outputMode(mode)
        # Under availableNow the rate source ends after one batch.
        trigger: Any = {"processingTime": "0 seconds"} if source == "rate" else {"availableNow": True}
        writer = writer.option("checkpointLocation", str(folder / name / "checkpoint")).trigger(**trigger)
        if query_name == "quarantined":
            writer = writer.option("quarantinePath", str(folder / name / "quarantine"))
        query = writer.start(None if query_name == "replica" else str(folder / name / "sink"))
        try:
            query.awaitTermination()
        except StreamingQueryException:
            say(f"END {name} {str(query.exception()).splitlines()[0]}")

    set_observer(hold)
    threads = [
        threading.Thread(target=run, args=(name, source, query_name))
        for name, source, query_name, _ in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise AssertionError("nothing held the streams")


if __name__ == "__main__":
    main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=list[tuple[str, str, str, str]]))
