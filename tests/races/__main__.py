"""The long races; see README.md beside this module.

python -m tests.races [--operations 2000] [--seed 0] [--place local] [--writers spark,spark] [--log FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import class_archive
from tests.jvm import java_sources, write_jar
from tests.races.places import PLACES
from tests.races.race import Outcome, races, run
from tests.races.spark_writer import session
from tests.races.writers import Writers

_OBJECT_STORE = Path(__file__).parents[1] / "object_store"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.races")
    parser.add_argument("--operations", type=int, default=2_000, help="of all races together")
    parser.add_argument("--of-a-writer", type=int, default=50, help="operations of each writer in a race")
    parser.add_argument("--seed", type=int, default=0, help="the first race's")
    parser.add_argument("--place", choices=PLACES, default="local")
    parser.add_argument(
        "--writers", default="spark,spark,spark,spark", help="their engines: spark, deltalake"
    )
    parser.add_argument("--log", type=Path, help="a line for each race; races that it has are left out")
    options = parser.parse_args()
    done = _logged(options.log)
    class_archive.make()
    class_archive.set_jvm_options()
    wanted = races(options.seed, options.operations, options.writers.split(","), options.of_a_writer)
    keys = {race: f"{options.place} {race}" for race in wanted}
    with tempfile.TemporaryDirectory() as folder, PLACES[options.place]() as place:
        jar = ""
        if place.settings:
            jar = str(write_jar(Path(folder) / "object-store.jar", java_sources(_OBJECT_STORE)))
        with Writers(options.writers.split(","), place, jar) as writers:
            spark = session(jar, place.settings)
            spark.sparkContext.setLogLevel("ERROR")
            for race in wanted:
                if keys[race] not in done:
                    began = time.monotonic()
                    outcome = run(race, spark, place, writers)
                    line = _line(keys[race], outcome, time.monotonic() - began)
                    done[keys[race]] = line
                    print(_text(line), flush=True)
                    _append(options.log, line)
            spark.stop()
    _summarise([done[key] for key in keys.values()])


def _append(log: Path | None, line: dict) -> None:
    if log is not None:
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _logged(log: Path | None) -> dict[str, dict]:
    if log is None or not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {line["race"]: line for line in lines}


def _line(key: str, outcome: Outcome, seconds: float) -> dict:
    race, report = outcome.race, outcome.report
    is_sound = not (report.faults or report.faults_of_deltalake or report.without_order)
    return {
        "race": key,
        "seed": race.seed,
        "isolation": race.isolation,
        "features": dataclasses.asdict(race.features),
        "operations": report.operations,
        "commits": report.commits,
        "reads": outcome.reads,
        "reordered": report.reordered,
        "without_order": report.without_order,
        "seconds": round(seconds, 1),
        "busy_seconds": round(outcome.busy_s, 1),
        "longest_seconds": outcome.longest_s,
        "vacuum_may_disturb": outcome.vacuum_may_disturb,
        "outcomes": report.outcomes,
        "faults": report.faults,
        "faults_of_deltalake": report.faults_of_deltalake,
        "history": [] if is_sound else report.history,
    }


def _text(line: dict) -> str:
    features = ", ".join(f"{name}: {value}" for name, value in line["features"].items())
    end = "no fault" if not line["faults"] else "\n  ".join(["FAULTS", *line["faults"]])
    if line["vacuum_may_disturb"]:
        end = f"an operation took longer ({line['longest_seconds']} s) than VACUUM keeps files; {end}"
    if line["faults_of_deltalake"]:
        end = "\n  ".join([end, "of deltalake's commits:", *line["faults_of_deltalake"]])
    order = f"NO ORDER: {line['without_order']}; " if line["without_order"] else ""
    return (
        f"seed {line['seed']}, {line['isolation']}, {features}: {line['operations']} operations, "
        f"{line['commits']} commits, {line['reordered']} reordered, {line['reads']} reads in "
        f"{line['seconds']} s; {order}{end}"
    )


def _summarise(lines: list[dict]) -> None:
    outcomes: Counter[str] = Counter()
    for line in lines:
        outcomes.update(line["outcomes"])
    for outcome, number in sorted(outcomes.items()):
        print(f"{number:6} {outcome}")
    total = {
        name: sum(line[name] for line in lines) for name in ("operations", "commits", "reads", "reordered")
    }
    faults = sum(len(line["faults"]) for line in lines)
    others = sum(len(line["faults_of_deltalake"]) for line in lines)
    print(f"{len(lines)} races: {total}, {faults} faults, {others} of deltalake's commits")


if __name__ == "__main__":
    main()
