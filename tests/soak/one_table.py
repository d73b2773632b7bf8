"""A stream into a table and another one out of it, with compaction, checkpoints, log clean-up and vacuum.

    python -m tests.soak.one_table [--hours 4] [--every 60] [--samples FILE] [--folder FOLDER]

All is in one driver. The first stream writes 20 rows a second, a batch each second; the table compacts its
small files by itself, and a checkpoint comes each 10 versions. In turn it is optimized, vacuumed (what is
older than two minutes), and its log loses what is older than five minutes. The second stream copies it. Each
`--every` seconds a sample is written to FILE. At the end both tables have to have every row once; exits with
1 if not, or if what the driver or the table's directory holds grows. SIGTERM or SIGINT ends it early, with
the same check and verdict.

With a FOLDER, which stays, a later run goes on with its tables, streams and FILE until all runs together have
taken so many hours, however the one before has ended. The verdict is over the samples of one driver.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import deltaflow
from deltaflow import DeltaTable
from deltaflow.errors import DeltaConcurrentModificationException
from deltaflow.log import DeltaLog
from tests.soak.samples import Driver, Sample, append, end_when_told, grows, runs, session_settings, verdict

_PROPERTIES = {
    "delta.autoOptimize.autoCompact": "true",
    "delta.checkpointInterval": "10",
    "delta.deletedFileRetentionDuration": "interval 2 minutes",
}
_RETENTION_HOURS = 2 / 60
_RETENTION_OF_LOG_MS = 5 * 60_000
"""The clean-up that comes with a checkpoint deletes whole days; the soak asks for less."""
_PAUSE_S = 5.0


class Tables:
    """The table, its copy, and the streams into both."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.path, self.copy = str(folder / "table"), str(folder / "copy")
        self._folder = folder
        self.conflicts = 0
        """How many operations have lost against a stream."""
        table = DeltaTable.createIfNotExists(spark).location(self.path)
        table = table.addColumn("value", "LONG").addColumn("timestamp", "TIMESTAMP")
        for name, value in _PROPERTIES.items():
            table = table.property(name, value)
        table.execute()
        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        self.upstream = self._start(rate.coalesce(1), self.path, "upstream")
        self.downstream = self._start(
            spark.readStream.format("delta").load(self.path), self.copy, "downstream"
        )

    def _start(self, frame: DataFrame, path: str, name: str) -> StreamingQuery:
        writer = frame.writeStream.format("delta").queryName(name)
        writer = writer.option("checkpointLocation", str(self._folder / name))
        return writer.trigger(processingTime="1 second").start(path)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.path)

    def maintain(self, turn: int) -> None:
        """OPTIMIZE in most turns, VACUUM and log clean-up in one of six each; who loses against a stream
        comes again."""
        try:
            match turn % 6:
                case 5:
                    self.table.vacuum(_RETENTION_HOURS, checkpoints=[str(self._folder / "downstream")])
                case 2:
                    DeltaLog.for_table(self.path).truncate_history(_RETENTION_OF_LOG_MS)
                case _:
                    self.table.optimize().executeCompaction()
        except DeltaConcurrentModificationException:
            self.conflicts += 1

    def check_running(self) -> None:
        for query in (self.upstream, self.downstream):
            if not query.isActive:
                raise AssertionError(f"the stream {query.name} has ended: {query.exception()}")

    def finish(self) -> list[str]:
        """Stops the first stream, lets the second one copy the rest, and says what is wrong with the rows."""
        self.upstream.stop()
        self.downstream.processAllAvailable()
        self.downstream.stop()
        faults = []
        for path in (self.path, self.copy):
            frame = self.spark.read.format("delta").load(path)
            [(rows, ids, last)] = frame.selectExpr(
                "count(*)", "count(distinct value)", "max(value)"
            ).collect()
            print(f"{path}: {rows} rows, {ids} different ones, the last of which is {last}")
            if not rows == ids == last + 1:
                faults.append(path)
        return faults

    def version(self) -> int:
        return DeltaLog.for_table(self.path).snapshot().version

    def log_files(self) -> int:
        return len(list(Path(self.path, "_delta_log").iterdir()))

    def data_files(self) -> int:
        """Those in the directory, whether the newest version has them or not."""
        return len(list(Path(self.path).glob("*.parquet")))


def soak(
    tables: Tables, run: int, seconds: float, every: float, file: Path, told: threading.Event
) -> list[Sample]:
    """Lets the streams run for so long, or until it is told to end; the samples."""
    driver = Driver(tables.spark)
    samples: list[Sample] = []
    began = sampled = time.monotonic()
    for turn in itertools.count():
        tables.check_running()
        tables.maintain(turn)
        progress = tables.downstream.recentProgress
        times = sorted(p.durationMs["triggerExecution"] for p in progress if p.numInputRows)
        if times and time.monotonic() - sampled > every:
            sampled = time.monotonic()
            sample = {
                "run": run,
                "second": round(sampled - began),
                "version": tables.version(),
                "conflicts": tables.conflicts,
                "log_files": tables.log_files(),
                "data_files": tables.data_files(),
                "batch_ms": times[len(times) // 2],
                **driver.sample(),
            }
            samples.append(sample)
            append(file, sample)
        if told.wait(min(_PAUSE_S, max(0.0, began + seconds - time.monotonic()))):
            break
        if time.monotonic() - began >= seconds:
            break
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.one_table")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds from one sample to the next")
    parser.add_argument("--samples", type=Path, default=Path("soak-one-table.jsonl"))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not Path(folder, "table").exists():
            options.samples.unlink(missing_ok=True)
        earlier = runs(options.samples) if options.samples.exists() else []
        before = sum(samples[-1]["second"] for samples in earlier)
        spark = deltaflow.session("soak", master="local[2]", config=session_settings())
        spark.sparkContext.setLogLevel("ERROR")
        told = end_when_told()
        began = time.monotonic()
        tables = Tables(spark, folder)
        seconds = 3_600 * options.hours - before
        samples = soak(tables, len(earlier) + 1, seconds, options.every, options.samples, told)
        took = time.monotonic() - began
        faults = tables.finish()
        versions = tables.version()
    lines = verdict(samples)
    print(*lines, sep="\n")
    rows = f"ROWS ARE LOST OR DOUBLED in {faults}" if faults else "each row once"
    print(
        f"{took / 60:.0f} minutes, with {len(earlier)} runs before {(before + took) / 60:.0f}, "
        f"{versions} versions, {tables.conflicts} lost races of maintenance: {rows}"
    )
    spark.stop()
    sys.exit(bool(faults) or grows(lines))


if __name__ == "__main__":
    main()
