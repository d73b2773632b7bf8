"""A stream of small batches with autoCompact, while another process rewrites files of the table all the time
and a second stream follows it.

No batch may fail; after no batch may a partition have more files than the least number that is compacted
and the table's bytes in files of the target size; the second stream sees every row once. The long run, of
1,000 batches of 100 rows:

    python -m tests.streaming.small_files [FOLDER]
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import deltaflow
from deltaflow.log import AddFile, Committed, Conflict, DeltaLog, Operation, remove_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_PER_BATCH = 100
WAIT_S = 7_200.0
_AUTO_COMPACT = "spark.databricks.delta.autoCompact."


def rewrite(path: str, pause_s: float) -> None:
    """Replaces two files of a partition by one, again and again, until a file `stop` exists.

    After each of its commits it waits for another one of the stream, whose batches add more files than this
    takes away. So the stream has files to compact however slow its batches are.
    """
    log = DeltaLog.for_table(path)
    outcomes: Counter[str] = Counter()
    chance = random.Random(1)
    own_version = -1
    while not Path(path, "..", "stop").exists():
        time.sleep(chance.uniform(0, pause_s))
        transaction = log.start_transaction()
        if transaction.snapshot is None or transaction.snapshot.version == own_version:
            continue
        files = transaction.snapshot.files
        values = [dict(items)["p"] for items in files["partition_values"].to_pylist()]
        p = chance.choice("01")
        rows = [i for i, value in enumerate(values) if value == p]
        chosen = files.take(chance.sample(rows, min(len(rows), 2)))
        if chosen.num_rows < 2:
            continue
        transaction.record_read_of_files(chosen)
        tables = [pq.read_table(Path(path, name), partitioning=None) for name in chosen["path"].to_pylist()]
        name = f"p={p}/rewritten-{uuid.uuid4()}.parquet"
        pq.write_table(pa.concat_tables(tables), Path(path, name))
        now_ms = time.time_ns() // 1_000_000
        add = AddFile(
            path=name,
            partition_values={"p": p},
            size=Path(path, name).stat().st_size,
            modification_time=now_ms,
            data_change=False,
            stats=json.dumps({"numRecords": sum(table.num_rows for table in tables)}),
        )
        removes = remove_files(transaction.snapshot.with_stats(chosen), now_ms, data_change=False)
        outcome = transaction.try_commit([add, *removes], Operation("OPTIMIZE", {"by": "another process"}))
        outcomes[type(outcome).__name__] += 1
        assert isinstance(outcome, Committed | Conflict)
        if isinstance(outcome, Committed):
            own_version = outcome.version
        else:
            Path(path, name).unlink()
    print(json.dumps(outcomes), flush=True)


class Rewriter:
    """The process that rewrites."""

    def __init__(self, folder: Path, pause_s: float) -> None:
        self._stop = folder / "stop"
        root = str(Path(deltaflow.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "rewrite", str(folder / "table"), str(pause_s)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )

    def stop(self) -> dict[str, int]:
        """The outcomes of its commits."""
        self._stop.touch()
        output, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        outcomes: dict[str, int] = json.loads(output)
        return outcomes


def batches(spark: SparkSession) -> DataFrame:
    """Rows of two partitions."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    rows = source.option("numPartitions", 1).load()
    return rows.selectExpr("value id", "sha2(string(value), 256) payload", "string(value % 2) p")


def compacted(rows: DataFrame, folder: Path) -> StreamingQuery:
    """The stream under test."""
    writer = rows.writeStream.format("delta").option("autoCompact", "true").partitionBy("p")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "table"))


def follow(spark: SparkSession, folder: Path, trigger: dict[str, Any]) -> StreamingQuery:
    """The second stream."""
    ids = spark.readStream.format("delta").load(str(folder / "table")).select("id")
    writer = (
        ids.writeStream.format("delta")
        .option("checkpointLocation", str(folder / "second checkpoint"))
        .trigger(**trigger)
    )
    return writer.start(str(folder / "second"))


