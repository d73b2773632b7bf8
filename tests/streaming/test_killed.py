"""Streams that are killed (SIGKILL) at each point of a batch lose no row and double none."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import deltaflow
from tests.feed_tables import feed_table
from tests.streaming.change_tables import OF_VERSIONS
from tests.streaming.changing_tables import ChangingTable
from tests.tables import data_files, every_action, versions

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("killed_streams.py")
WAIT_S = 240.0

QUERIES = [
    ("delta", "rows"),
    ("delta", "counts"),
    ("files", "rows"),
    ("files", "distinct"),
    ("rate", "rows"),
    ("rate", "counts"),
]
"""Sources, and queries over them: without state, with state in complete and in append mode."""


class Point(NamedTuple):
    """A point of a batch, and what a batch that is killed there has left."""

    name: str
    in_log: bool
    on_disk: bool


POINTS = [
    Point("offset written", in_log=False, on_disk=False),
    Point("files written", in_log=False, on_disk=True),
    Point("commit put", in_log=True, on_disk=True),
    Point("write committed", in_log=True, on_disk=True),  # Spark does not know it yet
]


class Held(NamedTuple):
    """A stream, and the point of its second batch at which its process is killed."""

    source: str
    query: str
    point: Point

    @property
    def name(self) -> str:
        return f"{self.source}-{self.query}-{self.point.name.replace(' ', '-')}"


STREAMS = [Held(source, query, point) for source, query in QUERIES for point in POINTS]
QUARANTINED = [
    (f"quarantined-{place}-{point.replace(' ', '-')}", "delta", "quarantined", f"{prefix}{point}")
    for place, prefix in (("quarantine", "quarantine: "), ("sink", ""))
    for point in ("files written", "commit put")
]
"""Streams with a quarantine, by the points of the two commits of their second batch."""
CHANGES = [
    (f"changing-{point.replace(' ', '-')}", "changing", "rows", point)
    for point in ("files written", "write committed", "schema entry prepared", "schema entry put")
]
"""Streams whose table renames a column: the batch before the change, and the new entry of the schema log."""
FEEDS = [
    (f"feed-{point.replace(' ', '-')}", "changes", "rows", point)
    for point in ("offset written", "files written", "commit put", "write committed")
]
"""Streams of change rows, whose second batch has change files and a removed one."""
REPLICAS = [
    (f"replica-{point.replace(' ', '-')}", "changes", "replica", point)
    for point in ("commit prepared", "commit put")
]
"""Streams of change rows that keep a replica of their table."""
RIVAL = ("rival", "delta", "rows", "commit prepared")
"""The stream that another process overtakes."""


class Killed(NamedTuple):
    """The folder of the killed streams, the output of their process, and the end of the stream `rival`."""

    folder: Path
    shown: list[str]
    rival: str


@pytest.fixture(scope="module")
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Killed:
    """The streams that tests start again: they run in one process until each is held at its point, and it is
    killed.

    Before, this process overtakes the stream `rival` with the same checkpoint.
    """
    folder = tmp_path_factory.mktemp("killed")
    selected = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    started_again = [params["held"] for params in selected if "held" in params]
    names = {params["name"] for params in selected if "name" in params}
    quarantined, changes, feeds, replicas = (
        [stream for stream in streams if stream[0] in names]
        for streams in (QUARANTINED, CHANGES, FEEDS, REPLICAS)
    )
    for held in started_again:
        deliver(held.source, folder / held.name, range(90))
    deliver("delta", folder / "rival", range(90))
    for name, *_ in quarantined:
        make_constrained(folder / name / "sink")
        deliver("delta", folder / name, range(90))
    for name, *_ in changes:
        make_change(spark, folder / name)
    for name, *_ in (*feeds, *replicas):
        feed_table(str(folder / name / "source"))
    packages = str(Path(deltaflow.__file__).parents[1])
    search_path = os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    # The console shows the first one's source.
    streams = [RIVAL, *((held.name, held.source, held.query, held.point.name) for held in started_again)]
    streams += [*quarantined, *changes, *feeds, *replicas]
    shown: list[str] = []
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), json.dumps(streams)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # a process group that holds its JVM too
            env={**os.environ, "PYTHONPATH": search_path},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            missing = await_lines(process.stdout, [f"AT {name}\n" for name, *_ in streams], shown)
            if not missing:
                overtake(spark, folder / "rival")
                missing = await_lines(process.stdout, ["END rival"], shown)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert not missing, (missing, (folder / "stderr").read_text()[-5000:])
    deadline = time.monotonic() + WAIT_S
    while running(process.pid):
        assert time.monotonic() < deadline, "the JVM outlives its group's SIGKILL"
        time.sleep(0.02)
    return Killed(folder, shown, shown[-1].removeprefix("END rival ").strip())


def await_lines(output: IO[str], beginnings: Iterable[str], shown: list[str]) -> set[str]:
    """Reads lines until one has begun with each of these; returns those that never came."""
    waiting = set(beginnings)
    while waiting and (line := output.readline()):
        shown.append(line)
        waiting = {beginning for beginning in waiting if not line.startswith(beginning)}
    return waiting


def overtake(spark: Any, folder: Path) -> None:
    """Runs the folder's stream to its end here, and then lets the other process go on with it."""
    frame, _ = program().stream(spark, folder, "delta", "rows")
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "sink"))
    assert query.awaitTermination(int(WAIT_S))
    (folder / "go").touch()


