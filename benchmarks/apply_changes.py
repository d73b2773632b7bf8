"""`apply_changes` beside a bare MERGE of the same changes, of which each key has only the newest left.

    python benchmarks/apply_changes.py [--repeats 5] [--rows 2000000] [--changes 100000] [--directory DIR]

The bare MERGE is the one that people write in foreachBatch: update, delete and insert by the key and the
sequence. It gets a batch that was deduplicated before; `apply_changes` gets all changes, a fifth of them
older ones of the same keys, and a tenth deletes. Both sides are measured in turn, on copies of one table.
Exits with 1 if the ratio of times exceeds the bound. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
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

BOUND = 1.1


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


def comparison(spark: SparkSession, directory: Path, arguments: argparse.Namespace) -> Comparison:
    table, batch, newest = (directory / name for name in ("table", "changes", "newest"))
    rows(spark, arguments.rows).repartition(8).write.format("delta").save(str(table))
    changes(spark, arguments.rows, arguments.changes).write.parquet(str(batch))
    of_key = spark.read.parquet(str(batch)).groupBy("id")
    kept = of_key.agg(F.max_by(F.struct("name", "balance", "address", "op", "seq"), "seq").alias("r"))
    kept.select("id", "r.*").write.parquet(str(newest))

    def ours(copy: DeltaTable) -> None:
        applier = Applier(
            target=Target(copy.detail().first()["location"].removeprefix("file:"), None),
            envelope=ByConditions(F.col("seq"), F.col("op") == "d"),
            data_columns=DataColumns(["id"], except_columns=("op", "seq")),
            scd_type=1,
            ignore_null_updates=False,
            horizon_ms=10**9,
        )
        applier.apply(spark.read.parquet(str(batch)), Write("benchmark", 0))

    def bare(copy: DeltaTable) -> None:
        values = {name: f"s.{name}" for name in ("id", "name", "balance", "address")} | {
            "__SEQUENCE": "s.seq"
        }
        merge = copy.alias("t").merge(spark.read.parquet(str(newest)).alias("s"), "t.id = s.id")
        (
            merge.whenMatchedDelete("s.op = 'd' AND s.seq > t.__SEQUENCE")
            .whenMatchedUpdate("s.seq > t.__SEQUENCE", values)
            .whenNotMatchedInsert("s.op <> 'd'", values)
            .execute()
        )

    return compare(
        f"{arguments.changes:,} changes",
        lambda: on_a_copy(spark, table, ours),
        lambda: on_a_copy(spark, table, bare),
        arguments.repeats,
        BOUND,
        other="MERGE",
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
        found = comparison(spark, Path(directory), arguments)
        seconds = statistics.median(found.ours)
        print(f"{arguments.changes / seconds:,.0f} changes a second")
        spark.stop()
    return 0 if found.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
