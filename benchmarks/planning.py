"""How long Spark plans a scan of many files, of a Delta table and of the same files as plain Parquet.

    python benchmarks/planning.py [--files 10000] [--repeats 7] [--directory DIR]

The files are links of one small Parquet file; the table's log names each of them, with statistics by which a
condition leaves one. Measured is the time from the path to the partitions of the physical plan, in turn: of
all files and with a condition, in a session that has opened the table before. Plain Parquet lists the
directory each time, as `spark.read` does, and also through a DataFrame that has listed it before. Prints
medians and ratios, and exits with 1 if one exceeds its bound. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from figures import Report
from log_core import METADATA, PROTOCOL
from pyspark.sql import DataFrame, SparkSession
from side_by_side import SETTINGS

import deltaflow
from deltaflow.log import DeltaLog

BOUND = 1.0
WARM_UP = 3


def write_files(directory: Path, files: int) -> None:
    """Rows of one number in each file, and a log with a checkpoint of all of them."""
    directory.mkdir()
    first = directory / "part-00000.parquet"
    pq.write_table(pa.table({"id": pa.array([0], pa.int64()), "name": ["x"]}), first)
    for number in range(1, files):
        os.link(first, directory / f"part-{number:05}.parquet")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("name", "string"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = METADATA | {"schemaString": schema, "partitionColumns": []}
    actions: list[dict[str, object]] = [{"protocol": PROTOCOL}, {"metaData": metadata}]
    size = first.stat().st_size
    for number in range(files):
        stats = {
            "numRecords": 1,
            "minValues": {"id": number, "name": "x"},
            "maxValues": {"id": number, "name": "x"},
            "nullCount": {"id": 0, "name": 0},
        }
        add = {"path": f"part-{number:05}.parquet", "partitionValues": {}, "size": size, "dataChange": True}
        actions.append({"add": {**add, "modificationTime": 1, "stats": json.dumps(stats)}})
    log = directory / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    DeltaLog.for_table(str(directory)).checkpoint()


def planned(frame: DataFrame) -> int:
    """The partitions of the frame's physical plan."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def seconds(read: Callable[[], DataFrame], condition: str) -> float:
    begin = time.perf_counter()
    assert planned(read().where(condition)) >= 1
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--directory")
    arguments = parser.parse_args()
    spark: SparkSession = deltaflow.session("benchmark", master="local[2]", config=SETTINGS)
    report = Report("planning")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        table = Path(name, "table")
        write_files(table, arguments.files)
        path, schema = str(table), "id long, name string"
        listed = spark.read.schema(schema).parquet(path)
        reads = {
            "deltaflow": lambda: spark.read.format("delta").load(path),
            "Parquet": lambda: spark.read.schema(schema).parquet(path),
            "Parquet, listed before": lambda: listed.select("*"),
        }
        for what, condition in (("all files", "true"), ("a condition", f"id = {arguments.files // 2}")):
            found: dict[str, list[float]] = {side: [] for side in reads}
            for repeat in range(-WARM_UP, arguments.repeats):
                for side in list(reads)[:: 1 if repeat % 2 else -1]:
                    took = seconds(reads[side], condition)
                    if repeat >= 0:
                        found[side].append(took)
            medians = {side: statistics.median(times) * 1_000 for side, times in found.items()}
            for side in ("Parquet", "Parquet, listed before"):
                name = f"plan of {arguments.files:,} files, {what}"
                bound = BOUND if side == "Parquet" else None
                report.ratio(name, medians["deltaflow"], medians[side], "ms", bound, side)
    spark.stop()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
