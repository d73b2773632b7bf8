"""FSCK REPAIR TABLE: a commit removes files that are lost, and accounts for their rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from deltaflow import DeltaTable
from deltaflow.cli import main
from deltaflow.errors import DeltaConcurrentModificationException, DeltaError, StoreError
from deltaflow.log import DeltaLog
from deltaflow.log.observer import set_observer
from tests.tables import actions, commit_file, ids, load, rows, rows_by_deltalake, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Three partitions of a file each; rows of two of them are deleted by vectors, in one file."""
    path = str(tmp_path / "a table%")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, p STRING) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    frame = spark.range(9).selectExpr("id", "concat('p ', id % 3) p").coalesce(1)
    frame.write.format("delta").mode("append").save(path)
    DeltaTable.forPath(spark, path).delete("id IN (0, 1)")
    return path


def file_of(path: str, partition: int) -> Path:
    [file] = (file for file in Path(path).rglob("*.parquet") if f"p {partition}" in str(file.parent))
    return file


def vectors_of(path: str) -> Path:
    [file] = Path(path).glob("*.bin")
    return file


def statement(spark: SparkSession, path: str, dry_run: bool = False) -> list[Any]:
    return spark.sql(f"FSCK REPAIR TABLE delta.`{path}`{' DRY RUN' * dry_run}").collect()


def test_nothing_is_missing(spark: SparkSession, table: str) -> None:
    before = versions(table)
    assert statement(spark, table) == statement(spark, table, dry_run=True) == []
    assert DeltaTable.forPath(spark, table).repair().collect() == []
    result = CliRunner().invoke(main, ["repair", table])
    assert (result.exit_code, result.output) == (0, "Nothing is missing.\n")
    assert versions(table) == before


def test_a_lost_file_and_its_rows(spark: SparkSession, table: str) -> None:
    lost, before, vectors = file_of(table, 0), versions(table), vectors_of(table)
    [add] = (add for add in actions(table, "add") if "0" in unquote(unquote(add["path"])).split("/")[0])
    lost.unlink()
    [found] = statement(spark, table, dry_run=True)
    assert found.asDict() == {
        "dataFilePath": f"file:{lost}",
        "dataFileMissing": True,
        "deletionVectorPath": f"file:{vectors}",
        "deletionVectorFileMissing": False,
        "numRows": 2,  # of three, one was deleted
    }
    assert DeltaTable.forPath(spark, table).repair(dryRun=True).collect() == [found]
    assert versions(table) == before
    with pytest.raises(StoreError, match="DELTA_FILE_NOT_FOUND"):
        load(spark, table).collect()
    assert statement(spark, table) == [found]
    assert ids(load(spark, table)) == [2, 4, 5, 7, 8]
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    (info,), (remove,) = actions(table, "commitInfo"), actions(table, "remove")
    assert (info["operation"], info["operationParameters"]) == ("FSCK", {})
    assert info["operationMetrics"] == {
        "numRemovedFiles": "1",
        "numRemovedBytes": str(add["size"]),
        "numDeletedRows": "2",
    }
    assert (remove["path"], remove["dataChange"]) == (add["path"], True)
    assert remove["deletionVector"] == add["deletionVector"]
    assert actions(table, "add") == []
    assert statement(spark, table) == []
    assert load(spark, table, versionAsOf=before[-1]).count() == 7  # by the log's numbers


def test_rows_that_the_log_has_not_counted(spark: SparkSession, table: str) -> None:
    path = commit_file(table, 1)
    path.write_text(path.read_text().replace("numRecords", "others"))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    DeltaLog._cache.clear()
    file_of(table, 2).unlink()
    [row] = DeltaTable.forPath(spark, table).repair().collect()
    assert row.numRows is None
    metrics = actions(table, "commitInfo")[0]["operationMetrics"]
    assert (metrics["numDeletedRows"], metrics["numFilesOfUnknownRows"]) == ("0", "1")


