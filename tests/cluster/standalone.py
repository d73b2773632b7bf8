"""A standalone Spark cluster of the installed PySpark on the loopback interface: a master and its workers.

Each process has folders of its own, of which it tells no other one. The workers and their executors have no
Python: what they run, they run in the JVM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyspark

from deltaflow.spark.java_home import ensure_java
from tests.processes import Daemon

SPARK_HOME = Path(pyspark.__file__).parent
START = Path(__file__).parents[2] / "docker" / "spark" / "start"
"""The programs that start master and workers in the containers of docker/compose.yaml."""
STEP = "deltaflow.test.step"
"""The local property by which a program says which step of it starts a job."""
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_NO_PYTHON = "/nowhere/python"
_TIMEOUT_S = 120


class Cluster:
    """A master and its workers below `folder`, while it is open; a worker has one executor of one core."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.workers = [folder / f"worker-{number}" for number in range(workers)]
        self.driver = folder / "driver"
        """The folder of the driver: its own files are below it, and it is told of no other."""
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        ensure_java()
        with ExitStack() as stack:
            started = self._start(stack, "master", self._folder / "master", ["start-master"])
            self.url = started.wait_for(r"spark://127\.0\.0\.1:\d+")[0]
            registering = [
                self._start(stack, folder.name, folder, ["start-worker", self.url]) for folder in self.workers
            ]
            for daemon in registering:
                daemon.wait_for("Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack, name: str, folder: Path, command: list[str]) -> Daemon:
        environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYSPARK_PYTHON": _NO_PYTHON,
            "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK_JVM} -Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_HOST": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_MASTER_PORT": "0",
            "SPARK_WEBUI_PORT": "0",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_WORKER_MEMORY": "700m",
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        daemon = Daemon(name, [str(START / command[0]), *command[1:]], folder, environment)
        stack.callback(daemon.kill)
        return daemon

    def submit(self, program: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Any:
        """Runs the program by spark-submit in client mode; returns the JSON that is the last line it prints.

        Its requests over HTTP name `driver`, `executor-0` and so on as their agent. The first job starts
        when every worker has an executor.
        """
        scratch = self.driver / "scratch"
        scratch.mkdir(parents=True)
        (self.driver / "events").mkdir()
        java_options = f"{_QUICK_JVM} -Djava.io.tmpdir="
        of_application = {
            "spark.cores.max": str(len(self.workers)),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{java_options}{scratch} -Dhttp.agent=driver",
            "spark.driver.host": "127.0.0.1",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (self.driver / "events").as_uri(),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.executor.extraJavaOptions": f"{java_options}. -Dhttp.agent=executor-{{{{EXECUTOR_ID}}}}",
            "spark.executor.memory": "512m",
            "spark.pyspark.driver.python": sys.executable,
            "spark.pyspark.python": _NO_PYTHON,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_TIMEOUT_S}s",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.ui.enabled": "false",
            **(settings or {}),
        }
        given = [part for name, value in of_application.items() for part in ("--conf", f"{name}={value}")]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "SPARK_LOCAL_DIRS": str(scratch),
            "TMPDIR": str(scratch),
        }
        for name in (
            "PYSPARK_GATEWAY_PORT",
            "PYSPARK_GATEWAY_SECRET",
        ):  # this process may have a JVM of its own
            environment.pop(name, None)
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", "client"]
        process = subprocess.Popen(
            [*submit, *given, str(program), *arguments],
            cwd=self.driver,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, errors = process.communicate(timeout=2 * _TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            printed, errors = process.communicate()
            raise AssertionError(f"{program.name} did not end:\n{printed}\n{errors}") from error
        assert process.returncode == 0, f"{printed}\n{errors}"
        return json.loads(printed.splitlines()[-1])

    def tasks(self) -> dict[str, Counter[str]]:
        """For each step of the submitted program, how many tasks each executor ended, by Spark's events."""
        [log] = (self.driver / "events").iterdir()
        step_of_stage: dict[int, str] = {}
        tasks: dict[str, Counter[str]] = {}
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                step = event["Properties"].get(STEP, "")
                step_of_stage.update(dict.fromkeys(event["Stage IDs"], step))
            elif event["Event"] == "SparkListenerTaskEnd":
                step = step_of_stage[event["Stage ID"]]
                tasks.setdefault(step, Counter())[event["Task Info"]["Executor ID"]] += 1
        return tasks
