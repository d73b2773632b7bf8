"""How time and memory grow with a table's files and versions, on synthetic logs; starts no JVM.

    python benchmarks/scale.py --directory DIR [--files 10000 100000 1000000 …]
                               [--versions 1000 10000 100000 …] [--removed 10000 100000 1000000 …]
                               [--clones 10000 100000 …] [--again] [--plot FILE]

DIR keeps the logs and what was measured (results.jsonl): a run that is stopped goes on where it was, and
later runs measure only what is new; --again measures all of it anew. A million files take 130 MB, a hundred
thousand versions 800 MB of small files, and removed files, which VACUUM LITE finds, an empty file each.
Shallow clones are of the tables with so many files.

Each step runs in a process of its own; those that write get a copy of the log made of links. Prints a table:
seconds, seconds of CPU (which other programs disturb less), and resident memory at its highest, beyond that
of a process with its libraries. --plot draws it (matplotlib; docs/growth.svg was made so).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from log_core import (
    COMMITS_AFTER_CHECKPOINT,
    Opened,
    add_actions,
    checkpointed_log,
    file_columns,
    measured,
    stream_start,
    write_checkpoint,
    write_commit,
)
from vacuum import touch

Result = dict[str, float]
_COMMITS = 20
_DAY_MS = 86_400_000


# ------------------------------------------------------------------------------------------------ the logs


def files_log(table: Path, files: int) -> None:
    """So many files in the checkpoint of another writer, with statistics as JSON, and ten commits."""
    checkpointed_log(table, files, 10)


def versions_log(table: Path, versions: int) -> None:
    """So many commits of a file each, with a checkpoint ten commits before the newest."""
    for version in range(versions):
        write_commit(table, version, list(add_actions(version, 1)))
    version = versions - 1 - COMMITS_AFTER_CHECKPOINT
    write_checkpoint(table, version, version + 1)


def removed_log(table: Path, files: int) -> None:
    """So many files that are there, which a thousand commits have removed a month ago."""
    then_s = time.time() - 30 * _DAY_MS / 1_000
    write_commit(table, 0, [])
    each = max(1, files // 1_000)
    for version, first in enumerate(range(0, files, each), start=1):
        paths = file_columns(first, min(each, files - first))["path"].to_pylist()
        removed = {"deletionTimestamp": int(then_s * 1_000), "dataChange": True, "size": 0}
        write_commit(table, version, [{"remove": {"path": path, **removed}} for path in paths])
        for path in paths:
            touch(f"{table}/{path}", then_s)
    for commit_file in (table / "_delta_log").iterdir():
        os.utime(commit_file, (then_s, then_s))


@contextmanager
def linked(table: Path) -> Iterator[Path]:
    """A copy of the table, which may be changed: a log's files are only ever replaced."""
    with tempfile.TemporaryDirectory(dir=table.parent) as name:
        copy = Path(name, "table")
        shutil.copytree(table, copy, copy_function=os.link)
        yield copy


# ------------------------------------------------------------------------------------------------ the steps


def open_table(table: str) -> Result:
    """The newest version and the list of its files."""
    from deltaflow.log import DeltaLog

    return measured(lambda: DeltaLog.for_table(table).snapshot().files)


def open_with_deltalake(table: str) -> Result:
    """deltalake's."""
    from deltalake import DeltaTable

    return measured(lambda: Opened(DeltaTable(table)))


def plan(table: str) -> Result:
    """The files of a condition that two files fulfil, in a table that is open: the first query, which has the
    statistics of the column read."""
    from deltaflow.log import DeltaLog

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files
    return measured(lambda: files.filter(_of_one_file(snapshot, files.num_rows)))


