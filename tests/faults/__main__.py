"""Tries pipelines with a fault at every step, and by random schedules of faults.

    python -m tests.faults                      every step of every pipeline, every kind of fault
    python -m tests.faults --only stream --kind kill
    python -m tests.faults --schedules 1000     random schedules of up to five kills, over all pipelines

Each outcome is a line of the log, `--log FILE`. A trial that the log has as passed is not made again, so a
run that was interrupted goes on. The exit code is 1 if a trial went wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from deltaflow.testing.trials import Pipeline
from tests.faults.pipelines import KINDS, PIPELINES, every_fault, schedules


class Line(msgspec.Struct):
    """A trial of the log; `problems` is empty if all was well."""

    pipeline: str
    trial: str
    problems: list[str]
    fired: list[str]
    runs: int
    seen: int
    seconds: float


def main() -> int:
    arguments = _arguments()
    # What runs a few times is not worth a compiler that optimises it.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    names = arguments.only or list(PIPELINES)
    went_wrong = 0
    for position, name in enumerate(names):
        share = arguments.schedules // len(names) + (position < arguments.schedules % len(names))
        went_wrong += _try(name, arguments, share)
    return 1 if went_wrong else 0


def _try(name: str, arguments: argparse.Namespace, number: int) -> int:
    """Makes the trials of a pipeline that the log has not; how many went wrong."""
    passed = _passed(arguments.log)
    tried, began = PIPELINES[name], time.monotonic()
    counts: Counter[str] = Counter()
    with tried.folder() as folder, arguments.log.open("ab") as log:
        pipeline = Pipeline(tried.function, folder, ignored=tried.ignored, together=arguments.together)
        recording = pipeline.record()
        if arguments.schedules:
            trials = list(schedules(recording, name, arguments.seed, number))
        else:
            trials = list(every_fault(recording, tuple(arguments.kind or KINDS)))
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


def _passed(log: Path) -> set[tuple[str, str]]:
    """The trials that have passed by the log, the last line of each of which counts."""
    last: dict[tuple[str, str], bool] = {}
    for text in log.read_bytes().splitlines() if log.exists() else ():
        line = msgspec.json.decode(text, type=Line)
        last[line.pipeline, line.trial] = not line.problems
    return {trial for trial, has_passed in last.items() if has_passed}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", action="append", choices=list(PIPELINES), metavar="PIPELINE")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--schedules", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--together", type=int, default=12, help="trials whose processes one kill ends")
    parser.add_argument("--log", type=Path, default=Path("faults.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
