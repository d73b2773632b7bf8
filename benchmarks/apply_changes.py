"""`apply_changes` beside the recipe that people write in foreachBatch, by hand, with the same MERGE.

    python benchmarks/apply_changes.py [--repeats 5] [--rows 2000000] [--changes 100000] [--directory DIR]

The recipe keeps the newest change of each key of the batch, and merges these: it updates, deletes and
inserts by the key and the sequence. A fifth of the changes are older ones of the same keys, and a tenth are
deletes, which `apply_changes` remembers in addition. The second comparison leaves the recipe's first half
out: its MERGE gets a batch that was deduplicated before. The sides are measured in turn, on copies of one
table. Exits with 1 if a ratio of times exceeds its bound. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from operations import on_a_copy
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from side_by_side import Comparison, compare, session

from deltaflow import DeltaTable
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import ByConditions
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.side_tables import Write
from deltaflow.streaming.cdc.target import Target

BOUND, BOUND_OF_COLUMNS = 1.1, 3.0
COLUMNS = 60


def rows(spark: SparkSession, number: int) -> DataFrame:
    """A table of customers, as it is after their first changes."""
    return spark.range(number).select(
        "id",
        F.concat(F.lit("customer "), F.col("id")).alias("name"),
        (F.col("id") % 1000 / 7).alias("balance"),
        F.sha2(F.col("id").cast("string"), 256).alias("address"),
        F.lit(0).cast("bigint").alias("__SEQUENCE"),
    )


def changes(spark: SparkSession, rows: int, number: int) -> DataFrame:
    """Changes of keys all over the table; one in ten has a new key, one in five a key with a newer change."""
    n = F.col("n")
    key = F.when(n % 5 == 4, n - 1).otherwise(n)
    return (
        spark.range(number)
        .withColumnRenamed("id", "n")
        .select(
            F.when(key % 10 == 3, F.lit(rows) + key)
            .otherwise(F.pmod(F.xxhash64(key), F.lit(rows)))
            .alias("id"),
            F.concat(F.lit("customer "), n).alias("name"),
            (n % 1000 / 3).alias("balance"),
            F.sha2(n.cast("string"), 256).alias("address"),
            F.when(n % 10 == 0, "d").otherwise("u").alias("op"),
            (n + 1).alias("seq"),
        )
    )


def newest_of_keys(changes: DataFrame) -> DataFrame:
    values = F.struct("seq", "name", "balance", "address", "op")
    return changes.groupBy("id").agg(F.max(values).alias("r")).select("id", "r.*")


def comparisons(spark: SparkSession, directory: Path, arguments: argparse.Namespace) -> list[Comparison]:
    table, batch, newest = (str(directory / name) for name in ("table", "changes", "newest"))
    rows(spark, arguments.rows).repartition(8).write.format("delta").save(table)
    changes(spark, arguments.rows, arguments.changes).write.parquet(batch)
    newest_of_keys(spark.read.parquet(batch)).write.parquet(newest)

    def ours(copy: DeltaTable) -> None:
        apply(copy, spark.read.parquet(batch), ignore_null_updates=False)

    def merge(copy: DeltaTable, batch: DataFrame) -> None:
        values = {name: f"s.{name}" for name in ("id", "name", "balance", "address")} | {
            "__SEQUENCE": "s.seq"
        }
        (
            copy.alias("t")
            .merge(batch.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'd' AND s.seq > t.__SEQUENCE")
            .whenMatchedUpdate("s.seq > t.__SEQUENCE", values)
            .whenNotMatchedInsert("s.op <> 'd'", values)
            .execute()
        )

    def recipe(copy: DeltaTable) -> None:
        merge(copy, newest_of_keys(spark.read.parquet(batch)))

    def bare(copy: DeltaTable) -> None:
        merge(copy, spark.read.parquet(newest))

    def beside(other: str, by_hand: Callable[[DeltaTable], None]) -> Comparison:
        return compare(
            f"{arguments.changes:,} changes",
            lambda: on_a_copy(spark, Path(table), ours),
            lambda: on_a_copy(spark, Path(table), by_hand),
            arguments.repeats,
            BOUND,
            other=other,
        )

    return [
        beside("recipe", recipe),
        beside("MERGE alone", bare),
        of_columns(spark, directory, arguments.repeats),
    ]


def apply(copy: DeltaTable, batch: DataFrame, *, ignore_null_updates: bool) -> None:
    applier = Applier(
        target=Target(copy.detail().first()["location"].removeprefix("file:"), None),
        envelope=ByConditions(F.col("seq"), F.col("op") == "d"),
        data_columns=DataColumns(["id"], except_columns=("op", "seq")),
        scd_type=1,
        ignore_null_updates=ignore_null_updates,
        horizon_ms=10**9,
    )
    applier.apply(batch, Write("benchmark", 0))


def of_columns(spark: SparkSession, directory: Path, repeats: int) -> Comparison:
    """A batch of two changes of a wide table: columns with sequences of their own beside whole rows."""
    table = directory / "wide"
    names = [f"c{i}" for i in range(COLUMNS)]
    values = [F.concat(F.lit("value "), F.col("id")).alias(name) for name in names]
    sequences = [
        F.lit(0).cast("bigint").alias("__SEQUENCE"),
        F.lit(None).cast("map<string,bigint>").alias("__COLUMN_SEQUENCES"),
    ]
    wide = spark.range(1000).select("id", *values)
    wide.select("*", sequences[0]).write.format("delta").save(str(table))
    wide.select("*", *sequences).write.format("delta").save(f"{table} with sequences")
    batch = wide.where("id < 2").select("*", F.lit("u").alias("op"), F.lit(1).cast("bigint").alias("seq"))
    return compare(
        f"2 changes of {COLUMNS} columns with sequences of their own",
        lambda: on_a_copy(
            spark, Path(f"{table} with sequences"), lambda copy: apply(copy, batch, ignore_null_updates=True)
        ),
        lambda: on_a_copy(spark, table, lambda copy: apply(copy, batch, ignore_null_updates=False)),
        repeats,
        BOUND_OF_COLUMNS,
        other="whole rows",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltaflow-benchmark-", dir=arguments.directory) as directory:
        spark = session({})
        found = comparisons(spark, Path(directory), arguments)
        seconds = statistics.median(found[0].ours)
        print(f"{arguments.changes / seconds:,.0f} changes a second")
        spark.stop()
    return 0 if all(comparison.is_met for comparison in found) else 1


if __name__ == "__main__":
    sys.exit(main())
