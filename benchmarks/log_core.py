"""The log core beside `deltalake`, in one run, on the same synthetic logs; starts no JVM.

    python benchmarks/log_core.py [--files 1000000] [--commits 5000] [--versions 10000] [--repeats 3]
                                  [--directory DIR]

Every reading runs in a separate process, in turn (A B, then B A, …), after a warm-up of both. Prints medians,
their ratio and the bound. "Added" memory is resident memory beyond that of the process with its libraries:
"held" while the answer is kept, "peak" at its highest. Exits with 1 if a figure exceeds its bound. Run it on
a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from figures import Report

COMMITS_AFTER_CHECKPOINT = 10
FILES_PER_COMMIT = 10
FEW_FILES = 1_000
FEW_VERSIONS = 10
TIMED_COMMITS = 100
OPEN_BOUND = 1.0
MEMORY_BOUND = 0.25
LISTED_MEMORY_BOUND = 0.5
PLAN_BOUND_S = 1
FILES_BOUND = 2.0
VERSIONS_BOUND = 1.5
CHECKPOINT_BOUND_MB = 1_024
STREAM_START_BOUND_S = 10
STREAM_MEMORY_BOUND_MB = 300
STREAM_GROWTH_BOUND = 1.2
_MB = 1_048_576
_ROWS_PER_GROUP = 50_000

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_name, "nullable": True, "metadata": {}}
            for name, type_name in (
                ("order_id", "long"),
                ("customer", "string"),
                ("amount", "double"),
                ("ordered_at", "timestamp"),
                ("day", "date"),
            )
        ],
    }
)
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA: dict[str, Any] = {
    "id": "8f4b4a4e-3a49-4a8e-9d1e-2f0f2d1c7b55",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": SCHEMA,
    "partitionColumns": ["day"],
    # Checkpoints of the timed commits would be timed, too.
    "configuration": {"delta.checkpointInterval": "1000000"},
    "createdTime": 1_700_000_000_000,
}


# ---------------------------------------------------------------------------------------------------- logs


def file_columns(first: int, number: int) -> dict[str, pa.Array]:
    """The log's columns of files, beginning with number `first`, with statistics like those of a real
    table."""
    numbers = pa.array(range(first, first + number), pa.int64())
    text = numbers.cast(pa.string())
    padded = pc.utf8_lpad(text, 8, "0")
    days = [f"2024-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
    day = pa.array(days).take(pc.subtract(numbers, pc.multiply(pc.divide(numbers, len(days)), len(days))))

    def joined(*parts: Any) -> pa.Array:
        return pc.binary_join_element_wise(*parts, "")

    low = pc.multiply(numbers, 10_000).cast(pa.string())
    high = pc.add(pc.multiply(numbers, 10_000), 9_999).cast(pa.string())
    stats = joined(
        '{"numRecords":10000,"minValues":{"order_id":',
        low,
        ',"customer":"Aaron & Sons ',
        padded,
        '","amount":0.01,"ordered_at":"',
        day,
        'T00:00:00.000Z"},"maxValues":{"order_id":',
        high,
        ',"customer":"Zyx Ltd. ',
        padded,
        '","amount":',
        text,
        '.99,"ordered_at":"',
        day,
        'T23:59:59.999Z"},"nullCount":{"order_id":0,"customer":12,"amount":3,"ordered_at":0}}',
    )
    path = joined(
        "day=", day, "/part-", padded, "-5d3c1f0e-9b7a-4c52-8f7e-", padded, "0000-c000.snappy.parquet"
    )
    return {"path": path, "day": day, "stats": stats, "number": numbers}


def write_checkpoint(table: Path, version: int, files: int) -> None:
    """A classic checkpoint of a single part, as other writers write it, and its hint."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    strings = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", strings),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("tags", strings),
            ("stats", pa.string()),
        ]
    )
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    meta_data = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
            ("createdTime", pa.int64()),
        ]
    )
    schema = pa.schema([("add", add), ("protocol", protocol), ("metaData", meta_data)])
    as_pairs = {**METADATA, "configuration": list(METADATA["configuration"].items())}
    as_pairs["format"] = {"provider": "parquet", "options": []}
    with pq.ParquetWriter(log / f"{version:020}.checkpoint.parquet", schema, store_schema=False) as writer:
        writer.write_table(
            pa.table({"add": [None], "protocol": [PROTOCOL], "metaData": [as_pairs]}, schema=schema)
        )
        for first in range(0, files, _ROWS_PER_GROUP):
            rows = min(_ROWS_PER_GROUP, files - first)
            columns = file_columns(first, rows)
            offsets = pa.array(range(rows + 1), pa.int32())
            names = pa.repeat("day", rows)
            adds = pa.StructArray.from_arrays(
                [
                    columns["path"],
                    pa.MapArray.from_arrays(offsets, names, columns["day"]),
                    pc.add(columns["number"], 1_000_000),
                    pc.add(columns["number"], 1_700_000_000_000),
                    pa.repeat(False, rows),
                    pa.nulls(rows, strings),
                    columns["stats"],
                ],
                fields=list(add),
            )
            nulls = [pa.nulls(rows, protocol), pa.nulls(rows, meta_data)]
            writer.write_table(pa.Table.from_arrays([adds, *nulls], schema=schema))
    hint = {"version": version, "size": files + 2}
    (log / "_last_checkpoint").write_text(json.dumps(hint))


