"""StreamingQuery.stop() while Python or Spark works: it is quick and clean, and no commit follows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import Dispatcher, dispatcher
from deltaflow.streaming.source import DeltaSource
from tests.tables import load, versions

pytestmark = pytest.mark.spark

# The time that stop() promises, the only duration that a test asserts.
STOP_BOUND_S = 5.0
WAIT_S = 60.0


class Gate:
    """Holds the first thread that comes to it until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.left = threading.Event()

    def hold(self) -> None:
        """Blocks, once."""
        if not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(WAIT_S)
            self.left.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


class Calls:
    """The calls of the JVM that Python is working on."""

    def __init__(self) -> None:
        self._under_way = 0
        self._changed = threading.Condition()

    def answering(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """The dispatcher's `apply`, counted."""

        def counted(*arguments: Any) -> Any:
            with self._changed:
                self._under_way += 1
            try:
                return apply(*arguments)
            finally:
                with self._changed:
                    self._under_way -= 1
                    self._changed.notify_all()

        return counted

    def wait_for_the_end(self) -> None:
        """Waits until Python has answered every call."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._under_way == 0, WAIT_S)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    counted = Calls()
    monkeypatch.setattr(Dispatcher, "apply", counted.answering(Dispatcher.apply))
    return counted


def holding(gate: Gate, point: str, table: str) -> Callable[[str, dict[str, Any]], None]:
    """An observer that holds the first operation on a table at a point."""

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == point and facts.get("path", facts.get("table")) == table:
            gate.hold()

    return observer


def stop(query: Any) -> None:
    """Stops a query within the bound, without an error."""
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < STOP_BOUND_S
    assert not query.isActive
    assert query.exception() is None


@pytest.mark.parametrize(
    ("point", "committed", "changes"),
    [
        ("offset written", 0, False),
        ("files written", 0, False),
        ("files written", 0, True),
        ("commit prepared", 0, False),
        ("commit put", 1, False),
        ("write committed", 1, True),
    ],
)
@pytest.mark.sampled(3)
def test_while_python_works(
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    gate: Gate,
    calls: Calls,
    point: str,
    committed: int,
    changes: bool,
) -> None:
    """`changes`: whether the stream reads change rows."""
    if changes:
        definition = "(id BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        streams.spark.sql(f"CREATE TABLE delta.`{table}` {definition}")
    streams.append(table, 0, 5)
    handles = dispatcher.open_handles
    set_observer(holding(gate, point, sink))
    source = streams.read(table, readChangeFeed=str(changes).lower()).select("id")
    query = streams.write(source, sink, checkpoint, trigger={"processingTime": "0 seconds"})
    assert gate.reached.wait(WAIT_S)
    stop(query)
    log = Path(sink, "_delta_log")
    assert len(list(log.glob("*.json"))) == committed
    assert not Path(checkpoint, "commits", "0").exists()
    # The call that Python still answers has no effect.
    gate.opened.set()
    assert gate.left.wait(WAIT_S)
    calls.wait_for_the_end()
    assert dispatcher.open_handles == handles
    set_observer(None)
    assert len(list(log.glob("*.json"))) == committed
    # Files that no commit names are gone.
    assert any(Path(sink).rglob("part-*")) == bool(committed)
    streams.append(table, 5, 8)
    streams.copy(source, sink, checkpoint)
    assert streams.ids(sink) == list(range(8))
    assert len(list(log.glob("*.json"))) == 2
    assert {file.suffix for file in log.iterdir()} == {".json", ".crc"}


@pytest.mark.parametrize("method", ["latest_offset", "batch"])
def test_while_the_source_works(
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    streams.append(table, 0, 5)
    real = getattr(DeltaSource, method)

    def held(self: DeltaSource, *arguments: Any) -> Any:
        gate.hold()
        return real(self, *arguments)

    monkeypatch.setattr(DeltaSource, method, held)
    source = streams.read(table)
    query = streams.write(source, sink, checkpoint, trigger={"processingTime": "0 seconds"})
    assert gate.reached.wait(WAIT_S)
    stop(query)
    gate.opened.set()
    assert gate.left.wait(WAIT_S)
    assert not Path(sink).exists()
    streams.copy(source, sink, checkpoint)
    assert streams.ids(sink) == list(range(5))


def test_while_spark_works(streams: Any, table: str, sink: str, checkpoint: str, tmp_path: Path) -> None:
    streams.append(table, 0, 4)
    started, release = tmp_path / "started", tmp_path / "release"

    @F.udf("long")
    def slow(value):  # type: ignore[no-untyped-def]  # type hints would make a pandas UDF of it
        started.touch()
        while not release.exists():
            time.sleep(0.02)
        return value

    source = streams.read(table).select(slow("id").alias("id"))
    query = streams.write(source, sink, checkpoint, trigger={"processingTime": "0 seconds"})
    streams.until(started.exists, query)
    try:
        stop(query)
        assert not list(Path(sink).glob("_delta_log/*.json"))
    finally:
        release.touch()
    streams.copy(source, sink, checkpoint)
    assert streams.ids(sink) == [0, 1, 2, 3]
    assert versions(sink) == [0]


def test_a_complete_batch_is_stopped_whole(
    streams: Any, table: str, sink: str, checkpoint: str, gate: Gate, calls: Calls
) -> None:
    streams.append(table, 0, 4)
    counts = streams.read(table).groupBy().count()
    streams.copy(counts, sink, checkpoint, mode="complete")
    streams.append(table, 4, 6)
    set_observer(holding(gate, "commit prepared", sink))
    query = streams.write(counts, sink, checkpoint, mode="complete", trigger={"processingTime": "0 seconds"})
    assert gate.reached.wait(WAIT_S)
    stop(query)
    gate.opened.set()
    assert gate.left.wait(WAIT_S)
    calls.wait_for_the_end()
    assert versions(sink) == [0]
    set_observer(None)
    streams.copy(counts, sink, checkpoint, mode="complete")
    [total] = load(streams.spark, sink).collect()
    assert total["count"] == 6


def test_a_release_that_overtakes_its_call() -> None:
    """If the call's thread runs last, the source that it opens is not kept, nor its handle used again."""
    dispatcher = Dispatcher()
    assert dispatcher.release(1) is None
    dispatcher.keep(1, "late")
    assert dispatcher.find(1) is None
    dispatcher.keep(2, "in time")
    assert dispatcher.release(2) == "in time"
    assert dispatcher.open_handles == 0
