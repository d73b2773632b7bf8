"""A stream that runs for long holds no more objects on either side of py4j than one that has just begun."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.tables import load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_PATIENCE_S = 240
_ROUNDS = 5


class Counts(NamedTuple):
    bindings: int
    """Java objects that Python can name, in the gateway's table."""
    proxies: int
    """Python objects that Java can call."""
    handles: int
    """What deltaflow keeps for the JVM."""


@pytest.fixture(autouse=True)
def silent_observer() -> Iterator[None]:
    yield
    set_observer(None)


def give_up_names(client: Any) -> None:
    """What py4j does on a thread of its own, which looks once a second: tells Java the names given up."""
    while True:
        try:
            owner, name = client.finalizer_deque.pop()
        except IndexError:
            return
        owner.garbage_collect_object(name, enqueue=False)


def counts(spark: SparkSession) -> Counts:
    """The fewest of each, over several rounds of garbage collection on both sides: Java's collector gives up
    proxies of Python objects, Python's gives up names of Java objects, and what is given up is gone a call
    later, while the counting itself names some."""
    gateway: Any = spark.sparkContext._gateway
    bindings = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway().getBindings()
    system: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    rounds = []
    for _ in range(_ROUNDS):
        gc.collect()
        give_up_names(gateway._gateway_client)
        system.gc()
        system.runFinalization()
        proxies = len(gateway.gateway_property.pool.dict)
        rounds.append((bindings.size(), proxies, dispatcher.open_handles))
    return Counts(*(min(counted) for counted in zip(*rounds, strict=True)))


def counts_at(spark: SparkSession, folder: Path, batches: tuple[int, int]) -> list[Counts]:
    """The counts while a stream from a Delta table into another one is held at these of its batches."""
    last = batches[-1]
    spark.range(0, last + 2, 1, last + 2).write.format("delta").save(str(folder / "source"))
    arrived = {batch: threading.Event() for batch in batches}
    go_on = {batch: threading.Event() for batch in batches}

    def hold(point: str, facts: dict[str, Any]) -> None:
        if point == "offset written" and facts["batch_id"] in batches:
            arrived[facts["batch_id"]].set()
            go_on[facts["batch_id"]].wait(_PATIENCE_S)

    set_observer(hold)
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder / "source"))
    query = (
        stream.writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "sink"))
    )
    found = []
    try:
        for batch in batches:
            assert arrived[batch].wait(_PATIENCE_S), query.exception()
            found.append(counts(spark))
            go_on[batch].set()
        query.awaitTermination()
    finally:
        for event in go_on.values():
            event.set()
        query.stop()
    assert load(spark, str(folder / "sink")).count() == last + 2
    return found


@pytest.mark.parametrize("batches", [(3, 6), pytest.param((50, 200), marks=pytest.mark.long)])
def test_micro_batches_leave_no_objects(
    spark: SparkSession, tmp_path: Path, batches: tuple[int, int]
) -> None:
    before = dispatcher.open_handles
    early, late = counts_at(spark, tmp_path, batches)
    assert early == late
    assert dispatcher.open_handles == before


@pytest.mark.long
def test_that_would_be_seen(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same measure, with nothing released."""
    monkeypatch.setattr(dispatcher, "_handles", {})
    monkeypatch.setattr(dispatcher, "release", dispatcher.find)
    early, late = counts_at(spark, tmp_path, (3, 8))
    assert late.handles == early.handles + 5
