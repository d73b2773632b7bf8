"""The processes in which pipelines run, each with a group of its own that ends with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from deltaflow.testing.worker import Orders, Start

_PAUSE_S = 0.01


class Processes:
    """Starts one process after the other, as forks of one that has imported deltaflow (`worker`).

    Each has the environment and the `sys.path` that this process has when it starts it.
    """

    def __init__(self) -> None:
        answers, output = os.pipe()
        # Without a buffer, from which `select` knows nothing.
        self._answers = open(answers, "rb", buffering=0)  # noqa: SIM115
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "deltaflow.testing.worker"],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
        )
        os.close(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._answers, self._parent:
            self._parent.kill()

    def start(self, orders: Orders) -> Process:
        """A new process that follows the orders. The one before must have ended."""
        assert self._parent.stdin is not None
        given = Start(orders, dict(os.environ), _import_path())
        self._parent.stdin.write(msgspec.json.encode(given) + b"\n")
        self._parent.stdin.flush()
        return Process(self._line())

    def _line(self) -> int:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"The process of the trials ended with code {self._parent.wait()}.")
        return int(line)

    def ended(self, process: Process, within_s: float) -> bool:
        """Waits for the end of the process, and says whether it has come."""
        if process.code is None and select.select([self._answers], [], [], within_s)[0]:
            process.code = self._line()
        return process.code is not None

    def end(self, process: Process) -> None:
        """Ends the process and all of its group, and waits until none of it runs."""
        deadline = time.monotonic() + 60
        while True:
            is_there = True
            try:
                os.killpg(process.number, signal.SIGKILL)
            except ProcessLookupError:
                is_there = False
            if self.ended(process, _PAUSE_S) and not (is_there and _is_alive(process.number)):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"A process of the group {process.number} outlives its SIGKILL.")
            time.sleep(_PAUSE_S)


class Process:
    """One process; `number` is its id and that of its group, `code` its exit code when it has ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.code: int | None = None


def _import_path() -> list[str]:
    return [os.getcwd(), *filter(None, sys.path)]


def _is_alive(group: int) -> bool:
    """Whether a process of the group runs. A zombie does not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(found) == group and state != "Z":
            return True
    return False
