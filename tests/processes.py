"""Processes that do something at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltaflow.errors


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
