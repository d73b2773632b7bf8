"""Operations on tables with deletion vectors do what they do on tables with the same rows without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deltaflow.cli import main
from deltaflow.errors import DeltaError, StoreError
from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests.deletion_vectors import mark_deleted, paths
from tests.tables import actions, commit_info, ids, latest_version, load, rows, rows_by_deltalake, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELETED = {0: [*range(10)], 1: [24], 2: [*range(25)]}
"""The positions of deleted rows in files of 25 rows each, by their numbers. File 3 has all of its rows."""
LIVE = [id_ for id_ in range(100) if id_ % 25 not in DELETED.get(id_ // 25, [])]
COLUMNS = ["id", "id div 50 AS p", "CAST(id % 5 AS INT) AS k", "IF(id < 10, 0, 1) AS one"]


def pair(spark: SparkSession, folder: Path) -> tuple[str, str]:
    """A table with deletion vectors, and one with the same rows that has none; partitioned by p."""
    table, same = str(folder / "table"), str(folder / "same")
    marks: dict[str, list[int]] = {}
    for number in range(4):
        before = set(paths(table)) if number else set()
        write(spark.range(25 * number, 25 * number + 25).selectExpr(*COLUMNS), table, partition_by=["p"])
        live = [id_ for id_ in LIVE if id_ // 25 == number]
        if live:
            rows_left = spark.createDataFrame([(id_,) for id_ in live], "id long")
            write(rows_left.selectExpr(*COLUMNS), same, partition_by=["p"])
        [path] = set(paths(table)) - before
        if number in DELETED:
            marks[path] = DELETED[number]
    mark_deleted(table, marks)
    return table, same


MERGE = (
    "MERGE INTO {0} AS t USING (SELECT explode(sequence(5L, 30L)) AS id) AS s ON t.id = s.id "
    "WHEN MATCHED AND t.id = 27 THEN DELETE WHEN MATCHED THEN UPDATE SET k = 90 "
    "WHEN NOT MATCHED THEN INSERT (id, p, k, one) VALUES (s.id, 9, 91, 1)"
)
STATEMENTS = {
    "delete": "DELETE FROM {0} WHERE k = 3",
    "delete what is deleted": "DELETE FROM {0} WHERE one = 0",
    "delete by a condition that fails for deleted rows": "DELETE FROM {0} WHERE 1 / one > 0.5 AND id < 30",
    "delete the rest of a file": "DELETE FROM {0} WHERE id < 25",
    "delete a partition": "DELETE FROM {0} WHERE p = 0",
    "delete all": "DELETE FROM {0}",
    "update": "UPDATE {0} SET k = -k WHERE id % 2 = 0",
    "update all": "UPDATE {0} SET k = 7",
    "update of no row": "UPDATE {0} SET k = 7 WHERE id = 3",
    "merge": MERGE,
    "merge that deletes": "MERGE INTO {0} AS t USING (SELECT 12L AS id) AS s ON t.id = s.id "
    "WHEN NOT MATCHED BY SOURCE AND t.id > 80 THEN DELETE",
    "merge that inserts": "MERGE INTO {0} AS t USING (SELECT 3L AS id, 0L AS p, 1 AS k, 1 AS one) AS s "
    "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    "replace": "INSERT INTO {0} REPLACE WHERE id BETWEEN 20 AND 60 SELECT 33L, 0L, 1, 1",
    "overwrite": "INSERT OVERWRITE {0} SELECT 1L, 0L, 1, 1",
    "insert": "INSERT INTO {0} SELECT 1L, 0L, 1, 1",
    "optimize": "OPTIMIZE {0}",
    "optimize a partition": "OPTIMIZE {0} WHERE p = 0",
    "z-order": "OPTIMIZE {0} ZORDER BY (k)",
    "add a constraint that deleted rows break": "ALTER TABLE {0} ADD CONSTRAINT c CHECK (one = 1)",
    "add a column": "ALTER TABLE {0} ADD COLUMNS (more INT)",
}
COUNTS = ("numDeletedRows", "numCopiedRows", "numUpdatedRows", "numTargetRowsUpdated", "numTargetRowsDeleted")
COUNTS += ("numTargetRowsInserted", "numTargetRowsCopied", "numOutputRows")


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.sampled(36)
def test_statements(spark: SparkSession, tmp_path: Path, name: str) -> None:
    metrics = []
    table, same = pair(spark, tmp_path)
    before = actions(table, "add", 4)
    for path in (table, same):
        first = latest_version(path)
        spark.sql(STATEMENTS[name].format(f"delta.`{path}`")).collect()
        found = commit_info(path) if latest_version(path) > first else {}
        metrics.append({key: found.get("operationMetrics", {}).get(key) for key in COUNTS})
    assert rows(load(spark, table)) == rows(load(spark, same))
    assert rows_by_deltalake(table) == rows(load(spark, table))
    assert load(spark, table).count() == len(rows(load(spark, same)))
    if name not in ("delete all", "delete a partition", "overwrite"):
        assert metrics[0] == metrics[1]
    # A file goes with the vector that it had, and a rewritten one has none.
    vectors = {add["path"]: add["deletionVector"] for add in before}
    if latest_version(table) > 4:
        for remove in actions(table, "remove"):
            assert remove.get("deletionVector") == vectors.get(remove["path"])
        assert not any("deletionVector" in add for add in actions(table, "add"))


@pytest.mark.long
def test_frames(spark: SparkSession, tmp_path: Path) -> None:
    def replaced(path: str) -> None:
        frame = spark.range(3).selectExpr(*COLUMNS)
        frame.write.format("delta").mode("overwrite").option("replaceWhere", "id < 5 OR k = 2").save(path)

    def dynamic(path: str) -> None:
        frame = spark.range(3).selectExpr(*COLUMNS)
        options = {"partitionOverwriteMode": "dynamic"}
        frame.write.format("delta").mode("overwrite").options(**options).save(path)

    def compacted(path: str) -> None:
        properties = "'delta.autoOptimize.autoCompact' = 'true'"
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({properties})")
        for first in range(200, 260):
            write(spark.range(first, first + 1).selectExpr("id", "1L AS p", "1 AS k", "1 AS one"), path)

    writes: list[Callable[[str], None]] = [replaced, dynamic, compacted]
    for number, operation in enumerate(writes):
        table, same = pair(spark, tmp_path / str(number))
        for path in (table, same):
            operation(path)
        assert rows(load(spark, table)) == rows(load(spark, same)) == rows_by_deltalake(table)


def test_clones_and_restores(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = pair(spark, tmp_path)
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, table).clone(clone, isShallow=True)
    again = str(tmp_path / "again")
    DeltaTable.forPath(spark, clone).clone(again, isShallow=True)
    for path in (clone, again):
        assert ids(load(spark, path)) == LIVE
        vectors = [add["deletionVector"] for add in actions(path, "add") if "deletionVector" in add]
        assert len(vectors) == 3
        assert {vector["storageType"] for vector in vectors} == {"p"}
        assert all(vector["pathOrInlineDv"].startswith(f"file:{table}") for vector in vectors)
    spark.sql(f"DELETE FROM delta.`{clone}` WHERE id = 12")
    assert ids(load(spark, clone)) == [id_ for id_ in LIVE if id_ != 12]
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 3")
    assert ids(load(spark, table)) == list(range(100))
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 4")
    assert ids(load(spark, table)) == LIVE == ids(load(spark, table, versionAsOf=4))
    assert rows_by_deltalake(table) == rows(load(spark, table))
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 0")
    [file] = Path(table).glob("deletion_vector_*.bin")
    file.rename(tmp_path / "away")
    with pytest.raises(StoreError, match=file.name):
        spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 4")


def test_a_vacuum_keeps_the_vectors_that_a_version_needs(
    spark: SparkSession, tmp_path: Path, settings: Any
) -> None:
    table, _ = pair(spark, tmp_path)
    [first] = Path(table).glob("deletion_vector_*.bin")
    stray = first.with_name("deletion_vector_00000000-0000-0000-0000-000000000000.bin")
    stray.write_bytes(first.read_bytes())
    path = next(add["path"] for add in actions(table, "add", 4) if "p=0" in add["path"])
    mark_deleted(table, {path: [*range(24)]})
    [second] = {*Path(table).glob("deletion_vector_*.bin")} - {first, stray}
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql(f"VACUUM delta.`{table}` RETAIN 100 HOURS")
        assert first.exists()
        assert stray.exists()  # it is young
        spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
        assert (first.exists(), second.exists(), stray.exists()) == (True, True, False)
        expected = ids(load(spark, table))
        spark.sql(f"OPTIMIZE delta.`{table}`")
        spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    assert not list(Path(table).glob("deletion_vector_*.bin"))
    assert ids(load(spark, table)) == expected


def test_the_log_and_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    table, _ = pair(spark, tmp_path)
    found = CliRunner().invoke(main, ["log", table, "files", "--json"])
    described = [json.loads(line) for line in found.output.splitlines()]
    vectors = [row["deletion_vector"]["cardinality"] for row in described if "deletion_vector" in row]
    assert sorted(vectors) == [1, 10, 25]
    shown = CliRunner().invoke(main, ["log", table, "files"], env={"COLUMNS": "200"}).output
    assert all(f" {rows} " in shown for rows in (15, 24, 0, 25))
    assert CliRunner().invoke(main, ["doctor", table]).output.splitlines() == ["Nothing was found."]
    DeltaLog.for_table(table).checkpoint()
    assert CliRunner().invoke(main, ["doctor", table]).output.splitlines() == ["Nothing was found."]
    [file] = Path(table).glob("deletion_vector_*.bin")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    broken = CliRunner().invoke(main, ["doctor", table]).output
    assert "deletion-vector" in broken
    file.unlink()
    assert "3 files" in CliRunner().invoke(main, ["doctor", table]).output
    with pytest.raises(DeltaError, match="DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"):
        DeltaTable.forPath(spark, table).generate("symlink_format_manifest")


def test_a_vector_that_is_wrong_stops_an_operation(spark: SparkSession, tmp_path: Path) -> None:
    """The log says that more rows are deleted than the vector deletes."""
    table = str(tmp_path / "table")
    write(spark.range(10), table)
    mark_deleted(table, [1])
    commit = Path(table, "_delta_log", f"{1:020}.json")
    commit.write_text(commit.read_text().replace('"cardinality": 1', '"cardinality": 2'))
    write(spark.range(20, 21), table)
    for statement in ("DELETE FROM {} WHERE id > 3", "UPDATE {} SET id = 1", "OPTIMIZE {}"):
        with pytest.raises(DeltaError, match="DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"):
            spark.sql(statement.format(f"delta.`{table}`"))
    assert latest_version(table) == 2
