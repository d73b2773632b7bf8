"""Tables that record their changes: commits that need no change files, and columns that are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltaflow.errors import DeltaError
from tests.tables import actions, latest_version, load, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = ["id", "id % 3 AS p", "id * 10 AS v"]
ON = "'delta.enableChangeDataFeed' = 'true'"


def counted(spark: SparkSession, table: str, version: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row) for row in load(spark, table, versionAsOf=version).collect())


def check_feed(spark: SparkSession, table: str) -> None:
    """The changes of every range, applied to the rows before it, give the rows after it."""
    newest = latest_version(table)
    rows = {version: counted(spark, table, version) for version in range(newest + 1)}
    changes = load(spark, table, readChangeFeed="true", startingVersion=1).collect()
    for first in range(1, newest + 1):
        for last in range(first, newest + 1):
            found = Counter(rows[first - 1])
            for *values, change_type, version, _ in changes:
                if first <= version <= last:
                    found[tuple(values)] += 1 if change_type in ("insert", "update_postimage") else -1
            assert +found == +rows[last], (first, last)
            assert min(found.values(), default=0) >= 0


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.sampled(2)
def test_commits_that_need_no_change_files(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    table = str(tmp_path / "marked")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, p BIGINT, v BIGINT) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ({ON}, 'delta.enableDeletionVectors' = 'true', "
        f"'delta.columnMapping.mode' = '{mapping}')"
    )
    name = f"delta.`{table}`"
    write(spark.range(12).selectExpr(*COLUMNS), table)
    for statement in (
        f"DELETE FROM {name} WHERE v = 30",
        f"DELETE FROM {name} WHERE v IN (0, 60)",
        f"DELETE FROM {name} WHERE p = 1",
        f"INSERT INTO {name} VALUES (20, 1, 200), (21, 0, 210)",
        f"MERGE INTO {name} t USING (SELECT 30L AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 2, 300)",
        f"MERGE INTO {name} t USING (SELECT 5L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"RESTORE TABLE {name} TO VERSION AS OF 2",
        f"INSERT INTO {name} VALUES (22, 0, 220)",
        f"OPTIMIZE {name}",
        f"DELETE FROM {name} WHERE v = 220",
        f"REORG TABLE {name} APPLY (PURGE)",
        f"INSERT INTO {name} REPLACE WHERE p = 2 VALUES (41, 2, 410)",
        f"INSERT OVERWRITE {name} SELECT id, 1L, 7L FROM range(3)",
    ):
        before = latest_version(table)
        spark.sql(statement)
        assert latest_version(table) > before, statement
    check_feed(spark, table)
    assert not actions(table, "cdc")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    spark.sql(f"UPDATE {name} SET v = 1 WHERE id = 1")
    with pytest.raises(DeltaError, match="DELTA_MISSING_CHANGE_DATA"):
        load(spark, table, readChangeFeed="true", startingVersion=1).collect()


def test_switched_on_later_and_without_vectors(spark: SparkSession, table: str) -> None:
    write(spark.range(6).selectExpr(*COLUMNS), table, partition_by=["p"])
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({ON})")
    [protocol] = actions(table, "protocol", 1)
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 4)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE p = 0")
    with pytest.raises(DeltaError, match="DELTA_MISSING_CHANGE_DATA"):
        load(spark, table, readChangeFeed="true", startingVersion=0).collect()
    deleted = load(spark, table, readChangeFeed="true", startingVersion=1)
    assert sorted(row[:5] for row in deleted.collect()) == [(0, 0, 0, "delete", 2), (3, 0, 30, "delete", 2)]


def test_the_names_of_the_feeds_own_columns(spark: SparkSession, table: str) -> None:
    name = f"delta.`{table}`"
    with pytest.raises(DeltaError, match="RESERVED_CDC_COLUMNS_ON_WRITE"):
        spark.sql(f"CREATE TABLE {name} (id BIGINT, _change_type STRING) USING delta TBLPROPERTIES ({ON})")
    write(spark.range(1).selectExpr("id", "id AS _Commit_Version"), table)
    with pytest.raises(DeltaError, match="DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({ON})")
    write(spark.range(1), table, "overwrite", overwriteSchema="true")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({ON})")
    with pytest.raises(DeltaError, match="RESERVED_CDC_COLUMNS_ON_WRITE"):
        write(spark.range(1).selectExpr("id", "'x' AS _change_type"), table, mergeSchema="true")
    with pytest.raises(DeltaError, match="RESERVED_CDC_COLUMNS_ON_WRITE"):
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (_commit_timestamp TIMESTAMP)")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    with pytest.raises(DeltaError, match="RESERVED_CDC_COLUMNS_ON_WRITE"):
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN id TO _change_type")
