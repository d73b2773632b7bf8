"""DEEP CLONE: a table of its own that needs nothing of its source, and follows it when it is cloned again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import AnalysisException

from deltaflow import DeltaTable
from deltaflow.batch.commands import clone as clone_module
from deltaflow.batch.commands import deep_clone
from deltaflow.batch.commands.clone_target import CloneTarget
from deltaflow.errors import (
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalArgumentException,
    PostCommitHookError,
    StoreError,
)
from deltaflow.log import DeltaLog, Operation, add_files
from tests.tables import (
    actions,
    data_files,
    every_action,
    ids,
    latest_version,
    load,
    rows,
    rows_by_deltalake,
    versions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]
CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def write(spark: SparkSession, path: str, start: int, end: int, mode: str = "append") -> None:
    frame = spark.range(start, end, 1, 1).selectExpr("id", "concat('p ', id % 2) p")
    frame.write.format("delta").mode(mode).partitionBy("p").save(path)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    """A partitioned table of two versions, with deletion vectors and names that a URI has to encode."""
    path = str(tmp_path / "so urce%é")
    write(spark, path, 0, 4)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    write(spark, path, 4, 8)
    DeltaTable.forPath(spark, path).delete("id = 5")
    return path


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "tar get")


def contents(path: str, pattern: str = "*.parquet") -> Counter[str]:
    """The digests of all files in a directory but those of its log."""
    files = (file for file in Path(path).rglob(pattern) if "_delta_log" not in file.parts)
    return Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def copied(row: Any) -> tuple[int, int]:
    return row.num_copied_files, row.num_removed_files


def again(spark: SparkSession, source: str, target: str) -> Any:
    """Clones once more; the row of the statement."""
    [row] = spark.sql(f"CREATE OR REPLACE TABLE delta.`{target}` CLONE delta.`{source}`").collect()
    return row


def test_a_deep_clone_outlives_its_source(
    spark: SparkSession, source: str, target: str, setting: Any
) -> None:
    expected, snapshot = rows(load(spark, source)), DeltaLog.for_table(source).snapshot()
    files, vectors = contents(source), contents(source, "*.bin")
    clone = DeltaTable.forPath(spark, source).clone(target)
    assert rows(clone.toDF()) == expected
    assert (contents(target), contents(target, "*.bin")) == (files, vectors)
    assert all(not add["path"].startswith(("/", "file:")) for add in actions(target, "add"))
    (info,) = actions(target, "commitInfo")
    parameters = {"source": f"delta.`{source}`", "sourceVersion": 3, "isShallow": False}
    assert (info["operation"], info["operationParameters"]) == ("CLONE", parameters)
    assert info["operationMetrics"] == {
        "sourceTableSize": str(snapshot.size_in_bytes),
        "sourceNumOfFiles": "4",
        "numRemovedFiles": "0",
        "numCopiedFiles": "4",
        "removedFilesSize": "0",
        "copiedFilesSize": str(snapshot.size_in_bytes),
    }
    assert actions(target, "metaData")[0]["id"] != snapshot.table_id
    shutil.rmtree(source)
    setting(CHECK, "false")
    clone.vacuum(0)
    assert rows(clone.toDF()) == rows_by_deltalake(target) == expected
    clone.delete("id = 6")
    clone.update("id = 7", {"id": "70"})
    clone.optimize().executeCompaction()
    assert ids(clone.toDF()) == [0, 1, 2, 3, 4, 70]


@pytest.mark.long
def test_again_copies_only_what_is_new(spark: SparkSession, source: str, target: str, setting: Any) -> None:
    """What was written to the clone is undone, and its older versions stay as they were."""
    table = DeltaTable.forPath(spark, source)
    table.clone(target)
    history = [rows(load(spark, source))]

    def follow(*expected: int) -> None:
        row = again(spark, source, target)
        assert copied(row) == expected
        history.append(rows(load(spark, source)))
        assert rows(load(spark, target)) == rows_by_deltalake(target) == history[-1]

    follow(0, 0)
    assert actions(target, "add") == actions(target, "remove") == []
    write(spark, source, 8, 10)
    follow(2, 0)
    table.delete("id IN (0, 3)")  # by deletion vectors: no data file is new
    follow(0, 0)
    assert len(actions(target, "add")) == len(actions(target, "remove")) == 2
    table.optimize().executeCompaction()
    follow(2, 6)
    write(spark, target, 100, 102)
    DeltaTable.forPath(spark, target).delete("p = 'p 0'")
    history += [rows(load(spark, target, versionAsOf=version)) for version in versions(target)[-2:]]
    follow(1, 1)
    write(spark, source, 50, 51, "overwrite")
    follow(1, 2)
    for version, expected in enumerate(history):
        assert rows(load(spark, target, versionAsOf=version)) == expected
    setting(CHECK, "false")
    DeltaTable.forPath(spark, target).vacuum(0)
    assert contents(target) == Counter(
        hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (Path(source, add["path"].replace("%20", " ")) for add in actions(source, "add"))
    )


def test_of_a_version_by_name_with_properties(
    spark: SparkSession, source: str, target: str, database: Path
) -> None:
    text = f"CREATE TABLE made DEEP CLONE delta.`{source}` VERSION AS OF 0 TBLPROPERTIES ('mine' = '1')"
    [row] = spark.sql(text).collect()
    assert copied(row) == (2, 0)
    assert ids(spark.table("made")) == [0, 1, 2, 3]
    assert (database / "made" / "_delta_log").is_dir()
    again_by_name = DeltaTable.forPath(spark, source).cloneAtVersion(2, "made", replace=True)
    assert ids(again_by_name.toDF()) == [*range(8)]
    # Properties are those of the source and of the statement that came last.
    assert "mine" not in again_by_name.detail().first().properties
    assert copied(spark.sql(f"REPLACE TABLE made CLONE '{source}' VERSION AS OF 3").first()) == (0, 0)
    assert spark.sql(f"CREATE TABLE IF NOT EXISTS made CLONE '{source}'").collect() == []
    elsewhere = f"CREATE TABLE elsewhere CLONE made TIMESTAMP AS OF '2999-01-01' LOCATION '{target}'"
    with pytest.raises(DeltaError):
        spark.sql(elsewhere)
    spark.sql(elsewhere.replace(" TIMESTAMP AS OF '2999-01-01'", ""))
    assert ids(load(spark, target)) == [0, 1, 2, 3, 4, 6, 7]


def test_of_a_shallow_clone(spark: SparkSession, source: str, target: str, tmp_path: Path) -> None:
    """Its files and vectors are in two tables, and named by absolute paths."""
    shallow = str(tmp_path / "shallow")
    table = DeltaTable.forPath(spark, source).clone(shallow, isShallow=True)
    write(spark, shallow, 8, 10)
    table.delete("id = 2")
    expected = rows(table.toDF())
    deep = table.clone(target)
    assert copied(again(spark, shallow, target)) == (0, 0)
    kinds = {
        add["deletionVector"]["storageType"] for add in actions(target, "add", 0) if "deletionVector" in add
    }
    assert kinds == {"u"}
    shutil.rmtree(source)
    shutil.rmtree(shallow)
    assert rows(deep.toDF()) == rows_by_deltalake(target) == expected
    # A shallow clone becomes a deep one.
    second = deep.clone(shallow, isShallow=True)
    assert copied(again(spark, target, shallow)) == (6, 6)
    shutil.rmtree(target)
    assert rows(second.toDF()) == expected


def test_of_parquet_files_that_others_overwrite(spark: SparkSession, target: str, tmp_path: Path) -> None:
    path = str(tmp_path / "parquet")
    spark.range(3).selectExpr("id", "'x y' AS p").coalesce(1).write.partitionBy("p").parquet(path)
    spark.sql(f"CREATE TABLE delta.`{target}` CLONE parquet.`{path}`")
    assert ids(load(spark, target)) == [0, 1, 2]
    [file] = Path(path).rglob("*.parquet")
    other = str(tmp_path / "other")
    spark.range(3, 6).coalesce(1).write.parquet(other)
    [new] = Path(other).rglob("*.parquet")
    shutil.copyfile(new, file)
    file.with_name(f".{file.name}.crc").unlink()
    os.utime(file, (1, 1))
    replace = f"CREATE OR REPLACE TABLE delta.`{target}` CLONE parquet.`{path}`"
    assert copied(spark.sql(replace).first()) == (1, 1)
    assert copied(spark.sql(replace).first()) == (0, 0)
    assert ids(load(spark, target)) == [3, 4, 5]
    shutil.rmtree(path)
    assert ids(load(spark, target, versionAsOf=0)) == [0, 1, 2]


def test_tables_with_features(spark: SparkSession, target: str, tmp_path: Path) -> None:
    source = str(tmp_path / "features")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id BIGINT GENERATED BY DEFAULT AS IDENTITY, `a b` INT DEFAULT 7, "
        "twice INT GENERATED ALWAYS AS (`a b` * 2), note STRING) USING delta CLUSTER BY (`a b`) "
        "TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true', "
        "'delta.feature.allowColumnDefaults' = 'supported', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` (`a b`) VALUES (1), (2), (3)")
    clone = DeltaTable.forPath(spark, source).clone(target)
    row_ids = load(spark, target).selectExpr("id", "_metadata.row_id").collect()
    spark.sql(f"ALTER TABLE delta.`{source}` RENAME COLUMN note TO c")
    spark.sql(f"INSERT INTO delta.`{source}` (`a b`) VALUES (4)")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE `a b` = 2")
    again(spark, source, target)
    assert rows(clone.toDF()) == rows(load(spark, source))
    kept = {(row.id, row.row_id) for row in row_ids}
    now = {(row.id, row.row_id) for row in load(spark, target).selectExpr("id", "_metadata.row_id").collect()}
    assert len(now & kept) == 2
    assert len({row_id for _, row_id in now}) == 3
    of_both = [DeltaTable.forPath(spark, path).detail().first() for path in (source, target)]
    for field in ("clusteringColumns", "tableFeatures", "numFiles", "sizeInBytes"):
        assert of_both[0][field] == of_both[1][field]
    spark.sql(f"INSERT INTO delta.`{target}` (`a b`) VALUES (9)")
    ids_of_clone = ids(load(spark, target))
    assert len(set(ids_of_clone)) == 4
    assert load(spark, target).where("`a b` = 9").first().twice == 18
    # A Parquet table is not clustered.
    spark.range(2).write.parquet(str(tmp_path / "parquet"))
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{target}` CLONE parquet.`{tmp_path}/parquet`")
    assert clone.detail().first().clusteringColumns == []


# ------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("damage", ["gone", "cut off"])
def test_a_source_that_loses_files_meanwhile(
    spark: SparkSession, source: str, target: str, monkeypatch: Any, damage: str
) -> None:
    """As by a vacuum. Nothing is committed, and what was copied is not in the way of another attempt."""
    lost: list[Path] = []

    def late(copies: Any, *arguments: Any) -> None:
        file = Path(copies[2].source)
        lost.append(Path(shutil.copyfile(file, file.with_suffix(".kept"))))
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1])
        deep_clone.copy_files(copies, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(clone_module, "copy_files", late)
        with pytest.raises(StoreError) as raised:
            DeltaTable.forPath(spark, source).clone(target)
    assert str(lost[0].with_suffix(".parquet")) in str(raised.value)
    assert not list(Path(target).glob("_delta_log/*.json"))
    assert not DeltaTable.isDeltaTable(spark, target)
    lost[0].replace(lost[0].with_suffix(".parquet"))
    clone = DeltaTable.forPath(spark, source).clone(target)
    assert rows(clone.toDF()) == rows(load(spark, source))


@pytest.mark.parametrize("is_shallow", [False, True])
def test_what_fails_after_the_commit_says_that_it_stands(
    spark: SparkSession, source: str, target: str, monkeypatch: Any, is_shallow: bool
) -> None:
    spark.range(0).write.format("delta").save(target)

    def fail(*_: object) -> None:
        raise StoreError("The storage is gone.")

    broken = (CloneTarget, "update_catalog") if is_shallow else (clone_module, "copy_lost_files")
    with monkeypatch.context() as patched:
        patched.setattr(*broken, fail)
        with pytest.raises(PostCommitHookError, match=r"Version 1 of .* is committed, but .*storage is gone"):
            DeltaTable.forPath(spark, source).clone(target, isShallow=is_shallow, replace=True)
    assert rows(load(spark, target)) == rows(load(spark, source))


KILLED = """
import os, sys
from deltaflow.batch.commands import deep_clone
from deltaflow.log import DeltaLog, add_files
from deltaflow.log.files.file_key import logical_key