def running(group: int) -> bool:
    """Whether a process of the group is alive. A zombie does not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            return True
    return False


def deliver(source: str, folder: Path, numbers: range) -> None:
    """Adds three files with the numbers to the source. The rate source makes its own rows."""
    path = folder / "source"
    path.mkdir(parents=True, exist_ok=True)
    for part in (numbers[i::3] for i in range(3)):
        if source == "files":
            text = "".join(json.dumps({"id": number}) + "\n" for number in part)
            (path / f"{part[0]:05}.json").write_text(text)
        elif source == "delta":
            deltalake.write_deltalake(str(path), pa.table({"id": list(part)}), mode="append")


def make_constrained(sink: Path) -> None:
    """A table whose constraint refuses ids that are multiples of five."""
    made = deltalake.DeltaTable.create(str(sink), pa.schema([pa.field("id", pa.int64())]), mode="error")
    made.alter.add_constraint({"fives": "id % 5 != 0"})


def make_change(spark: Any, folder: Path) -> None:
    """A stream that has read the ids 0 and 1 of a table, before a rename and the rows 2 and 3 around it."""
    table = ChangingTable(folder / "source")
    table.append(0, 1)
    run_to_the_end(spark, folder)
    table.append(2)
    table.rename("a", "c")
    table.append(3)


def run_to_the_end(spark: Any, folder: Path) -> str | None:
    """Runs the folder's stream out of a table that changes; its error."""
    frame, _ = program().stream(spark, folder, "changing", "rows")
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "sink"))
    try:
        assert query.awaitTermination(int(WAIT_S))
    except StreamingQueryException:
        return str(query.exception()).partition("]")[0][1:]
    return None


