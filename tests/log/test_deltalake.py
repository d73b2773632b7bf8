"""The same tables through deltalake, the independent implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from deltaflow.log import (
    AddFile,
    DeltaLog,
    Metadata,
    Operation,
    SetTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.store import LocalLogStore

ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "part": ["a b", "ü%", None, "x/y"]})
SCHEMA = StructType([StructField("id", LongType()), StructField("part", StringType())])


def log_of(path: Path) -> DeltaLog:
    return DeltaLog(LocalLogStore(), str(path))


def adds_by_deltalake(path: Path) -> list[dict[str, Any]]:
    adds = pa.table(DeltaTable(path).get_add_actions(flatten=False)).to_pylist()
    return sorted(adds, key=lambda row: str(row["path"]))


def test_a_table_of_deltalake_is_read_with_the_same_files_schema_and_transactions(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS, partition_by=["part"])
    properties = CommitProperties(app_transactions=[Transaction("app", 7, 5)])
    write_deltalake(tmp_path, ROWS, mode="append", commit_properties=properties)
    DeltaTable(tmp_path).delete("id = 2")
    write_deltalake(tmp_path, ROWS.slice(0, 1), mode="append")
    snapshot, table = log_of(tmp_path).snapshot(), DeltaTable(tmp_path)
    assert snapshot.version == table.version() == 3
    assert snapshot.table_id == str(table.metadata().id)
    assert snapshot.partition_columns == table.metadata().partition_columns
    assert snapshot.txn_version("app") == table.transaction_version("app") == 7
    assert json.loads(schema_to_string(snapshot.schema)) == json.loads(table.schema().to_json())
    theirs = adds_by_deltalake(tmp_path)
    ours = sorted(snapshot.with_stats(snapshot.files).to_pylist(), key=lambda row: row["path"])
    assert len(theirs) == 7
    assert [row["path"] for row in ours] == [row["path"] for row in theirs]
    assert [row["size"] for row in ours] == [row["size_bytes"] for row in theirs]
    assert [row["modification_time"] for row in ours] == [row["modification_time"] for row in theirs]
    assert [dict(row["partition_values"])["part"] for row in ours] == [
        row["partition"]["part"] for row in theirs
    ]
    assert [json.loads(row["stats"])["numRecords"] for row in ours] == [row["num_records"] for row in theirs]


def test_every_version_of_a_table_of_deltalake(tmp_path: Path) -> None:
    for number in range(5):
        write_deltalake(tmp_path, ROWS.slice(0, number + 1), mode="overwrite" if number % 2 else "append")
    log = log_of(tmp_path)
    for version in range(5):
        ours = log.snapshot_at(version).files["path"].to_pylist()
        theirs = DeltaTable(tmp_path, version=version).file_uris()
        assert sorted(f"{tmp_path}/{path}" for path in ours) == sorted(theirs)


def test_appending_to_a_table_of_deltalake(tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS)
    pq.write_table(ROWS, tmp_path / "more.parquet")
    size = (tmp_path / "more.parquet").stat().st_size
    more = AddFile(path="more.parquet", partition_values={}, size=size, modification_time=1, data_change=True)
    log_of(tmp_path).start_transaction().commit([more], Operation("WRITE"))
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 8


def test_a_column_that_may_not_be_null_is_kept_so(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    write_deltalake(tmp_path, pa.table({"id": [1]}, schema=schema))
    log_of(tmp_path).start_transaction().commit([], Operation("WRITE"))
    assert DeltaTable(tmp_path).version() == 1
    assert not log_of(tmp_path).snapshot().schema["id"].nullable


def test_a_table_of_deltaflow_is_read_by_deltalake(tmp_path: Path) -> None:
    path = tmp_path / "a table ü"
    log = log_of(path)
    schema = StructType([*SCHEMA.fields, StructField("at", TimestampType())])

    def write(name: str, encoded: str, value: str | None, *ids: int) -> AddFile:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        times = pa.array([0] * len(ids), pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "at": times}), path / name)
        return AddFile(
            path=encoded,
            partition_values={"part": value},
            size=(path / name).stat().st_size,
            modification_time=1700000000000,
            data_change=True,
            stats=json.dumps({"numRecords": len(ids)}),
        )

    transaction = log.start_transaction()
    transaction.update_metadata(
        Metadata(
            id="0a5fbd1c-7e6f-4d0f-9c56-0d0ed1b7b1a3",
            schema_string=schema_to_string(schema),
            partition_columns=["part"],
            configuration={"delta.appendOnly": "false"},
            created_time=1700000000000,
        )
    )
    operation = Operation("WRITE", {"mode": "Append", "partitionBy": '["part"]'}, {"numFiles": "3"}, "note")
    transaction.commit(
        [
            write("part=a b/1.parquet", "part=a%20b/1.parquet", "a b", 1),
            write("part=ü%25/2.parquet", "part=%C3%BC%2525/2.parquet", "ü%", 2, 3),
            write("part=none/3.parquet", "part=none/3.parquet", None, 4),
            SetTransaction(app_id="app", version=3, last_updated=5),
        ],
        operation,
    )
    table = DeltaTable(path)
    assert table.version() == 0
    assert table.transaction_version("app") == 3
    assert table.metadata().configuration == {"delta.appendOnly": "false"}
    assert [history["userMetadata"] for history in table.history()] == ["note"]
    rows = table.to_pyarrow_table().select(["id", "part"]).to_pylist()
    assert sorted((row["id"], row["part"]) for row in rows) == [(1, "a b"), (2, "ü%"), (3, "ü%"), (4, None)]

    overwrite = log.start_transaction()
    assert overwrite.snapshot is not None
    removes = remove_files(overwrite.snapshot.with_stats(overwrite.snapshot.files), 1700000000001)
    overwrite.commit([*removes, write("part=x/4.parquet", "part=x/4.parquet", "x", 5)], operation)
    table = DeltaTable(path)
    assert table.to_pyarrow_table().column("id").to_pylist() == [5]
    table.create_checkpoint()
    write_deltalake(path, table.to_pyarrow_table(), mode="append")
    assert log.snapshot().version == 2
    assert log.snapshot().num_files == 2
