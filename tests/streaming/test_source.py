"""The streaming source: the rows of each batch, the offsets in the checkpoint, restarts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
)
from tests.tables import actions, commit_file, ids, load, read_commit

pytestmark = pytest.mark.spark


def offset(table_id: str, version: int, index: int, initial: bool) -> str:
    """The exact JSON of an offset."""
    return (
        f'{{"sourceVersion":1,"reservoirId":"{table_id}","reservoirVersion":{version},"index":{index},'
        f'"isStartingVersion":{str(initial).lower()}}}'
    )


def every_row(batches: dict[int, list[int]]) -> list[int]:
    """The rows of all batches, sorted."""
    return sorted(row for batch in batches.values() for row in batch)


def test_snapshot_by_time_and_path_then_commits_in_log_order(
    streams: Any, table: str, checkpoint: str
) -> None:
    streams.append(table, 0, 50, files=5)
    # The modification times order the files in another way than the log and the paths; two are equal.
    actions = read_commit(table, 0)
    times = iter([3000, 1000, 2000, 1000, 5000])
    for action in actions:
        if "add" in action:
            action["add"]["modificationTime"] = next(times)
    commit_file(table, 0).write_text("".join(json.dumps(a) + "\n" for a in actions))
    table_id = next(action["metaData"]["id"] for action in actions if "metaData" in action)

    source = streams.read(table, maxFilesPerTrigger=2)
    assert streams.batches(source, checkpoint, {"once": True}) == {0: list(range(50))}
    shutil.rmtree(checkpoint)
    in_order = [ids for _, _, ids in sorted(streams.files(table, 0))]
    assert in_order != [ids for _, _, ids in streams.files(table, 0)]

    assert streams.batches(source, checkpoint) == {
        0: sorted(in_order[0] + in_order[1]),
        1: sorted(in_order[2] + in_order[3]),
        2: in_order[4],
    }
    assert streams.offsets(checkpoint) == {
        0: [offset(table_id, 0, 1, True)],
        1: [offset(table_id, 0, 3, True)],
        2: [offset(table_id, 1, -1, False)],
    }

    streams.append(table, 100, 130, files=3)
    streams.append(table, 200, 210, files=1)
    streams.append(table, 300, 340, files=4)
    commits = [files for version in (1, 2, 3) for _, _, files in streams.files(table, version)]
    later = streams.batches(source, checkpoint)
    assert list(later.values()) == [sorted(commits[i] + commits[i + 1]) for i in range(0, 8, 2)]
    assert [streams.offsets(checkpoint)[batch] for batch in (3, 4, 5, 6)] == [
        [offset(table_id, 1, 1, False)],
        [offset(table_id, 3, -1, False)],
        [offset(table_id, 3, 1, False)],
        [offset(table_id, 4, -1, False)],
    ]
    assert streams.batches(source, checkpoint) == {}


def test_restart_inside_snapshot_and_inside_commit(streams: Any, table: str, checkpoint: str) -> None:
    """If the function fails once at each batch, the planned batch comes again, unchanged."""
    streams.append(table, 0, 30, files=3)
    source = streams.read(table, maxFilesPerTrigger=2)
    attempts: list[tuple[int, list[int]]] = []

    def fail_at_first(batch: Any, batch_id: int) -> None:
        attempts.append((batch_id, ids(batch)))
        if len(attempts) % 2:
            raise ValueError("fails at first")
        streams.append(table, 1000 + batch_id, 1001 + batch_id)

    for _ in range(4):
        with pytest.raises(StreamingQueryException, match="fails at first"):
            streams.ended(streams.foreach(source, checkpoint, fail_at_first))
        if len(attempts) == 1:
            streams.append(table, 30, 70, files=4)
    # Both attempts at a batch saw the same rows, although the table had a commit in between.
    assert [batch for batch, _ in attempts] == [0, 0, 1, 1, 2, 2, 3]
    assert attempts[0:6:2] == attempts[1:6:2]
    offsets = streams.offsets(checkpoint)
    assert '"index":1,"isStartingVersion":true' in offsets[0][0]
    assert '"reservoirVersion":1,"index":0,"isStartingVersion":false' in offsets[1][0]

    rest = streams.batches(source, checkpoint)
    assert rest[3] == attempts[-1][1]
    assert every_row(dict(attempts) | rest) == [*range(70), 1000, 1001, 1002]

    # Spark's record of the newest batch is lost. Only this batch comes again.
    last = streams.forget_last_batch(checkpoint)
    assert streams.batches(source, checkpoint) == {last: rest[last]}


def test_rate_limit_counts_every_batch_and_once_ignores_it(
    streams: Any, table: str, checkpoint: str, tmp_path: Path
) -> None:
    for start in (0, 30, 60):
        streams.append(table, start, start + 30, files=3)
    source = streams.read(table, maxFilesPerTrigger=4)
    assert [len(ids) for ids in streams.batches(source, checkpoint).values()] == [40, 40, 10]
    [everything] = streams.batches(source, str(tmp_path / "once"), {"once": True}).values()
    assert everything == list(range(90))
    # Names of options do not depend on case.
    for_each_file = streams.read(table, MAXFILESPERTRIGGER=1)
    streams.append(table, 90, 100)
    assert [len(ids) for ids in streams.batches(for_each_file, checkpoint).values()] == [10]


def test_available_now_ends_where_it_began(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 10, files=2)
    streams.append(table, 10, 20, files=2)
    seen: list[int] = []

    def append_more(batch: Any, batch_id: int) -> None:
        seen.extend(row.id for row in batch.collect())
        streams.append(table, 1000 + batch_id, 1001 + batch_id)

    source = streams.read(table, maxFilesPerTrigger=1)
    streams.ended(streams.foreach(source, checkpoint, append_more))
    assert sorted(seen) == list(range(20))
    assert every_row(streams.batches(source, checkpoint)) == [1000, 1001, 1002, 1003]


def test_a_running_stream_follows_the_table(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 10, files=2)
    seen: dict[int, int] = {}
    query = streams.foreach(
        streams.read(table),
        checkpoint,
        lambda batch, batch_id: seen.__setitem__(batch_id, batch.count()),
        {"processingTime": "0 seconds"},
    )
    for version, rows in ((1, 3), (2, 5)):
        streams.append(table, 100 * version, 100 * version + rows)
        streams.until(lambda rows=rows: rows in seen.values(), query)
    streams.until(lambda: query.lastProgress is not None and query.lastProgress["batchId"] >= 2, query)
    progress = {p["batchId"]: p["numInputRows"] for p in query.recentProgress if p["numInputRows"]}
    query.stop()
    assert query.exception() is None
    assert sum(seen.values()) == 18
    assert {batch: rows for batch, rows in seen.items() if rows} == progress


def test_number_of_input_rows_of_a_stream_joined_with_itself(
    streams: Any, table: str, checkpoint: str
) -> None:
    streams.append(table, 0, 10, files=2)
    source = streams.read(table)
    query = streams.ended(streams.foreach(source.union(source), checkpoint, lambda batch, _: batch.count()))
    assert query.lastProgress["numInputRows"] == 20


def removal(streams: Any, table: str, version: int, **changes: object) -> dict[str, Any]:
    """The removal of the first file that a version added."""
    path = streams.files(table, version)[0][1]
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **changes}}


def added_again(streams: Any, table: str, version: int, **changes: object) -> dict[str, Any]:
    """The add of a copy of the first file that a version added."""
    add = actions(table, "add", version)[0]
    copy = f"copy-of-{add['path']}"
    shutil.copy(f"{table}/{add['path']}", f"{table}/{copy}")
    return {"add": {**add, "path": copy, **changes}}


def test_commits_that_delete_or_change_data(streams: Any, table: str, tmp_path: Path) -> None:
    for start in (0, 10, 20):
        streams.append(table, start, start + 10)
    begun = tmp_path / "begun"
    assert sorted(streams.batches(streams.read(table), str(begun)).values()) == [list(range(30))]

    def outcome(**options: object) -> tuple[list[int], str | None]:
        seen: list[int] = []
        checkpoint = tmp_path / "_".join(["c", *options])
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(begun, checkpoint)
        query = streams.foreach(
            streams.read(table, **options),
            str(checkpoint),
            lambda batch, _: seen.extend(ids(batch)),
        )
        try:
            streams.ended(query)
        except StreamingQueryException:
            return seen, str(query.exception())
        return sorted(seen), None

    # Commits without a change of data give no rows, whatever the options are.
    streams.add_version(
        table, removal(streams, table, 2, dataChange=False), added_again(streams, table, 2, dataChange=False)
    )
    assert outcome() == ([], None)

    deleted = streams.add_version(table, removal(streams, table, 0))
    streams.append(table, 100, 105)
    rows, error = outcome()
    assert rows == []
    assert error is not None
    assert error.startswith("[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data (for example TEST")
    assert f"version {deleted}" in error
    assert "'ignoreDeletes' to 'true'" in error
    appended = list(range(100, 105))
    for option in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        assert outcome(**{option: "TRUE"}) == (appended, None), option

    changed = streams.add_version(table, removal(streams, table, 1), added_again(streams, table, 1))
    streams.append(table, 200, 202)
    for options in ({}, {"ignoreDeletes": True}):
        rows, error = outcome(**options)
        assert rows == []
        assert error is not None
    assert error.startswith("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example TEST")
    assert f"version {changed}" in error
    assert "skipChangeCommits" in error
    assert outcome(ignoreChanges=True) == ([*range(10, 20), *appended, 200, 201], None)
    assert outcome(skipChangeCommits=True) == ([*appended, 200, 201], None)
    assert outcome(skipChangeCommits=True, ignoreChanges=True) == ([*appended, 200, 201], None)


def test_overwrite_stops_a_stream(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 10)
    streams.batches(streams.read(table), checkpoint)
    streams.spark.range(5).write.format("delta").mode("overwrite").save(table)
    message = streams.failed(streams.foreach(streams.read(table), checkpoint, lambda batch, _: None))
    assert message.startswith("[DELTA_SOURCE_TABLE_IGNORE_CHANGES]")
    assert "WRITE" in message
    assert "Overwrite" in message


def test_compaction_by_deltalake_is_no_news(streams: Any, table: str, checkpoint: str) -> None:
    for start in (0, 10, 20):
        deltalake.write_deltalake(table, pa.table({"id": pa.array(range(start, start + 10))}), mode="append")
    source = streams.read(table)
    assert list(streams.batches(source, checkpoint).values()) == [list(range(30))]
    assert deltalake.DeltaTable(table).optimize.compact()["numFilesRemoved"] == 3
    deltalake.write_deltalake(table, pa.table({"id": pa.array([77])}), mode="append")
    assert list(streams.batches(source, checkpoint).values()) == [[77]]


def add_column(streams: Any, table: str, name: str) -> None:
    """Adds a column to the table, as another engine may."""
    deltalake.DeltaTable(table).alter.add_columns(
        [deltalake.Field(name, deltalake.schema.PrimitiveType("string"), nullable=True)]
    )


def test_added_columns_stop_the_stream_once(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 5)
    source = streams.read(table)
    streams.batches(source, checkpoint)
    seen: list[tuple[Any, ...]] = []
    query = streams.foreach(
        source,
        checkpoint,
        lambda batch, _: seen.extend(tuple(row) for row in batch.collect()),
        {"processingTime": "0 seconds"},
    )
    streams.append(table, 5, 6)
    streams.until(lambda: bool(seen), query)
    for name in ("a", "b"):
        add_column(streams, table, name)
        frame = pa.table({"id": [6], "a": ["x"], **({"b": ["y"]} if name == "b" else {})})
        deltalake.write_deltalake(table, frame, mode="append")
    message = streams.failed(query)
    assert message.startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 2")
    assert "Load the stream again and start it with the same checkpoint" in message
    message = streams.failed(streams.foreach(source, checkpoint, lambda batch, _: None))
    assert message.startswith("[DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS]")
    assert seen == [(5,)]
    # Two changes are after the stream's offset, and one restart passes both.
    wider = streams.read(table)
    seen.clear()
    streams.ended(
        streams.foreach(wider, checkpoint, lambda batch, _: seen.extend(tuple(r) for r in batch.collect()))
    )
    assert wider.columns == ["id", "a", "b"]
    assert sorted(seen, key=str) == [(6, "x", "y"), (6, "x", None)]


@pytest.mark.parametrize("change", ["reordered", "added", "nullable", "comment"])
def test_a_schema_that_changed_between_load_and_start(
    streams: Any, table: str, checkpoint: str, change: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])
    deltalake.write_deltalake(table, pa.table({"id": [1], "x": [101]}, schema=schema))
    source = streams.read(table)
    metadata = actions(table, "metaData", 0)[0]
    changed = json.loads(metadata["schemaString"])
    fields = changed["fields"]
    if change == "reordered":
        fields.reverse()
    elif change == "added":
        fields.append({**fields[1], "name": "y"})
    elif change == "nullable":
        fields[0]["nullable"] = True
    else:
        fields[0]["metadata"] = {"comment": "tells nothing about the data"}
    streams.add_version(table, {"metaData": {**metadata, "schemaString": json.dumps(changed)}})
    # Another load of the same table has the new schema. The first load keeps its own.
    again = streams.read(table)
    seen: list[Any] = []

    def start(frame: Any) -> Any:
        return streams.foreach(
            frame, checkpoint, lambda batch, _: seen.extend(row.asDict() for row in batch.collect())
        )

    if change != "comment":
        message = streams.failed(start(source.select("id", "x")))
        assert message.startswith("[DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS]")
        assert "Load the stream again" in message
        assert table in message
        assert seen == []
        source = again
    streams.ended(start(source.select("id", "x")))
    assert seen == [{"id": 1, "x": 101}]


def test_a_schema_change_that_is_not_additive_stops_every_restart(
    streams: Any, table: str, checkpoint: str
) -> None:
    streams.append(table, 0, 5)
    streams.batches(streams.read(table), checkpoint)
    metadata = actions(table, "metaData", 0)[0]
    for type_name in ("string", "long"):
        changed = metadata["schemaString"].replace('"long"', f'"{type_name}"')
        streams.add_version(table, {"metaData": {**metadata, "schemaString": changed}})
    for _ in range(2):
        message = streams.failed(streams.foreach(streams.read(table), checkpoint, lambda batch, _: None))
        assert message.startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 1")


def test_a_column_that_may_be_null_from_now_on_stops_the_stream(
    streams: Any, table: str, checkpoint: str
) -> None:
    not_null = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    deltalake.write_deltalake(table, pa.table({"id": [1]}, schema=not_null))
    seen: list[Any] = []
    query = streams.foreach(
        streams.read(table),
        checkpoint,
        lambda batch, _: seen.extend(row.id for row in batch.collect()),
        {"processingTime": "0 seconds"},
    )
    streams.until(lambda: bool(seen), query)
    metadata = actions(table, "metaData", 0)[0]
    relaxed = metadata["schemaString"].replace('"nullable":false', '"nullable":true')
    assert relaxed != metadata["schemaString"]
    streams.add_version(table, {"metaData": {**metadata, "schemaString": relaxed}})
    assert streams.failed(query).startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION]")
    deltalake.write_deltalake(table, pa.table({"id": pa.array([None], pa.int64())}), mode="append")
    filtered = streams.read(table).where("id IS NULL").select("id")
    rows: list[Any] = []
    streams.ended(streams.foreach(filtered, checkpoint, lambda batch, _: rows.extend(batch.collect())))
    assert [tuple(row) for row in rows] == [(None,)]


@pytest.mark.parametrize("restarted", [True, False])
def test_another_table_at_the_path(streams: Any, table: str, checkpoint: str, restarted: bool) -> None:
    streams.append(table, 0, 5)
    old = actions(table, "metaData", 0)[0]["id"]
    source = streams.read(table)
    seen: list[int] = []
    trigger = {"availableNow": True} if restarted else {"processingTime": "0 seconds"}
    query = streams.foreach(source, checkpoint, lambda batch, _: seen.append(batch.count()), trigger)
    if restarted:
        streams.ended(query)
    streams.until(lambda: bool(seen), query)
    shutil.rmtree(table)
    streams.append(table, 50, 60)
    new = actions(table, "metaData", 0)[0]["id"]
    if restarted:
        query = streams.foreach(source, checkpoint, lambda batch, _: seen.append(batch.count()))
    message = streams.failed(query)
    if restarted or "DIFFERENT" in message:
        assert message.startswith("[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE]")
        assert old in message
        assert new in message
    else:  # the source looked when there was no table
        assert message.startswith("[DELTA_MISSING_DELTA_TABLE]")
    assert seen == [5]


def test_checkpoint_of_another_table(streams: Any, table: str, checkpoint: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    streams.append(table, 0, 5)
    streams.append(other, 0, 5)
    streams.batches(streams.read(table), checkpoint)
    message = streams.failed(streams.foreach(streams.read(other), checkpoint, lambda batch, _: None))
    assert message.startswith("[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE]")
    assert "new checkpoint" in message


def test_broken_offset_in_the_checkpoint(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 5)
    streams.batches(streams.read(table), checkpoint)
    file = Path(checkpoint, "offsets", "0")
    good = file.read_text()
    for bad, code in (
        (good.replace('"sourceVersion":1', '"sourceVersion":9'), "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"),
        (good.replace('"index":-1', '"index":"x"'), "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
    ):
        file.write_text(bad)
        file.with_name(".0.crc").unlink(missing_ok=True)
        message = streams.failed(streams.foreach(streams.read(table), checkpoint, lambda batch, _: None))
        assert message.startswith(f"[{code}]")


def test_a_table_without_rows(streams: Any, table: str, checkpoint: str) -> None:
    deltalake.DeltaTable.create(table, pa.schema([("id", pa.int64())]))
    source = streams.read(table)
    assert [ids for ids in streams.batches(source, checkpoint).values() if ids] == []
    streams.append(table, 3, 5)
    assert [ids for ids in streams.batches(source, checkpoint).values() if ids] == [[3, 4]]


def test_the_last_batch_is_not_read_again_where_its_files_are_gone(
    streams: Any, table: str, checkpoint: str
) -> None:
    for start in (0, 10):
        streams.append(table, start, start + 10, files=2)
    source = streams.read(table, maxFilesPerTrigger=3)
    assert len(streams.batches(source, checkpoint)) == 2
    read = [path for version in (0, 1) for _, path, _ in streams.files(table, version)]
    streams.append(table, 20, 25)
    for path in read:
        Path(table, path).unlink()
    assert list(streams.batches(source, checkpoint).values()) == [list(range(20, 25))]


def test_refused_schema_and_paths(streams: Any, table: str, tmp_path: Path) -> None:
    streams.append(table, 0, 5)
    reader = streams.spark.readStream.format("delta")
    with pytest.raises(DeltaTableNotFoundError, match="nothing"):
        reader.load(str(tmp_path / "nothing"))
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(DeltaTableNotFoundError, match="file"):
        reader.load(str(tmp_path / "file"))
    with pytest.raises(DeltaIllegalArgumentException, match="'path' is not specified"):
        reader.load()


def test_partitioned_source(streams: Any, table: str, checkpoint: str, sink: str) -> None:
    numbers = streams.spark.range(8).selectExpr(
        "id",
        "CASE WHEN id % 4 = 0 THEN NULL ELSE concat('a=%/ ', id % 4) END AS p",
        "IF(id < 4, DATE'2024-02-29', NULL) AS d",
        "id * 1.5D AS v",
    )
    numbers.write.format("delta").partitionBy("d", "p").save(table)
    wanted = sorted((tuple(row) for row in numbers.collect()), key=str)
    source = streams.read(table, maxFilesPerTrigger=3)
    assert source.schema.names == ["id", "p", "d", "v"]
    streams.copy(source, sink, checkpoint)
    frame = load(streams.spark, sink)
    assert sorted((tuple(row) for row in frame.collect()), key=str) == wanted
    pruned = source.where("d IS NULL AND p = 'a=%/ 2'").select("id")
    assert every_row(streams.batches(pruned, checkpoint + "2")) == [6]


def partitioned(table: str, start: int, column: str, mode: str = "append") -> None:
    """Commits one row. If it replaces the table, the table is partitioned by `column` afterwards."""
    row = pa.table({"id": [start], "a": [f"a{start}"], "b": [f"b{start}"]})
    if mode == "overwrite":
        deltalake.write_deltalake(table, row, mode=mode, schema_mode="overwrite", partition_by=[column])
    else:
        deltalake.write_deltalake(table, row, mode=mode, partition_by=[column])


@pytest.mark.parametrize("place", ["in the snapshot", "behind the snapshot", "while it runs"])
def test_other_partition_columns_stop_a_stream(streams: Any, table: str, checkpoint: str, place: str) -> None:
    for i in range(2):
        partitioned(table, i, "a")
    seen: list[tuple[Any, ...]] = []

    def start(**options: object) -> Any:
        source = streams.read(table, skipChangeCommits=True, **options)
        return streams.foreach(
            source,
            checkpoint,
            lambda batch, _: seen.extend(tuple(row) for row in batch.collect()),
            {"processingTime": "0 seconds"},
        )

    if place == "in the snapshot":
        query = start(maxFilesPerTrigger=1)
        streams.until(lambda: len(seen) == 1, query)
        query.stop()
        streams.forget_all_but(checkpoint, 0)
        del seen[1:]
    else:
        query = start()
        streams.until(lambda: len(seen) == 2, query)
        if place == "behind the snapshot":
            query.stop()
            # This commit has the old partitioning, and a stream with the new columns must not read it.
            partitioned(table, 2, "a")
    before = list(seen)
    partitioned(table, 9, "b", "overwrite")
    if place != "while it runs":
        query = start()
    message = streams.failed(query)
    assert message.startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION]")
    assert "partition columns" in message
    assert "Load the stream again" in message
    assert seen == before
    if place == "while it runs":
        query = start()
        partitioned(table, 10, "b")
        streams.until(lambda: len(seen) == 3, query)
        query.stop()
        assert seen[2] == (10, "a10", "b10")


@pytest.mark.parametrize("missing", [range(4), [3]], ids=["at the head", "in the middle"])
@pytest.mark.sampled(2)
def test_commits_that_a_stream_has_still_to_read_are_gone(
    streams: Any, table: str, checkpoint: str, tmp_path: Path, missing: list[int]
) -> None:
    source = None
    for version in range(6):
        streams.append(table, version, version + 1)
        if version == 1:
            source = streams.read(table)
            assert every_row(streams.batches(source, checkpoint)) == [0, 1]
    deltalake.DeltaTable(table).create_checkpoint()
    for version in missing:
        commit_file(table, version).unlink()
    error = streams.failure(streams.foreach(source, checkpoint, lambda batch, _: None))
    assert (error.code, error.state) == ("DELTA_MISSING_FILES_UNEXPECTED_VERSION", "42K03")
    first = 2 if len(missing) == 4 else 3
    assert f"cannot resume from version {first}; transaction log starts at 4" in error.message
    assert "new checkpoint location" in error.message
    assert '.option("failOnDataLoss", "false")' in error.message
    rest = streams.batches(streams.read(table, failOnDataLoss="FALSE"), checkpoint)
    assert every_row(rest) == ([4, 5] if first == 2 else [2, 4, 5])
    assert every_row(streams.batches(streams.read(table), str(tmp_path / "new"))) == list(range(6))


def test_join_of_a_stream_with_a_table(
    streams: Any, table: str, checkpoint: str, sink: str, tmp_path: Path
) -> None:
    names = str(tmp_path / "names")
    streams.spark.sql("SELECT id, concat('n', id) AS name FROM range(3)").write.format("delta").save(names)
    streams.append(table, 0, 5, files=2)
    static = load(streams.spark, names)
    streams.copy(streams.read(table).join(F.broadcast(static), "id"), sink, checkpoint)
    found = deltalake.DeltaTable(sink).to_pyarrow_table().sort_by("id").to_pydict()
    assert found == {"id": [0, 1, 2], "name": ["n0", "n1", "n2"]}


def test_a_stream_out_of_and_into_one_table(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 3)
    source = streams.read(table).where("id < 20").selectExpr("id + 10 AS id")
    streams.copy(source, table, checkpoint)
    assert streams.ids(table) == [0, 1, 2, 10, 11, 12]
    # Its own commit is a new version for it, as for every stream.
    streams.copy(source, table, checkpoint)
    assert streams.ids(table) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_type_that_changed_stops_a_stream_inside_its_snapshot(
    streams: Any, table: str, checkpoint: str
) -> None:
    for i in range(2):
        deltalake.write_deltalake(table, pa.table({"id": [i], "x": [i]}), mode="append")
    seen: list[tuple[Any, ...]] = []

    def start() -> Any:
        return streams.foreach(
            streams.read(table, maxFilesPerTrigger=1, skipChangeCommits=True),
            checkpoint,
            lambda batch, _: seen.extend(tuple(row) for row in batch.collect()),
            {"processingTime": "0 seconds"},
        )

    query = start()
    streams.until(lambda: len(seen) == 1, query)
    query.stop()
    streams.forget_all_but(checkpoint, 0)
    del seen[1:]
    changed = pa.table({"id": [9], "x": ["nine"]})
    deltalake.write_deltalake(table, changed, mode="overwrite", schema_mode="overwrite")
    assert streams.failed(start()).startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION]")
    assert len(seen) == 1
