"""The plan of a restart is what Spark then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyspark
import pytest
from pyspark.errors import PySparkException

from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.streaming import RestartPlan, plan_restart
from deltaflow.streaming.operating.obstacles import QUERY_ID_LOST, SINK_AHEAD, SINK_LACKS_BATCHES
from tests.streaming.operating.situations import SITUATIONS, Stopped, offset
from tests.tables import write_commit

pytestmark = pytest.mark.spark
WARNINGS = {
    "the_sink_is_ahead": [SINK_AHEAD],
    "the_sink_is_another_table": [SINK_LACKS_BATCHES],
    **({} if pyspark.__version__ >= "4.2" else {"the_query_id_is_lost": [QUERY_ID_LOST]}),
}
VERSIONS = [f"version {number}" for number in range(9)]
IN_SPARKS_WORDS = {
    "DELTA_STREAM_CHECKPOINT_LACKS_BATCH": "batch 0 doesn't exist",
    "DELTA_CORRUPT_STREAM_CHECKPOINT": "Incomplete log file",
    "CONCURRENT_STREAM_LOG_UPDATE": "Concurrent update to the log",
}


def files_of(folder: str) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


def done(checkpoint: str) -> set[int]:
    return {int(file.name) for file in Path(checkpoint, "commits").iterdir() if file.name.isdigit()}


DELETED_ROWS = {"delta-spark dv-in-snapshot": 5}
"""Spark counts the rows that its scans read, those included that deletion vectors delete."""


class Run:
    """What Spark did."""

    def __init__(self, streams: Any, stopped: Stopped) -> None:
        before = done(stopped.checkpoint)
        self.error: str | None = None
        self.rows: dict[int, int] = {}
        query = None
        try:
            frame = stopped.frame()
            if stopped.sink is None:
                query = streams.foreach(frame, stopped.checkpoint, lambda rows, _: rows.collect())
            else:
                mode = stopped.mode()
                query = streams.write(frame, stopped.sink, stopped.checkpoint, mode=mode, mergeSchema=True)
            streams.ended(query)
        except PySparkException as error:
            self.error = str(error)
        for progress in query.recentProgress if query is not None else ():
            self.rows[progress.batchId] = self.rows.get(progress.batchId, 0) + progress.numInputRows
        if query is not None and query.exception() is not None:
            self.error = str(query.exception())
        self.batches = sorted(done(stopped.checkpoint) - before)


def planned(stopped: Stopped) -> RestartPlan:
    return plan_restart(stopped.checkpoint, tables=stopped.tables, sink=stopped.sink, options=stopped.options)


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.sampled(24)
def test_the_plan_is_what_spark_then_does(streams: Any, tmp_path: Path, name: str) -> None:
    stopped = SITUATIONS[name](tmp_path, streams)
    before = files_of(str(tmp_path))
    plan = planned(stopped)
    assert files_of(str(tmp_path)) == before, "a plan writes nothing"
    run = Run(streams, stopped)
    print(plan, run.error, sep="\n")  # of a test that fails

    if plan.stops is None:
        assert run.error is None
    else:
        assert run.error is not None
        condition = plan.stops.condition
        words: tuple[str, ...] = (IN_SPARKS_WORDS.get(condition, condition),)
        if name == "all_offsets_are_lost":  # of 4.2 and newer, 4.1, and 4.0
            words = ("assertion failed", "CHECKPOINT_LOCATION_NOT_EMPTY", "Concurrent update to the log")
        assert any(word in run.error for word in words)
        assert len(plan.stops.remedy) > 20
    warnings = [obstacle.condition for obstacle in plan.obstacles if not obstacle.is_fatal]
    assert warnings == WARNINGS.get(name, [])
    if plan.batch is None:
        assert run.batches == []
        return
    first = plan.batch.batch_id
    batches = list(range(first, first + 1 + plan.later_batches))
    if plan.has_state:
        batches.append(batches[-1] + 1)  # The batch without rows.
    assert run.batches == batches[: len(run.batches)]
    assert len(run.batches) in (len(batches), 1 + plan.later_batches)
    if plan.stops is not None:
        assert plan.stops.batch_id == batches[-1] + 1
    ends = streams.offsets(stopped.checkpoint)[first]
    assert [step.end or "-" for step in plan.batch.sources] == ends
    rows = 0 if plan.batch.is_in_sink else plan.batch.rows
    assert run.rows.get(first, 0) - DELETED_ROWS.get(name, 0) == rows


def test_there_are_enough_situations() -> None:
    assert len(SITUATIONS) >= 30
    assert len([name for name in SITUATIONS if name.startswith("delta-spark")]) == 12


def test_the_application_of_a_foreach_batch(streams: Any, tmp_path: Path) -> None:
    """It has a txnAppId of its own, and the query a new checkpoint: the table skips its first batches."""
    stopped = SITUATIONS["the_sink_is_another_table"](tmp_path, streams)
    assert stopped.sink is not None
    write_commit(stopped.sink, 1, {"txn": {"appId": "job", "version": 7}})
    plan = plan_restart(stopped.checkpoint, tables=stopped.tables, sink=stopped.sink, app_id="job")
    assert plan.batch is not None
    assert (plan.batch.is_in_sink, plan.sink_batch_id) == (True, 7)
    [obstacle] = plan.obstacles
    assert (obstacle.condition, obstacle.is_fatal) == (SINK_AHEAD, False)


def test_the_files_of_the_batch(streams: Any, tmp_path: Path) -> None:
    stopped = Stopped(tmp_path, streams)
    stopped.source.commit([10], [11], [12, 13])
    stopped.ended(offset(0, 0, initial=True), offset(1, 1), planned=1)
    batch = planned(stopped).batch
    assert batch is not None
    assert batch.sources[0].paths == ("f001.parquet", "f002.parquet", "f003.parquet", "f004.parquet")
    assert batch.bytes == sum(stopped.source.size(number) for number in range(1, 5))


@pytest.mark.parametrize("planned", [0, 1])
def test_a_source_of_another_format_is_shown_as_the_checkpoint_has_it(
    streams: Any, tmp_path: Path, planned: int
) -> None:
    folder, sink, checkpoint = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))
    for number in range(2):
        streams.spark.range(number, number + 1).write.mode("append").json(folder)
        streams.copy(streams.spark.readStream.schema("id BIGINT").json(folder), sink, checkpoint)
    for _ in range(planned):
        streams.forget_last_batch(checkpoint)
    plan = plan_restart(checkpoint)
    assert plan.batch is None or plan.batch.sources[0].end is None
    [obstacle] = plan.obstacles
    assert (obstacle.condition, obstacle.is_fatal) == ("DELTA_STREAM_SOURCE_NOT_PLANNED", False)
    if planned:
        assert "replays batch 1" in str(plan)
        assert '{"logOffset":0}' in str(plan)
    else:
        assert "nothing new to read" in str(plan)


def test_what_comes_behind_the_first_obstacle(streams: Any, tmp_path: Path) -> None:
    stopped = Stopped(tmp_path, streams)
    stopped.ended(offset(1))
    for number in range(3):
        stopped.commits(1)
        stopped.source.commit(remove=(f"f00{number}.parquet",))
    stopped.source.commit([1], remove=("f003.parquet",))
    plan = planned(stopped)
    assert [(found.condition, found.batch_id) for found in plan.obstacles] == [
        ("DELTA_SOURCE_IGNORE_DELETE", 1),
        ("DELTA_SOURCE_IGNORE_DELETE", None),
        ("DELTA_SOURCE_IGNORE_DELETE", None),
        ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", None),
    ]
    assert [
        version for found in plan.obstacles for version in VERSIONS if f"{version}." in found.message
    ] == ["version 2", "version 4", "version 6", "version 7"]


def test_options_that_need_spark_are_refused(streams: Any, tmp_path: Path) -> None:
    stopped = SITUATIONS["in_a_commit"](tmp_path, streams)
    for name in ("sourceFilter", "excludeRegex", "startingTimestamp", "endingTimestamp"):
        stopped.options = {name: "2020-01-01"}
        with pytest.raises(DeltaUnsupportedOperationException, match=f"The option {name} can only be read"):
            planned(stopped)


def test_a_table_has_to_be_named(streams: Any, tmp_path: Path) -> None:
    stopped = SITUATIONS["in_a_commit"](tmp_path, streams)
    with pytest.raises(DeltaIllegalArgumentException, match="does not name the table with the id table-1"):
        plan_restart(stopped.checkpoint)


def test_a_plan_is_text_and_json(streams: Any, tmp_path: Path) -> None:
    plan = planned(SITUATIONS["a_delete_after_the_next_batch"](tmp_path, streams))
    text = str(plan)
    assert "the next start begins batch 1; 1 follow, then the query fails." in text
    assert "[DELTA_SOURCE_IGNORE_DELETE]" in text
    assert msgspec.json.decode(msgspec.json.encode(plan), type=RestartPlan) == plan
    assert msgspec.to_builtins(plan)["batch"]["sources"][0]["rows"] == 2
