"""A stream that reads the table it writes."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from deltaflow.log.observer import set_observer
from tests.tables import actions, every_action, ids, latest_version, load

pytestmark = pytest.mark.spark


def blind(path: str) -> list[bool]:
    return [info["isBlindAppend"] for info in every_action(path, "commitInfo")]


def test_its_commits_are_not_blind(streams: Any, table: str, checkpoint: str) -> None:
    streams.append(table, 0, 3)
    for _ in range(2):
        # Every run reads what the run before has added.
        streams.copy(streams.read(table).selectExpr("id + 10 AS id"), table, checkpoint)
    assert blind(table) == [True, False, False]
    found = ids(load(streams.spark, table))
    assert found == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_batch_fails_if_another_writer_came_after_it_was_planned(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    """The stream adds the ids that its table lacks. A rival adds them when Spark has planned the batch."""
    streams.append(table, 1, 3)
    streams.append(sink, 0, 1)
    new = streams.read(table).join(load(streams.spark, sink), "id", "left_anti")
    appended: list[int] = []

    def observer(point: str, facts: dict[str, Any]) -> None:
        if point == "offset written" and facts["path"] == sink and not appended:
            [add] = actions(table, "add", 0)
            shutil.copy(f"{table}/{add['path']}", f"{sink}/rival.parquet")
            appended.append(streams.add_version(sink, {"add": {**add, "path": "rival.parquet"}}))

    set_observer(observer)
    message = streams.failed(streams.write(new, sink, checkpoint))
    assert message.startswith("[DELTA_CONCURRENT_APPEND")
    set_observer(None)
    streams.copy(new, sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 2]

    # Each batch sees what the one before it has added.
    streams.append(table, 2, 4)
    streams.append(table, 3, 5)
    source = streams.read(table, maxFilesPerTrigger=1)
    streams.copy(source.join(load(streams.spark, sink), "id", "left_anti"), sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 2, 3, 4]
    assert latest_version(sink) == 4


def test_what_spark_has_cached_of_the_table_stays_as_it_is(
    streams: Any, table: str, sink: str, checkpoint: str
) -> None:
    for start in (1, 3):
        streams.append(table, start, start + 2)
    streams.append(sink, 0, 2)
    cached = load(streams.spark, sink).cache()
    assert ids(cached) == [0, 1]
    source = streams.read(table, maxFilesPerTrigger=1)
    streams.copy(source.join(cached, "id", "left_anti"), sink, checkpoint)
    assert ids(cached) == [0, 1]
    cached.unpersist()
    assert streams.ids(sink) == [0, 1, 2, 3, 4]
