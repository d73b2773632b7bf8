"""Column mapping is taken out of a table: its files are written again, and nobody needs the feature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from deltaflow.errors import ConcurrentAppendException, DeltaAnalysisException, DeltaError
from deltaflow.log import DeltaLog, set_observer
from deltaflow.tables import DeltaTable
from tests.deletion_vectors import mark_deleted
from tests.tables import actions, commit_info, load, rows, rows_by_deltalake, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

_COLUMNS = ["id", "id % 2 AS p", "named_struct('a', id, 'b', array(named_struct('c', id))) AS s", "id AS x"]


def _mapped(spark: SparkSession, table: str, mode: str) -> None:
    """A partitioned table with a renamed and a dropped column, and with deletion vectors."""
    options = {"delta.columnMapping.mode": mode, "delta.feature.deletionVectors": "supported"}
    for first in (0, 10):
        write(spark.range(first, first + 10).selectExpr(*_COLUMNS), table, partition_by=["p"], **options)
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN s.a TO renamed")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN p TO part")
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN x")
    mark_deleted(table, [1])


DOORS = {
    "drop": "ALTER TABLE delta.`{}` DROP FEATURE columnMapping",
    "set": "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'mine' = '1')",
    "unset": "ALTER TABLE delta.`{}` UNSET TBLPROPERTIES ('delta.columnMapping.mode')",
    "python": "",
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(4)
def test_every_door(spark: SparkSession, tmp_path: Path, door: str) -> None:
    table = str(tmp_path / "table")
    _mapped(spark, table, "id" if door == "set" else "name")
    before = DeltaLog.for_table(table).snapshot()
    expected = rows(load(spark, table))
    assert len(expected) == 16
    if door == "python":
        DeltaTable.forPath(spark, table).dropFeatureSupport("columnMapping")
    else:
        spark.sql(DOORS[door].format(table))
    removal = before.version + 1
    assert commit_info(table, removal)["operation"] == "REMOVE COLUMN MAPPING"
    assert not any(file["dataChange"] for kind in ("add", "remove") for file in actions(table, kind, removal))
    snapshot = DeltaLog.for_table(table).snapshot()
    names = [name for name in snapshot.metadata.configuration if "columnMapping" in name]
    assert names == (["delta.columnMapping.mode"] if door == "set" else [])
    assert "delta.columnMapping" not in (snapshot.metadata.schema_string or "")
    features = snapshot.protocol.writer_features or []
    assert ("columnMapping" in features) == (door in ("set", "unset"))
    assert ("checkpointProtection" in features) == (door in ("drop", "python"))
    for file in actions(table, "add", removal):
        assert set(file["partitionValues"]) == {"part"}
        found = pq.read_schema(Path(table, file["path"]))
        assert found.names == ["id", "s"]
        assert found.field("s").type.field(0).name == "renamed"
    assert rows(load(spark, table)) == expected
    assert sorted(row["id"] for row in rows_by_deltalake(table)) == sorted(row["id"] for row in expected)
    assert rows(load(spark, table, versionAsOf=before.version)) == expected
    write(spark.sql("SELECT 50L AS id, 0L AS part, s FROM {t} LIMIT 1", t=load(spark, table)), table)
    assert load(spark, table).where("id >= 15 AND part = 0").count() == 3


def test_what_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(3).selectExpr("id", "id AS `a b`"), table, **{"delta.columnMapping.mode": "name"})
    for door in ("drop", "set", "unset"):
        with pytest.raises(DeltaAnalysisException, match=r"WHEN_REMOVING_COLUMN_MAPPING.*'a b'"):
            spark.sql(DOORS[door].format(table))
    assert DeltaLog.for_table(table).latest_version() == 0
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN `a b` TO b")

    def observe(point: str, facts: object) -> None:
        if point == "rewrite files written":
            set_observer(None)
            write(spark.range(3, 4).selectExpr("id", "id AS b"), table)

    set_observer(observe)
    try:
        with pytest.raises(ConcurrentAppendException):
            spark.sql(DOORS["drop"].format(table))
    finally:
        set_observer(None)
    assert load(spark, table).where("b = id").count() == 4
    spark.sql(DOORS["drop"].format(table))
    assert load(spark, table).where("b = id").count() == 4


def test_a_table_without_files(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(0), table, **{"delta.columnMapping.mode": "name"})
    spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE columnMapping")
    write(spark.range(2), table)
    assert len(rows_by_deltalake(table)) == 2


@pytest.mark.parametrize(
    "change",
    [
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.appendOnly' = 'perhaps')",
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.feature.unheard' = 'supported')",
        "UNSET TBLPROPERTIES ('delta.columnMapping.mode', 'unheard')",
    ],
)
def test_the_mapping_stays_if_another_property_is_wrong(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    table = str(tmp_path / "table")
    write(spark.range(1), table, **{"delta.columnMapping.mode": "name"})
    with pytest.raises(DeltaError, match=r"perhaps|unheard"):
        spark.sql(f"ALTER TABLE delta.`{table}` {change}")
    assert DeltaLog.for_table(table).latest_version() == 0