copy, done = deep_clone._copy, []
def killed(*arguments):
    if len(done) == 2:
        os._exit(9)
    copy(*arguments)
    done.append(1)
deep_clone._copy, deep_clone._THREADS = killed, 1
source, target = sys.argv[1:]
snapshot = DeltaLog.for_table(source).snapshot()
identity = lambda add: (snapshot.table_id, logical_key(add.path, None, source), add.size)
plan = deep_clone.plan_copies(source, list(add_files(snapshot.with_stats(snapshot.files))), identity, None, 0)
deep_clone.copy_files(plan.copies, source, target, "it")
"""


@pytest.mark.long
def test_a_clone_that_is_killed_is_run_again(
    spark: SparkSession, source: str, target: str, setting: Any
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, source, target], check=False, capture_output=True, text=True
    )
    assert killed.returncode == 9, killed.stderr
    assert sum(contents(target, "*.*").values()) == 2
    foreign = Path(target, "notes.txt")
    foreign.write_text("somebody's")
    with pytest.raises(AnalysisException, match="NON_EMPTY_LOCATION"):
        DeltaTable.forPath(spark, source).clone(target)
    foreign.unlink()
    clone = DeltaTable.forPath(spark, source).clone(target)
    assert rows(clone.toDF()) == rows(load(spark, source))
    # A vacuum takes what no commit names.
    spark.sql(f"RESTORE TABLE delta.`{source}` TO VERSION AS OF 0")
    again(spark, source, target)
    assert sum(contents(target).values()) == 4
    subprocess.run([sys.executable, "-c", KILLED, source, str(Path(target, "sub"))], check=False)
    assert sum(contents(target).values()) == 6
    setting(CHECK, "false")
    clone.vacuum(0)
    assert sum(contents(target).values()) == 2


def test_a_rival_at_the_target_wins(spark: SparkSession, source: str, target: str, monkeypatch: Any) -> None:
    """Its rows would be removed unseen."""
    DeltaTable.forPath(spark, source).clone(target)
    write(spark, source, 8, 10)

    def late(*arguments: Any) -> None:
        deep_clone.copy_files(*arguments)
        write(spark, target, 100, 101)

    with monkeypatch.context() as patched:
        patched.setattr(clone_module, "copy_files", late)
        with pytest.raises(DeltaConcurrentModificationException):
            again(spark, source, target)
    assert 100 in ids(load(spark, target))
    again(spark, source, target)
    assert rows(load(spark, target)) == rows(load(spark, source))


def test_a_vacuum_deletes_copies_before_the_commit(
    spark: SparkSession, source: str, target: str, at: Any, monkeypatch: Any
) -> None:
    """It found older files at their places, before they were copied."""
    DeltaTable.forPath(spark, source).clone(target)
    there = data_files(target)

    def delete_new() -> None:
        for file in data_files(target) - there:
            Path(target, file).unlink()

    write(spark, source, 8, 10)
    at("commit prepared", delete_new)
    again(spark, source, target)
    assert rows(load(spark, target)) == rows(load(spark, source))
    # It deletes them once more, at the end.
    write(spark, source, 10, 12)
    there = data_files(target)
    at("commit prepared", delete_new)
    monkeypatch.setattr(deep_clone, "copy_files", lambda *arguments: None)
    with pytest.raises(StoreError, match="FSCK REPAIR TABLE, and clone again") as raised:
        again(spark, source, target)
    assert raised.value.version == latest_version(target)
    monkeypatch.undo()
    DeltaTable.forPath(spark, target).repair()
    again(spark, source, target)
    assert rows(load(spark, target)) == rows(load(spark, source))


def test_what_the_log_says_anew_of_a_file_brings_no_row_again(
    spark: SparkSession, source: str, target: str, tmp_path: Path
) -> None:
    """Another writer has computed the statistics of the source's files again."""
    feed = {"delta.enableChangeDataFeed": "true"}
    clone = DeltaTable.forPath(spark, source).clone(target, properties=feed)
    copy = str(tmp_path / "copy")

    def read() -> list[int]:
        stream = spark.readStream.format("delta").load(target).writeStream.format("delta")
        stream = stream.option("checkpointLocation", f"{copy}-checkpoint").trigger(availableNow=True)
        stream.start(copy).awaitTermination()
        return ids(load(spark, copy))

    expected = read()
    transaction = DeltaLog.for_table(source).start_transaction()
    assert transaction.snapshot is not None
    files = transaction.snapshot.with_stats(transaction.snapshot.files)
    adds = [
        msgspec.structs.replace(add, tags={"computed": "again"})
        for add in add_files(files, data_change=False)
    ]
    transaction.commit(adds, Operation("COMPUTE STATS"))
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{target}` CLONE delta.`{source}` TBLPROPERTIES ({_sql(feed)})")
    assert [add["tags"] for add in actions(target, "add")] == [{"computed": "again"}] * len(adds)
    assert read() == ids(clone.toDF()) == expected
    changes = load(spark, target, readChangeFeed="true", startingVersion=latest_version(target))
    assert changes.collect() == []
    # Files that are there get ids, too, when the source has begun to track its rows.
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    assert copied(again(spark, source, target)) == (0, 0)
    row_ids = [row.row_id for row in clone.toDF().select("_metadata.row_id").collect()]
    assert len(set(row_ids) - {None}) == len(expected)
    assert not any(add["dataChange"] for add in actions(target, "add"))
    log = DeltaLog.for_table(target)
    assert log.checksum_differences(log.snapshot()) == {}


def _sql(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def test_two_clones_at_once_make_one_table(
    spark: SparkSession, source: str, target: str, monkeypatch: Any
) -> None:
    both = threading.Barrier(2, timeout=60)

    def together(*arguments: Any) -> None:
        deep_clone.copy_files(*arguments)
        both.wait()

    monkeypatch.setattr(clone_module, "copy_files", together)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            DeltaTable.forPath(spark, source).clone(target)
        except DeltaError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 1
    assert versions(target) == [0]
    assert len(every_action(target, "commitInfo")) == 1
    assert rows(load(spark, target)) == rows(load(spark, source))


def test_a_table_is_no_clone_of_itself(spark: SparkSession, source: str) -> None:
    before = versions(source)
    for version in (None, 0):
        at = "" if version is None else f" VERSION AS OF {version}"
        with pytest.raises(DeltaIllegalArgumentException) as raised:
            spark.sql(f"CREATE OR REPLACE TABLE delta.`{source}` CLONE delta.`{source}`{at}")
        assert raised.value.getErrorClass() == "DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE"
    assert versions(source) == before
