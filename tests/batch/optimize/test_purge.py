"""REORG TABLE … APPLY (PURGE), and OPTIMIZE of files of which many rows are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from deltaflow.batch.optimize.purge import ChooseFiles, files_of_older_types, files_to_purge
from deltaflow.errors import DeltaAnalysisException, DeltaError, DeltaUnsupportedOperationException
from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, schema_to_string
from deltaflow.log.files.file_rows import add_files
from tests.deletion_vectors import mark_deleted, paths
from tests.tables import actions, commit_info, data_files, ids, latest_version, load, rows, write

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


_PROPERTIES = {"delta.columnMapping.mode": "name", "delta.feature.deletionVectors": "supported"}


def _reorg(spark: SparkSession, table: str, where: str = "") -> Row:
    [row] = spark.sql(f"REORG TABLE delta.`{table}` {where} APPLY (PURGE)").collect()
    assert row.path == f"file:{table}"
    return row.metrics


def _files(spark: SparkSession, table: str, count: int, size: int = 100) -> list[str]:
    """The files of a new table, in the order of their ids; file i is in partition i % 2."""
    found: list[str] = []
    for i in range(count):
        frame = spark.range(i * size, i * size + size).selectExpr("id", f"{i % 2} AS p", "id AS dropped")
        write(frame, table, partition_by=["p"], **_PROPERTIES)
        found += set(paths(table)) - set(found)
    return found


def test_of_vectors_in_some_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    first, second, third, fourth = _files(spark, table, 4)
    mark_deleted(table, {first: [0], second: [5, 6], third: range(100)})
    live = [id_ for id_ in range(400) if id_ not in (0, 105, 106) and not 200 <= id_ < 300]
    metrics = _reorg(spark, table, "WHERE p = 0")
    assert (metrics.numFilesAdded, metrics.numFilesRemoved, metrics.totalConsideredFiles) == (1, 2, 2)
    assert tuple(metrics.deletionVectorStats) == (2, 101)
    info = commit_info(table)
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {"predicate": '["(\'p = 0)"]', "applyPurge": True}
    assert info["operationMetrics"]["numDeletionVectorsRemoved"] == "2"
    assert not any(action["dataChange"] for action in actions(table, "add") + actions(table, "remove"))
    assert {remove["path"] for remove in actions(table, "remove")} == {first, third}
    assert ids(load(spark, table)) == live
    metrics = _reorg(spark, table)
    assert (metrics.numFilesAdded, metrics.numFilesRemoved) == (1, 1)
    assert {remove["path"] for remove in actions(table, "remove")} == {second}
    assert fourth in paths(table)
    assert DeltaLog.for_table(table).snapshot().num_deletion_vectors == 0
    version = latest_version(table)
    assert _reorg(spark, table).numFilesAdded == 0
    assert latest_version(table) == version
    assert ids(load(spark, table)) == live
    with pytest.raises(DeltaAnalysisException, match="DELTA_NON_PARTITION_COLUMN_REFERENCE"):
        _reorg(spark, table, "WHERE id = 1")
    # Columns that were dropped are in the files until they are purged.
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN dropped")
    write(spark.range(400, 401).selectExpr("id", "0 AS p"), table)
    metrics = _reorg(spark, table)
    assert metrics.numFilesRemoved == 3
    assert metrics.deletionVectorStats is None
    assert _reorg(spark, table).numFilesRemoved == 0
    assert ids(load(spark, table)) == [*live, 400]


def test_of_fields_within_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    frame = spark.range(2).selectExpr(
        "id",
        "named_struct('a', 1, 'b', 2) AS s",
        "array(named_struct('a', 1, 'b', 2)) AS l",
        "map('k', named_struct('a', 1, 'b', 2)) AS m",
    )
    write(frame, table, **{"delta.columnMapping.mode": "name"})
    assert _reorg(spark, table).numFilesRemoved == 0
    for field in ("s.b", "l.element.b", "m.value.b"):
        spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN {field}")
        expected = rows(load(spark, table))
        assert _reorg(spark, table).numFilesRemoved == 1, field
        assert _reorg(spark, table).numFilesRemoved == 0, field
        assert rows(load(spark, table)) == expected


def test_partitions_that_cannot_be_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    """Else a feature would be dropped, and its files would stay."""
    table = str(tmp_path / "table")
    write(spark.range(0, 2, 1, 1).selectExpr("id", "'a' AS p"), table, partition_by=["p"])
    log = DeltaLog.for_table(table)
    snapshot = log.snapshot()
    [add] = add_files(snapshot.with_stats(snapshot.files))
    add = msgspec.structs.replace(add, partition_values={"p": "__HIVE_DEFAULT_PARTITION__"})
    log.start_transaction().commit([add], Operation("WRITE"))
    mark_deleted(table, {add.path: [0]})
    with pytest.raises(DeltaUnsupportedOperationException, match="takes for null"):
        _reorg(spark, table)


def test_arrays_of_other_writers(spark: SparkSession, tmp_path: Path) -> None:
    """Files of Arrow's writers tell which of its types an array had."""
    structs = pa.array([[{"a": 1, "b": 2}]], pa.large_list(pa.struct({"a": pa.int32(), "b": pa.int32()})))
    lists = pa.array([[1, 2]], pa.list_(pa.int32(), 2))
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"s": structs, "l": lists}), file)
    log = DeltaLog.for_table(str(tmp_path))

    def chosen(choose: ChooseFiles, ddl: str, *adds: AddFile) -> int:
        schema = schema_to_string(T.StructType.fromDDL(ddl))
        transaction = log.start_transaction()
        transaction.update_metadata(Metadata(id="t", schema_string=schema, partition_columns=[]))
        transaction.commit(adds, Operation("WRITE"))
        snapshot = log.snapshot()
        return choose(snapshot, snapshot.files).num_rows

    values = {"partition_values": {}, "modification_time": 0, "data_change": True}
    add = AddFile(path=file.name, size=file.stat().st_size, **values)
    assert chosen(files_to_purge, "s array<struct<a: int, b: int>>, l array<int>", add) == 0
    assert chosen(files_to_purge, "s array<struct<a: int>>, l array<int>") == 1
    assert chosen(files_of_older_types, "s array<struct<a: int, b: int>>, l array<bigint>") == 1
    assert chosen(files_of_older_types, "s array<struct<a: int, b: bigint>>, l array<int>") == 1


