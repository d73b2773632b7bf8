"""RESTORE and VACUUM in one moment: whichever comes second tells which files the table has lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.batch.commands import vacuum, vacuum_deletion
from deltaflow.errors import StoreError
from deltaflow.log import DeltaLog, Operation, add_files
from tests.tables import actions, ids, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table of two versions that have no file in common."""
    path = str(tmp_path / "a table")
    spark.range(2).write.format("delta").save(path)
    spark.range(1).write.format("delta").mode("overwrite").save(path)
    return path


@pytest.mark.parametrize("ends", [True, False], ids=["", "without its end"])
def test_the_vacuum_deletes_after_it_has_read_the_log(
    spark: SparkSession, path: str, setting: Any, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    first = DeltaLog.for_table(path).snapshot_at(0)
    back = list(add_files(first.with_stats(first.files)))
    delete_files = vacuum_deletion._delete_files

    def late(*arguments: Any) -> Any:
        DeltaLog.for_table(path).start_transaction().commit(back, Operation("RESTORE", {}))
        return delete_files(*arguments)

    commit = vacuum._commit

    def commit_or_fail(table: str, operation: Operation, settings: Any) -> None:
        if operation.name == "VACUUM END" and not ends:
            raise StoreError("The connection broke.")
        commit(table, operation, settings)

    monkeypatch.setattr(vacuum_deletion, "_delete_files", late)
    monkeypatch.setattr(vacuum, "_commit", commit_or_fail)
    with pytest.raises(StoreError, match="restore the version before it") as raised:
        DeltaTable.forPath(spark, path).vacuum(0)
    assert any(add.path in str(raised.value) for add in back)
    [newest] = actions(path, "commitInfo")
    assert newest["operation"] == ("VACUUM END" if ends else "RESTORE")
    assert newest["operationParameters"] == ({"status": "FAILED"} if ends else {})


def test_the_restore_commits_after_it_has_looked_for_the_files(
    spark: SparkSession, path: str, at: Any
) -> None:
    back = Path(path, str(DeltaLog.for_table(path).snapshot_at(0).files["path"][0]))
    at("commit prepared", back.unlink)
    delta = DeltaTable.forPath(spark, path)
    with pytest.raises(StoreError, match=r"since version 2, which is committed") as raised:
        delta.restoreToVersion(0)
    assert str(back) in str(raised.value)
    assert "Restore version 1" in str(raised.value)
    delta.restoreToVersion(1)
    assert ids(load(spark, path)) == [0]
