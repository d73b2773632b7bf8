"""Version checksums: those of every operation agree with a replay, with deltalake's commits in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaflow import DeltaTable
from deltaflow.log import DeltaLog
from tests.log.checksums import check_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]


def test_every_operation_writes_a_checksum(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")

    def append(first: int) -> None:
        rows = spark.range(first, first + 10, 1, 2).selectExpr("id", "id % 2 AS p", "array(id) AS a")
        rows.write.format("delta").partitionBy("p").mode("append").save(table)

    append(0)
    append(10)
    of_rows = f"delta.`{table}`"
    spark.sql(f"ALTER TABLE {of_rows} SET TBLPROPERTIES ('delta.checkpointInterval' = '3')")
    spark.sql(f"DELETE FROM {of_rows} WHERE p = 1 AND id < 5")
    spark.sql(f"UPDATE {of_rows} SET id = id + 100 WHERE id = 12")
    source = spark.range(5, 25).selectExpr("id", "id % 2 AS p", "array(id) AS a")
    merge = DeltaTable.forPath(spark, table).alias("t").merge(source.alias("s"), "s.id = t.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    stream = spark.readStream.format("delta").load(table).writeStream.format("delta")
    copy = str(tmp_path / "copy")
    for _ in range(2):
        started = stream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        started.start(copy).awaitTermination()
        write_deltalake(table, pa.table({"id": [1], "p": [1], "a": [[1]]}), mode="append")
        append(200)
        stream = stream.option("ignoreChanges", "true")
    DeltaTable.forPath(spark, table).optimize().executeCompaction()
    spark.sql(f"RESTORE {of_rows} TO VERSION AS OF 1")
    spark.range(3).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(table)
    spark.sql(f"VACUUM {of_rows}")
    DeltaTable.forPath(spark, table).clone(str(tmp_path / "clone"), isShallow=True)
    parquet = str(tmp_path / "parquet")
    spark.range(9).write.parquet(parquet)
    DeltaTable.convertToDelta(spark, f"parquet.`{parquet}`")
    for path in (table, copy, str(tmp_path / "clone"), parquet):
        commits = DeltaLog.for_table(path).history()
        own = {
            commit.version for commit in commits if "deltaflow" in str((commit.info or {}).get("engineInfo"))
        }
        assert own
        assert check_checksums(path) == own
