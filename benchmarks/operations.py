"""Table operations beside a plain Parquet read and rewrite of the same files, in one run.

    python benchmarks/operations.py [--repeats 5] [--directory DIR] [--only OPERATION]

Both sides are measured in turn, after a warm-up, in one session. Prints medians, their ratio and the bound.
Exits with 1 if a ratio exceeds its bound. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from side_by_side import Comparison, compare, data, session, timed

from deltaflow import DeltaTable

BOUND = 1.3
# The bound of a MERGE, against the rewrite of the same files and one join.
MERGE_BOUND = 2.0
SMALL_FILES = 1_000
ROWS_OF_A_SMALL_FILE = 5_000
ROWS = 5_000_000
FILES = 8
_numbers = itertools.count()


def optimize(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """OPTIMIZE of 1,000 small files into one, against reading and writing them as one."""
    source = directory / "small files"
    rows = data(spark, SMALL_FILES * ROWS_OF_A_SMALL_FILE)
    rows.repartition(SMALL_FILES).write.format("delta").save(str(source))

    def ours() -> float:
        table = shutil.copytree(source, directory / "optimized")
        seconds = timed(lambda: DeltaTable.forPath(spark, str(table)).optimize().executeCompaction())
        shutil.rmtree(table)
        return seconds

    def parquet() -> float:
        rewritten = str(directory / "rewritten")
        return timed(
            lambda: spark.read.parquet(str(source)).coalesce(1).write.mode("overwrite").parquet(rewritten)
        )

    return compare(f"optimize {SMALL_FILES:,} small files", ours, parquet, repeats, BOUND)


def large_table(spark: SparkSession, directory: Path) -> Path:
    """A table that stays unchanged; the rows that an operation picks are in all of its files."""
    table = directory / "large"
    if not table.exists():
        data(spark, ROWS).repartition(FILES).write.format("delta").save(str(table))
    return table


def on_a_copy(spark: SparkSession, table: Path, operation: Callable[[DeltaTable], object]) -> float:
    """Seconds of an operation on a copy of a table."""
    copy = table.with_name(f"copy-{next(_numbers)}")
    shutil.copytree(table, copy, copy_function=os.link)
    try:
        return timed(lambda: operation(DeltaTable.forPath(spark, str(copy))))
    finally:
        shutil.rmtree(copy)


def rewrite(spark: SparkSession, table: Path, condition: str) -> float:
    """Seconds of Spark's read and rewrite of the files that hold rows for which the condition is true."""
    touched = spark.read.parquet(str(table)).where(condition).select("_metadata.file_path").distinct()
    files = [row.file_path for row in touched.collect()]
    target = table.with_name(f"rewritten-{next(_numbers)}")
    try:
        return timed(lambda: spark.read.parquet(*files).write.parquet(str(target)))
    finally:
        shutil.rmtree(target)


def update(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """0.1 % of the rows."""
    table, condition = large_table(spark, directory), "pmod(key, 1000) = 7"
    return compare(
        "update of 0.1 %",
        lambda: on_a_copy(spark, table, lambda copy: copy.update(condition, {"amount": "0"})),
        lambda: rewrite(spark, table, condition),
        repeats,
        BOUND,
    )


def delete(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """0.02 % of the rows."""
    table, condition = large_table(spark, directory), "pmod(key, 5000) = 7"
    return compare(
        "delete of 0.02 %",
        lambda: on_a_copy(spark, table, lambda copy: copy.delete(condition)),
        lambda: rewrite(spark, table, condition),
        repeats,
        BOUND,
    )


def merge(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """1 % of the rows, half of them updates and half inserts, against the rewrite of the files that hold rows
    to update and one join of the source's ids with the table's."""
    table, source_path = large_table(spark, directory), str(directory / "source")
    every = 200
    updates = data(spark, ROWS).where(f"id % {every} = 0").withColumn("amount", F.lit(0.0))
    inserts = data(spark, ROWS).where(f"id % {every} = 1").withColumn("id", F.col("id") + ROWS)
    updates.union(inserts).write.format("delta").save(source_path)

    def ours() -> float:
        source = spark.read.format("delta").load(source_path).alias("s")
        return on_a_copy(
            spark,
            table,
            lambda copy: (
                copy.alias("t")
                .merge(source, "t.id = s.id")
                .whenMatchedUpdateAll()
                .whenNotMatchedInsertAll()
                .execute()
            ),
        )

    def join() -> float:
        ids = spark.read.parquet(source_path).select("id")
        return timed(lambda: spark.read.parquet(str(table)).select("id").join(ids, "id").count())

    return compare(
        "merge of 1 %",
        ours,
        lambda: rewrite(spark, table, f"id % {every} = 0") + join(),
        repeats,
        MERGE_BOUND,
    )


OPERATIONS: Mapping[str, Callable[[SparkSession, Path, int], Comparison]] = {
    "optimize": optimize,
    "update": update,
    "delete": delete,
    "merge": merge,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", choices=OPERATIONS)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    spark = session({})
    try:
        wanted = [run for name, run in OPERATIONS.items() if arguments.only in (None, name)]
        results = [run(spark, directory, arguments.repeats) for run in wanted]
        return 0 if all(result.is_met for result in results) else 1
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
