"""Runs the benchmarks one after another, and prints one table of all of their figures.

    benchmarks/run [--quick] [--only PROGRAM …] [--delta-jar JAR[,JAR…]] [--directory DIR]

Each program that ran gets its section of benchmarks/RESULTS.md anew, with the day, the machine and the
command, unless --quick made its figures. With --delta-jar, delta-spark is put beside us as well
(engines.py). Exits with 1 if a figure exceeds its bound or a program fails. --quick makes small tables and
few repeats, to see that all of it runs: its figures say nothing. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from figures import FILE, Figure
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
HEADING = "\n## "
INTRODUCTION = """# Results

What the benchmarks printed, each after the command that ran it, which exits with 1 if a figure exceeds its
bound.
"""
# The arguments of each program, and those of --quick.
PROGRAMS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "limits": (["--minutes", "30"], ["--batches", "25", "--repeats", "1"]),
    "side_by_side": ([], ["--only", "points", "--rows", "200000", "--repeats", "1"]),
    "streams": ([], ["--batches", "120", "--segment", "30"]),
    "operations": ([], ["--only", "delete-by-vectors", "--repeats", "1"]),
    "change_files": ([], ["--rows", "200000", "--repeats", "1"]),
    "apply_changes": ([], ["--rows", "50000", "--changes", "1000", "--repeats", "1"]),
    "log_core": ([], ["--files", "10000", "--commits", "50", "--versions", "100", "--repeats", "1"]),
    "vacuum": ([], ["--files", "10000", "--repeats", "1"]),
    "command_line": ([], ["--repeats", "1"]),
}


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "deltalake"))
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}"


def cells(figure: Figure) -> list[str]:
    unit = f" {figure.unit}" if figure.unit else ""
    other = "" if figure.other is None else f"{figure.other_name}: {figure.other:.2f}{unit}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    verdict = "" if figure.limit is None else "yes" if figure.is_met else "no"
    return [figure.full_name, f"{figure.value:.2f}{unit}", other, ratio, figure.promise, verdict]


HEADER = ["what", "deltaflow", "beside", "ratio", "bound", "met"]


def section(name: str, command: Sequence[str], figures: Sequence[Figure]) -> str:
    """The section of RESULTS.md about a program, after its heading."""
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}",
        "",
        "```sh",
        f"python {' '.join(command)}",
        "```",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + " --- |" * len(HEADER),
        *("| " + " | ".join(cells(figure)) + " |" for figure in figures if figure.program == name),
    ]
    return "\n".join(lines) + "\n"


def keep(sections: Mapping[str, str]) -> None:
    """Puts the sections of programs into RESULTS.md, in the place of their old ones."""
    before = RESULTS.read_text().split(HEADING)[1:] if RESULTS.exists() else []
    kept = dict(part.split("\n\n", 1) for part in before)
    kept.update(sections)
    RESULTS.write_text(INTRODUCTION + "".join(f"{HEADING}{name}\n\n{kept[name]}" for name in kept))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS)
    parser.add_argument("--delta-jar")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    commands = {
        name: [f"benchmarks/{name}.py", *(quick if arguments.quick else full)]
        for name, (full, quick) in PROGRAMS.items()
        if arguments.only is None or name in arguments.only
    }
    if arguments.delta_jar is not None:
        rows = ["--rows", "200000", "--repeats", "1", "--rounds", "1"] if arguments.quick else []
        commands["engines"] = ["benchmarks/engines.py", "--delta-jar", arguments.delta_jar, *rows]
    place = [] if arguments.directory is None else ["--directory", str(arguments.directory)]
    console, ended_wrong = Console(), []
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "figures")
        kept.touch()
        for name, command in commands.items():
            console.rule(" ".join(command))
            where = [] if name == "command_line" else place
            done = subprocess.run(
                [sys.executable, *command, *where], cwd=HERE.parent, env={**os.environ, FILE: str(kept)}
            )
            # A program that has failed may not have shown all of its figures.
            if done.returncode:
                ended_wrong.append(f"{name} ended with {done.returncode}")
        figures = [Figure(**json.loads(line)) for line in kept.read_text().splitlines()]
    table = Table("program", *HEADER)
    for figure in figures:
        table.add_row(figure.program, *cells(figure), style=None if figure.is_met else "red")
    console.print(table, *ended_wrong, sep="\n")
    if not arguments.quick:
        keep({name: section(name, command, figures) for name, command in commands.items()})
    return int(bool(ended_wrong) or not all(figure.is_met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
