"""How fast the command line starts, beside `python -c pass` and `import pyarrow.parquet`.

    python benchmarks/command_line.py [--repeats 15]

Each line runs in a process of its own, all of them in turn, after a warm-up. Prints medians.
Exits with 1 if `--help` or `log PATH history` takes more than 0.5 s. Run it on a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Report

BOUND_MS = 500
BOUNDED = ("deltaflow --help", "deltaflow log PATH history")
COMMITS = 20


def write_table(table: Path) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True)
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {},
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for version in range(COMMITS):
        add = {
            "path": f"f{version}",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
        }
        actions = [*(first if version == 0 else []), {"add": add}]
        (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def seconds(line: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *line], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table")
        write_table(table)
        command = ["-m", "deltaflow.cli"]
        lines = {
            "python -c pass": ["-c", "pass"],
            "import pyarrow.parquet": ["-c", "import pyarrow.parquet"],
            "deltaflow --help": [*command, "--help"],
            "deltaflow log PATH history": [*command, "log", str(table), "history"],
            "deltaflow log PATH history --json": [*command, "log", str(table), "history", "--json"],
            "deltaflow log PATH state": [*command, "log", str(table), "state"],
        }
        for line in lines.values():
            seconds(line)
        measured: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(repeats):
            for name, line in lines.items():
                measured[name].append(seconds(line))
    medians = {name: statistics.median(times) for name, times in measured.items()}
    report = Report("command_line")
    for name, median in medians.items():
        report.value(name, median * 1000, "ms", BOUND_MS if name in BOUNDED else None)
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
