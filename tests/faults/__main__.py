"""Tries pipelines with a fault at every step, and by random schedules of faults.

    python -m tests.faults                      every step of every pipeline, every kind of fault
    python -m tests.faults --only stream --kind kill --every 4
    python -m tests.faults --schedules 1000     random schedules of up to five kills, over all pipelines

Each outcome is a line of the log, `--log FILE`. A trial that the log has as passed is not made again, so a
run that was interrupted goes on. When the log has the steps of every pipeline, they are compared with those
that the code can take. The exit code is 1 if a trial went wrong, and if no pipeline takes some step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from deltaflow.testing.processes import Processes
from deltaflow.testing.trials import Pipeline
from tests import class_archive
from tests.faults.named_steps import steps_of_code
from tests.faults.pipelines import KINDS, PIPELINES, every_fault, schedules

_TIMEOUT_S = 3_600
"""What a run may take; long, because other work may leave it little of the machine."""


class Line(msgspec.Struct, tag="trial"):
    """A trial of the log; `problems` is empty if all was well."""

    pipeline: str
    trial: str
    problems: list[str]
    fired: list[str]
    runs: int
    seen: int
    seconds: float


class Steps(msgspec.Struct, tag="steps"):
    """What a pipeline takes without a fault: places of the code, and how many steps and trials of a kind."""

    pipeline: str
    code: list[str]
    steps: int
    trials: dict[str, int]


def main() -> int:
    arguments = _arguments()
    class_archive.make()
    class_archive.set_jvm_options()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    names = arguments.only or list(PIPELINES)
    went_wrong = 0
    with Processes() as processes:
        for position, name in enumerate(names):
            share = arguments.schedules // len(names) + (position < arguments.schedules % len(names))
            went_wrong += _try(name, processes, arguments, share)
    missing = missing_steps(arguments.log)
    if missing:
        print(f"WRONG no pipeline takes {len(missing)} steps that the code has:", *missing, sep="\n  ")
    return 1 if went_wrong or missing else 0


def _try(name: str, processes: Processes, arguments: argparse.Namespace, number: int) -> int:
    """Makes the trials of a pipeline that the log has not; how many went wrong."""
    passed = _passed(arguments.log)
    tried, began = PIPELINES[name], time.monotonic()
    counts: Counter[str] = Counter()
    with tried.folder() as folder, arguments.log.open("ab") as log:
        together = arguments.together or tried.together
        pipeline = Pipeline(
            tried.function,
            folder,
            processes,
            ignored=tried.ignored,
            compared_at_end=tried.compared_at_end,
            together=together,
            timeout_s=_TIMEOUT_S,
        )
        recording = pipeline.record()
        code = sorted({point.code for point in recording.points})
        kinds = {kind: len(recording.faults(kind)) for kind in KINDS}
        log.write(msgspec.json.encode(Steps(name, code, len(recording.points), kinds)) + b"\n")
        if arguments.schedules:
            trials = list(schedules(recording, name, arguments.seed, number))
        else:
            trials = list(every_fault(recording, tuple(arguments.kind or KINDS), arguments.every))
        todo = [trial for trial in trials if (name, trial.name) not in passed]
        said = f"{name}: {len(recording.points)} steps, {len(trials)} trials"
        print(f"{said}, {len(trials) - len(todo)} of them passed before", flush=True)
        if recording.varying:
            print(f"  not in every run, or not as often: {', '.join(recording.varying)}", flush=True)
        for done in pipeline.run(todo):
            line = Line(
                name, done.trial.name, done.problems, done.fired, done.runs, done.seen, round(done.seconds, 2)
            )
            log.write(msgspec.json.encode(line) + b"\n")
            log.flush()
            counts["wrong" if done.problems else "passed"] += 1
            counts["kills"] += sum(text.startswith("kill") for text in done.fired)
            counts["versions seen by the reader"] += done.seen
            for problem in done.problems:
                print(f"  WRONG {done.trial.name}: {problem}", flush=True)
    print(f"  {dict(counts)} in {time.monotonic() - began:.0f} s", flush=True)
    return counts["wrong"]


def _lines(log: Path) -> list[Line | Steps]:
    content = log.read_bytes() if log.exists() else b""
    return [msgspec.json.decode(line, type=Line | Steps) for line in content.splitlines()]


def _passed(log: Path) -> set[tuple[str, str]]:
    """The trials that have passed by the log, the last line of each of which counts."""
    last = {(line.pipeline, line.trial): not line.problems for line in _lines(log) if isinstance(line, Line)}
    return {trial for trial, has_passed in last.items() if has_passed}


def missing_steps(log: Path) -> list[str]:
    """The steps of the code that no pipeline takes; none as long as the log lacks a pipeline."""
    taken = {line.pipeline: line.code for line in _lines(log) if isinstance(line, Steps)}
    if not taken.keys() >= PIPELINES.keys():
        return []
    return sorted(steps_of_code() - {code for each in taken.values() for code in each})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", action="append", choices=list(PIPELINES), metavar="PIPELINE")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument(
        "--every", type=int, default=1, metavar="K", help="of each kind, only every K-th fault"
    )
    parser.add_argument("--schedules", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument(
        "--together", type=int, help="trials whose processes one kill ends; by default 1, with Spark 12"
    )
    parser.add_argument("--log", type=Path, default=Path("faults.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
