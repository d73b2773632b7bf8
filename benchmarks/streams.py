"""Micro-batches of deltaflow's sink and source beside those of Spark's Parquet files, in one run.

    python benchmarks/streams.py [--batches 2000] [--segment 100] [--directory DIR] [--feed]

A batch has 1,000 rows. For the sink, a stream into a Delta table and one into a Parquet sink run in turn, by
segments of batches, each from its own checkpoint, until both have made all batches. For the source, a stream
out of this table and one out of the same files as plain Parquet run in turn into Spark's noop sink, with one
file in each batch. Prints the median and the 95th percentile of triggerExecution, their ratios and bounds,
Spark's own parts of a batch, and for the sink the milliseconds of its steps. With --feed instead, streams of
change rows (readChangeFeed) beside plain ones, over a table of appends and over one of updates, which the
plain stream reads with ignoreChanges; a commit in each batch. Exits with 1 if a figure exceeds its bound. Run
it on a quiet machine.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from figures import Figure, show
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from side_by_side import session

from deltaflow.batch.files.data_files import DataFiles
from deltaflow.log import DeltaLog, OptimisticTransaction

BOUND = 1.3
GROWTH_BOUND = 1.2
FEED_BOUND = 1.2
ROWS_PER_BATCH = 1_000
# The first batches of a segment load classes and plans, and pay for the start of the query.
WARM_UP = 5
# Every tenth version writes a checkpoint, and Spark compacts its own logs as often.
CHECKPOINT_INTERVAL = 10
GROWTH_WINDOW = 40
SEEN = (50, 2_000)
PARTS = ("latestOffset", "getBatch", "walCommit", "queryPlanning", "addBatch", "commitOffsets")

Start = Callable[[], StreamingQuery]


class Batches:
    """The time of a stream's batches, in milliseconds, by batch id."""

    def __init__(self, name: str, start: Start) -> None:
        self.name = name
        self._start = start
        self.took: dict[int, dict[str, int]] = {}
        self._counted: set[int] = set()

    def go_on(self, number: int, *, counts: bool = True) -> None:
        """Starts the stream again for a segment of that many batches, or until it has nothing to read.

        `counts`: whether `counted` has its batches.
        """
        query = self._start()
        first = None
        try:
            while query.isActive:
                progress = query.lastProgress
                if progress is not None:
                    first = progress.batchId if first is None else first
                    if progress.batchId >= first + number or progress.numInputRows == 0:
                        break
                time.sleep(0.02)
        finally:
            query.stop()
        if (error := query.exception()) is not None:
            raise error
        done = [p for p in query.recentProgress if p.numInputRows > 0]
        for progress in done:
            self.took[progress.batchId] = dict(progress.durationMs)
        self._counted.update(p.batchId for p in done[WARM_UP:] if counts)

    def counted(self, part: str = "triggerExecution") -> list[int]:
        """The times of all batches but the first ones of each segment."""
        return [took.get(part, 0) for batch, took in self.took.items() if batch in self._counted]

    def around(self, batch: int) -> list[int]:
        """The times of the batches near this one, without those whose commit writes a checkpoint."""
        near = range(batch - GROWTH_WINDOW, batch + GROWTH_WINDOW)
        return [
            took["triggerExecution"]
            for number, took in self.took.items()
            if number in near and number in self._counted and number % CHECKPOINT_INTERVAL
        ]

    def __str__(self) -> str:
        times = sorted(self.counted())
        parts = ", ".join(f"{part} {statistics.median(self.counted(part)):.0f}" for part in PARTS)
        return (
            f"{self.name:<16} {len(times)} batches: median {statistics.median(times):.0f} ms, "
            f"95th percentile {times[int(len(times) * 0.95)]} ms ({parts})"
        )


def take_turns(ours: Batches, parquet: Batches, batches: int, segment: int, bound: float = BOUND) -> bool:
    """Runs both to that many batches; returns whether the ratio of the medians is within the bound."""
    turn = 0
    while min(len(ours.took), len(parquet.took)) < batches:
        before = len(ours.took), len(parquet.took)
        for side in (ours, parquet) if turn % 2 == 0 else (parquet, ours):
            side.go_on(segment)
        if (len(ours.took), len(parquet.took)) == before:
            break
        turn += 1
    print(ours, parquet, sep="\n")
    medians = [statistics.median(side.counted()) for side in (ours, parquet)]
    figure = Figure(Path(sys.argv[0]).stem, ours.name, medians[0], "ms", medians[1], parquet.name, bound)
    show(figure)
    return figure.is_met