def add_actions(first: int, number: int) -> Iterator[dict[str, Any]]:
    """The same files as add actions of a commit."""
    columns = {name: values.to_pylist() for name, values in file_columns(first, number).items()}
    for path, day, stats, index in zip(*columns.values(), strict=True):
        yield {
            "add": {
                "path": path,
                "partitionValues": {"day": day},
                "size": 1_000_000 + index,
                "modificationTime": 1_700_000_000_000 + index,
                "dataChange": True,
                "stats": stats,
            }
        }


def write_commit(table: Path, version: int, actions: list[dict[str, Any]]) -> None:
    """The next commit, like that of another writer."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    info = {
        "commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE", "isBlindAppend": True}
    }
    first = [{"protocol": PROTOCOL}, {"metaData": METADATA}] if version == 0 else []
    content = "".join(json.dumps(action) + "\n" for action in [info, *first, *actions])
    (log / f"{version:020}.json").write_text(content)


def checkpointed_log(table: Path, files: int, version: int, *, with_history: bool = False) -> None:
    """A checkpoint and ten commits after it; with `with_history` also the commits before it."""
    write_checkpoint(table, version, files)
    for before in range(version + 1 if with_history else 0):
        write_commit(table, before, [])
    for number in range(1, COMMITS_AFTER_CHECKPOINT + 1):
        actions = list(add_actions(files + number * FILES_PER_COMMIT, FILES_PER_COMMIT))
        write_commit(table, version + number, actions)


def log_of_commits(table: Path, commits: int) -> None:
    """A log of commits only."""
    for version in range(commits):
        write_commit(table, version, list(add_actions(version * FILES_PER_COMMIT, FILES_PER_COMMIT)))


# -------------------------------------------------------------------------------------- in their own process


def open_with_deltaflow(table: str) -> dict[str, Any]:
    from deltaflow.log import DeltaLog

    return measured(lambda: DeltaLog.for_table(table).snapshot().files)


def open_with_deltalake(table: str) -> dict[str, Any]:
    from deltalake import DeltaTable

    return measured(lambda: Opened(DeltaTable(table)))


class Opened:
    """What is held without rows of its own."""

    num_rows = None

    def __init__(self, table: Any) -> None:
        self.table = table


def list_with_deltaflow(table: str) -> dict[str, Any]:
    from deltaflow.log import DeltaLog

    def read() -> Any:
        snapshot = DeltaLog.for_table(table).snapshot()
        return snapshot.with_stats(snapshot.files)

    return measured(read)


def list_with_deltalake(table: str) -> dict[str, Any]:
    from deltalake import DeltaTable

    def read() -> Any:
        opened = DeltaTable(table)
        return opened, pa.table(opened.get_add_actions())

    return measured(read)


def plan_with_deltaflow(table: str) -> dict[str, Any]:
    """The first selective query of an open table: the files whose statistics of one column fit."""
    from deltaflow.log import DeltaLog
    from deltaflow.log.files.data_skipping import may_match

    snapshot = DeltaLog.for_table(table).snapshot()
    files = snapshot.files
    middle = files.num_rows // 2 * 10_000
    bounds = [
        {"op": op, "column": ["order_id"], "type": "bigint", "value": value}
        for op, value in ((">=", middle), ("<=", middle + 10_000))
    ]
    return measured(lambda: files.filter(may_match({"op": "and", "args": bounds}, snapshot.statistics)))


def checkpoint_with_deltaflow(table: str) -> dict[str, Any]:
    from deltaflow.log import DeltaLog

    return measured(lambda: DeltaLog.for_table(table).checkpoint())


def checkpoint_with_deltalake(table: str) -> dict[str, Any]:
    from deltalake import DeltaTable

    return measured(lambda: DeltaTable(table).create_checkpoint())


def follow(tables: str) -> dict[str, Any]:
    """Milliseconds of updating a loaded snapshot by another writer's commit, of committing after that, and of
    committing again: for each of two tables the medians of many, in turn, since both wait for the same disk.

    After another writer's commit the checksum file takes a count of all files, since its actions alone do not
    tell whether they were new.
    """
    from deltaflow.log import AddFile, DeltaLog, Operation

    logs = [DeltaLog.for_table(table) for table in tables.split(os.pathsep)]
    updates: list[list[float]] = [[] for _ in logs]
    first_commits: list[list[float]] = [[] for _ in logs]
    commits: list[list[float]] = [[] for _ in logs]
    for number in range(TIMED_COMMITS):
        for index, log in list(enumerate(logs))[:: 1 if number % 2 == 0 else -1]:
            (described,) = add_actions(100_000_000 + number, 1)
            version = log.snapshot().version + 1
            write_commit(Path(log.path), version, [described])
            begin = time.perf_counter()
            updated = log.snapshot()
            updates[index].append(time.perf_counter() - begin)
            assert updated.version == version
            for times in (first_commits[index], commits[index]):
                add = AddFile(
                    path=f"part-00000-{uuid.uuid4()}.c000.snappy.parquet",
                    partition_values=described["add"]["partitionValues"],
                    size=1,
                    modification_time=1,
                    data_change=True,
                    stats=described["add"]["stats"],
                )
                begin = time.perf_counter()
                transaction = log.start_transaction()
                transaction.commit([add], Operation("WRITE", {"mode": "Append"}))
                times.append(time.perf_counter() - begin)
    measured_times = {"update": updates, "commit after another's": first_commits, "commit": commits}
    return {
        what: [statistics.median(times) * 1_000 for times in of_logs]
        for what, of_logs in measured_times.items()
    }


def stream(table: str) -> dict[str, Any]:
    """The batches of a stream's initial snapshot, 1,000 files each: what the first one takes, and the
    milliseconds of an early and of a late one, each the median of nine.
    """
    from deltaflow.streaming.admission import Limits

    started: list[tuple[Any, str]] = []
    found = measured(lambda: started.append(stream_start(table)))
    source, offset = started.pop()
    milliseconds: list[float] = []
    for _ in range(905):
        begin = time.perf_counter()
        offset = source.latest_offset(offset, Limits(files=1_000)).json()
        source.metrics(offset)
        milliseconds.append((time.perf_counter() - begin) * 1_000)
    early, late = milliseconds[:9], milliseconds[-9:]
    return found | {"early": statistics.median(early), "late": statistics.median(late)}


def stream_start(table: str) -> tuple[Any, str]:
    """The source of a stream, and the offset after its first batch of 1,000 files."""
    from deltaflow.log import DeltaLog
    from deltaflow.streaming.admission import Limits
    from deltaflow.streaming.reading import Reading
    from deltaflow.streaming.source import DeltaSource
    from deltaflow.streaming.source_options import source_options

    log = DeltaLog.for_table(table, with_files=False)
    newest = log.snapshot()
    options = source_options({}, {})
    reading = Reading(
        log, newest.table_id, newest.version, newest.schema, tuple(newest.partition_columns), options
    )
    source = DeltaSource(reading)
    return source, source.latest_offset(None, Limits(files=1_000)).json()


def measured(read: Callable[[], Any]) -> dict[str, Any]:
    # The first array of Python's values makes pyarrow load pandas: that is a library, not the table's state.
    pa.array([0])
    before = resident_bytes("VmRSS")
    begin, begin_cpu = time.perf_counter(), time.process_time()
    answer = read()
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    held, peak = resident_bytes("VmRSS"), resident_bytes("VmHWM")
    rows = None if answer is None else (answer[1] if isinstance(answer, tuple) else answer).num_rows
    return {
        "rows": rows,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "held_mb": (held - before) / _MB,
        "peak_mb": (peak - before) / _MB,
        "process_peak_mb": peak / _MB,
    }


def resident_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1_024
    raise OSError(f"/proc/self/status has no {name}")


PROBES = {
    probe.__name__: probe
    for probe in (
        open_with_deltaflow,
        open_with_deltalake,
        list_with_deltaflow,
        list_with_deltalake,
        plan_with_deltaflow,
        checkpoint_with_deltaflow,
        checkpoint_with_deltalake,
        follow,
        stream,
    )
}


# ------------------------------------------------------------------------------------------------ comparing


def run(probe: Callable[[str], dict[str, Any]], *tables: Path) -> dict[str, Any]:
    directories = os.pathsep.join(map(str, tables))
    command = [sys.executable, __file__, "--probe", probe.__name__, "--directory", directories]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def compare_opening(report: Report, name: str, table: Path, repeats: int, bounds: tuple[Any, Any]) -> None:
    """`bounds` are those of the memory: of an open table, and with the statistics of all files."""
    report.begin(f"{name}, deltaflow beside deltalake")
    compare(report, "open", (open_with_deltaflow, open_with_deltalake), table, repeats, bounds[0])
    sides = (list_with_deltaflow, list_with_deltalake)
    compare(report, "open and list with statistics", sides, table, repeats, bounds[1])


def compare(
    report: Report,
    what: str,
    sides: tuple[Callable[[str], dict[str, Any]], ...],
    table: Path,
    repeats: int,
    memory_bound: float | None,
) -> None:
    found: dict[str, list[dict[str, Any]]] = {side.__name__: [] for side in sides}
    for side in sides:
        run(side, table)
    for repeat in range(repeats):
        for side in sides if repeat % 2 == 0 else sides[::-1]:
            found[side.__name__].append(run(side, table))
    rows = {result["rows"] for results in found.values() for result in results} - {None}
    if len(rows) != 1:
        raise AssertionError(f"The two do not list the same files: {rows}")
    ours, other = (
        {
            key: statistics.median(result[key] for result in found[side.__name__])
            for key in ("seconds", "held_mb", "peak_mb", "process_peak_mb")
        }
        for side in sides
    )
    report.ratio(f"{what}, time", ours["seconds"], other["seconds"], "s", OPEN_BOUND)
    report.ratio(f"{what}, added memory, held", ours["held_mb"], other["held_mb"], "MB", memory_bound)
    report.ratio(f"{what}, added memory, peak", ours["peak_mb"], other["peak_mb"], "MB", memory_bound)
    report.ratio(
        f"{what}, peak of the process", ours["process_peak_mb"], other["process_peak_mb"], "MB", None
    )


def compare_plans(report: Report, title: str, table: Path, repeats: int) -> None:
    found = [run(plan_with_deltaflow, table) for _ in range(repeats + 1)][1:]
    report.begin(f"the first selective query of {title}")
    for name, key, unit, bound in (
        ("time", "seconds", "s", PLAN_BOUND_S),
        ("added memory, peak", "peak_mb", "MB", None),
    ):
        report.value(name, statistics.median(result[key] for result in found), unit, bound)


def compare_following(
    report: Report, name: str, large: Path, small: Path, repeats: int, bound: float
) -> None:
    found = [run(follow, large, small) for _ in range(repeats)]
    report.begin(name)
    for what in found[0]:
        ours, other = (statistics.median(result[what][side] for result in found) for side in (0, 1))
        report.ratio(what, ours, other, "ms", None if what == "commit after another's" else bound)


def compare_checkpoints(report: Report, table: Path) -> None:
    ours = run(checkpoint_with_deltaflow, table)
    other = run(checkpoint_with_deltalake, table)
    report.begin("open and write a checkpoint, deltaflow beside deltalake")
    report.ratio("time", ours["seconds"], other["seconds"], "s", None)
    report.ratio("memory of the process, peak", ours["process_peak_mb"], other["process_peak_mb"], "MB", None)
    report.value("memory of the process, peak, deltaflow", ours["process_peak_mb"], "MB", CHECKPOINT_BOUND_MB)


def compare_batches(report: Report, title: str, table: Path) -> None:
    found = run(stream, table)
    report.begin(f"stream {title}, 1,000 files a batch")
    report.value("first batch", found["seconds"], "s", STREAM_START_BOUND_S)
    report.value("first batch, added memory, peak", found["peak_mb"], "MB", STREAM_MEMORY_BOUND_MB)
    report.ratio("batch 900 to batch 5", found["late"], found["early"], "ms", STREAM_GROWTH_BOUND)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--versions", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", help="where the logs are made; a temporary one without it")
    parser.add_argument("--probe", choices=sorted(PROBES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.probe:
        print(json.dumps(PROBES[arguments.probe](arguments.directory)))
        return 0
    report = Report("log_core")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        many, few, commits, late, early = (
            directory / table for table in ("many", "few", "commits", "late", "early")
        )
        checkpointed_log(many, arguments.files, FEW_VERSIONS)
        checkpointed_log(few, FEW_FILES, FEW_VERSIONS)
        log_of_commits(commits, arguments.commits)
        checkpointed_log(late, FEW_FILES, arguments.versions, with_history=True)
        checkpointed_log(early, FEW_FILES, FEW_VERSIONS, with_history=True)
        # Data that is not on the disk yet would make the first commits wait.
        os.sync()
        title = f"{arguments.files:,} files in a checkpoint, and {COMMITS_AFTER_CHECKPOINT} commits"
        compare_opening(report, title, many, arguments.repeats, (MEMORY_BOUND, LISTED_MEMORY_BOUND))
        if arguments.files >= 1_000_000:
            compare_batches(report, title, many)
        title = f"{arguments.commits:,} commits without a checkpoint"
        compare_opening(report, title, commits, arguments.repeats, (None, None))
        title = f"a loaded snapshot at {arguments.files:,} files and at {FEW_FILES:,}"
        compare_following(report, title, many, few, arguments.repeats, FILES_BOUND)
        title = f"a loaded snapshot at version {arguments.versions:,} and at {FEW_VERSIONS}"
        compare_following(report, title, late, early, arguments.repeats, VERSIONS_BOUND)
        title = f"{arguments.files:,} files in a checkpoint with statistics as JSON alone"
        compare_plans(report, title, many, arguments.repeats)
        compare_checkpoints(report, many)
        # Its newest checkpoint is ours now, which has statistics in columns.
        title = f"{arguments.files:,} files in a checkpoint with statistics in columns"
        run(checkpoint_with_deltaflow, many)
        compare_plans(report, title, many, arguments.repeats)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
