"""Situations in which a stream starts again: tables and checkpoints, written by hand or by delta-spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from tests.streaming.changing_tables import ChangingTable
from tests.streaming.source_tables import FIELDS, SourceTable, metadata_action
from tests.streaming.test_continued_streams import STREAMS, Begun
from tests.tables import latest_version

QUERY_ID = "6f7a1c1e-6b0e-4b57-9a3f-2f0a3c1d5e77"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def offset(version: int, index: int = -1, *, initial: bool = False, **fields: Any) -> str:
    """An offset of the table that `Stopped` has."""
    found: dict[str, Any] = {"sourceVersion": 1, "reservoirId": "table-1", "reservoirVersion": version}
    found |= {"index": index, "isStartingVersion": initial} | fields
    return json.dumps(found, separators=(",", ":"))


class Stopped:
    """A stream that is stopped: a table of three files of two rows each, and a checkpoint."""

    options: dict[str, Any]
    tables: list[str]
    sink: str | None = None
    """The Delta table that the stream writes; None for foreachBatch."""

    def __init__(self, folder: Path, streams: Any) -> None:
        self.streams, self.folder, self.options = streams, folder, {}
        self.path, self.checkpoint = str(folder / "table"), str(folder / "checkpoint")
        self.source = SourceTable(self.path, [0, 1], [2, 3], [4, 5])
        self.tables = [self.path]
        for name in ("offsets", "commits"):
            Path(self.checkpoint, name).mkdir(parents=True)
        Path(self.checkpoint, "metadata").write_text(json.dumps({"id": QUERY_ID}))

    def ended(self, *offsets: str, planned: int = 0, first: int = 0) -> None:
        """Batches that end at these offsets; the last ones are `planned` and not done."""
        for number, text in enumerate(offsets, first):
            entry = Path(self.checkpoint, "offsets", str(number))
            entry.write_text(f"v1\n{METADATA}\n{text}")
            if number < first + len(offsets) - planned:
                done = Path(self.checkpoint, "commits", str(number))
                done.write_text('v1\n{"nextBatchWatermarkMs":0}')

    def commits(self, number: int = 2) -> None:
        """Further commits of a file each, the ids from 10 on."""
        for _ in range(number):
            self.source.commit([10 + 2 * self.source.next_version, 11 + 2 * self.source.next_version])

    def forget(self, *versions: int) -> None:
        """Deletes commits of the table."""
        for version in versions:
            self.source.commit_file(version).unlink()

    def written(self, batch: int | None) -> None:
        """A sink's table, which has the query's batches up to this one."""
        self.sink = str(self.folder / "sink")
        table = SourceTable(self.sink, [100], table_id="sink")
        if batch is not None:
            table.commit([101], txn={"appId": QUERY_ID, "version": batch})

    def frame(self) -> Any:
        """The stream of the next start."""
        return self.streams.read(self.path, **self.options)

    def mode(self) -> str:
        """The output mode."""
        return "append"


class Continued(Stopped):
    """A stream that delta-spark has begun."""

    def __init__(self, folder: Path, streams: Any, name: str, origin: Path = STREAMS) -> None:
        begun = Begun(name, folder, origin)
        # Without those that deltaflow refuses.
        known = {"maxFilesPerTrigger", "startingVersion"}
        self.options = {key: value for key, value in begun.entry["options"].items() if key in known}
        self.streams, self.folder = streams, folder
        self.path, self.checkpoint, self.tables = begun.source, begun.checkpoint, [begun.source]
        self.is_counted = name == "aggregate-complete"
        self.sink = begun.sink if begun.entry["sink"] else None

    def frame(self) -> Any:
        from pyspark.sql import functions as F

        rows = super().frame()
        if not self.is_counted:
            return rows
        counts = rows.groupBy((F.col("id") % 4).alias("k"))
        return counts.agg(F.count("*").alias("n"), F.sum("v").alias("s"))

    def mode(self) -> str:
        return "complete" if self.is_counted else "append"


SITUATIONS: dict[str, Callable[[Path, Any], Stopped]] = {}


def situation(change: Callable[[Stopped], None]) -> Callable[[Stopped], None]:
    """Decorator: a function that changes a stopped stream makes a situation of its name."""

    def made(folder: Path, streams: Any) -> Stopped:
        stopped = Stopped(folder, streams)
        change(stopped)
        return stopped

    SITUATIONS[change.__name__] = made
    return change


# ------------------------------------------------------------------------------------- where it goes on


@situation
def before_the_first_batch(s: Stopped) -> None:
    s.commits()


@situation
def before_the_first_batch_with_a_starting_version(s: Stopped) -> None:
    s.commits()
    s.options = {"startingVersion": 1}


@situation
def before_the_first_batch_from_the_latest_version_on(s: Stopped) -> None:
    s.options = {"startingVersion": "latest"}


@situation
def first_batch_planned(s: Stopped) -> None:
    s.commits()
    s.ended(offset(0, 1, initial=True), planned=1)


@situation
def first_batch_planned_with_a_starting_version(s: Stopped) -> None:
    s.commits()
    s.options = {"startingVersion": 0}
    s.ended(offset(0, 1), planned=1)


@situation
def first_batch_planned_beyond_its_snapshot(s: Stopped) -> None:
    s.commits(1)
    s.ended(offset(1), planned=1)


@situation
def inside_of_the_snapshot(s: Stopped) -> None:
    s.commits()
    s.options = {"maxFilesPerTrigger": 1}
    s.ended(offset(0, 0, initial=True))


@situation
def inside_of_the_snapshot_with_a_planned_batch(s: Stopped) -> None:
    s.commits()
    s.options = {"maxFilesPerTrigger": 2}
    s.ended(offset(0, 0, initial=True), offset(0, 1, initial=True), planned=1)


@situation
def in_a_commit(s: Stopped) -> None:
    s.source.commit([10], [11], [12, 13])
    s.ended(offset(1), offset(1, 0))


@situation
def in_a_commit_with_a_planned_batch(s: Stopped) -> None:
    s.source.commit([10], [11], [12, 13])
    s.commits()
    s.options = {"maxBytesPerTrigger": 1}
    s.ended(offset(1, 0), offset(1, 1), planned=1)


@situation
def rows_are_limited(s: Stopped) -> None:
    s.commits(3)
    s.options = {"maxRowsPerTrigger": 3}
    s.ended(offset(1))


@situation
def everything_is_read(s: Stopped) -> None:
    s.commits()
    s.ended(offset(3))


@situation
def the_end_is_reached(s: Stopped) -> None:
    s.commits(3)
    s.options = {"endingVersion": 2}
    s.ended(offset(2))


@situation
def files_were_compacted(s: Stopped) -> None:
    s.source.commit([0, 1, 2, 3], data_change=False, remove=("f000.parquet", "f001.parquet"))
    s.ended(offset(1))


@situation
def commits_without_batches_in_between(s: Stopped) -> None:
    s.commits()
    s.ended(offset(0, 0, initial=True), offset(0, 1, initial=True), offset(1), planned=2)


@situation
def more_batches_done_than_planned(s: Stopped) -> None:
    s.commits()
    s.ended(offset(0, 0, initial=True), offset(0, 1, initial=True), offset(1))
    Path(s.checkpoint, "offsets", "2").unlink()


@situation
def all_offsets_are_lost(s: Stopped) -> None:
    s.commits()
    s.ended(offset(0, 0, initial=True), offset(1))
    for entry in Path(s.checkpoint, "offsets").iterdir():
        entry.unlink()


@situation
def two_sources(s: Stopped) -> None:
    other = SourceTable(f"{s.path}-2", [7, 8], table_id="table-2")
    other.commit([9])
    s.commits()
    s.tables = [other.path, s.path]
    s.ended(f"{offset(1)}\n{offset(1, reservoirId='table-2')}")
    s.frame = lambda: s.streams.read(s.path).union(s.streams.read(other.path))  # type: ignore[method-assign]


@situation
def a_source_that_is_read_twice(s: Stopped) -> None:
    s.commits()
    s.ended(f"{offset(1)}\n{offset(2)}")
    s.frame = lambda: s.streams.read(s.path).union(s.streams.read(s.path))  # type: ignore[method-assign]


@situation
def a_recorded_filter(s: Stopped) -> None:
    """The checkpoint alone says what is read: the table, and the files with rows of a predicate."""
    shutil.rmtree(s.checkpoint)
    options = {"sourceFilter": "id >= 12", "maxFilesPerTrigger": 1}
    s.frame = lambda: s.streams.read(s.path, **options)  # type: ignore[method-assign]
    s.streams.batches(s.frame(), s.checkpoint)
    s.commits(4)
    s.tables = []


# ------------------------------------------------------------------------------------- what stops it


def _deletes(s: Stopped) -> None:
    s.source.commit(remove=("f000.parquet",))
    s.commits(1)
    s.ended(offset(1))


def _changes(s: Stopped) -> None:
    s.source.commit([1], remove=("f000.parquet",))
    s.commits(1)
    s.ended(offset(1))


def _situations_of_changes() -> None:
    for change in (_deletes, _changes):
        for option in (None, "ignoreDeletes", "ignoreChanges", "skipChangeCommits"):

            def changed(s: Stopped, change: Any = change, option: str | None = option) -> None:
                change(s)
                s.options = {} if option is None else {option: True}

            changed.__name__ = f"a_commit_that{change.__name__}_with_{option or 'no option'}"
            situation(changed)


_situations_of_changes()


@situation
def a_delete_after_the_next_batch(s: Stopped) -> None:
    s.commits(1)
    s.source.commit(remove=("f000.parquet",))
    s.options = {"maxFilesPerTrigger": 1}
    s.ended(offset(0, 0, initial=True))


@situation
def the_table_was_created_anew(s: Stopped) -> None:
    s.ended(offset(1, reservoirId="another"))
    s.commits()


@situation
def the_table_was_created_anew_before_a_planned_batch(s: Stopped) -> None:
    s.ended(offset(0, 1, initial=True, reservoirId="another"), offset(1, reservoirId="another"), planned=1)
    s.commits()


@situation
def the_table_is_gone(s: Stopped) -> None:
    s.ended(offset(1))
    shutil.rmtree(s.path)


def _versions_gone(s: Stopped) -> None:
    """The log begins with a checkpoint of version 4."""
    import deltalake

    s.commits(4)
    deltalake.DeltaTable(s.path).create_checkpoint()
    s.forget(0, 1, 2)
    s.ended(offset(2))


@situation
def versions_are_gone(s: Stopped) -> None:
    _versions_gone(s)


@situation
def versions_are_gone_and_may_be(s: Stopped) -> None:
    _versions_gone(s)
    s.options = {"failOnDataLoss": False}


@situation
def the_snapshot_is_gone(s: Stopped) -> None:
    _versions_gone(s)
    s.ended(offset(0, 1, initial=True))


@situation
def a_planned_version_is_gone(s: Stopped) -> None:
    _versions_gone(s)
    s.forget(3)
    s.ended(offset(2), offset(4), planned=1)


@situation
def a_column_has_another_type(s: Stopped) -> None:
    s.commits(1)
    column = {"name": "id", "type": "string", "nullable": True, "metadata": {}}
    s.source.commit(metaData=metadata_action(column))
    s.ended(offset(1))


@situation
def a_column_was_added(s: Stopped) -> None:
    s.commits(1)
    column = {"name": "v", "type": "long", "nullable": True, "metadata": {}}
    s.source.commit(metaData=metadata_action(*FIELDS, column))
    s.commits(1)
    s.ended(offset(1))


@situation
def the_partition_columns_have_changed(s: Stopped) -> None:
    s.commits(1)
    column = {"name": "p", "type": "long", "nullable": True, "metadata": {}}
    s.source.commit(metaData=metadata_action(*FIELDS, column, partition_columns=("p",)))
    s.ended(offset(1))


@situation
def a_table_feature_is_unknown(s: Stopped) -> None:
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    s.source.commit(protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features})
    s.ended(offset(1))


@situation
def a_barrier_of_schema_tracking(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1), offset(2, -20, sourceVersion=3))


def _tracked(s: Stopped) -> ChangingTable:
    """A stream with a schema log, which has read the ids 0 and 1."""
    shutil.rmtree(s.checkpoint)
    table = ChangingTable(s.folder / "changing")
    s.path, s.tables = table.path, []
    s.options = {"schemaTrackingLocation": f"{s.checkpoint}/schema"}
    table.append(0, 1)
    s.streams.batches(s.frame(), s.checkpoint)
    return table


@situation
def a_schema_that_changes_behind_rows(s: Stopped) -> None:
    table = _tracked(s)
    table.append(2, 3, files=2)
    table.rename("a", "c")
    table.append(4)
    s.options |= {"maxFilesPerTrigger": 1}


@situation
def a_new_column_of_a_stream_with_a_schema_log(s: Stopped) -> None:
    table = _tracked(s)
    table.add_column("n", T.LongType())
    s.streams.failed(s.streams.foreach(s.frame(), s.checkpoint, lambda batch, _: None))
    table.append(2)
    table.set("delta.appendOnly", "true")


@situation
def a_renamed_column_without_consent(s: Stopped) -> None:
    _tracked(s).rename("a", "c")
    s.streams.failed(s.streams.foreach(s.frame(), s.checkpoint, lambda batch, _: None))


@situation
def a_renamed_column_with_consent(s: Stopped) -> None:
    a_renamed_column_without_consent(s)
    s.options |= {"allowSourceColumnRename": "2"}


@situation
def killed_before_the_new_entry_of_the_schema_log(s: Stopped) -> None:
    a_renamed_column_without_consent(s)
    Path(s.checkpoint, "schema", "_schema_log_table-1", "1").unlink()


@situation
def a_schema_log_begins_in_an_older_schema(s: Stopped) -> None:
    table = _tracked(s)
    table.rename("a", "c")
    shutil.rmtree(s.checkpoint)
    s.options |= {"startingVersion": 1}
    s.tables = [table.path]
    for name in ("offsets", "commits"):
        Path(s.checkpoint, name).mkdir(parents=True)
    Path(s.checkpoint, "metadata").write_text(json.dumps({"id": QUERY_ID}))


@situation
def a_schema_log_that_lies_elsewhere(s: Stopped) -> None:
    _tracked(s)
    s.options = {"schemaTrackingLocation": f"{s.folder}/elsewhere"}


@situation
def an_offset_of_a_newer_release(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1, sourceVersion=4))


@situation
def an_offset_that_went_back(s: Stopped) -> None:
    s.commits()
    s.ended(offset(2), offset(1))


@situation
def an_entry_is_missing(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1), offset(2))
    Path(s.checkpoint, "offsets", "0").unlink()


@situation
def an_entry_is_cut_off(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1))
    Path(s.checkpoint, "offsets", "0").write_text("")


@situation
def a_file_of_the_next_batch_is_gone(s: Stopped) -> None:
    s.commits(2)
    s.ended(offset(1))
    s.written(0)
    Path(s.path, "f003.parquet").unlink()


@situation
def a_file_of_a_planned_batch_is_gone(s: Stopped) -> None:
    s.commits(2)
    s.ended(offset(1), offset(2), planned=1)
    s.written(0)
    Path(s.path, "f003.parquet").unlink()


@situation
def a_vacuum_deleted_a_file_of_a_later_batch(s: Stopped) -> None:
    s.commits(3)
    s.source.commit([18, 19], data_change=False, remove=("f005.parquet",))
    s.options = {"maxFilesPerTrigger": 1}
    s.ended(offset(1))
    s.written(0)
    Path(s.path, "f005.parquet").unlink()


@situation
def a_vacuum_deleted_files_that_are_read(s: Stopped) -> None:
    s.source.commit([0, 1], data_change=False, remove=("f000.parquet",))
    s.commits(1)
    s.ended(offset(1))
    Path(s.path, "f000.parquet").unlink()


# ------------------------------------------------------------------------------------- the sink


@situation
def the_sink_has_the_planned_batch(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1), offset(2), planned=1)
    s.written(1)


@situation
def the_sink_has_the_planned_batch_whose_files_are_gone(s: Stopped) -> None:
    the_sink_has_the_planned_batch(s)
    Path(s.path, "f003.parquet").unlink()


@situation
def the_sink_lacks_the_planned_batch(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1), offset(2), planned=1)
    s.written(0)


@situation
def the_sink_is_ahead(s: Stopped) -> None:
    """An older copy of the checkpoint: the sink skips what it takes for the batches that it has."""
    s.commits()
    s.options = {"maxFilesPerTrigger": 1}
    s.ended(offset(0, 0, initial=True))
    s.written(2)


@situation
def the_sink_is_another_table(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1))
    s.written(None)


@situation
def the_sink_is_new(s: Stopped) -> None:
    s.sink = str(s.folder / "sink")
    s.commits()


@situation
def the_sink_needs_an_unknown_feature(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1))
    s.written(0)
    assert s.sink is not None
    text = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["unheardOf"]}}
    file = Path(s.sink, "_delta_log", f"{latest_version(s.sink) + 1:020}.json")
    file.write_text(json.dumps(text))


@situation
def the_query_id_is_lost(s: Stopped) -> None:
    s.commits()
    s.ended(offset(1), offset(2), planned=1)
    s.written(0)
    Path(s.checkpoint, "metadata").unlink()


# ------------------------------------------------------------------------------------- delta-spark's


def _situations_of_delta_spark() -> None:
    names = ("source-in-snapshot", "source-in-commit", "sink-replay", "aggregate-complete")
    for name in names:

        def begun(folder: Path, streams: Any, name: str = name) -> Stopped:
            return Continued(folder, streams, name)

        SITUATIONS[f"delta-spark {name}"] = begun
    for option in (None, "ignoreDeletes", "skipChangeCommits", "ignoreChanges"):

        def changed(folder: Path, streams: Any, option: str | None = option) -> Stopped:
            stopped = Continued(folder, streams, "source-with-delete")
            stopped.options = {} if option is None else {option: True}
            return stopped

        SITUATIONS[f"delta-spark source-with-delete, {option or 'no option'}"] = changed
    for name in ("change-feed", "dv-in-snapshot", "schema-tracking"):

        def refused(folder: Path, streams: Any, name: str = name) -> Stopped:
            return Continued(folder, streams, name, STREAMS.parent / "features" / "streams")

        SITUATIONS[f"delta-spark {name}"] = refused

    def tracked(folder: Path, streams: Any) -> Stopped:
        stopped = Continued(folder, streams, "schema-tracking", STREAMS.parent / "features" / "streams")
        root = str(Path(stopped.checkpoint).parent)
        [entry] = Path(root).glob("checkpoint/schema/*/0")
        entry.write_text(entry.read_text().replace("@ROOT@", root))
        stopped.options |= {"schemaTrackingLocation": f"{root}/checkpoint/schema"}
        return stopped

    SITUATIONS["delta-spark schema-tracking, tracked"] = tracked


_situations_of_delta_spark()
