"""UPDATE and MERGE that record their changes beside those that do not, and the feed beside plain Parquet.

    python benchmarks/change_files.py [--rows 5000000] [--repeats 5] [--directory DIR] [--only NAME]

Both sides are measured in turn, after a warm-up, in one session, on copies of tables that differ in
`delta.enableChangeDataFeed` alone. Reading a range is measured beside Spark's own read of the same change and
data files. Prints medians, their ratio and the bound. Exits with 1 if a ratio exceeds its bound. Run it on a
quiet machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from operations import FILES, on_a_copy
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from side_by_side import Comparison, compare, data, session, timed

from deltaflow import DeltaTable

WRITE_BOUND, READ_BOUND = 1.25, 1.1
# A MERGE updates one row of so many, and inserts as many rows.
UPDATED_OF = 200


def table_of(spark: SparkSession, directory: Path, rows: int, *, feed: bool, vectors: bool) -> Path:
    """A table that stays unchanged."""
    table = directory / f"feed {feed} vectors {vectors}"
    if not table.exists():
        writer = data(spark, rows).repartition(FILES).write.format("delta")
        writer = writer.option("delta.enableChangeDataFeed", str(feed).lower())
        writer.option("delta.enableDeletionVectors", str(vectors).lower()).save(str(table))
    return table


def update(table: DeltaTable) -> None:
    """0.1 % of the rows, in all files."""
    table.update("pmod(key, 1000) = 7", {"amount": F.lit(0.0)})


def merge_of(spark: SparkSession, directory: Path, rows: int) -> Callable[[DeltaTable], None]:
    """A MERGE of 1 % of the rows, half of them updates and half inserts."""
    path = directory / "source"
    if not path.exists():
        updates = data(spark, rows).where(f"id % {UPDATED_OF} = 0").withColumn("amount", F.lit(0.0))
        inserts = data(spark, rows).where(f"id % {UPDATED_OF} = 1").withColumn("id", F.col("id") + rows)
        updates.union(inserts).write.format("delta").save(str(path))

    def run(table: DeltaTable) -> None:
        source = spark.read.format("delta").load(str(path)).alias("s")
        merge = table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
        merge.execute()

    return run


def written(spark: SparkSession, directory: Path, rows: int, repeats: int, name: str) -> Comparison:
    """UPDATE or MERGE, with the feed beside without."""
    what, _, how = name.partition("-")
    operation = update if what == "update" else merge_of(spark, directory, rows)
    sides = {
        feed: table_of(spark, directory, rows, feed=feed, vectors=how == "by-vectors")
        for feed in (True, False)
    }
    return compare(
        name,
        lambda: on_a_copy(spark, sides[True], operation),
        lambda: on_a_copy(spark, sides[False], operation),
        repeats,
        WRITE_BOUND,
        other="without",
    )


def read(spark: SparkSession, directory: Path, rows: int, repeats: int) -> Comparison:
    """All changes of a table that was updated, a fifth of its rows, and appended to."""
    table = directory / "read"
    shutil.copytree(table_of(spark, directory, rows, feed=True, vectors=False), table)
    target = DeltaTable.forPath(spark, str(table))
    target.update("pmod(key, 5) = 0", {"amount": F.lit(0.0)})
    for _ in range(2):
        data(spark, rows // 4).write.format("delta").mode("append").save(str(table))
    files: dict[str, list[str]] = {"cdc": [], "add": []}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        kind = "cdc" if any("cdc" in action for action in actions) else "add"
        files[kind] += [str(table / action[kind]["path"]) for action in actions if kind in action]
    columns = [f"max({name})" for name in data(spark, 1).columns]

    def ours() -> float:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        changes = feed.load(str(table))
        return timed(lambda: changes.selectExpr(*columns, "max(_change_type)").collect())

    def parquet() -> float:
        recorded = spark.read.parquet(*files["cdc"])
        added = spark.read.parquet(*files["add"]).withColumn("_change_type", F.lit("insert"))
        return timed(lambda: recorded.unionByName(added).selectExpr(*columns, "max(_change_type)").collect())

    return compare("read", ours, parquet, repeats, READ_BOUND)


WRITTEN = ("update", "merge", "update-by-vectors", "merge-by-vectors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", choices=(*WRITTEN, "read"))
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deltaflow-benchmark-", dir=arguments.directory))
    spark = session({})
    try:
        results = [
            written(spark, directory, arguments.rows, arguments.repeats, name)
            for name in WRITTEN
            if arguments.only in (None, name)
        ]
        if arguments.only in (None, "read"):
            results.append(read(spark, directory, arguments.rows, arguments.repeats))
        return 0 if all(result.is_met for result in results) else 1
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
