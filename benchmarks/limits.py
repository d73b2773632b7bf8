"""How near deltaflow comes to Spark alone: what it adds to batches that write nothing, and to a session.

    python benchmarks/limits.py [--batches 200] [--repeats 15] [--minutes 0] [--directory DIR] [--only NAME]

- `sink`: streams into a Delta table, a Parquet sink and Spark's noop sink. Each of the three makes a batch of
  the same 1,000 rows in turn, and between them a batch job writes these rows to a Parquet file and to
  nothing: the difference is the Parquet file write. The Delta sink may take the noop sink's time, that of the
  file write and 15 ms more.
- `source`: a stream out of a Delta table, a file in each batch, and one out of Spark's rate source, both into
  the noop sink, in turn by segments. The Delta source may take 15 ms more. Two batch jobs tell how much of
  that is Spark's planning and reading of a Parquet file: one reads it, one makes the same rows.
- `append`: a batch write of one row, beside Spark's write of a Parquet file: 30 ms more.
- `start`: a session that is registered and reads a small table for the first time, beside a plain one that
  reads its files, each in a process of its own: 1 s more.
- `ten`: ten streams in one driver, a table each and all into one table, beside ten Parquet sinks.
- `sustained`: with `--minutes`, a stream with two triggers in each second, for so long: it keeps up.

Prints medians and what they may be. Exits with 1 if one is above. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Report
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from side_by_side import session, timed
from streams import ROWS_PER_BATCH, Batches

BATCH_EXTRA_MS, APPEND_EXTRA_MS, START_EXTRA_MS = 15, 30, 1_000
TAIL_BOUND, TEN_BOUND = 1.5, 1.0
WARM_UP = 20
SEGMENT = 25
STREAMS = 10
TRIGGER_MS = 500


def percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[int(len(times) * share)]


class Rows:
    """Spark's MemoryStream: a batch begins when it gets its rows."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        package = jvm.org.apache.spark.sql.execution.streaming
        kind = package.MemoryStream if spark.version < "4.1" else package.runtime.MemoryStream
        session: Any = spark._jsparkSession
        self._stream = kind.apply(jvm.org.apache.spark.sql.Encoders.INT(), session)
        self._rows = jvm.PythonUtils.toSeq(list(range(ROWS_PER_BATCH)))
        self.frame = DataFrame(self._stream.toDF(), spark).selectExpr("value AS id", "value % 7 AS v")

    def add(self) -> None:
        self._stream.addData(self._rows)


class Stream:
    """A stream of `Rows`, whose batches run one by one."""

    def __init__(
        self, spark: SparkSession, format_name: str, directory: Path, table: Path | None = None
    ) -> None:
        self._rows = Rows(spark)
        checkpoint = directory / f"checkpoint-{format_name}"
        writer = self._rows.frame.coalesce(1).writeStream.format(format_name)
        writer = writer.option("checkpointLocation", str(checkpoint))
        path = table or directory / f"sink-{format_name}"
        self.query: StreamingQuery = writer.start() if format_name == "noop" else writer.start(str(path))

    def begin_batch(self) -> None:
        self._rows.add()

    def end_batch(self) -> float:
        """Milliseconds of the batch (triggerExecution)."""
        self.query.processAllAvailable()
        done = [progress for progress in self.query.recentProgress[-5:] if progress.numInputRows]
        return float(done[-1].durationMs["triggerExecution"])


@contextmanager
def running(streams: Sequence[Stream]) -> Iterator[None]:
    try:
        yield
    finally:
        for stream in streams:
            stream.query.stop()


