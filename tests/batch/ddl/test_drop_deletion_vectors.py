"""DROP FEATURE deletionVectors: no reader needs the feature, and no row and no old version is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests.deletion_vectors import mark_deleted
from tests.tables import commit_info, ids, ids_by_deltalake, load, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

_ENABLED = {"delta.enableDeletionVectors": "true"}
_LIVE = [id_ for id_ in range(20) if id_ not in (3, 13, 14)]


def _marked(spark: SparkSession, table: str, **options: str) -> None:
    """Three versions: two files of 10 rows, then vectors for both, which are in one file."""
    write(spark.range(10), table, **_ENABLED, **options)
    write(spark.range(10, 20), table)
    paths = DeltaLog.for_table(table).snapshot().files["path"].to_pylist()
    first, second = sorted(paths, key=lambda path: os.path.getmtime(Path(table, path)))
    mark_deleted(table, {first: [3], second: [3, 4]})


def _operations(table: str) -> list[str]:
    return [record["operation"] for version in range(3, 20) if (record := _info(table, version))]


def _info(table: str, version: int) -> dict[str, Any]:
    there = Path(table, "_delta_log", f"{version:020}.json").exists()
    return commit_info(table, version) if there else {}


@pytest.mark.parametrize("by", ["sql", "python"])
def test_at_once(spark: SparkSession, tmp_path: Path, settings: Any, by: str) -> None:
    table = str(tmp_path / "table")
    _marked(spark, table)
    [vectors] = Path(table).glob("*.bin")
    if by == "sql":
        spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE deletionVectors")
    else:
        DeltaTable.forPath(spark, table).dropFeatureSupport("deletionVectors")
    expected = ["UNSET TBLPROPERTIES", "REORG", "Deletion Vector Tombstones"]
    assert _operations(table) == [*expected, *["Empty Commit"] * 3, "DROP FEATURE"]
    snapshot = DeltaLog.for_table(table).snapshot()
    assert snapshot.protocol.min_reader_version == 1
    assert snapshot.protocol.writer_features == ["appendOnly", "checkpointProtection", "invariants"]
    assert snapshot.metadata.configuration == {"delta.requireCheckpointProtectionBeforeVersion": "9"}
    assert vectors.name in snapshot.tombstones["path"].to_pylist()
    assert snapshot.num_deletion_vectors == 0
    assert ids(load(spark, table)) == ids_by_deltalake(table) == _LIVE
    assert ids(load(spark, table, versionAsOf=1)) == list(range(20))
    assert ids(load(spark, table, versionAsOf=2)) == _LIVE
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql(f"VACUUM delta.`{table}` RETAIN 1 HOURS")
        assert vectors.exists()
        spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    assert not vectors.exists()
    assert ids(load(spark, table)) == _LIVE


def test_when_history_has_gone(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    _marked(spark, table, **{"delta.deletedFileRetentionDuration": "interval 1 hours"})
    drop = f"ALTER TABLE delta.`{table}` DROP FEATURE deletionVectors TRUNCATE HISTORY"
    with pytest.raises(DeltaAnalysisException, match="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
        spark.sql(drop)
    assert DeltaLog.for_table(table).snapshot().num_deletion_vectors == 0
    with pytest.raises(DeltaAnalysisException, match="DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"):
        spark.sql(drop)
    assert DeltaLog.for_table(table).snapshot().protocol.reader_features == ["deletionVectors"]
    # Two days later the tombstones have expired, too: a checkpoint has none.
    log = DeltaLog.for_table(table, clock=lambda: (time.time_ns() // 1_000_000) + 2 * 86_400_000)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('a' = 'b')")
    log.checkpoint()
    past = time.time() - 2 * 86_400
    for file in Path(table, "_delta_log").iterdir():
        os.utime(file, (past, past))
    spark.sql(drop)
    snapshot = DeltaLog.for_table(table).snapshot()
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 2)
    assert ids(load(spark, table)) == ids_by_deltalake(table) == _LIVE
    assert min(DeltaLog.for_table(table).available_versions()) > 2


def test_a_table_that_does_not_use_it(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(3), table, **{"delta.feature.deletionVectors": "supported"})
    before = DeltaLog.for_table(table).snapshot().files["path"].to_pylist()
    spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE deletionVectors TRUNCATE HISTORY")
    snapshot = DeltaLog.for_table(table).snapshot()
    assert snapshot.version == 1
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 2)
    assert snapshot.files["path"].to_pylist() == before
