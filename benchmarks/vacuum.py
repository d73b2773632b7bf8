"""The dry run of a vacuum on a synthetic table of a million existing files; starts no JVM.

    python benchmarks/vacuum.py [--files 1000000] [--repeats 3] [--directory DIR]

The log is a checkpoint with the files and one fifth as many tombstones, half of them expired, and ten commits
after it. The directory has an empty file for each of them in 336 folders, and one tenth as many unknown
files. Prints medians of the time and of the highest resident memory beyond that of the process with its
libraries. It also measures a vacuum with the checkpoint of a stream at the start of its first snapshot, and a
table that has removed all of its files, so that all are to be deleted. Exits with 1 if the memory exceeds its
bound.
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
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from figures import Report
from log_core import METADATA, PROTOCOL, file_columns, measured, write_commit

PEAK_BOUND_MB = 640
_WEEK_MS = 7 * 86_400_000
_DAY_MS = 86_400_000
_ROWS_PER_GROUP = 50_000
_VERSION = 10


def write_table(table: Path, files: int) -> dict[str, int]:
    """Makes the log and the directory; returns the number and the bytes of the files to delete."""
    now_ms = time.time_ns() // 1_000_000
    tenth = files // 10
    write_checkpoint(table, files, tenth, now_ms)
    for version in range(_VERSION + 1, _VERSION + 11):
        write_commit(table, version, [])
    old_s = (now_ms - 30 * _DAY_MS) / 1_000
    for first in range(0, files + 3 * tenth, _ROWS_PER_GROUP):
        rows = min(_ROWS_PER_GROUP, files + 3 * tenth - first)
        for path in file_columns(first, rows)["path"].to_pylist():
            touch(f"{table}/{path}", old_s)
    return {"expired": tenth, "unknown": tenth}


def touch(path: str, modified_s: float) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path))
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.utime(descriptor, (modified_s, modified_s))
    os.close(descriptor)


def write_checkpoint(table: Path, files: int, tenth: int, now_ms: int) -> None:
    """Adds, then as many tombstones of eight days ago as of one day ago."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    strings = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", strings),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ]
    )
    remove = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    meta_data = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
        ]
    )
    arrow_types = {"add": add, "remove": remove, "protocol": protocol, "metaData": meta_data}
    schema = pa.schema(list(arrow_types.items()))
    described = {name: METADATA[name] for name in ("id", "schemaString", "partitionColumns")}
    described |= {"configuration": [], "format": {"provider": "parquet", "options": []}}

    def rows_of(action: str, actions: pa.Array) -> pa.Table:
        columns = [
            actions if name == action else pa.nulls(len(actions), arrow_types[name]) for name in arrow_types
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    with pq.ParquetWriter(log / f"{_VERSION:020}.checkpoint.parquet", schema, store_schema=False) as writer:
        writer.write_table(rows_of("protocol", pa.array([PROTOCOL], protocol)))
        writer.write_table(rows_of("metaData", pa.array([described], meta_data)))
        for first in range(0, files, _ROWS_PER_GROUP):
            rows = min(_ROWS_PER_GROUP, files - first)
            columns = file_columns(first, rows)
            offsets = pa.array(range(rows + 1), pa.int32())
            values = pa.MapArray.from_arrays(offsets, pa.repeat("day", rows), columns["day"])
            times = pc.add(columns["number"], 1_700_000_000_000)
            fields = [columns["path"], values, columns["number"], times, pa.repeat(False, rows)]
            actions = pa.StructArray.from_arrays([*fields, columns["stats"]], fields=list(add))
            writer.write_table(rows_of("add", actions))
        for number, days in enumerate((8, 1)):
            paths = file_columns(files + number * tenth, tenth)["path"]
            removed = pa.repeat(now_ms - days * _DAY_MS, tenth)
            actions = pa.StructArray.from_arrays(
                [paths, removed, pa.repeat(False, tenth)], fields=list(remove)
            )
            writer.write_table(rows_of("remove", actions))
    (log / "_last_checkpoint").write_text(json.dumps({"version": _VERSION, "size": files + 2 * tenth + 2}))


# -------------------------------------------------------------------------------------- in their own process


def plan(table: str, *checkpoints: str) -> dict[str, Any]:
    """The dry run of `DeltaTable.vacuum`, up to the frame that Spark makes of it."""
    from deltaflow.batch.commands.vacuum import deletable_files

    return measured(lambda: deletable_files(table, None, {}, checkpoints))


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--probe", *arguments]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def compare(report: Report, name: str, repeats: int, expected: int, *arguments: str) -> None:
    found = [run(*arguments) for _ in range(repeats + 1)][1:]
    assert {result["rows"] for result in found} == {expected}, (found, expected)
    report.begin(f"{name}, {expected:,} files to be deleted")
    report.value("time", statistics.median(result["seconds"] for result in found), "s", None)
    report.value(
        "added memory, peak", statistics.median(result["peak_mb"] for result in found), "MB", PEAK_BOUND_MB
    )


def write_stream(folder: Path) -> None:
    """The checkpoint of a stream that has begun and read nothing yet."""
    offset = {"sourceVersion": 1, "reservoirId": METADATA["id"], "reservoirVersion": _VERSION}
    offset |= {"index": -1, "isStartingVersion": True}
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--probe", nargs="+")
    arguments = parser.parse_args()
    if arguments.probe:
        print(json.dumps(plan(*arguments.probe)))
        return
    report = Report("vacuum")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        table, stream = Path(folder) / "table", Path(folder) / "stream"
        numbers = write_table(table, arguments.files)
        write_stream(stream)
        expected = sum(numbers.values())
        compare(report, "dry run", arguments.repeats, expected, str(table))
        compare(report, "with a stream", arguments.repeats, expected, str(table), str(stream))
        for file in (table / "_delta_log").iterdir():
            file.unlink()
        write_commit(table, 0, [])
        everything = arguments.files + 3 * (arguments.files // 10)
        compare(report, "without any file in the log", arguments.repeats, everything, str(table))
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
