"""A query that fails raises an error of ours, never hangs, and goes on correctly after a new start."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from deltaflow.errors import StoreError
from deltaflow.log.observer import set_observer
from deltaflow.streaming import source as streaming_source
from deltaflow.streaming.source import DeltaSource
from tests.tables import actions, commit_file, load, versions

pytestmark = pytest.mark.spark


class DiskOnFireError(Exception):
    """An error that belongs to no library."""


MESSAGE = "the disk is on fire:\n“quoted” {braces} ünïcode"


def fail(*_: object, **__: object) -> None:
    raise DiskOnFireError(MESSAGE)


@pytest.mark.parametrize("place", ["latestOffset", "getBatch", "plan", "begin", "files written", "commit"])
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
@pytest.mark.sampled(3)
def test_an_error_anywhere_in_a_batch(
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    trigger: dict[str, Any],
) -> None:
    streams.append(table, 0, 5)
    points = {"begin": "offset written", "files written": "files written", "commit": "commit prepared"}

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == points.get(place) and facts.get("path", facts.get("table")) == sink:
            fail()

    set_observer(observer)
    if place == "latestOffset":
        monkeypatch.setattr(DeltaSource, "latest_offset", fail)
    elif place == "getBatch":
        monkeypatch.setattr(DeltaSource, "batch", fail)
    elif place == "plan":
        monkeypatch.setattr(streaming_source, "ScannedFiles", fail)
    source = streams.read(table)
    message = streams.failed(streams.write(source, sink, checkpoint, trigger=trigger))
    assert message.startswith(MESSAGE)
    assert not commit_file(sink, 0).exists()

    monkeypatch.undo()
    set_observer(None)
    streams.copy(source, sink, checkpoint)
    assert streams.ids(sink) == list(range(5))
    assert versions(sink) == [0]


def test_errors_of_ours_begin_with_their_code(
    streams: Any, table: str, sink: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.append(table, 0, 5)

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("the store went away", error_class="DELTA_STORE_GONE", table=table)

    monkeypatch.setattr(DeltaSource, "latest_offset", refuse)
    message = streams.failed(streams.write(streams.read(table), sink, checkpoint))
    assert message.startswith(f"[DELTA_STORE_GONE] the store went away (table {table})")


def test_an_error_without_a_message_is_named(
    streams: Any, table: str, sink: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.append(table, 0, 5)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaSource, "latest_offset", interrupt)
    assert streams.failed(streams.write(streams.read(table), sink, checkpoint)).startswith(
        "KeyboardInterrupt"
    )


def test_a_failing_second_source_leaves_nothing_open(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    """The fixture checks that no handle is left; here the first source is open when the second fails."""
    other = tmp_path / "other"
    streams.append(table, 0, 5)
    streams.append(str(other), 0, 5)
    both = streams.read(table).union(streams.read(str(other)))
    (other / "_delta_log" / f"{0:020}.json").write_text("{broken\n")
    message = streams.failed(streams.write(both, sink, checkpoint))
    assert f"{0:020}.json" in message
    assert re.match(r"\[DELTA_\w+\]", message)


def test_a_user_function_that_fails_in_a_task(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    streams.append(table, 0, 5)
    frame = streams.read(table).selectExpr("IF(id = 3, raise_error('three is no id'), id) AS id")
    with pytest.raises(StreamingQueryException, match="three is no id"):
        streams.ended(streams.write(frame, sink, checkpoint))
    assert not commit_file(sink, 0).exists()


def test_complete_mode_never_goes_over_what_another_wrote_meanwhile(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    streams.append(table, 0, 4)
    counts = streams.read(table).groupBy().count()
    streams.copy(counts, sink, checkpoint, mode="complete")
    streams.append(table, 4, 6)
    appended: list[int] = []

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == "commit prepared" and facts["table"] == sink and not appended:
            add = actions(sink, "add", 0)[0]
            shutil.copy(f"{sink}/{add['path']}", f"{sink}/rival.parquet")
            appended.append(streams.add_version(sink, {"add": {**add, "path": "rival.parquet"}}))

    set_observer(observer)
    message = streams.failed(streams.write(counts, sink, checkpoint, mode="complete"))
    assert message.startswith("[DELTA_CONCURRENT_")
    set_observer(None)
    streams.copy(counts, sink, checkpoint, mode="complete")
    [total] = load(streams.spark, sink).collect()
    assert total["count"] == 6
