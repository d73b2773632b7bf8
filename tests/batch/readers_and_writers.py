"""Three Spark processes that write, append to and overwrite one table, read all the while by a fourth.

Every read must be one version of the table, as an independent replay of the log finds it, and no read
may be of an older version than the one before it. The long run, until there were 200 reads, 100 commits
and 20 lost races:

    python -m tests.batch.readers_and_writers [FOLDER]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import deltaflow
from deltaflow.errors import DeltaConcurrentModificationException
from tests.tables import INTERPRETED

Row = tuple[str, int]
"""(writer, sequence): which operation of which writer a row came with."""
_MODES = ("append", "overwrite", "overwrite", "append")
_CONFIG = {
    **INTERPRETED,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session() -> SparkSession:
    return deltaflow.session("readers and writers", master="local[1]", config=_CONFIG)


def write_again_and_again(path: str, writer: str) -> None:
    """Writes one operation for each line of standard input, and answers with its outcome."""
    spark = session()
    print("ready", flush=True)
    for sequence, _ in enumerate(sys.stdin):
        frame = spark.createDataFrame([(writer, sequence)] * 3, "writer STRING, sequence LONG")
        try:
            frame.coalesce(1).write.format("delta").mode(_MODES[sequence % 4]).save(path)
            print("committed", flush=True)
        except DeltaConcurrentModificationException as error:
            print(type(error).__name__, flush=True)


class Writer:
    """A writer's process, which is always at work: it gets its next operation when it has done one."""

    def __init__(self, path: str, name: str, outcomes: Counter[str]) -> None:
        root = str(Path(deltaflow.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, __file__, path, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        self.outcomes = outcomes

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "a writer ended"
        return line

    def work(self) -> None:
        """Runs operations until standard input is closed by `stop`; called on a thread of its own."""
        assert self.process.stdin is not None
        while not self.process.stdin.closed:
            try:
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
            except ValueError:  # closed in between
                return
            self.outcomes[self.answer()] += 1

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(120) == 0
        self.process.stdout.close()


def rows_of_versions(path: str) -> list[Counter[Row]]:
    """The rows of every version, by a replay of the JSON log that shares no code with deltaflow."""
    active: dict[str, Counter[Row]] = {}
    found = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                name = unquote(action["add"]["path"])
                rows = pq.read_table(Path(path, name), partitioning=None).to_pylist()
                active[name] = Counter((row["writer"], row["sequence"]) for row in rows)
            elif "remove" in action:
                del active[unquote(action["remove"]["path"])]
        found.append(sum(active.values(), Counter()))
    return found


def race(
    spark: SparkSession, path: str, *, reads: int, commits: int, lost: int
) -> tuple[list[Counter[Row]], Counter[str]]:
    """Reads and lets the writers write until there are as many of each; the reads, and the outcomes."""
    spark.createDataFrame([("first", 0)], "writer STRING, sequence LONG").write.format("delta").save(path)
    outcomes: Counter[str] = Counter()
    writers = [Writer(path, name, outcomes) for name in ("a", "b", "c")]
    threads = [threading.Thread(target=writer.work) for writer in writers]
    seen: list[Counter[Row]] = []
    try:
        for writer in writers:
            assert writer.answer() == "ready"
        for thread in threads:
            thread.start()
        while (
            len(seen) < reads
            or outcomes["committed"] < commits
            or outcomes.total() - outcomes["committed"] < lost
        ):
            assert all(thread.is_alive() for thread in threads)
            rows = spark.read.format("delta").load(path).collect()
            seen.append(Counter((row.writer, row.sequence) for row in rows))
    finally:
        for writer in writers:
            writer.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join(120)
    return seen, outcomes


def check(path: str, seen: list[Counter[Row]]) -> None:
    """Each read is one version, none older than the read before it."""
    replayed = rows_of_versions(path)
    at = 0
    for number, rows in enumerate(seen):
        later = next((v for v in range(at, len(replayed)) if replayed[v] == rows), None)
        assert later is not None, f"read {number} is no version from {at} on: {rows}"
        at = later


def main(folder: str) -> None:
    path = os.path.join(folder, "table")
    seen, outcomes = race(session(), path, reads=200, commits=100, lost=20)
    check(path, seen)
    print(f"{len(seen)} reads of {len(rows_of_versions(path))} versions, each a version: {dict(outcomes)}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [table, name]:
            write_again_and_again(table, name)
        case [folder]:
            main(folder)
        case _:
            with tempfile.TemporaryDirectory() as own:
                main(own)
