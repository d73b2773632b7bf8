"""autoCompact between the batches of a stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltaflow
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.streaming import small_files
from tests.tables import operations, read_commit, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MIN_NUM_FILES = "spark.databricks.delta.autoCompact.minNumFiles"
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _of_three_files(setting: Any) -> None:
    """A rewrite is due with three small files."""
    setting(MIN_NUM_FILES, "3")


def test_a_stream_with_small_files(
    streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    """The stream's progress counts only its own rows, and a second stream reads each of them once."""
    for i in range(5):
        streams.append(table, 10 * i, 10 * i + 10)
    frame = streams.read(table, maxFilesPerTrigger=1)
    query = streams.copy(frame, sink, checkpoint, autoCompact="true")
    assert operations(sink) == [*["STREAMING UPDATE"] * 3, "OPTIMIZE", *["STREAMING UPDATE"] * 2, "OPTIMIZE"]
    assert [progress["numInputRows"] for progress in query.recentProgress] == [10] * 5
    assert streams.ids(sink) == list(range(50))
    seen = streams.batches(streams.read(sink, startingVersion=0), str(tmp_path / "second"))
    assert sorted(number for batch in seen.values() for number in batch) == list(range(50))


@pytest.mark.long
def test_a_stateful_stream(streams: Any, table: str, sink: str, checkpoint: str) -> None:
    """Watermark and state are those of the stream: late rows are dropped as without the rewrites."""
    for minute in (0, 30, 60, 1):
        rows = streams.spark.sql(f"select timestamp_seconds(1704067200 + 60 * {minute}) t, {minute} id")
        rows.coalesce(1).write.format("delta").mode("append").save(table)
    frame = streams.read(table, maxFilesPerTrigger=1).withWatermark("t", "10 minutes").dropDuplicates(["t"])
    query = streams.copy(frame, sink, checkpoint, autoCompact="true")
    assert "OPTIMIZE" in operations(sink)
    assert streams.ids(sink) == [0, 30, 60]
    marks = [progress["eventTime"]["watermark"] for progress in query.recentProgress]
    assert marks[-1] == "2024-01-01T00:50:00.000Z"


@pytest.mark.parametrize("point", ["rewrite files written", "commit prepared"])
def test_a_stop_in_a_rewrite_leaves_no_commit(
    streams: Any, table: str, sink: str, checkpoint: str, point: str
) -> None:
    streams.append(table, 0, 9)
    reached, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def observer(at: str, facts: dict[str, Any]) -> None:
        # The first commit is the batch's.
        if at == point and facts.get("path", facts.get("table")) == sink and facts.get("version", 1) == 1:
            reached.set()
            assert go_on.wait(WAIT_S)
            left.set()

    set_observer(observer)
    source = streams.read(table).repartition(3)
    handles = dispatcher.open_handles
    trigger = {"processingTime": "0 seconds"}
    query = streams.write(source, sink, checkpoint, autoCompact="true", trigger=trigger)
    try:
        assert reached.wait(WAIT_S)
        query.stop()
        assert query.exception() is None
        assert versions(sink) == [0]
    finally:
        go_on.set()
    assert left.wait(WAIT_S)
    set_observer(None)
    streams.append(table, 9, 10)
    streams.copy(source, sink, checkpoint, autoCompact="true")
    assert operations(sink) == ["STREAMING UPDATE", "STREAMING UPDATE", "OPTIMIZE"]
    assert streams.ids(sink) == list(range(10))
    assert dispatcher.open_handles == handles


KILLED = """
import sys, time, deltaflow
from deltaflow.log.observer import set_observer
from tests.streaming import small_files
from pathlib import Path

def hold(at, facts):
    if at == "rewrite files written":
        print("AT", flush=True)
        time.sleep(600)

spark = deltaflow.session("killed", master="local[2]", config={"spark.ui.enabled": "false", sys.argv[2]: "3"})
set_observer(hold)
small_files.compacted(small_files.batches(spark), Path(sys.argv[1])).awaitTermination()
"""


@pytest.mark.long
def test_killed_in_a_rewrite(streams: Any, tmp_path: Path) -> None:
    """The rewrite leaves only files that no commit names, and the stream goes on."""
    root = str(Path(deltaflow.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), MIN_NUM_FILES],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,  # a process group that holds its JVM too
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
    assert line == "AT\n"
    table = tmp_path / "table"
    assert operations(str(table)) == ["STREAMING UPDATE"] * 3
    orphans = {str(file.relative_to(table)) for file in table.glob("p=*/*.parquet")} - added(streams, table)
    assert len(orphans) == 2
    query = small_files.compacted(small_files.batches(streams.spark), tmp_path)
    streams.until(lambda: operations(str(table)).count("OPTIMIZE") > 1, query)
    query.stop()
    assert not orphans & added(streams, table)
    streams.ended(small_files.follow(streams.spark, tmp_path, {"availableNow": True}))
    small_files.check_rows(streams.spark, tmp_path)


def added(streams: Any, table: Path) -> set[str]:
    """The files of all versions."""
    every = [read_commit(str(table), version) for version in versions(str(table))]
    return {action["add"]["path"] for actions in every for action in actions if "add" in action}


@pytest.mark.long
def test_few_files_whatever_others_do(spark: SparkSession, tmp_path: Path) -> None:
    """A short run of `small_files`."""
    found = small_files.run(spark, tmp_path, count=20, min_num_files=5, target_size=20_000, pause_s=1)
    assert found["commits"]["OPTIMIZE"] > 1
