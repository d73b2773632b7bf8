"""DESCRIBE HISTORY and DESCRIBE DETAIL, and the methods of DeltaTable: what they show, of whose tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import CorruptLogError, DeltaIllegalArgumentException, DeltaTableNotFoundError
from tests import goldens
from tests.tables import actions, commit_file, commit_info, set_time, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]
HISTORY = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string, "
    "operationParameters map<string,string>, job struct<jobId:string,jobName:string,jobRunId:string,"
    "runId:string,jobOwnerId:string,triggerType:string>, notebook struct<notebookId:string>, "
    "clusterId string, readVersion bigint, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string,string>, userMetadata string, engineInfo string"
)
DETAIL = (
    "format string, id string, name string, description string, location string, createdAt timestamp, "
    "lastModified timestamp, partitionColumns array<string>, clusteringColumns array<string>, "
    "numFiles bigint, sizeInBytes bigint, properties map<string,string>, minReaderVersion int, "
    "minWriterVersion int, tableFeatures array<string>"
)


def described(frame: Any) -> str:
    return ", ".join(f"{name} {data_type}" for name, data_type in frame.dtypes)


def moment(timestamp_ms: int) -> datetime:
    """As Spark shows it in the time zone of the tests' session."""
    there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    return there.astimezone().replace(tzinfo=None)