def test_a_lost_vector_brings_no_row_back(spark: SparkSession, table: str) -> None:
    """A file is there whose deleted rows nobody knows."""
    before, target = versions(table), DeltaTable.forPath(spark, table)
    vectors_of(table).unlink()
    file_of(table, 2).unlink()
    found = statement(spark, table, dry_run=True)
    assert sorted((row.dataFileMissing, row.deletionVectorFileMissing, row.numRows) for row in found) == [
        (False, True, 2),
        (False, True, 2),
        (True, False, 3),
    ]
    for run in (lambda: statement(spark, table), target.repair):
        with pytest.raises(StoreError, match="deletion vectors of 2 files are not there") as raised:
            run()
        assert raised.value.getErrorClass() == "DELTA_DELETION_VECTOR_FILES_MISSING"
    refused = CliRunner().invoke(main, ["repair", table, "--yes"])
    assert refused.exit_code == 1
    assert "DELTA_DELETION_VECTOR_FILES_MISSING" in refused.output
    assert versions(table) == before
    assert len(target.repair(removeFilesWithoutVectors=True).collect()) == 3
    assert ids(load(spark, table)) == []
    assert actions(table, "commitInfo")[0]["operationMetrics"]["numDeletedRows"] == "7"


def test_a_file_and_its_vector_are_lost(spark: SparkSession, table: str) -> None:
    """No row can come back, and the other file that the vectors are of keeps the repair from it."""
    vectors_of(table).unlink()
    file_of(table, 0).unlink()
    with pytest.raises(StoreError, match="vectors of 1 files"):
        statement(spark, table)
    file_of(table, 1).unlink()
    assert len(statement(spark, table)) == 2
    assert ids(load(spark, table)) == [2, 5, 8]


def test_a_rival_that_removes_the_file_wins(spark: SparkSession, table: str) -> None:
    file_of(table, 0).unlink()
    begun = []

    def at_commit(point: str, facts: Any) -> None:
        if point == "commit prepared" and not begun:
            begun.append(point)
            spark.range(9, 10).selectExpr("id", "'p 5' p").write.format("delta").mode("append").save(table)
            statement(spark, table)

    set_observer(at_commit)
    try:
        with pytest.raises(DeltaConcurrentModificationException):
            statement(spark, table)
    finally:
        set_observer(None)
    assert ids(load(spark, table)) == [2, 4, 5, 7, 8, 9]
    assert statement(spark, table) == []


def test_an_append_meanwhile_stays(spark: SparkSession, table: str) -> None:
    file_of(table, 0).unlink()
    begun = []

    def at_commit(point: str, facts: Any) -> None:
        if point == "commit prepared" and not begun:
            begun.append(point)
            spark.range(9, 10).selectExpr("id", "'p 5' p").write.format("delta").mode("append").save(table)

    set_observer(at_commit)
    try:
        assert len(statement(spark, table)) == 1
    finally:
        set_observer(None)
    assert ids(load(spark, table)) == [2, 4, 5, 7, 8, 9]


def test_a_shallow_clone_of_which_files_are_elsewhere(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    clone = DeltaTable.forPath(spark, table).clone(str(tmp_path / "clone"), isShallow=True)
    expected = rows(clone.toDF())
    assert clone.repair().collect() == []
    assert rows(clone.toDF()) == expected
    shutil.rmtree(file_of(table, 2).parent)
    assert [row.numRows for row in clone.repair().collect()] == [3]
    assert ids(clone.toDF()) == [3, 4, 6, 7]


def test_a_table_by_name_that_only_appends(spark: SparkSession, database: Path) -> None:
    spark.range(3).write.format("delta").saveAsTable("t")
    spark.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    for file in (database / "t").glob("*.parquet"):
        file.unlink()
    found = spark.sql("FSCK REPAIR TABLE t DRY RUN").collect()
    assert sum(row.numRows for row in found) == 3
    with pytest.raises(DeltaError, match="append"):
        spark.sql("FSCK REPAIR TABLE t")
    spark.sql("ALTER TABLE t UNSET TBLPROPERTIES ('delta.appendOnly')")
    assert spark.sql("FSCK REPAIR TABLE t").count() == len(found)
    assert spark.table("t").count() == 0


def test_the_command_line(spark: SparkSession, table: str) -> None:
    lost = file_of(table, 0)
    lost.unlink()
    dry = CliRunner().invoke(main, ["repair", table, "--dry-run"])
    assert dry.exit_code == 3
    said = "1 files are missing or lack their deletion vectors, with 2 rows."
    assert dry.output.splitlines() == [f"file:{lost}", said]
    before = versions(table)
    assert CliRunner().invoke(main, ["repair", table], input="n\n").exit_code == 1
    assert versions(table) == before
    result = CliRunner().invoke(main, ["--json", "repair", table, "--yes"])
    assert result.exit_code == 0
    [row] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["dataFilePath"], row["dataFileMissing"], row["numRows"]) == (f"file:{lost}", True, 2)
    assert ids(load(spark, table)) == [2, 4, 5, 7, 8]
