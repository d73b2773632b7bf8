"""Partition columns of type binary: as in delta-spark, the log has their bytes as UTF-8 text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltaflow.errors import DeltaInvariantViolationException
from tests.tables import actions, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]

ROWS = "SELECT * FROM VALUES (1, X'6162'), (2, X'C3A92F'), (3, X'01'), (4, X''), (5, null) AS t(id, b)"


def values(spark: SparkSession, path: str, where: str = "true") -> dict[int, Any]:
    frame = load(spark, path).where(where)
    return {row.id: None if row.b is None else bytes(row.b) for row in frame.collect()}


def test_bytes_of_text_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    spark.sql(ROWS).write.format("delta").partitionBy("b").save(table)
    found = {add["partitionValues"]["b"] for add in actions(table, "add")}
    assert found == {"ab", "é/", "\x01", None}
    assert values(spark, table) == {1: b"ab", 2: "é/".encode(), 3: b"\x01", 4: None, 5: None}
    assert values(spark, table, "b = X'6162'") == {1: b"ab"}
    assert values(spark, table, "b IS NULL") == {4: None, 5: None}
    spark.sql(f"UPDATE delta.`{table}` SET id = 11 WHERE b = X'6162'")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE b = X'01'")
    spark.sql("SELECT 7 AS id, X'6162' AS b").write.format("delta").mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).save(table)
    assert values(spark, table) == {7: b"ab", 2: "é/".encode(), 4: None, 5: None}


def test_other_bytes_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    with pytest.raises(DeltaInvariantViolationException, match="DELTA_INVALID_BINARY_PARTITION_VALUE"):
        spark.sql("SELECT 1 AS id, X'FF' AS b").write.format("delta").partitionBy("b").save(table)
    assert not Path(table, "_delta_log").exists()
