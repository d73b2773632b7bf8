"""The partitions of a version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from deltaflow.batch.files.partitions import partition_folders
from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol


def folders(path: Path, schema: StructType, partitions: list[dict[str, Any]], **wanted: str) -> list[str]:
    """The folders of a table with a file in each of the partitions."""
    table = HandWrittenTable(path)
    files = [add(f"f{i}", partitionValues=values) for i, values in enumerate(partitions)]
    table.commit(0, protocol(), meta_data(schema=schema, partition_columns=[*partitions[0]]), *files)
    return partition_folders(DeltaLog(LocalLogStore(), table.path).snapshot(), wanted, "UTC")


def test_columns_whose_names_begin_with_a_dot(tmp_path: Path) -> None:
    schema = StructType([StructField(name, LongType()) for name in ("id", "p", ".p")])
    partitions = [{"p": "1", ".p": str(i % 2)} for i in range(3)]
    assert folders(tmp_path / "t", schema, partitions) == ["p=1/.p=0", "p=1/.p=1"]


def test_a_null_has_two_texts(tmp_path: Path) -> None:
    schema = StructType([StructField(name, LongType()) for name in ("id", "p")])
    partitions = [{"p": value} for value in (None, "", "1")]
    null = "p=__HIVE_DEFAULT_PARTITION__"
    assert folders(tmp_path / "t", schema, partitions) == ["p=1", null]
    assert folders(tmp_path / "of null", schema, partitions, p="") == [null]


def test_years_beyond_those_of_arrow(tmp_path: Path) -> None:
    """It would show the year 67556 as -25536, and take it for that."""
    schema = StructType([StructField("id", LongType()), StructField("t", TimestampType())])
    texts = ("+67556-01-02T03:04:05.000006Z", "-25536-01-02T03:04:05.000006Z", "+32767-12-31T00:00:00Z", None)
    assert folders(tmp_path / "t", schema, [{"t": text} for text in texts]) == [
        "t=-25536-01-02T03%3A04%3A05.000006Z",
        "t=32767-12-31T00%3A00%3A00.000000Z",
        "t=67556-01-02T03%3A04%3A05.000006Z",
        "t=__HIVE_DEFAULT_PARTITION__",
    ]