def run(
    spark: SparkSession, folder: Path, *, count: int, min_num_files: int, target_size: int, pause_s: float
) -> dict[str, Any]:
    """Runs the streams for `count` batches, checks the tables, and reports the numbers.

    The other process pauses up to `pause_s` between two rewrites.
    """
    settings = {"minNumFiles": str(min_num_files), "maxFileSize": str(target_size)}
    for name, value in settings.items():
        spark.conf.set(_AUTO_COMPACT + name, value)
    rewriter = Rewriter(folder, pause_s)
    began = time.monotonic()
    try:
        query = compacted(batches(spark), folder)
        until(lambda: done(query) >= 1, query)
        second = follow(spark, folder, {"processingTime": "0 seconds"})
        until(lambda: done(query) >= count, query, second)
        query.stop()
        second.stop()
        assert query.exception() is None
        assert second.exception() is None
    finally:
        for name in settings:
            spark.conf.unset(_AUTO_COMPACT + name)
        outcomes = rewriter.stop()
    last = follow(spark, folder, {"availableNow": True})
    assert last.awaitTermination(int(WAIT_S))
    numbers = check_files(folder / "table", min_num_files, target_size)
    check_rows(spark, folder)
    return {**numbers, "other process": outcomes, "seconds": round(time.monotonic() - began)}


def done(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else progress["batchId"] + 1


def until(condition: Any, *queries: StreamingQuery) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_files(table: Path, min_num_files: int, target_size: int) -> dict[str, Any]:
    """The bound holds after each batch, by a replay of the log that shares no code with deltaflow."""
    active: dict[str, tuple[str, int]] = {}
    most = 0
    operations: Counter[str] = Counter()
    for file in [*sorted((table / "_delta_log").glob("*.json")), None]:
        actions = [] if file is None else [json.loads(line) for line in file.read_text().splitlines()]
        info = actions[0]["commitInfo"] if actions else {}
        if not actions or info["operation"] == "STREAMING UPDATE":  # the batch before is over
            for p in "01":
                sizes = [size for partition, size in active.values() if partition == p]
                most = max(most, len(sizes))
                assert len(sizes) <= min_num_files + math.ceil(sum(sizes) / target_size), (file, p)
        by = info.get("operationParameters", {}).get("by", "")
        if actions:
            operations[f"{info['operation']} {by}".strip()] += 1
        for action in actions:
            if "add" in action:
                active[action["add"]["path"]] = (action["add"]["partitionValues"]["p"], action["add"]["size"])
            elif "remove" in action:
                del active[action["remove"]["path"]]
    sizes = [size for _, size in active.values()]
    return {
        "commits": dict(operations),
        "most files of a partition after a batch": most,
        "files at the end": len(sizes),
        "bytes at the end": sum(sizes),
    }


def check_rows(spark: SparkSession, folder: Path) -> None:
    """Both tables have every row that a batch committed, once."""
    commits = [file.read_text() for file in (folder / "table" / "_delta_log").glob("*.json")]
    number = sum('"STREAMING UPDATE"' in commit for commit in commits)
    for name in ("table", "second"):
        ids = spark.read.format("delta").load(str(folder / name)).select("id").toArrow()["id"].to_pylist()
        assert sorted(ids) == list(range(number * ROWS_PER_BATCH)), name


class Lost(logging.Handler):
    """Counts the races that autoCompact has lost."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "lost a race" in record.getMessage()
        assert record.levelno < logging.WARNING, record.getMessage()


def main(folder: Path) -> None:
    spark = deltaflow.session(
        "small files",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    lost = Lost()
    logging.getLogger("deltaflow.batch.optimize.auto_compaction").addHandler(lost)
    logging.getLogger("deltaflow.batch.optimize.auto_compaction").setLevel(logging.DEBUG)
    found = run(spark, folder, count=1_000, min_num_files=50, target_size=1 << 20, pause_s=0.3)
    print(json.dumps({**found, "lost races": lost.count}, indent=2))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["rewrite", table, pause_s]:
            rewrite(table, float(pause_s))
        case [given]:
            main(Path(given))
        case _:
            with tempfile.TemporaryDirectory() as own:
                main(Path(own))
