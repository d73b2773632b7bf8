"""deltaflow beside plain Parquet, in one run: scans, a point lookup, writes and micro-batches.

    python benchmarks/side_by_side.py [--rows 20000000] [--repeats 5] [--directory DIR]

Every pair is measured in turn (A B, then B A, …), after a warm-up of both, on the same data in the same
session. Prints medians, their ratio and the bound. Exits with 1 if a ratio exceeds its bound. Run it on a
quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, show
from pyspark.sql import DataFrame, SparkSession

import deltaflow

SCAN_BOUND = 1.05
COUNT_BOUND = 0.5
LOOKUP_BOUND = 0.5
WRITE_BOUND = 1.15
STREAM_BOUND = 1.5
# The time that the commit of one row may take after its file is written.
APPEND_SECONDS = 0.1
LOOKUP_FILES = 200
WARM_UP_REPEATS = 2
ROWS_PER_BATCH = 1_000
BATCHES = 30
WARM_UP_BATCHES = 5
# With less data than this, fixed costs would decide scans and writes.
LEAST_BYTES = 500_000_000
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class Comparison:
    """Seconds of every run of both sides of one pair."""

    name: str
    ours: list[float]
    parquet: list[float]
    bound: float
    """The bound of the ratio of the medians."""
    extra: float = 0.0
    """Seconds that are allowed in addition."""
    other: str = "Parquet"
    """What `parquet` are the seconds of."""

    @property
    def figure(self) -> Figure:
        """The medians."""
        ours, parquet = statistics.median(self.ours), statistics.median(self.parquet)
        return Figure(
            Path(sys.argv[0]).stem, self.name, ours, "s", parquet, self.other, self.bound, self.extra or None
        )

    @property
    def is_met(self) -> bool:
        return self.figure.is_met


def compare(
    name: str,
    ours: Callable[[], float],
    parquet: Callable[[], float],
    repeats: int,
    bound: float,
    extra: float = 0.0,
    other: str = "Parquet",
) -> Comparison:
    """Runs both sides in turn, the first pairs uncounted; each returns its seconds."""
    for _ in range(WARM_UP_REPEATS):
        ours(), parquet()
    ours_seconds, parquet_seconds = [], []
    for repeat in range(repeats):
        # The second side finds warmer caches, so the order changes at every repeat.
        for side in ("ours", "parquet") if repeat % 2 == 0 else ("parquet", "ours"):
            if side == "ours":
                ours_seconds.append(ours())
            else:
                parquet_seconds.append(parquet())
    result = Comparison(name, ours_seconds, parquet_seconds, bound, extra, other)
    show(result.figure)
    return result


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def read_all(frame: DataFrame) -> float:
    return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def scans(spark: SparkSession, table: str, repeats: int) -> list[Comparison]:
    """Plans and scans the same files again at every run."""

    def delta() -> DataFrame:
        return spark.read.format("delta").load(table)

    def parquet() -> DataFrame:
        return spark.read.parquet(table)

    return [
        compare(
            "scan of all columns", lambda: read_all(delta()), lambda: read_all(parquet()), repeats, SCAN_BOUND
        ),
        compare(
            "scan of one column",
            lambda: timed(lambda: delta().agg({"amount": "sum"}).collect()),
            lambda: timed(lambda: parquet().agg({"amount": "sum"}).collect()),
            repeats,
            SCAN_BOUND,
        ),
        compare(
            "count",
            lambda: timed(lambda: delta().count()),
            lambda: timed(lambda: parquet().count()),
            repeats,
            COUNT_BOUND,
        ),
    ]


def lookups(spark: SparkSession, frame: DataFrame, directory: Path, repeats: int) -> Comparison:
    """Looks up another row by its key at every run, in LOOKUP_FILES files sorted by the key."""
    table = str(directory / "sorted")
    rows = frame.count()
    frame.repartitionByRange(LOOKUP_FILES, "id").sortWithinPartitions("id").write.format("delta").save(table)
    keys = itertools.count(1)

    def look_up(read: Callable[[], DataFrame]) -> float:
        key = next(keys) * 7_919_317 % rows
        return timed(lambda: read().where(f"id = {key}").collect())

    return compare(
        "point lookup",
        lambda: look_up(lambda: spark.read.format("delta").load(table)),
        lambda: look_up(lambda: spark.read.parquet(table)),
        repeats,
        LOOKUP_BOUND,
    )


def appends(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """Appends one row at every run, to the same table."""
    row = data(spark, 1).coalesce(1)

    def append(format_name: str) -> float:
        path = str(directory / f"append-{format_name}")
        return timed(lambda: row.write.format(format_name).mode("append").save(path))

    return compare(
        "append of one row", lambda: append("delta"), lambda: append("parquet"), repeats, 1.0, APPEND_SECONDS
    )


def writes(frame: DataFrame, directory: Path, repeats: int) -> Comparison:
    """Writes the frame to a new directory at every run."""

    def write(format_name: str) -> float:
        path = directory / f"write-{format_name}"
        shutil.rmtree(path, ignore_errors=True)
        return timed(lambda: frame.write.format(format_name).save(str(path)))

    return compare("batch write", lambda: write("delta"), lambda: write("parquet"), repeats, WRITE_BOUND)


def micro_batches(spark: SparkSession, format_name: str, directory: Path) -> list[float]:
    """triggerExecution in seconds of BATCHES micro-batches of a new stream, after its first ones."""
    shutil.rmtree(directory, ignore_errors=True)
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .load()
        .writeStream.format(format_name)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start(str(directory / "table"))
    )
    try:
        while query.isActive and (
            query.lastProgress is None or query.lastProgress.batchId < BATCHES + WARM_UP_BATCHES
        ):
            time.sleep(0.05)
    finally:
        query.stop()
    if query.exception() is not None:
        raise query.exception()
    progress = [p for p in query.recentProgress if p.batchId >= WARM_UP_BATCHES][:BATCHES]
    return [p.durationMs["triggerExecution"] / 1000 for p in progress]


def streams(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """Whole streams in turn; the figure of a run is the median of its batches."""

    def run(format_name: str) -> float:
        return statistics.median(micro_batches(spark, format_name, directory / f"stream-{format_name}"))

    return compare(
        f"micro-batch of {ROWS_PER_BATCH} rows",
        lambda: run("delta"),
        lambda: run("parquet"),
        repeats,
        STREAM_BOUND,
    )


def data(spark: SparkSession, rows: int) -> DataFrame:
    """Rows of about 30 bytes in Parquet, which a dictionary does not make smaller."""
    return spark.range(rows).selectExpr(
        "id", "hash(id) AS key", "cast(xxhash64(id, 7) AS double) AS amount", "hex(xxhash64(id)) AS text"
    )


def session(settings: Mapping[str, str]) -> SparkSession:
    """A quiet session on two cores, with these additional settings."""
    return deltaflow.session("benchmark", master="local[2]", config={**SETTINGS, **settings})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", choices=["scans", "points", "writes", "streams"])
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    spark = session({"spark.sql.streaming.numRecentProgressUpdates": "200"})
    try:
        results: list[Comparison] = []
        if arguments.only in (None, "scans", "writes"):
            frame = data(spark, arguments.rows)
            table = str(directory / "table")
            frame.repartition(8).write.format("delta").save(table)
            size = sum(file.stat().st_size for file in Path(table).glob("*.parquet"))
            print(f"{arguments.rows:,} rows, {size / 1e6:,.0f} MB of Parquet in {table}", flush=True)
            if size < LEAST_BYTES:
                print(f"too little: at least {LEAST_BYTES / 1e6:,.0f} MB are needed", file=sys.stderr)
                return 2
            if arguments.only != "writes":
                results += scans(spark, table, arguments.repeats)
            if arguments.only != "scans":
                results.append(writes(frame, directory, arguments.repeats))
        if arguments.only in (None, "points"):
            results.append(lookups(spark, data(spark, arguments.rows), directory, arguments.repeats * 3))
            results.append(appends(spark, directory, arguments.repeats * 3))
        if arguments.only in (None, "streams"):
            results.append(streams(spark, directory, arguments.repeats))
        return 0 if all(result.is_met for result in results) else 1
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
