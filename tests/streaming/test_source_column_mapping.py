"""Streams out of tables with column mapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

from deltaflow.log import DeltaLog, commit_name
from tests.mapped_tables import NAMES, SCHEMA, MappedTable, mapped, row
from tests.streaming.test_continued_streams import STREAMS, Begun

pytestmark = pytest.mark.spark
UNREADABLE = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
FIRST = SCHEMA.fields
RENAMED = StructType([*FIRST[:1], mapped("other", LongType(), 2), *FIRST[2:]])
DROPPED = StructType([*FIRST[:1], *FIRST[2:]])
ADDED = StructType([*FIRST[:5], mapped("new", LongType(), 11), FIRST[5]])


@pytest.fixture(params=["name", "id"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> MappedTable:
    return MappedTable(tmp_path / "table", request.param)


@pytest.mark.sampled(2)
def test_snapshot_and_commits(streams: Any, table: MappedTable, tmp_path: Path) -> None:
    seen: list[Any] = []

    def see(batch: Any, batch_id: int) -> None:
        assert batch.columns == NAMES
        seen.append(sorted((tuple(found) for found in batch.collect()), key=lambda found: found[0]))

    checkpoint = str(tmp_path / "checkpoint")
    streams.ended(streams.foreach(streams.read(table.path), checkpoint, see))
    table.commit(2, table.file(range(20, 25), None))
    table.commit(3, table.file(range(30, 35), "u"))
    streams.ended(streams.foreach(streams.read(table.path), checkpoint, see))
    assert seen[0] == [row(i, None if 5 <= i < 10 else "u") for i in range(15)]
    assert seen[1] == [row(i, None) for i in range(20, 25)] + [row(i, "u") for i in range(30, 35)]
    # By statistics and partition values files are left out before a batch is planned.
    for predicate, ids in [
        ("`s p`.`x.y` >= 310", [31, 32, 33, 34]),
        ("`größe.``1``` is null", [5, 6, 7, 8, 9]),
    ]:
        options = {"sourceFilter": predicate, "startingVersion": 0, "endingVersion": 1}
        if "s p" in predicate:
            options = {"sourceFilter": predicate}
        found = streams.batches(streams.read(table.path, **options), str(tmp_path / f"c{len(ids)}"))
        assert sorted(i for batch in found.values() for i in batch) == ids


@pytest.mark.covers("DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG")
@pytest.mark.parametrize(
    ("schema", "code"),
    [(RENAMED, UNREADABLE), (DROPPED, UNREADABLE), (ADDED, "DELTA_SCHEMA_CHANGED_WITH_VERSION")],
)
@pytest.mark.sampled(3)
def test_a_change_of_columns_during_the_stream(
    streams: Any, table: MappedTable, tmp_path: Path, schema: StructType, code: str
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    assert len(streams.batches(streams.read(table.path), checkpoint)) == 1
    trigger = {"processingTime": "0 seconds"}
    query = streams.foreach(streams.read(table.path), checkpoint, lambda batch, batch_id: None, trigger)
    streams.until(lambda: query.lastProgress is not None, query)
    table.commit(2, table.meta_data(schema))
    failure = streams.failure(query)
    assert failure.code == code
    assert "version 2" in failure.message
    # Everything from before the change was read, so that a new start reads on with the new columns.
    table.commit(3, table.file(range(20, 25), "u"))
    again = streams.batches(streams.read(table.path), checkpoint)
    assert [i for batch in again.values() for i in batch] == [20, 21, 22, 23, 24]


def test_a_stream_of_the_reference_without_schema_tracking(streams: Any, tmp_path: Path) -> None:
    begun = Begun("schema-tracking", tmp_path, STREAMS.parent / "features" / "streams")
    outcome = begun.entry["outcome"]["no schemaTrackingLocation"]
    for run in outcome["runs"]:
        frame = streams.read(begun.source, **outcome["options"])
        query = streams.foreach(frame, begun.checkpoint, lambda batch, batch_id: None)
        assert run["batches"] == []
        assert streams.failure(query).code == run["error"]


@pytest.mark.covers(
    "streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
    "DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT",
)
@pytest.mark.sampled(2)
def test_versions_from_before_a_rename(
    streams: Any, table: MappedTable, tmp_path: Path, setting: Any
) -> None:
    table.commit(2, table.meta_data(RENAMED))
    table.commit(3, table.file(range(20, 25), "u"))
    early = streams.read(table.path, startingVersion=1)
    failed = streams.foreach(early, str(tmp_path / "early"), lambda batch, batch_id: None)
    assert streams.failure(failed).code == UNREADABLE
    late = streams.batches(streams.read(table.path, startingVersion=3), str(tmp_path / "late"))
    assert late == {0: [20, 21, 22, 23, 24]}
    snapshot = streams.batches(streams.read(table.path), str(tmp_path / "snapshot"))
    assert [i for batch in snapshot.values() for i in batch] == [*range(15), *range(20, 25)]
    # With the setting they come with the columns of today, a schema log or not.
    unsafe = "spark.databricks.delta.streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled"
    setting(unsafe, "true")
    options = {"startingVersion": 1, "schemaTrackingLocation": f"{tmp_path}/unsafe/schema"}
    early = streams.batches(streams.read(table.path, **options), str(tmp_path / "unsafe"))
    assert [i for batch in early.values() for i in batch] == [*range(10, 15), *range(20, 25)]
    assert not Path(tmp_path, "unsafe", "schema").exists()
    # A log that begins with a checkpoint of the last version has no schema of those before.
    DeltaLog.for_table(table.path).checkpoint()
    for version in (0, 1):
        (table.log_directory / commit_name(version)).unlink()
    lost = streams.read(table.path, startingVersion=2)
    assert streams.batches(lost, str(tmp_path / "lost")) == {0: [20, 21, 22, 23, 24]}
    setting(unsafe, "false")
    failed = streams.foreach(lost, str(tmp_path / "again"), lambda batch, batch_id: None)
    assert streams.failure(failed).code == "DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT"
