"""Whatever removes a file from a table, or makes a rule of its rows, looks at every row in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import DeltaIllegalStateException, StoreError
from deltaflow.log import DeltaLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def without_a_file(spark: SparkSession, tmp_path: Path, setting: Any) -> str:
    """A table of ids 0 to 9 whose file is gone, in a session that passes over such files."""
    path = str(tmp_path / "table")
    spark.range(0, 10, 1, 1).write.format("delta").save(path)
    log = Path(path, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace('"stats"', '"none"'))
    next(Path(path).glob("*.parquet")).unlink()
    setting("spark.sql.files.ignoreMissingFiles", "true")
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "insert into delta.`{}` replace where id < 5 select 1L",
        "alter table delta.`{}` add constraint small check (id < 20)",
    ],
)
def test_a_file_that_is_passed_over(spark: SparkSession, without_a_file: str, statement: str) -> None:
    with pytest.raises(StoreError, match="DELTA_FILE_NOT_FOUND_DETAILED"):
        spark.sql(statement.format(without_a_file))
    assert DeltaLog.for_table(without_a_file).latest_version() == 0


def test_replace_where_with_a_file_that_is_passed_over(spark: SparkSession, without_a_file: str) -> None:
    with pytest.raises(StoreError, match="DELTA_FILE_NOT_FOUND_DETAILED"):
        spark.range(1).write.format("delta").mode("overwrite").option("replaceWhere", "id < 5").save(
            without_a_file
        )
    assert DeltaLog.for_table(without_a_file).latest_version() == 0


def test_a_merge_that_deletes_and_inserts(spark: SparkSession, tmp_path: Path) -> None:
    """A file is not removed unread because its statistics say that all of its rows are deleted."""
    path = str(tmp_path / "table")
    spark.range(0, 10, 1, 1).write.format("delta").save(path)
    log = Path(path, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace('\\"numRecords\\":10', '\\"numRecords\\":5'))
    DeltaLog._cache.clear()
    source = spark.range(5).union(spark.range(50, 53))
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    with pytest.raises(DeltaIllegalStateException, match="DELTA_NUM_RECORDS_MISMATCH"):
        merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
    assert DeltaLog.for_table(path).latest_version() == 0
