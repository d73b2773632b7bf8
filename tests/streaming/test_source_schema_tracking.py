"""Streams that read their table across changes of its schema: schemaTrackingLocation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import types as T

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rewind import plan_rewind
from deltaflow.streaming import lag, plan_restart
from deltaflow.streaming.tracking_options import checkpoint_key
from tests.streaming.changing_tables import ChangingTable
from tests.streaming.test_continued_streams import STREAMS, Begun
from tests.tables import read_commit

pytestmark = pytest.mark.spark

EVOLUTION = "DELTA_STREAMING_METADATA_EVOLUTION"
CANNOT_CONTINUE = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
CONFLICT = "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"
STREAMING = "spark.databricks.delta.streaming."
ALLOWED = {"allowSourceColumnRename": "always", "allowSourceColumnDrop": "always"}


class Run(NamedTuple):
    """What one run of a stream did: the columns and ids of each batch, and its error."""

    batches: list[tuple[list[str], list[int]]]
    error: str | None
    message: str = ""

    @property
    def ids(self) -> list[int]:
        return [i for _, ids in self.batches for i in ids]


class Tracked:
    """A stream over a table that changes, with its checkpoint and the schema log below it."""

    def __init__(self, streams: Any, folder: Path, **table: Any) -> None:
        self.streams, self.folder = streams, folder
        self.table = ChangingTable(folder / "table", **table)
        self.checkpoint = str(folder / "checkpoint")
        self.location = f"{self.checkpoint}/schema"

    @property
    def schema_log(self) -> Path:
        return Path(self.location, f"_schema_log_{self.table.table_id}")

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the schema log."""
        found = sorted(
            (file for file in self.schema_log.iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
        )
        for file in found:
            assert file.read_text().splitlines()[0] == "v1"
        return [json.loads(file.read_text().splitlines()[1]) for file in found]

    def frame(self, **options: object) -> Any:
        return self.streams.read(self.table.path, **{"schemaTrackingLocation": self.location} | options)

    def run(self, trigger: dict[str, Any] | None = None, **options: object) -> Run:
        """Runs the stream to its end."""
        batches: list[tuple[list[str], list[int]]] = []

        def see(batch: Any, batch_id: int) -> None:
            batches.append((batch.columns, sorted(row["id"] for row in batch.collect())))

        return self.ended(self.streams.foreach(self.frame(**options), self.checkpoint, see, trigger), batches)

    def ended(self, query: Any, batches: list[tuple[list[str], list[int]]]) -> Run:
        try:
            self.streams.ended(query)
        except StreamingQueryException:
            message = str(query.exception())
            return Run(batches, message.partition("]")[0][1:], message)
        return Run(batches, None)

    def offsets(self) -> list[dict[str, Any]]:
        return [json.loads(lines[0]) for _, lines in sorted(self.streams.offsets(self.checkpoint).items())]


@pytest.fixture
def tracked(streams: Any, tmp_path: Path) -> Tracked:
    """A stream that has read the ids 0 and 1."""
    stream = Tracked(streams, tmp_path)
    stream.table.append(0, 1)
    assert stream.run() == Run([(["id", "a", "b"], [0, 1])], None)
    return stream


# --------------------------------------------------------------------------------- beside delta-spark


@pytest.mark.covers("schemaTrackingLocation", "allowSourceColumnRename", "allowSourceColumnDrop")
@pytest.mark.parametrize("outcome", ["not allowed", "allowed", "rename allowed"])
@pytest.mark.sampled(2)
def test_a_stream_of_delta_spark_goes_on(streams: Any, tmp_path: Path, outcome: str) -> None:
    begun = Begun("schema-tracking", tmp_path, STREAMS.parent / "features" / "streams")
    for place in begun.entry["fill"]["files"]:
        file = begun.folder / place
        file.write_text(file.read_text().replace("@ROOT@", str(begun.folder)))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    expected = begun.entry["outcome"][outcome]
    options = {
        name: value.replace("@ROOT@", str(begun.folder)) for name, value in expected["options"].items()
    }
    assert {"schemaTrackingLocation", "maxFilesPerTrigger"} <= options.keys()
    assert options.keys() - {"schemaTrackingLocation", "maxFilesPerTrigger"} <= {
        "allowSourceColumnRename",
        "allowSourceColumnDrop",
    }
    for run in expected["runs"]:
        found: list[dict[str, Any]] = []

        def see(batch: Any, number: int, found: list[dict[str, Any]] = found) -> None:
            rows = sorted([list(row) for row in batch.collect()])
            found.append({"batch": number, "columns": batch.columns, "rows": rows})

        query = streams.foreach(streams.read(begun.source, **options), begun.checkpoint, see)
        if run["error"] is None:
            streams.ended(query)
        else:
            assert streams.failure(query).code == run["error"]
        assert found == [{**batch, "rows": sorted(batch["rows"])} for batch in run["batches"]]
    table_id = begun.entry["last_offset"]["reservoirId"]
    barrier = f'{{"sourceVersion":3,"reservoirId":"{table_id}","reservoirVersion":4,"index":%d,'
    barrier += '"isStartingVersion":false}'
    offsets = streams.offsets(begun.checkpoint)
    assert [offsets[2], offsets[3]] == [[barrier % -20], [barrier % -19]]
    [log] = begun.folder.glob("checkpoint/schema/_schema_log_*")
    first, second = (json.loads((log / name).read_text().splitlines()[1]) for name in ("0", "1"))
    assert list(second) == list(first)
    metadata = next(action["metaData"] for action in read_commit(begun.source, 4) if "metaData" in action)
    assert second == first | {"deltaCommitVersion": 4, "dataSchemaJson": metadata["schemaString"]}


def test_a_schema_log_is_as_delta_spark_writes_it(tracked: Tracked) -> None:
    [entry] = tracked.entries()
    assert entry == {
        "tableId": "table-1",
        "deltaCommitVersion": 1,
        "dataSchemaJson": T.StructType(tracked.table.fields).json(),
        "partitionSchemaJson": '{"type":"struct","fields":[]}',
        "sourceMetadataPath": f"file:{tracked.checkpoint}/sources/0",
        "tableConfigurations": tracked.table.configuration,
        "protocolJson": '{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}',
    }
    assert tracked.run(trigger={"availableNow": True}).batches == []


# ------------------------------------------------------------------------------------- which changes


def test_changes_that_need_no_consent(tracked: Tracked) -> None:
    """New columns, properties of Delta, the protocol; one after the other, with rows in between."""
    table = tracked.table
    versions = [table.add_column("n", T.LongType())]
    table.append(2)
    table.set("delta.appendOnly", "true")
    versions.append(table.append(3) - 1)
    features = {"writerFeatures": ["appendOnly", "columnMapping", "invariants"]}
    versions.append(
        table.write_next({"protocol": {"minReaderVersion": 2, "minWriterVersion": 7, **features}})
    )
    table.append(4)
    # No change to a stream: other properties, names, the same protocol again.
    table.configuration["owner"] = "me"
    table.write_next(
        table.meta_data(), {"protocol": {"minReaderVersion": 2, "minWriterVersion": 7, **features}}
    )
    table.append(5)
    old, new = ["id", "a", "b"], ["id", "a", "b", "n"]
    runs = [tracked.run() for _ in range(4)]
    assert runs[0].batches == [(old, [])]
    assert [run.batches for run in runs[1:]] == [
        [(new, []), (new, [2])],
        [(new, []), (new, [3])],
        [(new, []), (new, [4, 5])],
    ]
    assert [run.error for run in runs] == [EVOLUTION, EVOLUTION, EVOLUTION, None]
    assert "version 2" in runs[0].message
    assert "n:bigint" in runs[0].message
    assert [entry["deltaCommitVersion"] for entry in tracked.entries()] == [1, *versions]
    indexes = [offset["index"] for offset in tracked.offsets() if offset["reservoirVersion"] in versions]
    assert indexes == [-1, -20, -19, -20, -19, -20, -19]


@pytest.mark.covers("allowSourceColumnTypeChange")
@pytest.mark.covers(
    "DELTA_STREAMING_METADATA_EVOLUTION", "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
)
def test_a_type_that_grows(tracked: Tracked) -> None:
    version = tracked.table.retype("b", T.LongType())
    tracked.table.append(2)
    assert tracked.run().error == EVOLUTION
    refused = tracked.run()
    assert refused.error == CANNOT_CONTINUE
    assert f'.option("allowSourceColumnTypeChange", "{version}")' in refused.message
    assert "'b' from int to bigint" in refused.message
    assert tracked.run(allowSourceColumnTypeChange=version).ids == [2]
    # No stream can read the old numbers as dates.
    tracked.table.retype("b", T.DateType())
    assert tracked.run(allowSourceColumnTypeChange=version).error == EVOLUTION
    assert (
        tracked.run(**ALLOWED, allowSourceColumnTypeChange="always").error
        == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    )


def test_a_type_that_grows_without_a_schema_log(streams: Any, tmp_path: Path, setting: Any) -> None:
    """A new start reads on with the wide type, older versions included, unless a setting asks for consent."""
    table = ChangingTable(tmp_path / "table", is_mapped=False)
    table.append(0)
    checkpoint = str(tmp_path / "checkpoint")
    trigger = {"processingTime": "0 seconds"}
    query = streams.foreach(streams.read(table.path), checkpoint, lambda batch, _: None, trigger)
    streams.until(lambda: query.lastProgress is not None, query)
    table.append(1)
    table.retype("b", T.LongType())
    table.append(2)
    changed = streams.failure(query)
    assert changed.code == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    assert "start it with the same checkpoint" in changed.message
    again = streams.batches(streams.read(table.path, startingVersion=0), str(tmp_path / "again"))
    assert [i for ids in again.values() for i in ids] == [0, 1, 2]
    widening = "spark.databricks.delta.typeWidening."
    for name, value, code in [
        (
            "enableStreamingSchemaTracking",
            "true",
            "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
        ),
        ("allowTypeChangeStreamingDeltaSource", "false", "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"),
    ]:
        setting(widening + "enableStreamingSchemaTracking", "false")
        setting(widening + name, value)
        late = streams.read(table.path, startingVersion=0)
        failed = streams.foreach(late, f"{checkpoint}-{name}", lambda batch, _: None)
        assert streams.failure(failed).code == code


@pytest.mark.covers("streaming.schemaTracking.mergeConsecutiveSchemaChanges.enabled")
def test_consecutive_changes_are_one(tracked: Tracked, setting: Any) -> None:
    table = tracked.table
    first = table.rename("a", "c")
    table.add_column("n", T.LongType())
    table.append(2)
    last = table.drop("b")
    copy = tracked.folder / "copy"
    assert tracked.run().error == EVOLUTION
    shutil.copytree(tracked.checkpoint, copy)
    refused = tracked.run()
    assert refused.error == CANNOT_CONTINUE
    assert f"version {first + 1}" in refused.message
    assert [entry["deltaCommitVersion"] for entry in tracked.entries()] == [1, first, first + 1]
    assert tracked.entries()[-1]["previousMetadataSeqNum"] == 0
    run = tracked.run(allowSourceColumnRename=first + 1)
    assert (run.batches, run.error) == (
        [(["id", "c", "b", "n"], []), (["id", "c", "b", "n"], [2])],
        EVOLUTION,
    )
    assert tracked.run(allowSourceColumnRename=first + 1).error == CANNOT_CONTINUE
    assert tracked.run(allowSourceColumnDrop=last).batches == [(["id", "c", "n"], [])] * 2

    shutil.rmtree(tracked.checkpoint)
    copy.rename(tracked.checkpoint)
    setting(STREAMING + "schemaTracking.mergeConsecutiveSchemaChanges.enabled", "false")
    assert tracked.run(**ALLOWED).batches == [(["id", "c", "b"], [])] * 2
    assert tracked.entries()[-1]["deltaCommitVersion"] == first + 1


def test_a_change_after_the_commit_of_the_first_entry(streams: Any, tmp_path: Path) -> None:
    """That commit has no files, but the snapshot that the stream reads in its schema has."""
    stream = Tracked(streams, tmp_path)
    stream.table.append(0, 1, files=2)
    stream.table.set("delta.randomizeFilePrefixes", "false")
    assert stream.run(maxFilesPerTrigger=1).ids == [0, 1]
    streams.forget_all_but(stream.checkpoint, 0)
    dropped = stream.table.drop("b")
    run = stream.run()
    assert (run.batches, run.error) == ([(["id", "a", "b"], [1])], EVOLUTION)
    assert stream.run().error == CANNOT_CONTINUE
    assert stream.run(allowSourceColumnDrop=dropped).batches == [(["id", "a"], [])] * 2


def test_other_partition_columns(streams: Any, tmp_path: Path) -> None:
    """They come with removed files: what an option says of such commits holds beside the change."""
    stream = Tracked(streams, tmp_path, is_mapped=False)
    stream.table.append(0, 1)
    assert stream.run().ids == [0, 1]
    stream.table.append(2)
    stream.table.overwrite(2, removed="f02-002.parquet", partition_columns=["b"])
    stream.table.append(3)
    assert stream.run().error == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    before = stream.run(skipChangeCommits=True)
    assert (before.ids, before.error) == ([2], EVOLUTION)
    assert stream.run().error == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    assert stream.run(skipChangeCommits=True).ids == [3]
    assert json.loads(stream.entries()[1]["partitionSchemaJson"])["fields"][0]["name"] == "b"


@pytest.mark.long
def test_a_table_with_deletion_vectors(streams: Any, tmp_path: Path) -> None:
    """The first deletion vectors need a change of the protocol, at which the stream ends as at any other."""
    stream = Tracked(streams, tmp_path)
    sql, name = streams.spark.sql, f"delta.`{tmp_path}/marked`"
    sql(
        f"CREATE TABLE {name} (id BIGINT, a STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    sql(f"INSERT INTO {name} SELECT id, 'x' FROM range(0, 6, 1, 1)")
    stream.table = SimpleNamespace(path=f"{tmp_path}/marked")
    assert stream.run() == Run([(["id", "a"], [*range(6)])], None)
    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    sql(f"DELETE FROM {name} WHERE id < 2")
    sql(f"INSERT INTO {name} SELECT id, 'y' FROM range(6, 8, 1, 1)")
    assert stream.run().error == EVOLUTION
    assert stream.run().error == "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    assert stream.run(skipChangeCommits=True).batches == [(["id", "a"], [6, 7])]
    sql(f"DELETE FROM {name} WHERE id = 7")
    sql(f"ALTER TABLE {name} RENAME COLUMN a TO c")
    sql(f"DELETE FROM {name} WHERE id = 5")
    assert stream.run(ignoreChanges=True).ids == [6]
    assert stream.run(ignoreChanges=True).error == CANNOT_CONTINUE
    allowed = stream.run(ignoreChanges=True, allowSourceColumnRename="always")
    assert (allowed.ids, allowed.error) == ([2, 3, 4], None)
    # A stream that begins now reads the rows that are left, by their new names.
    stream.checkpoint = f"{tmp_path}/other"
    stream.location = f"{stream.checkpoint}/schema"
    assert stream.run() == Run([(["id", "c"], [2, 3, 4, 6])], None)


@pytest.mark.covers("streaming.schemaTracking.enabled", "typeWidening.bypassStreamingTypeChangeCheck")
def test_settings_of_the_session(tracked: Tracked, setting: Any) -> None:
    tracked.table.retype("b", T.LongType())
    tracked.table.append(2)
    assert tracked.run().error == EVOLUTION
    setting(STREAMING + "schemaTracking.enabled", "false")
    with pytest.raises(DeltaUnsupportedOperationException, match=r"schemaTracking\.enabled is") as refused:
        tracked.run()
    assert refused.value.getCondition() == "DELTA_UNSUPPORTED_OPTION"
    setting(STREAMING + "schemaTracking.enabled", "true")
    assert tracked.run().error == CANNOT_CONTINUE
    setting("spark.databricks.delta.typeWidening.bypassStreamingTypeChangeCheck", "true")
    assert tracked.run().ids == [2]


def test_consent_by_the_session(tracked: Tracked, setting: Any) -> None:
    version = tracked.table.rename("a", "c")
    assert tracked.run().error == EVOLUTION
    key = checkpoint_key(f"file:{tracked.checkpoint}/sources/0")
    refused = tracked.run()
    assert f"SET {STREAMING}allowSourceColumnRename.{key} = {version}" in refused.message
    setting(STREAMING + "allowSourceColumnRename", str(version))
    setting(f"{STREAMING}allowSourceColumnDrop.{key}", "always")
    setting(f"{STREAMING}allowSourceColumnRename.{key}", str(version + 1))
    assert tracked.run().error == CANNOT_CONTINUE
    setting(f"{STREAMING}allowSourceColumnRenameAndDrop.{key}", str(version))
    assert tracked.run().error is None


# --------------------------------------------------------------------------------------- its beginning


def test_a_starting_version_before_a_change(streams: Any, tmp_path: Path) -> None:
    """The first run finds that the stream begins in an older schema than it was loaded with."""
    stream = Tracked(streams, tmp_path)
    stream.table.append(0)
    stream.table.rename("a", "c")
    stream.table.append(1)
    options = {"startingVersion": 1, **ALLOWED}
    runs = [stream.run(**options) for _ in range(3)]
    assert runs[0].batches == []
    assert runs[1].batches == [(["id", "a", "b"], [0])]
    assert runs[2].batches == [(["id", "c", "b"], []), (["id", "c", "b"], [1])]
    assert [run.error for run in runs] == [EVOLUTION, EVOLUTION, None]
    assert [entry["deltaCommitVersion"] for entry in stream.entries()] == [1, 2]
    latest = {"startingVersion": "latest", "schemaLocation": f"{tmp_path}/latest/schema"}
    stream.checkpoint, stream.location = f"{tmp_path}/latest", f"{tmp_path}/latest/schema"
    assert stream.run(**latest).ids == []
    stream.table.append(2)
    stream.table.drop("b")
    assert stream.run(**latest).ids == [2]


def test_a_change_before_the_first_batch(streams: Any, tmp_path: Path) -> None:
    """The query was killed when it had written its first entry: nothing was read in that schema."""
    stream = Tracked(streams, tmp_path)
    stream.table.append(0)
    assert stream.run().ids == [0]
    for folder in ("offsets", "commits"):
        shutil.rmtree(Path(stream.checkpoint, folder))
    stream.table.rename("a", "c")
    stream.table.append(1)
    assert stream.run().error == EVOLUTION
    assert stream.entries()[-1]["previousMetadataSeqNum"] == -1
    assert stream.run().batches == [(["id", "c", "b"], [0, 1])]


@pytest.mark.covers("DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA")
def test_a_stream_that_began_without_a_schema_log(streams: Any, tmp_path: Path) -> None:
    stream = Tracked(streams, tmp_path)
    stream.table.append(0)
    stream.streams.batches(streams.read(stream.table.path), stream.checkpoint)
    stream.table.append(1)
    stream.table.rename("a", "c")
    stream.table.append(2)
    # The batch that is done is asked for again, with the schema of then.
    assert stream.run(**ALLOWED).error == EVOLUTION
    assert [run.ids for run in (stream.run(**ALLOWED), stream.run(**ALLOWED))] == [[1], [2]]
    # A planned batch that has two schemas cannot be read in one.
    shutil.rmtree(stream.location)
    offsets = Path(stream.checkpoint, "offsets")
    last = max(int(file.name) for file in offsets.iterdir() if file.name.isdigit())
    lines = (offsets / str(last)).read_text().splitlines()[:2]
    early = {"sourceVersion": 1, "reservoirId": "table-1", "isStartingVersion": False, "index": -1}
    for number, version in ((last + 1, 2), (last + 2, 5)):
        json_ = json.dumps(early | {"reservoirVersion": version})
        (offsets / str(number)).write_text("\n".join([*lines, json_]))
    Path(stream.checkpoint, "commits", str(last + 1)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    failed = stream.run(**ALLOWED)
    assert failed.error == "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA"
    assert failed.batches == []


# ------------------------------------------------------------------------------------------- kills


KILLED = ["barrier done", "first batch done"]
"""The other moments are those at which test_killed kills a process."""


@pytest.mark.parametrize("moment", KILLED)
@pytest.mark.sampled(2)
def test_a_stream_that_was_killed_around_a_change(streams: Any, tmp_path: Path, moment: str) -> None:
    """A checkpoint is what Spark and the schema log have written by then; nothing is lost or comes twice."""
    stream = Tracked(streams, tmp_path)
    stream.table.append(0, 1)
    sink = str(tmp_path / "sink")

    def run() -> str | None:
        frame = stream.frame(**ALLOWED).select("id")
        return stream.ended(streams.write(frame, sink, stream.checkpoint), []).error

    assert run() is None
    stream.table.append(2)
    stream.table.rename("a", "c")
    stream.table.append(3)
    assert run() == EVOLUTION
    offsets = stream.offsets()
    assert [(offset["reservoirVersion"], offset["index"]) for offset in offsets] == [
        (2, -1),
        (3, -20),
        (3, -19),
    ]
    checkpoint, log = Path(stream.checkpoint), stream.schema_log
    gone: list[Path] = []
    if moment == "barrier done":
        gone += [log / "1", checkpoint / "offsets" / "2"]
    else:
        assert run() is None
        gone.append(checkpoint / "commits" / "3")
    for file in gone:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    errors = [run(), run()]
    assert errors == ([EVOLUTION, None] if moment == "barrier done" else [None, None])
    assert streams.ids(sink) == [0, 1, 2, 3]
    assert [entry["deltaCommitVersion"] for entry in stream.entries()] == [1, 3]


def test_a_change_while_the_stream_runs(tracked: Tracked) -> None:
    """Limits end batches before the barrier, which takes none of them."""
    batches: list[tuple[list[str], list[int]]] = []
    frame = tracked.frame(maxFilesPerTrigger=1)
    query = tracked.streams.foreach(
        frame,
        tracked.checkpoint,
        lambda batch, _: batches.append((batch.columns, sorted(row["id"] for row in batch.collect()))),
        {"processingTime": "0 seconds"},
    )
    tracked.streams.until(lambda: query.lastProgress is not None, query)
    tracked.table.append(2, 3, 4, files=3)
    tracked.table.rename("a", "c")
    run = tracked.ended(query, batches)
    assert (run.ids, run.error) == ([2, 3, 4], EVOLUTION)
    assert [len(ids) for _, ids in batches if ids] == [1, 1, 1]
    # A frame from before the change has the columns of then.
    again = tracked.streams.foreach(frame, tracked.checkpoint, lambda batch, _: None)
    assert tracked.ended(again, []).error == CANNOT_CONTINUE
    stale = tracked.frame(allowSourceColumnRename="always")
    tracked.table.append(5)
    tracked.table.drop("b")
    assert tracked.run(**ALLOWED).ids == [5]
    late = tracked.streams.foreach(stale, tracked.checkpoint, lambda batch, _: None)
    assert tracked.ended(late, []).error == CANNOT_CONTINUE
    assert tracked.run(**ALLOWED).error is None
    late = tracked.streams.foreach(stale, tracked.checkpoint, lambda batch, _: None)
    assert tracked.ended(late, []).error == CANNOT_CONTINUE


# ------------------------------------------------------------------------------ where the log may lie


@pytest.mark.covers("DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT")
@pytest.mark.covers("streaming.allowSchemaLocationOutsideCheckpointLocation")
def test_the_location(streams: Any, tmp_path: Path, setting: Any) -> None:
    stream = Tracked(streams, tmp_path)
    stream.table.append(0)
    for elsewhere in (f"{tmp_path}/elsewhere", f"{stream.checkpoint}-2", f"{stream.checkpoint}/../schema"):
        stream.location = elsewhere
        refused = stream.run()
        assert refused.error == "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT"
        assert stream.checkpoint in refused.message
    setting(STREAMING + "allowSchemaLocationOutsideCheckpointLocation", "true")
    assert stream.run().ids == [0]
    assert len(stream.entries()) == 1
    lost = stream.run(failOnDataLoss="false")
    assert lost.error == "DELTA_ILLEGAL_OPTION"
    assert "failOnDataLoss" in lost.message


@pytest.mark.covers("schemaLocation", "streamingSourceTrackingId", "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT")
def test_several_sources(streams: Any, tmp_path: Path) -> None:
    stream = Tracked(streams, tmp_path)
    stream.table.append(0)
    other = ChangingTable(tmp_path / "other", table_id="table-2")
    other.append(10)

    def run(*frames: Any) -> Run:
        both = frames[0].select("id").union(frames[1].select("id"))
        seen: list[Any] = []
        query = streams.foreach(
            both, stream.checkpoint, lambda b, _: seen.append((b.columns, sorted(r[0] for r in b.collect())))
        )
        return stream.ended(query, seen)

    options = {"schemaLocation": stream.location}
    one = streams.read(stream.table.path, **options)
    assert run(one, streams.read(stream.table.path, **options, maxFilesPerTrigger=7)).error == CONFLICT
    shutil.rmtree(stream.checkpoint)
    # Another table has a log of its own below the same location, and so has a source with an id.
    second = streams.read(other.path, **options)
    assert run(one, second).ids == [0, 10]
    shutil.rmtree(stream.checkpoint)
    named = streams.read(stream.table.path, **options, streamingSourceTrackingId="second")
    assert run(one, named).ids == [0, 0]
    stream.table.rename("a", "c")
    assert run(one, named).error == EVOLUTION
    logs = {path.name for path in Path(stream.location).iterdir()}
    assert logs == {"_schema_log_table-1", "_schema_log_table-1_second"}


@pytest.mark.covers(
    "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED",
    "DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED",
    "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
    "streaming.schemaTracking.metadataPathCheck.enabled",
)
def test_a_log_that_is_not_the_streams(tracked: Tracked, setting: Any) -> None:
    from deltaflow.errors import DeltaError

    entry = tracked.schema_log / "0"
    version, text = entry.read_text().splitlines()
    schema = json.dumps(json.loads(text)["dataSchemaJson"])
    for content, code in [
        ("", "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED"),
        (f"v2\n{text}", "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED"),
        (f"{version}\n{text[:-20]}", "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED"),
        (
            f"{version}\n{text.replace(schema, json.dumps('no schema'))}",
            "DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED",
        ),
        (
            text and f"{version}\n{text.replace('table-1', 'table-2')}",
            "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
        ),
    ]:
        entry.write_text(content)
        with pytest.raises(DeltaError) as raised:
            tracked.frame()
        assert raised.value.error_class == code
        assert str(tracked.schema_log) in str(raised.value)
    entry.write_text(f"{version}\n{text.replace('sources/0', 'sources/1')}")
    refused = tracked.run()
    assert refused.error == CONFLICT
    assert "streamingSourceTrackingId" in refused.message
    setting(STREAMING + "schemaTracking.metadataPathCheck.enabled", "false")
    assert tracked.run().error is None


def test_an_entry_of_an_older_release(tracked: Tracked) -> None:
    """It has neither properties nor protocol: those of the table are taken for unchanged."""
    entry = tracked.schema_log / "0"
    version, text = entry.read_text().splitlines()
    fields = json.loads(text)
    del fields["tableConfigurations"], fields["protocolJson"]
    entry.write_text(f"{version}\n{json.dumps(fields)}")
    tracked.table.append(2)
    tracked.table.rename("a", "c")
    tracked.table.append(3)
    run = tracked.run()
    assert (run.ids, run.error) == ([2], EVOLUTION)
    assert tracked.run(**ALLOWED).batches == [(["id", "c", "b"], []), (["id", "c", "b"], [3])]


# ------------------------------------------------------------------------------------------ operating


def test_a_table_by_name(streams: Any, tmp_path: Path) -> None:
    spark, checkpoint = streams.spark, str(tmp_path / "checkpoint")
    spark.sql(
        f"CREATE TABLE tracked_by_name (id LONG, a STRING) USING delta LOCATION '{tmp_path}/table' "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    try:
        seen: list[Any] = []

        def run(**options: str) -> Run:
            reader = spark.readStream.option("schemaTrackingLocation", f"{checkpoint}/schema").options(
                **options
            )
            seen.clear()
            query = streams.foreach(
                reader.table("tracked_by_name"),
                checkpoint,
                lambda b, _: seen.append((b.columns, [r[0] for r in b.collect()])),
            )
            try:
                streams.ended(query)
            except StreamingQueryException:
                return Run(list(seen), str(query.exception()).partition("]")[0][1:])
            return Run(list(seen), None)

        spark.sql("INSERT INTO tracked_by_name VALUES (0, 'x')")
        assert run() == Run([(["id", "a"], [0])], None)
        spark.sql("ALTER TABLE tracked_by_name RENAME COLUMN a TO c")
        spark.sql("INSERT INTO tracked_by_name VALUES (1, 'y')")
        assert run() == Run([(["id", "a"], [])], EVOLUTION)
        assert run(**ALLOWED) == Run([(["id", "c"], []), (["id", "c"], [1])], None)
    finally:
        spark.sql("DROP TABLE tracked_by_name")


def test_what_an_operator_sees(tracked: Tracked) -> None:
    """Before each run the plan says what it does; lag, rewind and fork know the schema log."""
    table, checkpoint = tracked.table, tracked.checkpoint
    table.append(2)
    version = table.rename("a", "c")
    table.append(3)
    plan = plan_restart(checkpoint)
    assert [found.condition for found in plan.obstacles] == [EVOLUTION, CANNOT_CONTINUE]
    assert "allowSourceColumnRename" in plan.obstacles[1].message
    assert len(plan_restart(checkpoint, options={"allowSourceColumnRename": "always"}).obstacles) == 1
    assert tracked.run().error == EVOLUTION
    plan = plan_restart(checkpoint)
    assert plan.stops is not None
    assert (plan.stops.condition, plan.batch) == (CANNOT_CONTINUE, None)
    plan = plan_restart(checkpoint, options={"allowSourceColumnRename": version})
    assert plan.stops is None
    assert plan.batch is not None
    assert (plan.batch.is_replay, plan.later_batches) == (True, 1)
    assert f"version {version}, schema change" in str(plan)
    [source] = lag(checkpoint).sources
    assert (source.version, source.index, source.files, source.rows, source.error) == (
        version,
        -20,
        1,
        1,
        None,
    )

    fork = plan_fork(checkpoint, f"{tracked.folder}/fork", sink=None)
    assert any("schemaTrackingLocation" in step for step in fork.steps)
    fork.apply()
    other = Tracked.__new__(Tracked)
    other.__dict__.update(tracked.__dict__ | {"checkpoint": f"{tracked.folder}/fork"})
    other.location = f"{other.checkpoint}/schema"
    assert {entry["sourceMetadataPath"] for entry in other.entries()} == {
        f"file:{other.checkpoint}/sources/0"
    }
    assert plan_restart(other.checkpoint).stops.condition == CANNOT_CONTINUE  # type: ignore[union-attr]
    assert other.run(**ALLOWED).ids == [3]

    assert tracked.run(**ALLOWED).ids == [3]
    back = plan_rewind(checkpoint, table.path, version=0)
    assert any("schema log" in step for step in back.steps)
    back.apply()
    again = tracked.run(**ALLOWED)
    assert (again.ids, {tuple(columns) for columns, _ in again.batches}) == ([0, 1, 2, 3], {("id", "c", "b")})