def in_turn(sides: dict[str, Callable[[], float]], times: int) -> dict[str, list[float]]:
    """The milliseconds of each side, one after another, forwards and backwards, after a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(WARM_UP + times):
        for name in sides if turn % 2 == 0 else reversed(sides):
            took = sides[name]()
            if turn >= WARM_UP:
                found[name].append(took)
    return found


def tails(report: Report, found: dict[str, list[float]], ours: str, bound: float | None = TAIL_BOUND) -> None:
    for name, times in found.items():
        ratio = percentile(times, 0.95) / statistics.median(times)
        report.value(f"{name}: 95th percentile / median", ratio, "", bound if name == ours else None)


def sink(spark: SparkSession, directory: Path, report: Report, batches: int) -> None:
    streams = {name: Stream(spark, name, directory) for name in ("delta", "noop", "parquet")}
    rows = spark.range(0, ROWS_PER_BATCH, 1, 1).selectExpr("id", "id % 7 AS v")

    def batch(stream: Stream) -> Callable[[], float]:
        def run() -> float:
            stream.begin_batch()
            return stream.end_batch()

        return run

    sides = {f"{name} sink": batch(stream) for name, stream in streams.items()}
    sides["job to a Parquet file"] = lambda: (
        1_000 * timed(lambda: rows.write.mode("append").parquet(str(directory / "written")))
    )
    sides["job to nothing"] = lambda: (
        1_000 * timed(lambda: rows.write.mode("overwrite").format("noop").save())
    )
    with running(list(streams.values())):
        found = in_turn(sides, batches)
    median = {name: statistics.median(times) for name, times in found.items()}
    written = median["job to a Parquet file"] - median["job to nothing"]
    for name in sides:
        report.value(name, median[name], "ms", None)
    limit = median["noop sink"] + written
    report.difference(
        "micro-batch into a table", median["delta sink"], limit, "noop sink + file", "ms", BATCH_EXTRA_MS
    )
    report.ratio("beside a Parquet sink", median["delta sink"], median["parquet sink"], "ms", 1.0)
    tails(report, {name: found[name] for name in ("delta sink", "noop sink", "parquet sink")}, "delta sink")


def source(spark: SparkSession, directory: Path, report: Report, batches: int) -> None:
    table = str(directory / "read")
    number = batches + (batches // SEGMENT + 1) * WARM_UP + 2 * SEGMENT
    rows = spark.range(0, number * ROWS_PER_BATCH, 1, number).selectExpr("id AS value", "id % 7 AS v")
    rows.write.format("delta").save(table)

    def into_nothing(name: str, frame: Callable[[], DataFrame]) -> Batches:
        def start() -> StreamingQuery:
            writer = frame().writeStream.format("noop")
            return writer.option("checkpointLocation", str(directory / f"read-{name}")).start()

        return Batches(name, start)

    def of_rate() -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        return reader.option("numPartitions", 1).load()

    def of_table() -> DataFrame:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(table)

    ours, rate = into_nothing("Delta source", of_table), into_nothing("rate source", of_rate)
    # The first batches of a JVM take twice as long, until it has compiled what they run.
    for side in (ours, rate):
        side.go_on(SEGMENT, counts=False)
    turn = 0
    while min(len(ours.counted()), len(rate.counted())) < batches:
        for side in (ours, rate) if turn % 2 == 0 else (rate, ours):
            side.go_on(SEGMENT)
        turn += 1
    found = {side.name: [float(took) for took in side.counted()] for side in (ours, rate)}
    medians = [statistics.median(times) for times in found.values()]
    report.difference("micro-batch out of a table", *medians, "rate source", "ms", BATCH_EXTRA_MS)
    tails(report, found, "Delta source")
    _cost_of_a_file(spark, directory, report, batches // 4)


def _cost_of_a_file(spark: SparkSession, directory: Path, report: Report, repeats: int) -> None:
    path = str(directory / "one-file")
    rows = spark.range(0, ROWS_PER_BATCH, 1, 1).selectExpr("id AS value", "id % 7 AS v")
    rows.write.parquet(path)

    def into_nothing(frame: Callable[[], DataFrame]) -> Callable[[], float]:
        return lambda: 1_000 * timed(lambda: frame().write.mode("overwrite").format("noop").save())

    sides = {
        "job that reads a Parquet file": into_nothing(lambda: spark.read.schema(rows.schema).parquet(path)),
        "job that makes its rows": into_nothing(lambda: rows.select("*")),
    }
    for name, times in in_turn(sides, repeats).items():
        report.value(name, statistics.median(times), "ms", None)


def append(spark: SparkSession, directory: Path, report: Report, repeats: int) -> None:
    row = spark.range(0, 1, 1, 1)

    def write(format_name: str) -> Callable[[], float]:
        writer = row.write.format(format_name).mode("append")
        return lambda: 1_000 * timed(lambda: writer.save(str(directory / f"append-{format_name}")))

    empty = row.write.format("noop").mode("overwrite")
    sides = {
        "append of one row": write("delta"),
        "write of one row to a Parquet file": write("parquet"),
        "job to nothing": lambda: 1_000 * timed(lambda: empty.save()),
    }
    median = {name: statistics.median(times) for name, times in in_turn(sides, repeats).items()}
    # The write of a Parquet file is a job itself.
    limit = median["write of one row to a Parquet file"]
    report.value("job to nothing", median["job to nothing"], "ms", None)
    report.difference(
        "append of one row", median["append of one row"], limit, "job and Parquet file", "ms", APPEND_EXTRA_MS
    )


_START = """
import sys, time
kind, path = sys.argv[1:]
from pyspark.sql import SparkSession
settings = {"spark.ui.enabled": "false", "spark.log.level": "FATAL", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
begun = time.perf_counter()
if kind == "delta":
    import deltaflow
    deltaflow.register(spark)
spark.read.format(kind).load(path).collect()
print((time.perf_counter() - begun) * 1000)
"""


def start(spark: SparkSession, directory: Path, report: Report, repeats: int) -> None:
    """The time from a session that is there to the rows of a table."""
    table = str(directory / "small")
    spark.range(10).coalesce(1).write.format("delta").save(table)

    def read(kind: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", _START, kind, table], check=True, capture_output=True, text=True
        )
        return float(done.stdout.splitlines()[-1])

    found: dict[str, list[float]] = {"delta": [], "parquet": []}
    for kind in found:
        read(kind)  # the first compiles the Java classes
    for turn in range(repeats):
        for kind in found if turn % 2 == 0 else reversed(found):
            found[kind].append(read(kind))
    medians = [statistics.median(times) for times in found.values()]
    report.difference("register, then read", *medians, "plain Spark's first read", "ms", START_EXTRA_MS)


def ten(spark: SparkSession, directory: Path, report: Report, batches: int) -> None:
    """All of the streams get their rows at once; a turn ends when the last of them is done."""
    numbers = itertools.count()

    def turns(format_name: str, *, one_table: bool) -> tuple[list[Stream], Callable[[], float]]:
        place = directory / f"ten-{next(numbers)}"
        streams = [
            Stream(spark, format_name, place / str(number), place / "table" if one_table else None)
            for number in range(STREAMS)
        ]

        def run() -> float:
            def all_of_them() -> None:
                for stream in streams:
                    stream.begin_batch()
                for stream in streams:
                    stream.query.processAllAvailable()

            return 1_000 * timed(all_of_them)

        return streams, run

    cases = {
        "ten streams, a table each": turns("delta", one_table=False),
        "ten streams into one table": turns("delta", one_table=True),
        "ten Parquet sinks": turns("parquet", one_table=False),
    }
    with running([stream for streams, _ in cases.values() for stream in streams]):
        found = in_turn({name: run for name, (_, run) in cases.items()}, batches)
    median = {name: statistics.median(times) for name, times in found.items()}
    for name in list(cases)[:2]:
        report.ratio(name, median[name], median["ten Parquet sinks"], "ms", TEN_BOUND)


def sustained(spark: SparkSession, directory: Path, report: Report, minutes: float) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    writer = rows.option("numPartitions", 1).load().writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(directory / "sustained-checkpoint"))
    query = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start(str(directory / "sustained"))
    took: dict[int, int] = {}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and query.isActive:
        took.update({p.batchId: p.durationMs["triggerExecution"] for p in query.recentProgress})
        time.sleep(10)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    due = 60_000 * minutes / TRIGGER_MS
    report.value("sustained: batches / triggers that were due", len(took) / due, "", None)
    late = sum(ms > TRIGGER_MS for ms in took.values())
    report.value("sustained: batches that took longer than a trigger", late / len(took), "", 0.01)
    report.value("sustained: median of a batch", statistics.median(took.values()), "ms", TRIGGER_MS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", choices=["sink", "source", "append", "start", "ten", "sustained"])
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    settings = {
        "spark.driver.memory": "2g",
        "spark.log.level": "FATAL",  # the end of a segment stops a batch, which is no error
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    spark, report = session(settings), Report("limits")
    parts: dict[str, tuple[Callable[..., None], float]] = {
        "sink": (sink, arguments.batches),
        "source": (source, arguments.batches),
        "append": (append, arguments.batches),
        "start": (start, arguments.repeats),
        "ten": (ten, arguments.batches // 5),
        "sustained": (sustained, arguments.minutes),
    }
    try:
        for name, (part, times) in parts.items():
            if times and arguments.only in (None, name):
                part(spark, directory, report, times)
        return int(report.failed)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