def numbered(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def program() -> ModuleType:
    """The program's module, for the streams that it defines."""
    spec = importlib.util.spec_from_file_location("killed_streams", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_rows(table: Path, query: str, numbers: Iterable[int]) -> None:
    """Checks that the table holds the query's result for these numbers, without duplicates."""
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    if query == "counts":
        counts = dict(zip(*found.to_pydict().values(), strict=True))
        assert counts == Counter(number % 3 for number in numbers)
    else:
        wanted = {number % 50 for number in numbers} if query == "distinct" else set(numbers)
        assert sorted(found["id"].to_pylist()) == sorted(wanted)


def check_whole(source: str, query: str, folder: Path, numbers: range) -> None:
    """Table and checkpoint agree on the batches, and every row of the source is in the table."""
    sink, checkpoint = folder / "sink", folder / "checkpoint"
    batches = versions(sink)
    assert [txn["version"] for txn in every_action(sink, "txn")] == batches
    assert numbered(checkpoint / "commits") == batches == list(range(len(batches)))
    if source == "rate":
        numbers = range(len(batches) * program().ROWS_PER_BATCH)
    else:
        assert len(batches) == len(list((folder / "source").glob("*.*")))
    check_rows(sink, query, numbers)


@pytest.mark.long
@pytest.mark.parametrize("held", STREAMS, ids=lambda held: held.name)
def test_killed_and_started_again(killed: Killed, streams: Any, held: Held) -> None:
    folder = killed.folder / held.name
    sink, checkpoint = folder / "sink", folder / "checkpoint"

    # Spark has planned the batch and has no record of its end. The log has it completely or not at all.
    assert numbered(checkpoint / "offsets") == [0, 1]
    assert numbered(checkpoint / "commits") == [0]
    there = [0, 1] if held.point.in_log else [0]
    assert versions(sink) == there
    assert [txn["version"] for txn in every_action(sink, "txn")] == there
    orphans = data_files(sink) - {add["path"] for add in every_action(sink, "add")}
    assert bool(orphans) == (held.point.on_disk and not held.point.in_log)
    before = {path.name: path.read_bytes() for path in (sink / "_delta_log").iterdir()}

    deliver(held.source, folder, range(90, 99))
    frame, mode = program().stream(streams.spark, folder, held.source, held.query)
    streams.copy(frame, str(sink), str(checkpoint), mode=mode)

    for name, content in before.items():
        assert (sink / "_delta_log" / name).read_bytes() == content
    check_whole(held.source, held.query, folder, range(99))
    assert not orphans & {add["path"] for add in every_action(sink, "add")}


@pytest.mark.parametrize(("source", "query"), QUERIES)
@pytest.mark.sampled(6)
def test_the_last_file_of_commits_lost(streams: Any, tmp_path: Path, source: str, query: str) -> None:
    """The batch is planned again, and is in the table already; the next one goes on from it."""
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def run(numbers: range) -> None:
        deliver(source, tmp_path, numbers)
        frame, mode = program().stream(streams.spark, tmp_path, source, query)
        streams.copy(frame, str(sink), str(checkpoint), mode=mode)

    run(range(90))
    last = streams.forget_last_batch(str(checkpoint))
    before = {path.name: path.read_bytes() for path in (sink / "_delta_log").iterdir()}
    run(range(90, 99))
    for name, content in before.items():
        assert (sink / "_delta_log" / name).read_bytes() == content
    assert versions(sink)[-1] > last
    check_whole(source, query, tmp_path, range(99))


@pytest.mark.parametrize("name", [name for name, *_ in QUARANTINED])
@pytest.mark.sampled(4)
def test_killed_between_the_commits_of_a_quarantine(killed: Killed, streams: Any, name: str) -> None:
    """Table and quarantine together hold every row once, each in the right one."""
    folder = killed.folder / name
    deliver("delta", folder, range(90, 99))
    frame, _ = program().stream(streams.spark, folder, "delta", "quarantined")
    quarantine = str(folder / "quarantine")
    streams.copy(frame, str(folder / "sink"), str(folder / "checkpoint"), quarantinePath=quarantine)
    assert streams.ids(str(folder / "sink")) == [number for number in range(99) if number % 5]
    aside = deltalake.DeltaTable(quarantine).to_pyarrow_table()
    assert sorted(row["id"] for row in aside["row"].to_pylist()) == list(range(0, 99, 5))
    assert [txn["version"] for txn in every_action(folder / "sink", "txn")] == list(range(6))


@pytest.mark.parametrize("name", [name for name, *_ in CHANGES])
def test_killed_around_a_change_of_the_schema(killed: Killed, streams: Any, name: str) -> None:
    """No row is lost or comes twice, and the schema log has the change once."""
    folder = killed.folder / name
    log = folder / "checkpoint" / "schema" / "_schema_log_table-1"
    is_written = name == "changing-schema-entry-put"
    assert numbered(log) == ([0, 1] if is_written else [0])
    errors = [run_to_the_end(streams.spark, folder) for _ in range(1 if is_written else 2)]
    assert errors == ([None] if is_written else ["DELTA_STREAMING_METADATA_EVOLUTION", None])
    assert streams.ids(str(folder / "sink")) == [0, 1, 2, 3]
    assert numbered(log) == [0, 1]
    batches = [txn["version"] for txn in every_action(folder / "sink", "txn")]
    assert batches == sorted(set(batches))


@pytest.mark.parametrize("name", [name for name, *_ in FEEDS])
def test_killed_stream_of_change_rows(killed: Killed, streams: Any, name: str) -> None:
    folder = killed.folder / name
    assert numbered(folder / "checkpoint" / "commits") == [
        *range(numbered(folder / "checkpoint" / "offsets")[-1])
    ]
    frame, _ = program().stream(streams.spark, folder, "changes", "rows")
    streams.copy(frame, str(folder / "sink"), str(folder / "checkpoint"))
    found = deltalake.DeltaTable(str(folder / "sink")).to_pyarrow_table().to_pylist()
    columns = ("id", "v", "p", "_change_type", "_commit_version")
    rows = sorted(tuple(row[column] for column in columns) for row in found)
    assert rows == sorted(row for version in OF_VERSIONS.values() for row in version)
    assert [txn["version"] for txn in every_action(folder / "sink", "txn")] == versions(folder / "sink")


@pytest.mark.parametrize("name", [name for name, *_ in REPLICAS])
@pytest.mark.sampled(2)
def test_killed_replica(killed: Killed, streams: Any, name: str) -> None:
    folder = killed.folder / name
    offsets = numbered(folder / "checkpoint" / "offsets")
    assert numbered(folder / "checkpoint" / "commits") == [*range(offsets[-1])]
    source = deltalake.DeltaTable(str(folder / "source"))
    source.update(updates={"id": "id + 10"}, predicate="id = 4")
    writer = program().replica(streams.spark, folder, "changes")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    streams.ended(writer.start())
    sink = deltalake.DeltaTable(str(folder / "sink")).to_pyarrow_table().select(["id", "v", "p"])
    assert sorted(map(str, sink.to_pylist())) == sorted(map(str, source.to_pyarrow_table().to_pylist()))
    applied = [txn["version"] for txn in every_action(folder / "sink", "txn")]
    assert applied == sorted(set(applied))


def test_two_processes_with_one_checkpoint(killed: Killed) -> None:
    """The second query that commits a batch fails, and no row is doubled."""
    folder = killed.folder / "rival"
    assert killed.rival.startswith("[DELTA_CONCURRENT_TRANSACTION]")
    assert str(folder / "sink") in killed.rival
    assert versions(folder / "sink") == [0, 1, 2]
    check_rows(folder / "sink", "rows", range(90))


def test_console(killed: Killed) -> None:
    """The console sink prints in the JVM, so its output is read from a separate process."""
    assert "Batch: 0\n" in killed.shown
    shown = [line.strip(" |\n") for line in killed.shown]
    assert {str(number) for number in range(90)} <= set(shown)
