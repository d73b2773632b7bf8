"""Streams of change rows: the rows of every door and of every kind of commit, restarts and refusals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from deltaflow import DeltaTable
from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.log.streams.rewind import plan_rewind
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.streaming.operating.lag import lag
from deltaflow.streaming.operating.obstacles import FILE_NOT_EXIST
from deltaflow.streaming.operating.restart_plan import plan_restart
from tests.feed_tables import SECOND_MS, START_MS, feed_table
from tests.streaming.change_tables import OF_VERSIONS
from tests.streaming.test_continued_streams import STREAMS, Begun
from tests.tables import actions, latest_version, load, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]
OF_FEATURES = STREAMS.parent / "features" / "streams"

Batches = dict[int, list[tuple[Any, ...]]]


def batches(streams: Any, frame: DataFrame, checkpoint: str) -> Batches:
    """The rows of each batch of a stream that is run to its end, without the time of their commit."""
    seen: Batches = {}

    def see(batch: DataFrame, number: int) -> None:
        seen[number] = sorted(tuple(row) for row in batch.drop("_commit_timestamp").collect())

    streams.ended(streams.foreach(frame, checkpoint, see))
    return seen


def expected(*versions: int) -> list[tuple[Any, ...]]:
    return sorted(row for version in versions for row in OF_VERSIONS[version])


@pytest.mark.covers("readChangeFeed", "readChangeData")
def test_every_door(spark: SparkSession, streams: Any, tmp_path: Path) -> None:
    path = feed_table(str(tmp_path / "feed"))
    options = {"readChangeFeed": "true", "startingVersion": 1}
    reader = spark.readStream.options(**options)
    spark.sql(f"CREATE TABLE feed_by_name USING delta LOCATION '{path}'")
    try:
        every = {
            "path": streams.read(path, **options),
            "older name": streams.read(path, readChangeData="TRUE", startingVersion=1),
            "name": reader.table("feed_by_name"),
            "path as a name": reader.table(f"delta.`{path}`"),
            "given schema": reader.format("delta").schema("id BIGINT, v BIGINT, p STRING").load(path),
        }
        if spark.version >= "4.1":
            every["statement"] = spark.sql(
                "SELECT * FROM STREAM feed_by_name WITH ('readChangeFeed' = 'true', 'startingVersion' = '1')"
            )
        [at] = spark.sql(f"SELECT string(timestamp_millis({START_MS + SECOND_MS}))").first()
        every["time"] = streams.read(path, readChangeFeed="true", startingTimestamp=at)
        for door, frame in every.items():
            assert frame.columns == ["id", "v", "p", "_change_type", "_commit_version", "_commit_timestamp"]
            assert batches(streams, frame, str(tmp_path / door)) == {0: expected(1, 2, 3, 4)}, door
        assert spark.readStream.table("feed_by_name").columns == ["id", "v", "p"]
    finally:
        spark.sql("DROP TABLE feed_by_name")
    assert streams.read(path, readChangeFeed="FALSE").columns == ["id", "v", "p"]
    with pytest.raises(DeltaIllegalArgumentException, match="must be 'true' or 'false'"):
        streams.read(path, readChangeFeed="yes")


def test_a_stream_of_delta_spark_goes_on(streams: Any, tmp_path: Path) -> None:
    begun = Begun("change-feed", tmp_path, OF_FEATURES)
    [run] = begun.entry["outcome"]["no option"]["runs"]
    before = streams.offsets(begun.checkpoint)
    frame = streams.read(begun.source, **begun.entry["options"])
    assert frame.columns[:-1] == run["batches"][0]["columns"]
    found = batches(streams, frame, begun.checkpoint)
    assert found == {batch["batch"]: sorted(tuple(row) for row in batch["rows"]) for batch in run["batches"]}
    after = streams.offsets(begun.checkpoint)
    assert {number: after[number] for number in before} == before
    places = [json.loads(after[number][0]) for number in sorted(after)]
    assert [(place["reservoirVersion"], place["index"]) for place in places] == [
        (2, -1),
        (2, 0),
        (4, -1),
        (4, 0),
        (5, 1),
        (7, -1),
    ]
    assert batches(streams, frame, begun.checkpoint) == {}


def test_rows_are_those_of_the_batch_reader(spark: SparkSession, streams: Any, tmp_path: Path) -> None:
    """Of a table with vectors, column mapping and partitions; after a snapshot whose rows are inserts."""
    path = str(tmp_path / "marked")
    name = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, p BIGINT, `v w` BIGINT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name')"
    )
    write(spark.range(12).selectExpr("id", "id % 3 AS p", "id * 10 AS `v w`"), path)
    spark.sql(f"DELETE FROM {name} WHERE `v w` = 30")
    whole, by_file = (
        {"frame": streams.read(path, readChangeFeed="true", **options), "checkpoint": str(tmp_path / place)}
        for place, options in (("whole", {}), ("by file", {"maxFilesPerTrigger": 1}))
    )
    first = sorted((i, i % 3, i * 10, "insert", 2) for i in range(12) if i != 3)
    assert batches(streams, **whole) == {0: first}
    found = batches(streams, **by_file)
    assert len(found) == 3
    assert sorted(row for rows in found.values() for row in rows) == first
    for statement in (
        f"DELETE FROM {name} WHERE `v w` IN (0, 60)",
        f"INSERT INTO {name} VALUES (20, 1, 200), (21, 0, 210)",
        f"DELETE FROM {name} WHERE p = 1",
        f"MERGE INTO {name} t USING (SELECT 30L AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, p, `v w`) VALUES (s.id, 2, 300)",
        f"UPDATE {name} SET `v w` = `v w` + 1 WHERE id IN (2, 5, 21)",
        f"MERGE INTO {name} t USING (SELECT explode(array(5L, 8L, 40L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET p = 0 "
        "WHEN NOT MATCHED THEN INSERT (id, p, `v w`) VALUES (s.id, 2, 400)",
        f"OPTIMIZE {name}",
        f"RESTORE TABLE {name} TO VERSION AS OF 2",
    ):
        spark.sql(statement)
    changes = load(spark, path, readChangeFeed="true", startingVersion=3)
    wanted = sorted(tuple(row) for row in changes.drop("_commit_timestamp").collect())
    assert {row[3] for row in wanted} == {"insert", "delete", "update_preimage", "update_postimage"}
    rows = Counter(row[:3] for row in first)
    for row in wanted:
        rows[row[:3]] += 1 if row[3] in ("insert", "update_postimage") else -1
    assert +rows == Counter(tuple(row) for row in load(spark, path).collect())
    assert min(rows.values()) == 0
    times: dict[int, Any] = {}

    def see(batch: DataFrame, _: int) -> None:
        times.update(batch.select("_commit_version", "_commit_timestamp").distinct().collect())

    query = streams.foreach(
        streams.read(path, readChangeFeed="true", startingVersion=3), str(tmp_path / "times"), see
    )
    streams.ended(query)
    assert times == dict(changes.select("_commit_version", "_commit_timestamp").distinct().collect())
    assert query.lastProgress["numInputRows"] >= len(wanted)
    assert batches(streams, **whole) == {1: wanted}
    found = batches(streams, **by_file)
    assert sorted(row for rows in found.values() for row in rows) == wanted
    assert [len({row[-1] for row in rows}) for rows in found.values() if rows] == [1] * sum(
        map(bool, found.values())
    )
    # A batch that was planned before is listed again, with the same rows.
    last = streams.forget_last_batch(whole["checkpoint"])
    assert batches(streams, **whole) == {last: wanted}


def test_filters(streams: Any, tmp_path: Path) -> None:
    path = feed_table(str(tmp_path / "feed"))
    options = {"readChangeFeed": "true", "startingVersion": 0}
    frame = streams.read(path, **options).where("p = 'c' AND _change_type = 'insert'").select("id")
    seen: list[Any] = []
    query = streams.foreach(frame, str(tmp_path / "plan"), lambda batch, _: seen.extend(batch.collect()))
    streams.ended(query)
    assert sorted(seen) == [(4,), (5,)]
    plan = query._jsq.explainInternal(False)
    scans = [line for line in plan.splitlines() if "FileScan parquet" in line]
    assert len(scans) == 2
    assert all("PartitionFilters: [isnotnull(p" in scan for scan in scans)
    assert all("v#" not in scan.split("Batched")[0] for scan in scans)
    of_filter = streams.read(path, **options, sourceFilter="p = 'A' OR id = 9 OR p = 'a' AND v < 5")
    rows = batches(streams, of_filter, str(tmp_path / "filter"))
    assert rows == {0: [row for row in expected(*range(5)) if row[0] == 9 or (row[2] == "a" and row[1] < 5)]}
    by_change = streams.read(path, **options, sourceFilter="_change_type = 'delete' AND _commit_version = 2")
    assert batches(streams, by_change, str(tmp_path / "deletes")) == {0: expected(2)}
    # Files that are left out do not count for the limits.
    [cut] = {action["path"] for action in actions(path, "cdc", 1)}
    excluded = streams.read(path, **options, excludeRegex=f"{cut}|^p=[ab]/", maxFilesPerTrigger=1)
    assert batches(streams, excluded, str(tmp_path / "regex")) == {
        0: [row for row in expected(0) if row[2] == "c"],
        1: expected(3),
        2: expected(4),
    }


def test_what_a_plain_stream_ignores_does_not_matter(streams: Any, tmp_path: Path) -> None:
    path = feed_table(str(tmp_path / "feed"))
    for option in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits", "ignoreFileDeletion"):
        frame = streams.read(path, readChangeFeed="true", startingVersion=1, **{option: "true"})
        assert batches(streams, frame, str(tmp_path / option)) == {0: expected(1, 2, 3, 4)}


def test_a_stream_that_stopped_at_changes_goes_on_with_them(
    spark: SparkSession, streams: Any, tmp_path: Path
) -> None:
    path, checkpoint = feed_table(str(tmp_path / "feed")), str(tmp_path / "checkpoint")
    plain = streams.read(path, startingVersion=0)
    query = streams.foreach(plain, checkpoint, lambda batch, _: batch.collect())
    error = streams.failure(query)
    assert error.code == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    assert '.option("readChangeFeed", "true")' in error.message
    streams.ended(
        streams.foreach(streams.read(path, endingVersion=0, startingVersion=0), checkpoint, _nothing)
    )
    found = batches(streams, streams.read(path, readChangeFeed="true", maxFilesPerTrigger=1), checkpoint)
    assert sorted(row for rows in found.values() for row in rows) == expected(1, 2, 3, 4)
    assert min(found) == 1


def _nothing(batch: DataFrame, _: int) -> None:
    batch.collect()


@pytest.mark.covers("DELTA_MISSING_CHANGE_DATA")
def test_a_table_that_does_not_record_its_changes(
    spark: SparkSession, streams: Any, table: str, tmp_path: Path
) -> None:
    streams.append(table, 0, 3)
    frame = streams.read(table, readChangeFeed="true")
    error = streams.failure(streams.foreach(frame, str(tmp_path / "off"), _nothing))
    assert (error.code, error.state) == ("DELTA_MISSING_CHANGE_DATA", "KD002")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    streams.append(table, 3, 5)
    found = batches(streams, frame, str(tmp_path / "on"))
    assert found == {0: [(i, "insert", 2) for i in range(5)]}


def test_tools_know_the_stream(
    spark: SparkSession, streams: Any, tmp_path: Path, setting: Callable[[str, str], None]
) -> None:
    setting("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    path, checkpoint = feed_table(str(tmp_path / "feed")), str(tmp_path / "checkpoint")
    sizes = {
        version: [action["size"] for name in ("cdc", "add") for action in actions(path, name, version)]
        for version in (3, 4)
    }
    [of_delete] = {action["path"] for action in actions(path, "remove", 2)}
    frame = streams.read(path, readChangeFeed="true", startingVersion=0, maxFilesPerTrigger=1)
    query = streams.ended(streams.foreach(frame, checkpoint, _nothing))
    metrics = [progress["sources"][0]["metrics"] for progress in query.recentProgress]
    assert [found["numFilesOutstanding"] for found in metrics] == ["6", "5", "4", "3", "2", "1", "0"]
    assert [found["versionsBehind"] for found in metrics[-3:]] == ["2", "1", "0"]
    assert (metrics[-1]["numBytesOutstanding"], metrics[-1]["secondsBehind"]) == ("0", "0")
    streams.forget_all_but(checkpoint, 4)
    [source] = lag(checkpoint).sources
    assert (source.version, source.index, source.files, source.versions) == (3, -100, 2, 2)
    assert source.bytes == sizes[3][0] + sizes[4][0]
    streams.forget_all_but(checkpoint, 3)  # the end of version 1, whose change files are read
    [source] = lag(checkpoint).sources
    assert (source.version, source.index, source.files, source.versions) == (1, 0, 3, 3)
    [change_file] = {action["path"] for action in actions(path, "cdc", 3)}
    by_vacuum = [room for room in source.headroom if room.by == "vacuum"]
    assert [(room.version, room.file, room.is_gone) for room in by_vacuum] == [(3, change_file, False)]
    plan = plan_restart(checkpoint)
    assert plan.obstacles == ()
    assert plan.batch is not None
    assert (plan.batch.batch_id, plan.batch.sources[0].paths, plan.later_batches) == (4, (of_delete,), 2)
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_VACUUM_BREAKS_STREAM") as raised:
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[checkpoint])
    assert of_delete.rsplit("/", 1)[-1] in str(raised.value)
    kept = Path(path, of_delete).rename(tmp_path / "kept")
    [obstacle] = plan_restart(checkpoint).obstacles
    assert (obstacle.condition, obstacle.batch_id) == (FILE_NOT_EXIST, 4)
    # A stream of deltaflow goes on elsewhere, and one of others is told what it reads.
    for record in Path(checkpoint).rglob("deltaflow.json"):
        record.unlink()
    [source] = lag(checkpoint, tables=[path], options={"readChangeFeed": True}).sources
    assert (source.files, source.versions) == (3, 3)
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_VACUUM_BREAKS_STREAM"):
        DeltaTable.forPath(spark, path).vacuum(0, checkpoints=[checkpoint])
    kept.rename(Path(path, of_delete))
    plan_rewind(checkpoint, path, version=1).apply()
    found = batches(streams, streams.read(path, readChangeFeed="true"), checkpoint)
    assert sorted(row for rows in found.values() for row in rows) == expected(1, 2, 3, 4)


def test_schema_changes(spark: SparkSession, streams: Any, tmp_path: Path) -> None:
    path, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    name = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, a STRING) USING delta TBLPROPERTIES ("
        "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO {name} VALUES (0, 'x'), (1, 'y')")

    def run(place: str = checkpoint, **options: Any) -> tuple[list[Any], str | None]:
        seen: list[Any] = []

        def see(batch: DataFrame, _: int) -> None:
            seen.extend(sorted(batch.drop("_commit_timestamp").collect()))

        frame = streams.read(path, readChangeFeed="true", **options)
        query = streams.foreach(frame, place, see)
        try:
            streams.ended(query)
        except StreamingQueryException:
            return seen, str(query.exception()).partition("]")[0][1:]
        return seen, None

    tracked = {"schemaTrackingLocation": f"{checkpoint}/schema"}
    first = [(0, "x", "insert", 1), (1, "y", "insert", 1)]
    assert run(**tracked) == (first, None)
    plain = str(tmp_path / "plain")
    assert run(plain) == (first, None)
    spark.sql(f"DELETE FROM {name} WHERE id = 0")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN a TO b")
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    deleted = [(0, "x", "delete", 2)]
    assert run(plain) == ([], "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG")
    assert run(**tracked) == (deleted, "DELTA_STREAMING_METADATA_EVOLUTION")
    refused = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
    assert run(**tracked) == ([], refused)
    found = run(**tracked, allowSourceColumnRename="always")
    assert found == ([(1, "y", "delete", 4)], None)
    # A feed that is switched off is the end of the stream.
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    spark.sql(f"INSERT INTO {name} VALUES (7, 'z')")
    assert run(**tracked, allowSourceColumnRename="always") == ([], "DELTA_MISSING_CHANGE_DATA")


@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_start_where_other_columns_begin(
    spark: SparkSession, streams: Any, tmp_path: Path, mode: str
) -> None:
    """The rows that the version has removed have the columns of the version before."""
    path = str(tmp_path / "table")

    def overwritten(rows: str) -> list[tuple[Any, ...]]:
        """The changes of a version that replaces table and columns, as a stream from it on has them."""
        writer = spark.sql(rows).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": mode}
        writer.options(**properties).save(path)
        version = latest_version(path)
        frame = streams.read(path, readChangeFeed="true", startingVersion=version).drop("_commit_version")
        found = batches(streams, frame, f"{tmp_path}/checkpoint-{version}")
        return [row for batch in found.values() for row in batch]

    overwritten("SELECT 1 AS id, 'a' AS v")
    assert overwritten("SELECT 2 AS id") == [(1, "delete"), (2, "insert")]
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"):
        overwritten("SELECT 'b' AS id")


def test_a_trigger_costs_one_call_more_than_that_of_a_plain_stream(
    spark: SparkSession, streams: Any, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of its scan; and the same jobs."""
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    for number in range(3):
        streams.append(table, number, number + 1)
    calls: list[str] = []
    apply = type(dispatcher).apply

    def counted(self: Any, method: str, request: str) -> Any:
        calls.append(method)
        return apply(self, method, request)

    monkeypatch.setattr(type(dispatcher), "apply", counted)

    def run(**options: Any) -> tuple[Counter[str], list[int]]:
        calls.clear()
        jobs: list[int] = []
        before: set[int] = set()
        tracker = spark.sparkContext.statusTracker()

        def write(batch: DataFrame, number: int) -> None:
            batch.write.format("noop").mode("append").save()
            now = set(tracker.getJobIdsForGroup(str(query.runId)))
            jobs.append(len(now - before))
            before.update(now)

        frame = streams.read(table, startingVersion=1, maxFilesPerTrigger=1, **options)
        query = streams.foreach(frame, str(tmp_path / f"checkpoint{len(options)}"), write)
        streams.ended(query)
        return Counter(call for call in calls if call.startswith(("source.", "scan."))), jobs

    plain, jobs = run()
    feed, jobs_of_feed = run(readChangeFeed="true")
    assert feed - plain == Counter({"scan.partitions": 3})
    assert plain - feed == Counter()
    assert jobs == jobs_of_feed
    assert len(jobs) == 3


def test_a_start_where_other_partitions_begin(spark: SparkSession, streams: Any, tmp_path: Path) -> None:
    path, rows = str(tmp_path / "table"), spark.range(2).selectExpr("id", "id AS p")
    properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    rows.write.format("delta").partitionBy("p").options(**properties).save(path)
    overwrite = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    overwrite.options(**properties).save(path)
    frame = streams.read(path, readChangeFeed="true", startingVersion=1)
    refusal = r"partitioned by \(\), but version 1 has removed files that were partitioned by \(p\)"
    with pytest.raises(StreamingQueryException, match=refusal):
        batches(streams, frame, f"{tmp_path}/checkpoint")
