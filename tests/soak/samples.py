"""What a driver holds while streams run for long: memory, open files, threads, objects of py4j; and whether
it grows.

    python -m tests.soak.samples FILE

prints the verdict over the samples that each run of a soak has written so far, and exits with 1 if something
grows.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from deltaflow.spark.bridge.dispatcher import dispatcher

Sample = dict[str, float]
MEGABYTE = 1 << 20
BOUNDS = {
    "batch_ms": (1.15, 0.0),
    "batch_cpu_ms": (1.15, 0.0),
    "python_rss_mb": (1.10, 5.0),
    "python_blocks": (1.02, 0.0),
    "arrow_mb": (1.0, 8.0),
    "jvm_heap_mb": (1.10, 10.0),
    "jvm_rss_mb": (1.15, 20.0),
    "python_files": (1.0, 3.0),
    "jvm_files": (1.0, 5.0),
    "python_threads": (1.0, 2.0),
    "jvm_threads": (1.0, 8.0),
    "py4j_java_objects": (1.0, 5.0),
    "py4j_python_objects": (1.0, 5.0),
    "handles": (1.0, 0.0),
    "log_files": (1.2, 50.0),
    "data_files": (1.2, 50.0),
}
"""How far a measure may rise from the end of the first third of the samples to the last one: a factor of
where it begins, and what may be added. The first third is for loading, compiling and the caches to fill."""
_FEWEST = 6


class Driver:
    """The two processes of a Spark driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._jvm: Any = spark.sparkContext._jvm
        self._jvm_pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def sample(self) -> Sample:
        """What both hold now, after a collection of garbage on both sides."""
        for _ in range(3):
            gc.collect()
            self._give_up_names()
            self._jvm.java.lang.System.gc()
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        heap = runtime.totalMemory() - runtime.freeMemory()
        java_gateway = JavaObject("GATEWAY_SERVER", self._gateway._gateway_client).getGateway()
        return {
            "python_rss_mb": _status(os.getpid(), "VmRSS") / 1024,
            "python_blocks": sys.getallocatedblocks(),
            "arrow_mb": pa.total_allocated_bytes() / MEGABYTE,
            "jvm_heap_mb": heap / MEGABYTE,
            "jvm_rss_mb": _status(self._jvm_pid, "VmRSS") / 1024,
            "python_files": len(os.listdir(f"/proc/{os.getpid()}/fd")),
            "jvm_files": len(os.listdir(f"/proc/{self._jvm_pid}/fd")),
            "python_threads": threading.active_count(),
            "jvm_threads": _status(self._jvm_pid, "Threads"),
            "py4j_java_objects": java_gateway.getBindings().size(),
            "py4j_python_objects": len(self._gateway.gateway_property.pool.dict),
            "handles": dispatcher.open_handles,
        }

    def cpu_ms(self) -> float:
        """How long both have computed since they began: unlike the time that passes, it says little of what
        else the machine does."""
        # Its name, which is in brackets, may have spaces.
        fields = Path(f"/proc/{self._jvm_pid}/stat").read_text().rpartition(")")[2].split()
        of_jvm = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 1_000 * (of_jvm + time.process_time())

    def _give_up_names(self) -> None:
        """What py4j does on a thread of its own, which looks once a second."""
        names = self._gateway._gateway_client.finalizer_deque
        while names:
            owner, name = names.pop()
            owner.garbage_collect_object(name, enqueue=False)


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def append(file: Path, sample: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(sample) + "\n")


def runs(file: Path) -> list[list[Sample]]:
    """The samples of each run that has written some."""
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    return [list(of_run) for _, of_run in itertools.groupby(samples, lambda sample: sample.get("run"))]


def end_when_told() -> threading.Event:
    """An event that SIGTERM and SIGINT set, so that a soak which is ended early has its verdict."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    return told


def rise(values: Sequence[float]) -> tuple[float, float]:
    """Where a robust line through values of equal distance begins, and how far it rises to the last one.

    Its slope is the median of those of all pairs (Theil and Sen), so that a few high values say nothing.
    """
    pairs = itertools.combinations(enumerate(values), 2)
    slope = statistics.median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
    begin = statistics.median(value - slope * number for number, value in enumerate(values))
    return begin, slope * (len(values) - 1)


def verdict(samples: Sequence[Sample]) -> list[str]:
    """A heading, and a line for each measure that the samples have: the median of the first third of them,
    where the line through the others begins, how far it rises and how far it may. Those that rise further say
    GROWS."""
    if len(samples) < _FEWEST:
        return [f"{len(samples)} samples are too few for a verdict: it GROWS"]
    lines = [f"{'':<20} {'first third':>11} {'then':>10} {'rises by':>10} {'may by':>10}"]
    for name, (factor, more) in BOUNDS.items():
        if name not in samples[0]:
            continue
        values = [sample[name] for sample in samples]
        third = len(values) // 3
        begin, rises = rise(values[third:])
        bound = begin * (factor - 1) + more
        end = "GROWS" if rises > bound else "flat"
        first = statistics.median(values[:third])
        lines.append(f"{name:<20} {first:11.1f} {begin:10.1f} {rises:10.2f} {bound:10.2f}  {end}")
    return lines


def grows(lines: Sequence[str]) -> bool:
    return any(line.endswith("GROWS") for line in lines)


def session_settings() -> dict[str, str]:
    """Settings of a session that keeps little of what it has done, so that its caches are full soon."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.streaming.ui.retainedQueries": "5",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }


def main() -> None:
    verdicts = [verdict(samples) for samples in runs(Path(sys.argv[1]))]
    for lines in verdicts:
        print(*lines, sep="\n")
    sys.exit(any(grows(lines) for lines in verdicts))


if __name__ == "__main__":
    main()
