"""The partitions of a version, by names that pyarrow takes for paths."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.batch.files.partitions import partition_folders
from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol


def test_columns_whose_names_begin_with_a_dot(tmp_path: Path) -> None:
    table = HandWrittenTable(tmp_path / "t")
    schema = StructType([StructField(name, LongType()) for name in ("id", "p", ".p")])
    files = [add(f"f{i}", partitionValues={"p": "1", ".p": str(i % 2)}) for i in range(3)]
    table.commit(0, protocol(), meta_data(schema=schema, partition_columns=["p", ".p"]), *files)
    snapshot = DeltaLog(LocalLogStore(), table.path).snapshot()
    assert partition_folders(snapshot, {}, "UTC") == ["p=1/.p=0", "p=1/.p=1"]
