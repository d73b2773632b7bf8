"""Processes that do something at once, and processes that run until they are ended."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltaflow.errors

_TIMEOUT_S = 120


def run_at_once(program: Path, arguments: Sequence[Sequence[str]], *, timeout_s: int) -> list[Any]:
    """Starts the program once with each of the lists of arguments; returns the JSON that each process prints.

    The program prints the line "ready" and then waits for a line: all go on when all are ready.
    """
    root = str(Path(deltaflow.errors.__file__).parents[1])
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), *own],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for own in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=timeout_s)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(output) for output in outputs]


class Daemon:
    """A process in a folder of its own, with what it starts; it runs until somebody ends it."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._name = name
        self._printed: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        folder.mkdir()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed.append(line)
            self._lines.put(line)
        self._lines.put(None)

    @property
    def printed(self) -> str:
        """What it has printed, errors too."""
        return "".join(self._printed)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in a line that it prints, which nobody has waited for before."""
        with suppress(queue.Empty):
            while (line := self._lines.get(timeout=_TIMEOUT_S)) is not None:
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"The {self._name} has not printed {pattern}:\n{self.printed}")

    def end(self, number: signal.Signals) -> int:
        """Sends it a signal, and waits until it has ended; its exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Waits until it has ended; its exit code."""
        try:
            return self._process.wait(_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends it and what it has started."""
        # The executors of a worker are in its group.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
