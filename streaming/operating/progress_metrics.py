"""The progress of queries as metrics of Prometheus. The library makes both of its text formats of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from deltaflow.streaming.operating.progress import Progress
from deltaflow.streaming.operating.progress_listener import QueryHistory

_PREFIX = "deltaflow_stream_"
_QUERY = ("query", "query_id")

_COUNTERS: dict[str, tuple[str, Callable[[QueryHistory], int]]] = {
    "batches": ("Micro-batches that have ended.", lambda query: query.batches),
    "input_rows": ("Rows that were read.", lambda query: query.input_rows),
    "output_rows": ("Rows that were written, if the sink counts them.", lambda query: query.output_rows),
    "runs": ("Starts of the query in this process.", lambda query: query.runs),
    "failures": ("Runs of the query that have ended with an error.", lambda query: query.failures),
}
_GAUGES: dict[str, tuple[str, Callable[[Progress], float]]] = {
    "batch_id": ("The number of the last batch.", lambda last: last.batch_id),
    "batch_duration_seconds": ("How long the last batch took.", lambda last: last.seconds),
    "last_batch_timestamp_seconds": ("When the last batch began.", lambda last: last.timestamp_ms / 1_000),
    "input_rows_per_second": ("Rows that came per second.", lambda last: last.input_rows_per_second),
    "processed_rows_per_second": (
        "Rows that the last batch read per second of its time.",
        lambda last: last.processed_rows_per_second,
    ),
    "skipped_batches": (
        "Batches of this run that the sink's table had already.",
        lambda last: last.skipped_batches,
    ),
}
_OF_SOURCES = {
    "versions_behind": "Versions of the table that are not completely read.",
    "seconds_behind": "Age of the oldest version that is not completely read.",
    "files_outstanding": "Files that are still to be read.",
    "bytes_outstanding": "Bytes of the files that are still to be read.",
}


def metrics(queries: Sequence[QueryHistory]) -> Iterator[Metric]:
    """The metrics of queries, each with the labels `query` (its name or id) and `query_id`."""
    active = GaugeMetricFamily(_PREFIX + "active", "Whether the query runs.", labels=_QUERY)
    for query in queries:
        active.add_metric(_labels(query), bool(query.running))
    yield active
    for name, (text, count) in _COUNTERS.items():
        counter = CounterMetricFamily(_PREFIX + name, text, labels=_QUERY)
        for query in queries:
            counter.add_metric(_labels(query), count(query))
        yield counter
    told = [(query, query.progresses[-1]) for query in queries if query.progresses]
    for name, (text, measure) in _GAUGES.items():
        gauge = GaugeMetricFamily(_PREFIX + name, text, labels=_QUERY)
        for query, last in told:
            gauge.add_metric(_labels(query), measure(last))
        yield gauge
    yield _phases(told)
    for name, text in _OF_SOURCES.items():
        yield _of_sources(told, name, text)


def _phases(told: Sequence[tuple[QueryHistory, Progress]]) -> Metric:
    text = "How long a phase of the last batch took."
    gauge = GaugeMetricFamily(_PREFIX + "phase_duration_seconds", text, labels=(*_QUERY, "phase"))
    for query, last in told:
        for phase, seconds in last.phases.items():
            gauge.add_metric((*_labels(query), phase), seconds)
    return gauge


def _of_sources(told: Sequence[tuple[QueryHistory, Progress]], name: str, text: str) -> Metric:
    gauge = GaugeMetricFamily(_PREFIX + name, text, labels=(*_QUERY, "source", "description"))
    for query, last in told:
        for number, source in enumerate(last.sources):
            value = getattr(source, name)
            if value is not None:
                gauge.add_metric((*_labels(query), str(number), source.description), value)
    return gauge


def _labels(query: QueryHistory) -> tuple[str, str]:
    return query.label, query.query_id
