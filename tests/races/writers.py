"""The processes of a race, which are used for one race after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import deltaflow
from tests.races.jobs import Job, Told
from tests.races.places import Place

_PROGRAMS = {
    "spark": Path(__file__).with_name("spark_writer.py"),
    "deltalake": Path(__file__).with_name("deltalake_writer.py"),
}


class Writers:
    """A process for each of these engines, while it is open; `jar` has the tests' object store."""

    def __init__(self, engines: Sequence[str], place: Place, jar: str = "") -> None:
        arguments = {
            "spark": [jar, json.dumps(place.settings)],
            "deltalake": [json.dumps(place.options)],
        }
        root = str(Path(deltaflow.__file__).parents[1])
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(_PROGRAMS[engine]), *arguments[engine]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": root},
            )
            for engine in engines
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def carry_out(self, jobs: Sequence[Job]) -> list[Told]:
        """Lets each process carry out one of the jobs, all at once; what became of all operations."""
        with ThreadPoolExecutor(len(jobs)) as threads:
            answers = threads.map(_answer, self._processes, jobs)
            return [told for answer in answers for told in answer]


def _answer(process: subprocess.Popen[str], job: Job) -> list[Told]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{job.to_text()}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, f"the process of {job.prefix} has ended"
    told: list[Told] = json.loads(line)
    return told
