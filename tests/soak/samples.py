"""What a driver holds while streams run for long: memory, open files, threads, objects of py4j; and whether
it grows."""

from __future__ import annotations

import gc
import json
import os
import statistics
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from deltaflow.spark.bridge.dispatcher import dispatcher

Sample = dict[str, float]
MEGABYTE = 1 << 20
BOUNDS = {
    "batch_ms": (1.15, 0.0),
    "python_rss_mb": (1.10, 5.0),
    "jvm_heap_mb": (1.10, 10.0),
    "jvm_rss_mb": (1.15, 20.0),
    "python_files": (1.0, 3.0),
    "jvm_files": (1.0, 5.0),
    "python_threads": (1.0, 2.0),
    "jvm_threads": (1.0, 8.0),
    "py4j_java_objects": (1.0, 5.0),
    "py4j_python_objects": (1.0, 5.0),
    "handles": (1.0, 0.0),
}
"""How far the median of the last third of the samples may be above that of the middle third: a factor, and
what may be added. The first third is for loading, compiling and the caches to fill."""


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


def verdict(samples: Sequence[Sample]) -> list[str]:
    """A line for each measure, with the medians of the three thirds; those that grow say GROWS."""
    third = len(samples) // 3
    assert third > 0, f"{len(samples)} samples are too few"
    thirds = (samples[:third], samples[third:-third], samples[-third:])
    lines = []
    for name, (factor, more) in BOUNDS.items():
        first, middle, last = (statistics.median(sample[name] for sample in part) for part in thirds)
        grows = last > middle * factor + more
        end = "GROWS" if grows else "flat"
        lines.append(f"{name:<20} {first:10.1f} {middle:10.1f} {last:10.1f}  {end}")
    return lines


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
