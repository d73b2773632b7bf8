"""Whatever removes a file from a table accounts for every row in it.

Each operation that rewrites files meets each reason for which rows of a file may be left out or counted
wrongly: statistics that lie, and files that cannot be read in a session that is told to pass over such files.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import DeltaError
from tests.tables import actions, commit_file, data_files, edit_commit, latest_version, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def merge(spark: SparkSession, path: str, source: DataFrame) -> Any:
    return DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")


def replace_where(spark: SparkSession, path: str) -> None:
    numbered(spark, 0, 3).write.format("delta").mode("overwrite").option("replaceWhere", "id < 5").save(path)


def numbered(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr("id", "cast(id as string) s")


SOURCE = "(select id, 'new' s from range(5)) s on t.id = s.id"
OPERATIONS: dict[str, Callable[[SparkSession, str], Any]] = {
    "delete": lambda spark, path: DeltaTable.forPath(spark, path).delete("id < 5"),
    "delete in SQL": lambda spark, path: spark.sql(f"delete from delta.`{path}` where id < 5"),
    "update": lambda spark, path: DeltaTable.forPath(spark, path).update("id < 5", {"s": "'new'"}),
    "update of all": lambda spark, path: DeltaTable.forPath(spark, path).update(set={"s": "'new'"}),
    "update in SQL": lambda spark, path: spark.sql(f"update delta.`{path}` set s = 'new' where id < 5"),
    "merge with updates": lambda spark, path: (
        merge(spark, path, numbered(spark, 0, 5)).whenMatchedUpdateAll().execute()
    ),
    "merge with deletes": lambda spark, path: (
        merge(spark, path, numbered(spark, 0, 5)).whenMatchedDelete().execute()
    ),
    "merge with deletes and inserts": lambda spark, path: (
        merge(spark, path, spark.range(5).union(spark.range(50, 53)).selectExpr("id", "'new' s"))
        .whenMatchedDelete()
        .whenNotMatchedInsertAll()
        .execute()
    ),
    "merge by source": lambda spark, path: (
        merge(spark, path, numbered(spark, 5, 20)).whenNotMatchedBySourceDelete().execute()
    ),
    "merge in SQL": lambda spark, path: spark.sql(
        f"merge into delta.`{path}` t using {SOURCE} when matched then delete"
    ),
    "replaceWhere": replace_where,
    "replace where in SQL": lambda spark, path: spark.sql(
        f"insert into delta.`{path}` replace where id < 5 select id, 'new' s from range(3)"
    ),
    "optimize": lambda spark, path: DeltaTable.forPath(spark, path).optimize().executeCompaction(),
    "optimize by Z-order": lambda spark, path: (
        DeltaTable.forPath(spark, path).optimize().executeZOrderBy("id")
    ),
}


def without_statistics(table: Path, file: Path) -> None:
    edit_commit(table, lambda action: action.get("add", {}).pop("stats", None))


def told(num_records: int) -> Callable[[Path, Path], None]:
    def tell(table: Path, file: Path) -> None:
        log = commit_file(table, 0)
        log.write_text(log.read_text().replace('\\"numRecords\\":10', f'\\"numRecords\\":{num_records}'))

    return tell


def damaged(table: Path, file: Path) -> None:
    """The footer is whole, and no page of the file can be read."""
    content = bytearray(file.read_bytes())
    footer = struct.unpack("<I", content[-8:-4])[0] + 8
    content[4:-footer] = bytes(len(content) - footer - 4)
    file.write_bytes(content)
    file.with_name(f".{file.name}.crc").unlink()


def garbage(table: Path, file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))
    file.with_name(f".{file.name}.crc").unlink()


def damaged_without_statistics(table: Path, file: Path) -> None:
    damaged(table, file)
    without_statistics(table, file)


def missing(table: Path, file: Path) -> None:
    file.unlink()


def missing_without_statistics(table: Path, file: Path) -> None:
    missing(table, file)
    without_statistics(table, file)


FAULTS = {
    "too few rows told": told(5),
    "too many rows told": told(20),
    "damaged": damaged,
    "garbage": garbage,
    "damaged without statistics": damaged_without_statistics,
    "missing": missing,
    "missing without statistics": missing_without_statistics,
}


@pytest.fixture
def passing_over(setting: Any) -> None:
    """A session that passes over files which it cannot read."""
    setting("spark.sql.files.ignoreCorruptFiles", "true")
    setting("spark.sql.files.ignoreMissingFiles", "true")
    # One task reads both files: Spark leaves files behind of tasks that run beside one that fails.
    setting("spark.sql.files.minPartitionNum", "1")


@pytest.fixture(scope="module")
def two_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two files, of ids 0 to 9 and 10 to 19. Each test takes a copy of it."""
    path = tmp_path_factory.mktemp("rows") / "two files"
    for start in (0, 10):
        write(numbered(spark, start, start + 10), path)
    return path


@pytest.fixture
def path(two_files: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(two_files, tmp_path / "table"))


def make_faulty(path: str, fault: str) -> str:
    """Gives the first file of the table the fault; the file's name."""
    [add] = actions(path, "add", 0)
    FAULTS[fault](Path(path), Path(path, add["path"]))
    return str(add["path"])


@pytest.mark.usefixtures("passing_over", "no_open_handles")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.sampled(8)
def test_no_row_is_lost(spark: SparkSession, path: str, operation: str, fault: str) -> None:
    name = make_faulty(path, fault)
    before = data_files(path)
    with pytest.raises(DeltaError, match=name):
        OPERATIONS[operation](spark, path)
    assert latest_version(path) == 1
    assert data_files(path) == before


@pytest.mark.usefixtures("passing_over", "no_open_handles")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sampled(2)
def test_no_row_is_lost_by_auto_compaction(
    spark: SparkSession, path: str, fault: str, setting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The write stands; the compaction that follows it is given up."""
    name = make_faulty(path, fault)
    setting("spark.databricks.delta.autoCompact.minNumFiles", "3")
    numbered(spark, 20, 30).write.format("delta").mode("append").option("autoCompact", "true").save(path)
    [record] = [record for record in caplog.records if "autoCompact failed" in record.getMessage()]
    assert name in record.getMessage()
    assert latest_version(path) == 2
    assert len(data_files(path)) == (2 if fault.startswith("missing") else 3)


@pytest.mark.usefixtures("passing_over", "no_open_handles")
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "told" not in fault])
def test_a_constraint_is_checked_of_every_row(spark: SparkSession, path: str, fault: str) -> None:
    name = make_faulty(path, fault)
    with pytest.raises(DeltaError, match=name):
        spark.sql(f"alter table delta.`{path}` add constraint few check (length(s) < 9)")
    assert latest_version(path) == 1
