"""What a query records of its tables in its checkpoint."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.streaming.stream_records import sink_record, source_record
from tests.streaming.source_tables import SourceTable
from tests.streaming.test_continued_streams import Begun

pytestmark = pytest.mark.spark
SECRET = "spark.deltaflow.secret"


def records(checkpoint: str) -> dict[str, str]:
    """The text of each record below a checkpoint, by its place there."""
    found = sorted(Path(checkpoint).rglob("deltaflow.json"))
    return {str(file.relative_to(checkpoint)): file.read_text() for file in found}


def test_a_query_records_its_sources_and_its_sink_once(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    source, other = SourceTable(table, [0, 1]), SourceTable(f"{table}-2", [2])
    options = {"maxFilesPerTrigger": 3, "sourceFilter": "id < 9", "startingTimestamp": "2001-01-01"}

    def run(**changed: Any) -> None:
        frame = streams.read(source.path, **options | changed).union(streams.read(other.path))
        streams.copy(frame, sink, checkpoint, mergeSchema=True, **{"fs.s3a.secret.key": SECRET})

    run()
    before = records(checkpoint)
    assert list(before) == [
        "sink/deltaflow.json",
        "sources/0/deltaflow.json",
        "sources/1/deltaflow.json",
    ]
    assert SECRET not in "".join(before.values())
    found = StreamCheckpoint(checkpoint)
    first, second = source_record(found, "0"), source_record(found, "1")
    assert first is not None
    assert second is not None
    assert [first.path, second.path] == [source.path, other.path]
    assert first.table_id == source.metadata["id"]
    assert (first.options.max_files_per_trigger, first.options.starting_timestamp_ms is not None) == (3, True)
    assert first.options.source_predicate is not None
    assert second.options.source_filter is None
    written = sink_record(found)
    assert written is not None
    assert (written.path, written.output_mode, written.options) == (sink, "Append", {"mergeSchema": "true"})
    # A new start changes what has changed, and nothing else.
    times = {place: Path(checkpoint, place).stat().st_mtime_ns for place in before}
    source.commit([3])
    run(maxFilesPerTrigger=5)
    changed = {place for place in before if Path(checkpoint, place).stat().st_mtime_ns != times[place]}
    assert changed == {"sources/0/deltaflow.json"}
    assert (
        json.loads(records(checkpoint)["sources/0/deltaflow.json"])["options"]["max_files_per_trigger"] == 5
    )


def test_a_checkpoint_of_delta_spark_keeps_what_it_has(streams: Any, tmp_path: Path) -> None:
    begun = Begun("sink-replay", tmp_path)
    before = {file: file.read_bytes() for file in Path(begun.checkpoint).rglob("*") if file.is_file()}
    streams.copy(streams.read(begun.source), begun.sink, begun.checkpoint)
    assert list(records(begun.checkpoint)) == ["sink/deltaflow.json", "sources/0/deltaflow.json"]
    assert {file: file.read_bytes() for file in before} == before


def test_a_sink_that_is_no_table(streams: Any, table: str, checkpoint: str) -> None:
    streams.batches(streams.read(SourceTable(table, [0]).path), checkpoint)
    assert list(records(checkpoint)) == ["sources/0/deltaflow.json"]
    assert sink_record(StreamCheckpoint(checkpoint)) is None


def test_a_checkpoint_that_cannot_take_them_still_works(
    streams: Any, table: str, sink: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("sink", "sources"):
        Path(checkpoint).mkdir(exist_ok=True)
        Path(checkpoint, name).write_text("a file is in the way")
    with caplog.at_level(logging.WARNING, "deltaflow.streaming.stream_records"):
        streams.copy(streams.read(SourceTable(table, [0, 1]).path), sink, checkpoint)
    assert streams.ids(sink) == [0, 1]
    assert len([m for m in caplog.messages if "was not recorded" in m]) == 2


def test_a_record_of_another_release_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "sources" / "0"
    folder.mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (folder / "deltaflow.json").write_text('{"path": "/t", "tableId": "t", "options": {}}')
    with caplog.at_level(logging.WARNING, "deltaflow.streaming.stream_records"):
        assert source_record(StreamCheckpoint(str(tmp_path)), "0") is None
    assert "another release wrote it" in caplog.text