def as_texts(values: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    if values is None:
        return None
    return {
        name: value if value is None or isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Versions 0 to 3: a write with metadata, an append, a delete, and properties."""
    path = str(tmp_path / "table")
    frame = spark.range(4).selectExpr("id", "id % 2 AS p").coalesce(1)
    frame.write.format("delta").partitionBy("p").option("userMetadata", "first").save(path)
    frame.write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 1")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('mine' = '1')")
    return path


def commit(path: str, version: int, *actions: Mapping[str, Any]) -> None:
    """Another writer's commit."""
    file = commit_file(path, version)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize("by", ["path", "text", "name", "api", "api by name"])
@pytest.mark.sampled(2)
def test_what_was_done_to_a_table(spark: SparkSession, table: str, database: Path, by: str) -> None:
    spark.sql(f"CREATE TABLE told USING delta LOCATION '{table}'")
    named = {"path": f"delta.`{table}`", "text": f"'{table}'", "name": "told"}.get(by)
    api = DeltaTable.forName(spark, "told") if by == "api by name" else DeltaTable.forPath(spark, table)
    frame = api.history() if named is None else spark.sql(f"DESCRIBE HISTORY {named}")
    assert described(frame) == HISTORY
    rows = frame.collect()
    assert [(row.version, row.operation, row.readVersion) for row in rows] == [
        (3, "SET TBLPROPERTIES", 2),
        (2, "DELETE", 1),
        (1, "WRITE", 0),
        (0, "WRITE", None),
    ]
    assert rows[0].operationParameters == {"properties": '{"mine":"1"}'}
    assert json.loads(rows[1].operationParameters["predicate"]) != []
    assert rows[1].operationMetrics["numRemovedFiles"] == "2"
    assert rows[2].operationParameters["mode"] == "Append"
    assert [row.isBlindAppend for row in rows] == [True, False, True, True]
    assert rows[3].userMetadata == "first"
    assert rows[3].engineInfo.startswith("deltaflow")
    assert [row.timestamp for row in rows] == sorted((row.timestamp for row in rows), reverse=True)
    # The rows that it shows can be worked with.
    assert frame.where("operation = 'WRITE'").count() == 2
    newest = api.history(2) if named is None else spark.sql(f"DESC HISTORY {named} LIMIT 2")
    assert [row.version for row in newest.collect()] == [3, 2]


def test_limits(spark: SparkSession, table: str) -> None:
    found = DeltaTable.forPath(spark, table)
    assert found.history(0).collect() == []
    assert [row.version for row in found.history(99).select("version").collect()] == [3, 2, 1, 0]
    text = f"DESCRIBE HISTORY delta.`{table}` LIMIT :n"
    assert [row.version for row in spark.sql(text, args={"n": 1}).collect()] == [3]
    with pytest.raises(DeltaIllegalArgumentException, match="whole number"):
        spark.sql(text, args={"n": 1.5}).collect()
    with pytest.raises(ValueError, match="limit"):
        found.history("one")  # type: ignore[arg-type]


def test_commits_of_other_writers(spark: SparkSession, table: str) -> None:
    """Without commitInfo, with one at the end, and with values of odd types."""
    commit(table, 4, {"txn": {"appId": "a", "version": 1}})
    commit(
        table,
        5,
        {"txn": {"appId": "a", "version": 2}},
        {
            "commitInfo": {
                "timestamp": 1,
                "userId": 7,
                "operation": "ODD",
                "operationParameters": {"a": True, "b": None, "c": [1, "x"], "d": 1.5, "e": "text"},
                "job": {"jobId": "1", "runId": 2, "more": "x"},
                "notebook": {"notebookId": "9"},
                "clusterId": "c",
                "readVersion": "no number",
                "isBlindAppend": "maybe",
                "operationMetrics": ["no map"],
                "tags": {"ours": "not"},
            }
        },
    )
    odd, silent = DeltaTable.forPath(spark, table).history(2).collect()
    assert (silent.version, silent.operation, silent.operationParameters, silent.job) == (4, None, None, None)
    assert (odd.userId, odd.operation, odd.clusterId, odd.notebook.notebookId) == ("7", "ODD", "c", "9")
    assert odd.operationParameters == {"a": "true", "b": None, "c": '[1,"x"]', "d": "1.5", "e": "text"}
    assert odd.job.asDict() == {
        "jobId": "1",
        "jobName": None,
        "jobRunId": None,
        "runId": "2",
        "jobOwnerId": None,
        "triggerType": None,
    }
    assert (odd.readVersion, odd.isBlindAppend, odd.operationMetrics) == (None, None, None)
    # Time is the file's, not what the writer says, and later than that of the version before.
    for version in (4, 5):
        set_time(commit_file(table, version), 2_000_000_000_000)
    times = [row.timestamp for row in DeltaTable.forPath(spark, table).history(2).collect()]
    assert times == [moment(2_000_000_000_001), moment(2_000_000_000_000)]


def test_a_commit_that_is_none(spark: SparkSession, table: str) -> None:
    DeltaTable.forPath(spark, table).history().collect()
    commit_file(table, 1).write_text("{no json")
    with pytest.raises(CorruptLogError, match="00000001"):
        DeltaTable.forPath(spark, table).history().collect()


def test_only_what_is_left_of_a_log(spark: SparkSession, table: str) -> None:
    from deltaflow.log import DeltaLog

    DeltaLog.for_table(table).checkpoint()
    for version in (0, 1):
        commit_file(table, version).unlink()
    assert [row.version for row in DeltaTable.forPath(spark, table).history().collect()] == [3, 2]
    assert [row.version for row in DeltaTable.forPath(spark, table).history(3).collect()] == [3, 2]


def test_times_in_the_commits_count_since_they_are_enabled(spark: SparkSession, table: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    first = commit_info(table, 4)
    for version in range(5):
        set_time(commit_file(table, version), (1_000_000_000 + version) * 1000)
    rows = DeltaTable.forPath(spark, table).history().collect()
    assert rows[0].timestamp == moment(first["inCommitTimestamp"])
    assert rows[1].timestamp == moment(1_000_000_003_000)


@pytest.mark.parametrize("by", ["path", "name", "api"])
def test_what_a_table_is(spark: SparkSession, table: str, database: Path, by: str) -> None:
    spark.sql(f"CREATE TABLE told USING delta LOCATION '{table}'")
    named = {"path": f"delta.`{table}`", "name": "told"}.get(by)
    found = DeltaTable.forPath(spark, table)
    frame = found.detail() if named is None else spark.sql(f"DESCRIBE DETAIL {named}")
    assert described(frame) == DETAIL
    [row] = frame.collect()
    log = Path(table, "_delta_log")
    metadata = json.loads((log / f"{3:020}.json").read_text().splitlines()[1])["metaData"]
    files = list(Path(table).glob("p=0/*.parquet"))
    assert row.asDict() == {
        "format": "delta",
        "id": metadata["id"],
        "name": f"spark_catalog.{database.name}.told" if by == "name" else None,
        "description": None,
        "location": f"file:{table}",
        "createdAt": moment(metadata["createdTime"]),
        "lastModified": moment((log / f"{3:020}.json").stat().st_mtime_ns // 1_000_000),
        "partitionColumns": ["p"],
        "clusteringColumns": [],
        "numFiles": 2,
        "sizeInBytes": sum(file.stat().st_size for file in files),
        "properties": {"mine": "1"},
        "minReaderVersion": 1,
        "minWriterVersion": 2,
        "tableFeatures": ["appendOnly", "invariants"],
    }


def test_the_detail_follows_the_table(spark: SparkSession, table: str) -> None:
    spark.sql(f"COMMENT ON TABLE delta.`{table}` IS 'told'")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    [row] = spark.sql(f"DESC DETAIL '{table}'").collect()
    assert (row.description, row.minWriterVersion) == ("told", 7)
    assert row.tableFeatures == ["appendOnly", "inCommitTimestamp", "invariants"]
    assert {"mine", "delta.enableInCommitTimestamps"} <= row.properties.keys()


@pytest.mark.parametrize("statement", ["HISTORY", "DETAIL"])
def test_no_table(spark: SparkSession, tmp_path: Path, statement: str) -> None:
    with pytest.raises(DeltaTableNotFoundError):
        spark.sql(f"DESCRIBE {statement} delta.`{tmp_path}/nothing`").collect()
    assert not (tmp_path / "nothing").exists()


@goldens.needed
@pytest.mark.parametrize("entry", goldens.entries("rows"))
@pytest.mark.sampled(4)
def test_tables_of_other_writers(spark: SparkSession, entry: dict[str, Any]) -> None:
    path = goldens.GOLDENS / entry["path"]
    found = DeltaTable.forPath(spark, str(path))
    [detail] = found.detail().collect()
    assert (detail.numFiles, detail.minReaderVersion, detail.minWriterVersion) == (
        entry["active_files"],
        entry["min_reader_version"],
        entry["min_writer_version"],
    )
    assert detail.partitionColumns == entry["partition_columns"]
    features = {*(entry["reader_features"] or ()), *(entry["writer_features"] or ())}
    assert features <= set(detail.tableFeatures)
    rows = found.history().collect()
    assert [row.version for row in rows] == versions(path)[::-1]
    for row in rows:
        info, *_ = [*actions(path, "commitInfo", row.version), {}]
        assert row.operation == info.get("operation")
        assert row.operationMetrics == as_texts(info.get("operationMetrics"))
        assert row.operationParameters == as_texts(info.get("operationParameters"))
        assert row.userId == info.get("userId")
        assert (row.notebook and row.notebook.asDict()) == info.get("notebook")
