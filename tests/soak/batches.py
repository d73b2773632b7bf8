"""One stream of many micro-batches, out of a Delta table and into another: what its driver holds stays level.

    python -m tests.soak.batches [--batches 20000] [--every 200] [--samples FILE] [--directory DIR]

Every batch has one file of 10 rows. Each `--every` batches it writes a sample to FILE (a JSON object a line),
and at the end it prints how far each measure rises after the first third of the samples. Exits with 1 if one
rises further than it may, or if the rows are not those of the source, each once. SIGTERM or SIGINT ends it
early: with the verdict, and the rows of the batches that were.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import deltaflow
from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, schema_to_string
from deltaflow.log.observer import set_observer
from tests.soak.samples import Driver, Sample, append, end_when_told, grows, session_settings, verdict

_ROWS = 10
_FILES_OF_A_COMMIT = 50
_WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})


def write_source(path: Path, files: int) -> None:
    """A table of so many files, the ids of which go on from one to the next."""
    path.mkdir(parents=True)
    log = DeltaLog.for_table(str(path))
    schema = schema_to_string(StructType([StructField("id", LongType())]))
    for first in range(0, files, _FILES_OF_A_COMMIT):
        transaction = log.start_transaction()
        if first == 0:
            transaction.update_metadata(Metadata(id="source", schema_string=schema, partition_columns=[]))
        numbers = range(first, min(first + _FILES_OF_A_COMMIT, files))
        transaction.commit([_new_file(path, number) for number in numbers], _WRITE)


def _new_file(path: Path, number: int) -> AddFile:
    name = f"part-{number:08}.parquet"
    ids = pa.array(range(number * _ROWS, (number + 1) * _ROWS), pa.int64())
    pq.write_table(pa.table({"id": ids}), path / name)
    size = (path / name).stat().st_size
    return AddFile(path=name, partition_values={}, size=size, modification_time=1, data_change=True)


def soak(spark: SparkSession, folder: Path, batches: int, every: int, file: Path) -> list[Sample]:
    """Runs the stream; the samples, which are also in the file."""
    write_source(folder / "source", batches)
    driver = Driver(spark)
    told = end_when_told()
    samples: list[Sample] = []
    arrived, go_on = threading.Event(), threading.Event()
    began = [time.monotonic()]
    took: deque[float] = deque(maxlen=every)  # all of them would be a rise by themselves
    cpu_ms = driver.cpu_ms()

    def hold(point: str, facts: dict[str, Any]) -> None:
        """The time from batch to batch; the stream waits while a sample is taken."""
        if point != "offset written":
            return
        took.append(1_000 * (time.monotonic() - began[0]))
        if facts["batch_id"] and facts["batch_id"] % every == 0:
            go_on.clear()
            arrived.set()
            go_on.wait()
        began[0] = time.monotonic()

    set_observer(hold)
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder / "source"))
    writer = stream.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "sink"))
    try:
        while query.isActive and not told.is_set():
            if arrived.wait(1):
                arrived.clear()
                last = sorted(took)
                sample = {
                    "batch": every * (len(samples) + 1),
                    "batch_ms": last[len(last) // 2],
                    "batch_ms_95": last[int(len(last) * 0.95)],
                    "batch_cpu_ms": (driver.cpu_ms() - cpu_ms) / every,
                    **driver.sample(),
                }
                samples.append(sample)
                append(file, sample)
                cpu_ms = driver.cpu_ms()
                go_on.set()
        if not told.is_set():
            query.awaitTermination()
    finally:
        set_observer(None)
        go_on.set()
        query.stop()
    return samples


def batches_once(spark: SparkSession, folder: Path) -> int | None:
    """How many batches from the first one on the sink has, if it has each of their rows once."""
    sink = spark.read.format("delta").load(str(folder / "sink"))
    [(rows, ids, last)] = sink.selectExpr("count(*)", "count(distinct id)", "max(id)").collect()
    return rows // _ROWS if rows == ids == last + 1 and rows % _ROWS == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.batches")
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=200)
    parser.add_argument("--samples", type=Path, default=Path("soak-batches.jsonl"))
    parser.add_argument("--directory")
    options = parser.parse_args()
    options.samples.unlink(missing_ok=True)
    spark = deltaflow.session("soak", master="local[1]", config=session_settings())
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        began = time.monotonic()
        samples = soak(spark, Path(folder), options.batches, options.every, options.samples)
        minutes = (time.monotonic() - began) / 60
        batches = batches_once(spark, Path(folder))
    lines = verdict(samples)
    print(*lines, sep="\n")
    rows = "ROWS ARE LOST OR DOUBLED" if batches is None else "each row once"
    print(f"{batches} of {options.batches} batches in {minutes:.0f} minutes: {rows}")
    spark.stop()
    sys.exit(batches is None or grows(lines))


if __name__ == "__main__":
    main()