def plan_again(table: str) -> Result:
    """A later query of the same version, with other values of the same column."""
    from deltaflow.log import DeltaLog

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files
    files.filter(_of_one_file(snapshot, files.num_rows // 2))
    return measured(lambda: files.filter(_of_one_file(snapshot, files.num_rows)))


def plan_of_partition(table: str) -> Result:
    """The first query with a condition on the partition column, too, as a scan of Spark plans it."""
    import pyarrow.compute as pc

    from deltaflow.log import DeltaLog

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files

    def found() -> Any:
        day = pc.map_lookup(files["partition_values"], "day", "first")
        mask = pc.equal(day, "2024-06-01").combine_chunks()
        return files.filter(mask).filter(_of_one_file(snapshot, files.num_rows, mask))

    return measured(found)


def _of_one_file(snapshot: Any, number: int, mask: Any = None) -> Any:
    from deltaflow.log.files.data_skipping import may_match

    middle = number // 2 * 10_000
    bounds = [
        {"op": op, "column": ["order_id"], "type": "bigint", "value": value}
        for op, value in ((">=", middle), ("<=", middle + 10_000))
    ]
    known = snapshot.statistics if mask is None else snapshot.statistics.of(mask)
    return may_match({"op": "and", "args": bounds}, known)


def count_rows(table: str) -> Result:
    """count(*) by the statistics."""
    from deltaflow.log import DeltaLog

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files
    assert snapshot.number_of_rows(files.slice(0, 1))
    return measured(lambda: Opened(snapshot.number_of_rows(files)))


def start_stream(table: str) -> Result:
    """The first batch of a stream, of 1,000 files."""
    importlib.import_module("deltaflow.streaming.source")  # a library, too
    return measured(lambda: Opened(stream_start(table)))


def commit(table: str) -> Result:
    """One file added to a table that is open: the median of many commits."""
    from deltaflow.log import AddFile, DeltaLog, Operation

    log = DeltaLog.for_table(table)
    assert log.snapshot().files.num_rows
    seconds = []

    def commits() -> None:
        for _ in range(_COMMITS):
            add = AddFile(
                path=f"part-00000-{uuid.uuid4()}.c000.snappy.parquet",
                partition_values={"day": "2024-01-01"},
                size=1,
                modification_time=1,
                data_change=True,
                stats='{"numRecords":1}',
            )
            begin = time.perf_counter()
            log.start_transaction().commit([add], Operation("WRITE", {"mode": "Append"}))
            seconds.append(time.perf_counter() - begin)

    found = measured(commits)
    return found | {"seconds": statistics.median(seconds), "cpu_seconds": found["cpu_seconds"] / _COMMITS}


def checkpoint(table: str) -> Result:
    """A checkpoint of the newest version, the table being open."""
    from deltaflow.log import DeltaLog

    log = DeltaLog.for_table(table)
    log.snapshot()
    return measured(log.checkpoint)


def shallow_clone(table: str) -> Result:
    """The commit that makes a shallow clone beside the table."""
    from deltaflow.batch.commands.clone import clone_table
    from deltaflow.batch.commands.clone_target import CloneTarget
    from deltaflow.spark.sql.messages import NamedTable

    class NoCatalog(CloneTarget):
        def update_catalog(self, spark: Any) -> None:
            pass

    def clone() -> None:
        target = NoCatalog("clone", f"{table}-clone", True, None, False, False)
        clone_table(None, NamedTable("source", table), target, {}, {}, is_shallow=True)  # type: ignore[arg-type]

    return measured(clone)


def plan_of_optimize(table: str) -> Result:
    """The bins of OPTIMIZE for all files of a table that is open."""
    from deltaflow.batch.optimize.compaction import bins_of_table, files_to_compact
    from deltaflow.log import DeltaLog

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files

    def bins() -> Any:
        chosen = files_to_compact(files, snapshot.statistics, smaller_than=1 << 30, max_deleted_ratio=0.05)
        return Opened(bins_of_table(chosen, ("day",), max_size=1 << 30))

    return measured(bins)


def vacuum_lite(table: str) -> Result:
    """The plan of VACUUM LITE, which lists no directory: what the log says that it may delete."""
    from deltaflow.log import DeltaLog
    from deltaflow.log.maintenance.vacuum_candidates import in_log

    log = DeltaLog.for_table(table)
    return measured(lambda: log.plan_vacuum(7 * _DAY_MS, in_log).files)


def time_travel(table: str) -> Result:
    """The version in the middle, which no checkpoint is before."""
    from deltaflow.log import DeltaLog

    log = DeltaLog.for_table(table)
    middle = log.latest_version() // 2
    return measured(lambda: log.snapshot_at(middle).files)


def history(table: str) -> Result:
    """The ten newest commits."""
    from deltaflow.log import DeltaLog

    log = DeltaLog.for_table(table)
    return measured(lambda: Opened(log.history(10)))


Step = Callable[[str], Result]
OF_FILES: dict[str, Step] = {
    "open": open_table,
    "open with deltalake": open_with_deltalake,
    "plan by statistics, JSON": plan,
    "plan by partition and statistics, JSON": plan_of_partition,
    "start a stream": start_stream,
    "commit": commit,
    "plan of OPTIMIZE": plan_of_optimize,
    "checkpoint": checkpoint,
}
OF_OWN_CHECKPOINT: dict[str, Step] = {
    "open, own checkpoint": open_table,
    "plan by statistics, own checkpoint": plan,
    "plan by statistics again, own checkpoint": plan_again,
    "count(*), own checkpoint": count_rows,
    "checkpoint again": checkpoint,
}
OF_CLONES: dict[str, Step] = {"shallow clone": shallow_clone}
OF_REMOVED: dict[str, Step] = {"plan of VACUUM LITE": vacuum_lite}
OF_VERSIONS: dict[str, Step] = {
    "open": open_table,
    "open with deltalake": open_with_deltalake,
    "plan by statistics, JSON": plan,
    "start a stream": start_stream,
    "commit": commit,
    "newest ten commits": history,
    "the version in the middle": time_travel,
    "checkpoint": checkpoint,
}
STEPS = {
    step.__name__: step
    for steps in (OF_FILES, OF_OWN_CHECKPOINT, OF_CLONES, OF_REMOVED, OF_VERSIONS)
    for step in steps.values()
}


# ------------------------------------------------------------------------------------------------ measuring


class Results:
    """What was measured, in a file with a line for each figure."""

    def __init__(self, file: Path, *, again: bool) -> None:
        self._file = file
        self.found: dict[tuple[str, str, int], Result] = {}
        if again:
            file.unlink(missing_ok=True)
        for line in file.read_text().splitlines() if file.exists() else ():
            kind, step, size, result = json.loads(line)
            self.found[kind, step, size] = result

    def measure(self, kind: str, name: str, size: int, step: Step, table: Path) -> None:
        """Runs the step in a process of its own, unless it has been measured."""
        if (kind, name, size) in self.found:
            return
        changes = step in (commit, checkpoint, shallow_clone)
        with linked(table) if changes else nullcontext(table) as copy:
            command = [sys.executable, __file__, "--step", step.__name__, "--directory", str(copy)]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{name} at {size:,} {kind}: ended with {done.returncode}", file=sys.stderr)
            return
        result = json.loads(done.stdout)
        self.found[kind, name, size] = result
        with self._file.open("a") as file:
            file.write(json.dumps([kind, name, size, result]) + "\n")
        print(
            f"{kind} {size:>12,}  {name:<40} {result['seconds']:9.3f} s {result['peak_mb']:9.0f} MB",
            flush=True,
        )


def built(table: Path, build: Callable[[Path, int], None], size: int) -> Path:
    """The table, made now unless it is there whole."""
    if not table.exists():
        part = table.with_name(table.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        build(part, size)
        os.sync()
        part.rename(table)
    return table


def with_own_checkpoint(table: Path, size: int) -> None:
    """The files of the other log, in a checkpoint of deltaflow, with statistics as JSON and in columns."""
    from deltaflow.log import DeltaLog

    shutil.copytree(table.with_name(f"files-{size}"), table, copy_function=os.link)
    DeltaLog.for_table(str(table)).checkpoint()


def measure_all(directory: Path, results: Results, sizes: dict[str, list[int]]) -> None:
    for asked, log, build, steps in (
        ("files", "files", files_log, OF_FILES),
        ("files", "own", with_own_checkpoint, OF_OWN_CHECKPOINT),
        ("clones", "files", files_log, OF_CLONES),
        ("versions", "versions", versions_log, OF_VERSIONS),
        ("removed", "removed", removed_log, OF_REMOVED),
    ):
        for size in sorted(sizes[asked]):
            table = built(directory / f"{log}-{size}", build, size)
            for name, step in steps.items():
                results.measure("files" if asked == "clones" else asked, name, size, step, table)


# ------------------------------------------------------------------------------------------------ reporting


def print_tables(results: Results) -> None:
    """As Markdown: seconds, seconds of CPU and MB at each size."""
    for kind in ("files", "versions", "removed"):
        sizes = sorted({size for of, _, size in results.found if of == kind})
        if not sizes:
            continue
        print(f"\n| {kind} | " + " | ".join(f"{size:,}" for size in sizes) + " |")
        print("| --- " * (len(sizes) + 1) + "|")
        for name in dict.fromkeys(name for of, name, _ in results.found if of == kind):
            cells = []
            for size in sizes:
                found = results.found.get((kind, name, size))
                cells.append("" if found is None else _cell(found))
            print(f"| {name} | " + " | ".join(cells) + " |")


def _cell(found: Result) -> str:
    return f"{found['seconds']:.3g} s, {found['cpu_seconds']:.3g} s, {found['peak_mb']:.0f} MB"


DRAWN = {
    "files": (
        "open",
        "open with deltalake",
        "plan by statistics, JSON",
        "plan by statistics, own checkpoint",
        "start a stream",
        "commit",
        "shallow clone",
        "checkpoint again",
    ),
    "versions": ("open", "open with deltalake", "newest ten commits", "commit", "the version in the middle"),
}
_GREY = "#7f7f7f"  # can be read on light and on dark ground


def draw(results: Results, file: str) -> None:
    """Time and memory against size, in logarithms, on no ground."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9, "axes.prop_cycle": _colours()}
        | dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _GREY
        )
    )
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8.5))
    for row, (kind, names) in zip(axes, DRAWN.items(), strict=True):
        for axis, (field, unit) in zip(
            row, (("cpu_seconds", "seconds of CPU"), ("peak_mb", "MB")), strict=True
        ):
            for name in names:
                points = sorted(
                    (size, max(result[field], 0.001))
                    for (of, step, size), result in results.found.items()
                    if (of, step) == (kind, name)
                )
                if points:
                    axis.loglog(*zip(*points, strict=True), marker="o", markersize=4, label=name)
            axis.set_xlabel(kind)
            axis.set_ylabel(unit)
            axis.grid(color=_GREY, alpha=0.25)
        row[0].legend(fontsize=8, framealpha=0)
    figure.tight_layout()
    figure.savefig(file, transparent=True, metadata={"Date": None} if file.endswith(".svg") else None)


def _colours() -> Any:
    from matplotlib import cycler

    named = ("#1f8fd0", "#e07b1a", "#2ca02c", "#d64541", "#9a6fcf", "#a5755c", "#d463b3", "#9c9c22")
    return cycler(color=named)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--versions", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--clones", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--removed", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--directory", required=True, help="where the logs and the results are kept")
    parser.add_argument("--again", action="store_true", help="measure what was measured before, too")
    parser.add_argument("--plot", metavar="FILE", help="draw time and memory against size")
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](arguments.directory)))
        return 0
    directory = Path(arguments.directory)
    directory.mkdir(parents=True, exist_ok=True)
    results = Results(directory / "results.jsonl", again=arguments.again)
    measure_all(directory, results, vars(arguments))
    print_tables(results)
    if arguments.plot:
        draw(results, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
