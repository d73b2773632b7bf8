"""The listener of the progress of queries: real queries, the parsers of Prometheus, and pictures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.streaming import ProgressListener
from tests.streaming.conftest import TIMEOUT_S
from tests.streaming.source_tables import SourceTable

QUERY = "6f7a1c1e-6b0e-4b57-9a3f-2f0a3c1d5e77"


class Awaited(ProgressListener):
    """Tells when a query has ended."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)
        self.ended = threading.Event()

    def onQueryTerminated(self, event: Any) -> None:
        super().onQueryTerminated(event)
        self.ended.set()

    def wait(self) -> None:
        assert self.ended.wait(TIMEOUT_S), "the query did not end"
        self.ended.clear()


@pytest.fixture
def listener(spark: Any) -> Iterator[Awaited]:
    found = Awaited(max_progresses=4)
    spark.streams.addListener(found)
    yield found
    spark.streams.removeListener(found)


def samples(read: Callable[[str], Any], text: str) -> dict[tuple[str, str], float]:
    """The value of each sample by its name and its last label (phase, source) besides those of the query."""
    found = {}
    for family in read(text):
        for sample in family.samples:
            assert sample.labels["query"] == "my query"
            last = sample.labels.get("phase", sample.labels.get("source", ""))
            found[sample.name, last] = sample.value
    return found


@pytest.mark.spark
def test_a_query_that_ends_and_one_that_fails(
    streams: Any, listener: Awaited, table: str, sink: str, checkpoint: str, tmp_path: Path
) -> None:
    source = SourceTable(table, [0, 1], [2], [3], [4], [5], [6, 7, 8])
    frame = streams.read(table, maxFilesPerTrigger=1)
    writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint).queryName("my query")
    query = streams.ended(writer.trigger(availableNow=True).start(sink))
    listener.wait()

    [known] = listener.queries()
    assert (known.label, known.query_id, known.batches, known.input_rows) == ("my query", query.id, 6, 9)
    assert (known.runs, known.failures, known.running, known.error) == (1, 0, set(), None)
    history = listener.history("my query")
    assert history == listener.history(query.id) == listener.history()
    assert [progress.batch_id for progress in history] == [2, 3, 4, 5]  # the last four
    assert [progress.input_rows for progress in history] == [1, 1, 1, 3]
    assert [progress.total("files_outstanding") for progress in history] == [3, 2, 1, 0]
    assert [progress.most("versions_behind") for progress in history] == [1, 1, 1, 0]
    assert history[0].total("bytes_outstanding") == sum(source.size(number) for number in (3, 4, 5))
    assert history[-1].sources[0].description == f"DeltaSource[file:{table}]"
    assert all(0 < sum(p.phases.values()) <= p.seconds + 0.1 for p in history)
    assert msgspec.to_builtins(history[-1])["sources"][0]["versions_behind"] == 0

    figures = samples(read_prometheus, listener.prometheus())
    # OpenMetrics has no other figures, and has to end with a mark, which its parser demands.
    assert samples(read_openmetrics, listener.openmetrics()) == figures
    assert figures["deltaflow_stream_active", ""] == 0
    assert figures["deltaflow_stream_batches_total", ""] == 6
    assert figures["deltaflow_stream_input_rows_total", ""] == 9
    assert figures["deltaflow_stream_batch_id", ""] == 5
    assert figures["deltaflow_stream_files_outstanding", "0"] == 0
    assert figures["deltaflow_stream_phase_duration_seconds", "addBatch"] > 0
    registry = CollectorRegistry()
    registry.register(listener)
    assert samples(read_prometheus, generate_latest(registry).decode()) == figures

    picture = tmp_path / "progress.png"
    plot = listener.plot()
    plot.save(str(picture))
    assert picture.read_bytes()[:8] == plot._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [axes.get_title(loc="left") for axes in plot.figure.axes[:4]] == [
        "Unread versions",
        "Rows per second",
        "Time of a batch",
        "Waiting to be read",
    ]

    source.commit(remove=("f000.parquet",))
    writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint).queryName("my query")
    streams.failure(writer.trigger(availableNow=True).start(sink))
    listener.wait()
    [known] = listener.queries()
    assert (known.runs, known.failures, known.running) == (2, 1, set())
    assert "DELTA_SOURCE_IGNORE_DELETE" in str(known.error)
    assert samples(read_prometheus, listener.prometheus())["deltaflow_stream_failures_total", ""] == 1


def event(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def progress_event(query: str = QUERY, **fields: Any) -> SimpleNamespace:
    """A progress of Spark, of a source that reports nothing."""
    told = {
        "id": query,
        "runId": "r",
        "name": None,
        "timestamp": "2026-11-22T08:00:00.000Z",
        "batchId": 0,
        "durationMs": {"addBatch": 10, "triggerExecution": 20},
        "sources": [{"description": "Kafka", "metrics": {"versionsBehind": "many"}}],
        "sink": {"description": "Console"},
    }
    return event(progress=event(json=msgspec.json.encode(told | fields).decode()))


def test_a_query_that_runs_without_a_name() -> None:
    listener = ProgressListener()
    listener.onQueryStarted(event(id=QUERY, runId="r", name=None))
    assert "no batch has ended yet" in str(listener.plot().figure.texts[0].get_text())
    listener.onQueryProgress(progress_event())
    listener.onQueryIdle(event(id=QUERY, runId="r", timestamp="2026-11-22T08:00:01.000Z"))
    [progress] = listener.history()
    assert (progress.seconds, progress.output_rows, progress.most("versions_behind")) == (0.02, None, None)
    text = listener.prometheus()
    assert f'deltaflow_stream_active{{query="{QUERY}",query_id="{QUERY}"}} 1.0' in text
    assert "deltaflow_stream_versions_behind{" not in text
    assert listener.plot()._repr_png_()


def test_labels_are_escaped() -> None:
    listener = ProgressListener()
    name = 'a "name"\\ of\ntwo lines'
    listener.onQueryStarted(event(id=QUERY, runId="r", name=name))
    for read, text in ((read_prometheus, listener.prometheus()), (read_openmetrics, listener.openmetrics())):
        [sample] = next(iter(read(text))).samples
        assert sample.labels == {"query": name, "query_id": QUERY}


def test_what_is_kept_is_bounded() -> None:
    listener = ProgressListener(max_progresses=3)
    for number in range(120):
        for batch in range(5):
            listener.onQueryProgress(progress_event(f"query-{number}", batchId=batch))
    assert [query.query_id for query in listener.queries()] == [f"query-{i}" for i in range(20, 120)]
    assert {len(query.progresses) for query in listener.queries()} == {3}
    assert {query.batches for query in listener.queries()} == {5}


def test_a_query_that_it_does_not_know() -> None:
    listener = ProgressListener()
    for call in (listener.history, listener.plot):
        with pytest.raises(DeltaIllegalArgumentException, match="has not heard of the query another"):
            call("another")
    with pytest.raises(DeltaIllegalArgumentException, match="max_progresses"):
        ProgressListener(max_progresses=0)
