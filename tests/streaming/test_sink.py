"""The streaming sink: one commit for each batch, exactly once; queries with state; refused modes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from deltaflow.streaming import lag
from tests.tables import (
    actions,
    commit_info,
    data_files,
    every_action,
    ids,
    read_by_deltalake,
    read_commit,
    versions,
)

pytestmark = pytest.mark.spark


def land(folder: Path, name: str, *records: dict[str, Any]) -> None:
    """A new file for a file source: complete when it appears."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    hidden.rename(folder / f"{name}.json")


def landed(streams: Any, folder: Path, schema: str) -> Any:
    """The folder's files as a stream, one file in each batch, by modification time."""
    reader = streams.spark.readStream.format("json").schema(schema)
    return reader.option("maxFilesPerTrigger", 1).load(str(folder))


def test_every_batch_is_one_commit_of_the_query(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 10, files=2)
    source = streams.read(table, maxFilesPerTrigger=1)
    query = streams.copy(source, sink, checkpoint)
    assert query.lastProgress["numInputRows"] == 5
    assert versions(sink) == [0, 1]
    names = [[next(iter(action)) for action in read_commit(sink, version)] for version in (0, 1)]
    assert names == [["commitInfo", "protocol", "metaData", "txn", "add"], ["commitInfo", "txn", "add"]]
    for version in (0, 1):
        [txn], info = actions(sink, "txn", version), commit_info(sink, version)
        assert list(txn) == ["appId", "version", "lastUpdated"]
        assert (txn["appId"], txn["version"]) == (query.id, version)
        assert abs(txn["lastUpdated"] - info["timestamp"]) < 120_000
        assert info["operation"] == "STREAMING UPDATE"
        assert list(info["operationParameters"]) == ["outputMode", "queryId", "epochId"]
        assert info["operationParameters"] == {
            "outputMode": "Append",
            "queryId": query.id,
            "epochId": str(version),
        }
        assert info["isBlindAppend"] is True
        [add] = actions(sink, "add", version)
        assert info["operationMetrics"] == {
            "numAddedFiles": "1",
            "numRemovedFiles": "0",
            "numOutputRows": "5",
            "numOutputBytes": str(add["size"]),
        }
        assert Path(sink, add["path"]).stat().st_size == add["size"]
    assert streams.ids(sink) == list(range(10))

    # Spark's record of the last batch is lost. No batch is written twice.
    before = sorted(path.name for path in Path(sink).rglob("*"))
    last = streams.forget_last_batch(checkpoint)
    again = streams.copy(source, sink, checkpoint)
    assert again.id == query.id
    assert Path(checkpoint, "commits", str(last)).exists()
    assert sorted(path.name for path in Path(sink).rglob("*")) == before
    streams.append(table, 10, 12)
    streams.copy(source, sink, checkpoint)
    assert streams.ids(sink) == list(range(12))


def skipped_batches(progress: Any) -> str:
    """The progress as JSON, because the releases of PySpark parse its metrics differently."""
    metrics: dict[str, str] = json.loads(progress.json)["sink"]["metrics"]
    return metrics["numSkippedBatches"]