def grows_little(ours: Batches, parquet: Batches) -> bool:
    """Compares late batches with early ones. The figures of Parquet show the load of the machine."""
    late = min(SEEN[1], max(ours.took))
    ratios = []
    for side in (ours, parquet):
        first, last = (statistics.median(side.around(batch)) for batch in (SEEN[0], late))
        ratios.append(last / first)
        print(
            f"{side.name:<16} growth: around batch {SEEN[0]} {first:.0f} ms, around {late} {last:.0f} ms, "
            f"ratio {ratios[-1]:.2f}"
        )
    figure = Figure(Path(sys.argv[0]).stem, f"growth of {ours.name}", ratios[0], "", bound=GROWTH_BOUND)
    show(figure)
    return figure.is_met


class Steps:
    """Milliseconds of the sink's steps in Python; Spark's writing of the files is the rest of addBatch."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = defaultdict(list)
        self.measure(DeltaLog, "start_transaction", "snapshot update")
        self.measure(DataFiles, "add_actions", "footers")
        self.measure(OptimisticTransaction, "commit", "commit")

    def measure(self, owner: type, method: str, name: str) -> None:
        """Times the method's calls from now on, under this name."""
        original = getattr(owner, method)

        def measured(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self.took[name].append((time.perf_counter() - start) * 1_000)

        setattr(owner, method, measured)

    def show(self, batches: Batches) -> None:
        medians = {name: statistics.median(took) for name, took in self.took.items()}
        medians["write"] = statistics.median(batches.counted("addBatch")) - sum(medians.values())
        order = ("snapshot update", "write", "footers", "commit")
        print(f"{'':<16} steps: " + ", ".join(f"{name} {medians[name]:.1f} ms" for name in order), flush=True)


def sink(frame: Callable[[], DataFrame], format_name: str, directory: Path) -> Batches:
    def start() -> StreamingQuery:
        writer = frame().writeStream.format(format_name)
        writer = writer.option("checkpointLocation", str(directory / f"checkpoint-{format_name}"))
        return writer.start(str(directory / f"sink-{format_name}"))

    return Batches(f"sink {format_name}", start)


def source(frame: Callable[[], DataFrame], format_name: str, directory: Path) -> Batches:
    def start() -> StreamingQuery:
        writer = frame().writeStream.format("noop")
        return writer.option("checkpointLocation", str(directory / f"read-{format_name}")).start()

    return Batches(f"source {format_name}", start)


def run(spark: SparkSession, directory: Path, batches: int, segment: int) -> bool:
    def rows() -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch")
        return reader.option("rowsPerBatch", ROWS_PER_BATCH).option("numPartitions", 1).load()

    delta, parquet = sink(rows, "delta", directory), sink(rows, "parquet", directory)
    steps = Steps()
    results = [take_turns(delta, parquet, batches, segment)]
    steps.show(delta)
    results.append(grows_little(delta, parquet))

    table, files = directory / "sink-delta", directory / "files"
    files.mkdir()
    for file in table.glob("*.parquet"):
        (files / file.name).hardlink_to(file)
    schema = spark.read.format("delta").load(str(table)).schema

    def delta_files() -> DataFrame:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(table))

    def parquet_files() -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))

    delta, parquet = (
        source(delta_files, "delta", directory),
        source(parquet_files, "parquet", directory),
    )
    results.append(take_turns(delta, parquet, batches - 2 * segment, segment))
    results.append(grows_little(delta, parquet))
    return all(results)


def run_feed(spark: SparkSession, directory: Path, batches: int, segment: int) -> bool:
    """Streams of change rows beside plain ones over the same commits."""
    results = []
    for kind in ("appends", "updates"):
        path = str(directory / kind)
        rows = pa.table({"id": range(ROWS_PER_BATCH), "v": range(ROWS_PER_BATCH)})
        feed_is_on = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake(path, rows, configuration=feed_is_on)
        for _ in range(batches):
            if kind == "appends":
                deltalake.write_deltalake(path, rows, mode="append")
            else:
                deltalake.DeltaTable(path).update(
                    updates={"v": "v + 1"}, predicate=f"id < {ROWS_PER_BATCH // 2}"
                )

        def frame(path: str = path, **options: str) -> DataFrame:
            reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
            return reader.options(startingVersion="1", **options).load(path)

        def changes(frame: Callable[..., DataFrame] = frame) -> DataFrame:
            return frame(readChangeFeed="true")

        def added(frame: Callable[..., DataFrame] = frame) -> DataFrame:
            return frame(ignoreChanges="true")

        sides = source(changes, f"{kind} feed", directory), source(added, f"{kind} plain", directory)
        results.append(take_turns(*sides, batches, segment, FEED_BOUND))
    return all(results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=2_050)
    parser.add_argument("--segment", type=int, default=100)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--feed", action="store_true")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    spark = session(
        {
            "spark.driver.memory": "2g",
            "spark.log.level": "FATAL",  # the end of a segment stops a batch, which is no error
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
    )
    try:
        measured = run_feed if arguments.feed else run
        return 0 if measured(spark, directory, arguments.batches, arguments.segment) else 1
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