def test_optimize_rewrites_files_of_which_many_rows_are_deleted(
    spark: SparkSession, tmp_path: Path, settings: Any
) -> None:
    table = str(tmp_path / "table")
    first, second, third, fourth, *others = _files(spark, table, 8)
    vectors = {first: range(5), third: range(6), fourth: range(1, 100)}
    mark_deleted(table, vectors)
    expected = ids(load(spark, table))
    with settings({"spark.databricks.delta.optimize.minFileSize": "1"}):
        version = latest_version(table)
        spark.sql(f"OPTIMIZE delta.`{table}`")
        assert latest_version(table) == version  # one file alone is not rewritten
        mark_deleted(table, {second: range(50), others[0]: range(6)})
        live = ids(load(spark, table))
        assert len(live) == len(expected) - 56
        [row] = spark.sql(f"OPTIMIZE delta.`{table}`").collect()
        assert {remove["path"] for remove in actions(table, "remove")} == {second, third, fourth, others[0]}
        assert tuple(row.metrics.deletionVectorStats) == (4, 50 + 6 + 6 + 99)
        assert ids(load(spark, table)) == live
    wrong = settings({"spark.databricks.delta.optimize.maxDeletedRowsRatio": "2"})
    with wrong, pytest.raises(DeltaError, match="maxDeletedRowsRatio"):
        spark.sql(f"OPTIMIZE delta.`{table}`")
    [row] = spark.sql(f"OPTIMIZE delta.`{table}` ZORDER BY (id)").collect()
    assert tuple(row.metrics.deletionVectorStats) == (1, 5)
    assert ids(load(spark, table)) == live
    assert sum(add["stats"].count('"numRecords"') for add in actions(table, "add")) == 2


def test_a_file_that_does_not_say_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Their numbers come from the footer, and the account of rows holds."""
    table = str(tmp_path / "table")
    write(spark.range(10), table, **{"delta.dataSkippingNumIndexedCols": "0"})
    mark_deleted(table, [4], is_inline=True)
    commit = Path(table, "_delta_log", f"{1:020}.json")
    commit.write_text(commit.read_text().replace('"stats"', '"other"'))
    assert _reorg(spark, table).numFilesRemoved == 1
    assert ids(load(spark, table)) == [id_ for id_ in range(10) if id_ != 4]


def test_a_vector_of_another_length_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(10), table)
    mark_deleted(table, [4])
    commit = Path(table, "_delta_log", f"{1:020}.json")
    commit.write_text(commit.read_text().replace('"cardinality": 1', '"cardinality": 3'))
    before = data_files(table)
    with pytest.raises(DeltaError, match="DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH"):
        _reorg(spark, table)
    assert data_files(table) == before
    assert latest_version(table) == 1