def test_a_batch_that_is_in_the_table_is_skipped_after_other_writes(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    streams.append(table, 0, 5)
    source = streams.read(table)
    query = streams.copy(source, sink, checkpoint)
    assert [skipped_batches(progress) for progress in query.recentProgress] == ["0"]
    streams.append(sink, 100, 103)
    streams.forget_last_batch(checkpoint)
    query = streams.copy(source, sink, checkpoint)
    assert [skipped_batches(progress) for progress in query.recentProgress] == ["1"]
    assert versions(sink) == [0, 1]
    assert streams.ids(sink) == [*range(5), 100, 101, 102]


def test_two_queries_into_one_table(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    streams.append(table, 0, 40, files=4)
    streams.append(other, 100, 140, files=4)
    queries = [
        streams.write(streams.read(path, maxFilesPerTrigger=1), sink, f"{checkpoint}{path[-1]}")
        for path in (table, other)
    ]
    for query in queries:
        streams.ended(query)
    assert versions(sink) == list(range(8))
    assert streams.ids(sink) == [*range(40), *range(100, 140)]
    txns = every_action(sink, "txn")
    for query in queries:
        assert [txn["version"] for txn in txns if txn["appId"] == query.id] == [0, 1, 2, 3]


def test_windows_in_append_mode_over_a_restart(
    streams: Any, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    events = landed(streams, folder, "at TIMESTAMP, n LONG").withWatermark("at", "1 minute")
    counted = events.groupBy(F.window("at", "1 minute").alias("w")).agg(F.sum("n").alias("n"))
    counts = counted.select(F.col("w.start").alias("start"), "n")
    land(folder, "a", {"at": "2024-01-01T00:00:10Z", "n": 1}, {"at": "2024-01-01T00:00:50Z", "n": 2})
    land(folder, "b", {"at": "2024-01-01T00:01:10Z", "n": 4})
    streams.copy(counts, sink, checkpoint)
    assert read_by_deltalake(sink) == []
    land(folder, "c", {"at": "2024-01-01T00:02:30Z", "n": 8})
    streams.copy(counts, sink, checkpoint)
    assert [row["n"] for row in read_by_deltalake(sink)] == [3]
    # A late row is dropped, and the next window comes when the watermark has passed it.
    land(folder, "d", {"at": "2024-01-01T00:00:59Z", "n": 100}, {"at": "2024-01-01T00:09:00Z", "n": 16})
    streams.copy(counts, sink, checkpoint)
    found = [(str(row["start"])[14:19], row["n"]) for row in read_by_deltalake(sink)]
    assert found == [("00:00", 3), ("01:00", 4), ("02:00", 8)]
    metadata = actions(sink, "metaData", 0)[0]
    assert "watermark" not in metadata["schemaString"]
    # A batch without rows is a commit with its txn and without files.
    for version in versions(sink):
        names = [next(iter(action)) for action in read_commit(sink, version)]
        assert "txn" in names
    first = [next(iter(action)) for action in read_commit(sink, 0)]
    assert first == ["commitInfo", "protocol", "metaData", "txn"]
    assert data_files(sink) == {add["path"] for add in every_action(sink, "add")}


def test_watermark_stays_out_of_the_table(streams: Any, sink: str, checkpoint: str, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    land(folder, "a", {"at": "2024-01-01T00:00:10Z", "n": 1})
    events = landed(streams, folder, "at TIMESTAMP, n LONG").withWatermark("at", "1 minute")
    streams.copy(events, sink, checkpoint)
    [metadata] = actions(sink, "metaData", 0)
    assert all(field["metadata"] == {} for field in json.loads(metadata["schemaString"])["fields"])


def test_counts_in_complete_mode_over_a_restart(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 10, files=2)
    counts = streams.read(table, maxFilesPerTrigger=1).groupBy((F.col("id") % 2).alias("odd")).count()
    query = streams.copy(counts, sink, checkpoint, mode="complete")
    assert read_by_deltalake(sink) == [{"odd": 0, "count": 5}, {"odd": 1, "count": 5}]
    streams.append(table, 10, 13)
    streams.copy(counts, sink, checkpoint, mode="complete")
    assert read_by_deltalake(sink) == [{"odd": 0, "count": 7}, {"odd": 1, "count": 6}]
    assert versions(sink) == [0, 1, 2]
    for version in (1, 2):
        info = commit_info(sink, version)
        assert info["operationParameters"] == {
            "outputMode": "Complete",
            "queryId": query.id,
            "epochId": str(version),
        }
        assert info["isBlindAppend"] is False
        removed = {remove["path"] for remove in actions(sink, "remove", version)}
        assert removed == {add["path"] for add in actions(sink, "add", version - 1)}
        assert info["operationMetrics"]["numRemovedFiles"] == str(len(removed))
    streams.forget_last_batch(checkpoint)
    streams.copy(counts, sink, checkpoint, mode="complete")
    assert versions(sink) == [0, 1, 2]
    assert read_by_deltalake(sink) == [{"odd": 0, "count": 7}, {"odd": 1, "count": 6}]


def test_duplicates_dropped_over_a_restart(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 6)
    distinct = streams.read(table).selectExpr("id % 4 AS id").dropDuplicates(["id"])
    streams.copy(distinct, sink, checkpoint)
    streams.append(table, 3, 9)
    streams.append(table, 4, 7)
    streams.copy(distinct, sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 2, 3]


@pytest.mark.long
def test_join_of_two_streams_over_a_restart(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    right = str(tmp_path / "right")
    streams.append(table, 0, 6)
    streams.append(right, 4, 8)
    joined = streams.read(table).join(streams.read(right), "id")
    streams.copy(joined, sink, checkpoint)
    assert streams.ids(sink) == [4, 5]
    streams.append(table, 6, 20)
    streams.append(right, 0, 2)
    streams.copy(joined, sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 4, 5, 6, 7]
    assert all(len(offsets) == 2 for offsets in streams.offsets(checkpoint).values())


def test_foreach_batch_writes_each_batch_once(
    streams: Any, table: str, sink: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With txnAppId and txnVersion, although the function fails after the first of its two writes."""
    other = f"{sink}2"
    fails = [True, False, False]

    def write_twice(batch: Any, batch_id: int) -> None:
        for path in (sink, other):
            writer = batch.write.format("delta").mode("append").option("txnAppId", "mine")
            writer.option("txnVersion", batch_id).save(path)
            if batch_id == 1 and fails.pop(0):
                raise InterruptedError("the process ends here")

    streams.append(table, 0, 10, files=2)
    source = streams.read(table, maxFilesPerTrigger=1)
    with pytest.raises(StreamingQueryException, match="the process ends here"):
        streams.ended(streams.foreach(source, checkpoint, write_twice))
    assert versions(sink) == [0, 1]
    assert versions(other) == [0]
    streams.ended(streams.foreach(source, checkpoint, write_twice))
    assert streams.ids(sink) == streams.ids(other) == list(range(10))
    assert versions(sink) == versions(other) == [0, 1]
    assert "skipped the write with txnVersion 1 of txnAppId mine" in caplog.text


@pytest.mark.long
def test_rate_source(streams: Any, sink: str, checkpoint: str) -> None:
    rate = streams.spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = streams.write(
        rate.selectExpr("value AS id", "timestamp"), sink, checkpoint, trigger={"processingTime": "0 seconds"}
    )
    streams.until(lambda: len(query.recentProgress) > 3 and query.lastProgress["numInputRows"] > 0, query)
    query.stop()
    assert query.exception() is None
    found = streams.ids(sink)
    assert found
    assert found == list(range(len(found)))


def test_foreach_batch_into_tables(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    streams.append(table, 0, 10, files=2)
    even = str(tmp_path / "even")

    def split(batch: Any, batch_id: int) -> None:
        batch = batch.persist()
        batch.write.format("delta").mode("append").save(sink)
        batch.where("id % 2 = 0").write.format("delta").mode("append").partitionBy("batch").save(even)
        batch.unpersist()

    source = streams.read(table, maxFilesPerTrigger=1).withColumn("batch", F.lit("b"))
    streams.ended(streams.foreach(source, checkpoint, split))
    assert streams.ids(sink) == list(range(10))
    assert streams.ids(even) == [0, 2, 4, 6, 8]
    assert versions(sink) == [0, 1]


def test_relative_paths_of_table_and_checkpoint_are_below_one_directory(
    streams: Any, table: str, sink: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the JVM, wherever Python is: Spark itself resolves that of the checkpoint."""
    paths = [os.path.relpath(path) for path in (table, sink, checkpoint)]
    for number in range(2):
        streams.append(paths[0], number, number + 1)
        streams.copy(streams.read(paths[0]), *paths[1:])
        monkeypatch.chdir("/")
    assert streams.ids(sink) == [0, 1]
    assert lag(paths[2]).batch_id == 1


@pytest.mark.parametrize("batches", [0, 1])
@pytest.mark.parametrize("change", ["ALTER TABLE {} RENAME TO {}_2", "DROP TABLE {}", None])
def test_a_table_that_goes_away_is_not_made_anew(
    streams: Any, table: str, sink: str, checkpoint: str, change: str | None, batches: int
) -> None:
    name = f"away_{batches}_{0 if change is None else len(change)}"
    for made in (table, sink):
        streams.append(made, 0, 0)
    if change is not None:
        streams.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta")
        sink = streams.spark.sql(f"DESCRIBE DETAIL {name}").first().location.removeprefix("file:")
    writer = streams.read(table).writeStream.format("delta").option("checkpointLocation", checkpoint)
    query = writer.start(sink) if change is None else writer.toTable(name)
    for batch in range(batches):
        streams.append(table, batch, batch + 1)
    query.processAllAvailable()
    if change is None:
        shutil.rmtree(sink)
    else:
        streams.spark.sql(change.format(name, name))
    streams.append(table, 10, 11)
    message = streams.failed(query)
    assert f"The table {sink}, which the stream writes, was dropped, moved or renamed" in message
    assert not Path(sink).exists()

    # A restart of a path makes a new table there, as delta-spark does. It begins with that batch.
    if change is None:
        streams.copy(streams.read(table), sink, checkpoint)
        assert streams.ids(sink) == [10]
    elif "RENAME" in change:
        assert ids(streams.spark.table(f"{name}_2")) == list(range(batches))
        streams.spark.sql(f"DROP TABLE {name}_2")
