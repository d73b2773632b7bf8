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
# The bounds of operations that mark rows: against a scan of the condition's column, and of a MERGE against a
# join of the keys and a write of the changed rows.
DELETE_BY_MARKS_BOUND, UPDATE_BY_MARKS_BOUND, MERGE_BY_MARKS_BOUND = 1.5, 2.0, 1.3
SMALL_FILES = 1_000
ROWS_OF_A_SMALL_FILE = 5_000
ROWS = 5_000_000
FILES = 8
# A MERGE updates one row of so many, and inserts as many rows.
UPDATED_OF = 200
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


def large_table(spark: SparkSession, directory: Path, *, with_vectors: bool = False) -> Path:
    """A table that stays unchanged; the rows that an operation picks are in all of its files."""
    table = directory / ("large-with-vectors" if with_vectors else "large")
    if not table.exists():
        writer = data(spark, ROWS).repartition(FILES).write.format("delta")
        writer.option("delta.enableDeletionVectors", str(with_vectors).lower()).save(str(table))
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


def merge_source(spark: SparkSession, directory: Path) -> str:
    """1 % of the rows, half of them updates and half inserts."""
    path = directory / "source"
    if not path.exists():
        updates = data(spark, ROWS).where(f"id % {UPDATED_OF} = 0").withColumn("amount", F.lit(0.0))
        inserts = data(spark, ROWS).where(f"id % {UPDATED_OF} = 1").withColumn("id", F.col("id") + ROWS)
        updates.union(inserts).write.format("delta").save(str(path))
    return str(path)


def upsert(spark: SparkSession, table: Path, source_path: str) -> float:
    """Seconds of the MERGE of a source into a copy of a table."""
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


def join(spark: SparkSession, table: Path, source_path: str) -> float:
    """Seconds of the join of a source's ids with a table's."""
    ids = spark.read.parquet(source_path).select("id")
    return timed(lambda: spark.read.parquet(str(table)).select("id").join(ids, "id").count())


def merge(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """1 % of the rows, against the rewrite of the files that hold rows to update and one join of the source's
    ids with the table's."""
    table, source = large_table(spark, directory), merge_source(spark, directory)
    return compare(
        "merge of 1 %",
        lambda: upsert(spark, table, source),
        lambda: rewrite(spark, table, f"id % {UPDATED_OF} = 0") + join(spark, table, source),
        repeats,
        MERGE_BOUND,
    )


def scan(spark: SparkSession, table: Path, condition: str) -> float:
    """Seconds of Spark's scan of the columns of a condition."""
    return timed(lambda: spark.read.parquet(str(table)).where(condition).count())


def delete_by_marks(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """0.02 % of the rows, by deletion vectors, against a scan of the condition's column."""
    table, condition = large_table(spark, directory, with_vectors=True), "pmod(key, 5000) = 7"
    return compare(
        "delete by vectors",
        lambda: on_a_copy(spark, table, lambda copy: copy.delete(condition)),
        lambda: scan(spark, table, condition),
        repeats,
        DELETE_BY_MARKS_BOUND,
        other="scan",
    )


def update_by_marks(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """0.1 % of the rows, by deletion vectors, against a scan of the condition's column."""
    table, condition = large_table(spark, directory, with_vectors=True), "pmod(key, 1000) = 7"
    return compare(
        "update by vectors",
        lambda: on_a_copy(spark, table, lambda copy: copy.update(condition, {"amount": "0"})),
        lambda: scan(spark, table, condition),
        repeats,
        UPDATE_BY_MARKS_BOUND,
        other="scan",
    )


def merge_by_marks(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """1 % of the rows, by deletion vectors, against one join of the ids and a write of the source's rows."""
    table, source = large_table(spark, directory, with_vectors=True), merge_source(spark, directory)

    def written() -> float:
        target = str(directory / f"changed-{next(_numbers)}")
        try:
            return timed(lambda: spark.read.parquet(source).write.parquet(target))
        finally:
            shutil.rmtree(target)

    return compare(
        "merge by vectors",
        lambda: upsert(spark, table, source),
        lambda: join(spark, table, source) + written(),
        repeats,
        MERGE_BY_MARKS_BOUND,
        other="join and write",
    )


OPERATIONS: Mapping[str, Callable[[SparkSession, Path, int], Comparison]] = {
    "optimize": optimize,
    "update": update,
    "delete": delete,
    "merge": merge,
    "delete-by-vectors": delete_by_marks,
    "update-by-vectors": update_by_marks,
    "merge-by-vectors": merge_by_marks,
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
