"""Runs operations in a process of its own, each held between its preparation and its commit; no test module.

For every line of standard input, "<operation> <path>", it says "prepared" when the operation is about to
commit, waits for another line, and says how it ended: "committed", or the name of the error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

import deltaflow
from deltaflow import DeltaTable
from deltaflow.errors import DeltaConcurrentModificationException
from deltaflow.log.observer import set_observer
from tests.tables import INTERPRETED

Operation = Callable[[SparkSession, str], object]


def create(spark: SparkSession, path: str, isolation: str, **options: str) -> None:
    """Two files in each of the partitions 1 (ids 0 to 9) and 2 (ids 10 to 19)."""
    rows = spark.range(0, 20, 1, 4).selectExpr("id", "CAST(id DIV 10 + 1 AS INT) AS p", "0 AS v")
    writer = rows.write.format("delta").partitionBy("p").option("delta.isolationLevel", isolation)
    writer.options(**options).save(path)


def _append(part: int) -> Operation:
    def run(spark: SparkSession, path: str) -> None:
        spark.sql(f"SELECT 100L AS id, {part} AS p, 1 AS v").write.format("delta").mode("append").save(path)

    return run


def _overwrite(spark: SparkSession, path: str) -> None:
    rows = spark.range(2).selectExpr("id + 200 AS id", "CAST(id + 1 AS INT) AS p", "2 AS v")
    rows.write.format("delta").mode("overwrite").save(path)


def _delete(where: str) -> Operation:
    return lambda spark, path: DeltaTable.forPath(spark, path).delete(where)


def _update(where: str) -> Operation:
    return lambda spark, path: DeltaTable.forPath(spark, path).update(where, {"v": "v + 1"})


def _merge(part: int, *, inserts_only: bool) -> Operation:
    """One row that is there and one that is not, of one partition."""

    def run(spark: SparkSession, path: str) -> None:
        there = 10 * part - 8
        source = spark.sql(f"SELECT id, {part} AS p, 5 AS v FROM VALUES ({there}L), (30{part}L) AS s(id)")
        on = f"t.p = {part} AND t.id = s.id"
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on)
        if not inserts_only:
            merge = merge.whenMatchedUpdateAll()
        merge.whenNotMatchedInsertAll().execute()

    return run


def _optimize(where: str) -> Operation:
    return lambda spark, path: DeltaTable.forPath(spark, path).optimize().where(where).executeCompaction()


OPERATIONS: Mapping[str, Operation] = {
    "append_1": _append(1),
    "overwrite": _overwrite,
    "delete_partition_1": _delete("p = 1"),
    "delete_partition_2": _delete("p = 2"),
    "delete_rows_1": _delete("p = 1 AND id = 3"),
    "delete_rows_2": _delete("p = 2 AND id = 13"),
    "delete_rows_anywhere": _delete("id = 3"),
    "update_1": _update("p = 1 AND id < 8"),
    "update_2": _update("p = 2 AND id < 18"),
    "merge_1": _merge(1, inserts_only=False),
    "merge_2": _merge(2, inserts_only=False),
    "insert_by_merge_1": _merge(1, inserts_only=True),
    "insert_by_merge_2": _merge(2, inserts_only=True),
    "optimize_1": _optimize("p = 1"),
    "optimize_2": _optimize("p = 2"),
    "restore": lambda spark, path: DeltaTable.forPath(spark, path).restoreToVersion(0),
}


def main() -> None:
    spark = deltaflow.session(
        "held",
        master="local[1]",
        config={
            **INTERPRETED,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    print("ready", flush=True)
    for line in sys.stdin:
        name, path = line.split()
        held: list[str] = []

        def hold(point: str, facts: dict[str, Any], held: list[str] = held) -> None:
            if point == "commit prepared" and not held:
                held.append(point)
                print("prepared", flush=True)
                sys.stdin.readline()

        set_observer(hold)
        try:
            OPERATIONS[name](spark, path)
            print("committed", flush=True)
        except DeltaConcurrentModificationException as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
