"""A listener that keeps the progress of streaming queries, exports it to Prometheus, and draws it."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.streaming.operating.progress import Progress, parse_progress

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from deltaflow.streaming.operating.progress_plot import ProgressPlot

_MOST_QUERIES = 100


@dataclass
class QueryHistory:
    """What a listener knows of one query, over all its runs in this process."""

    query_id: str
    name: str | None
    progresses: deque[Progress]
    """The newest ones, oldest first."""
    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    runs: int = 0
    failures: int = 0
    error: str | None = None
    """The error of the last run, if it failed."""
    running: set[str] = field(default_factory=set)
    """The ids of the runs that have not ended."""

    @property
    def label(self) -> str:
        """The query's name, or its id."""
        return self.name or self.query_id


class ProgressListener(StreamingQueryListener):
    """Keeps the progress of all streaming queries of a session; safe for use by several threads.

        listener = ProgressListener()
        spark.streams.addListener(listener)
        print(listener.prometheus())
        listener.plot().save("progress.png")

    It keeps the last `max_progresses` batches of each query, and the last 100 queries; counters count all
    batches. It is a collector of `prometheus_client`, too: `prometheus_client.REGISTRY.register(listener)`
    exports it with the process's other metrics.
    """

    def __init__(self, max_progresses: int = 1_000) -> None:
        if max_progresses < 1:
            raise DeltaIllegalArgumentException(
                error_class="DELTA_ILLEGAL_OPTION",
                input=max_progresses,
                name="max_progresses",
                explain="must be a positive integer",
            )
        self._max_progresses = max_progresses
        self._queries: OrderedDict[str, QueryHistory] = OrderedDict()
        """By id; the one that was heard of last is the last."""
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls this when a query starts."""
        with self._lock:
            query = self._query(str(event.id), event.name)
            query.runs += 1
            query.running.add(str(event.runId))
            query.error = None

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark calls this after a batch."""
        progress = parse_progress(event.progress.json)
        with self._lock:
            query = self._query(progress.query_id, progress.name)
            query.progresses.append(progress)
            query.batches += 1
            query.input_rows += progress.input_rows
            query.output_rows += progress.output_rows or 0

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark calls this when a query has nothing to read; the last progress still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Spark calls this when a query ends."""
        with self._lock:
            query = self._query(str(event.id), None)
            query.running.discard(str(event.runId))
            query.error = event.exception
            query.failures += event.exception is not None

    def queries(self) -> list[QueryHistory]:
        """What is known of each query, in the order in which they were last heard of."""
        with self._lock:
            return [self._copy(query) for query in self._queries.values()]

    def history(self, query: str | None = None) -> list[Progress]:
        """The progress of a query, oldest first.

        The query is given by its name or id; None is the one that was heard of last.
        DeltaIllegalArgumentException (DELTA_STREAM_UNKNOWN_QUERY) if there is no such query.
        """
        return list(self._find(query).progresses)

    def prometheus(self) -> str:
        """The newest figures of all queries in Prometheus' text format. Needs `deltaflow[metrics]`."""
        from prometheus_client import generate_latest

        return self._exported(generate_latest)

    def openmetrics(self) -> str:
        """As `prometheus`, in the text format of OpenMetrics 1.0."""
        from prometheus_client.openmetrics.exposition import generate_latest

        return self._exported(generate_latest)

    def collect(self) -> Iterator[Metric]:
        """The metrics, for a registry of `prometheus_client`."""
        from deltaflow.streaming.operating.progress_metrics import metrics

        return metrics(self.queries())

    def plot(self, query: str | None = None) -> ProgressPlot:
        """A picture of a query's progress, named as in `history`. Needs `deltaflow[plot]`.

        A notebook shows it; `save(path)` writes it to a file.
        """
        from deltaflow.streaming.operating.progress_plot import ProgressPlot

        return ProgressPlot(self._find(query))

    def _exported(self, generate: Callable[[CollectorRegistry], bytes]) -> str:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate(registry).decode()

    def _query(self, query_id: str, name: str | None) -> QueryHistory:
        found = self._queries.pop(query_id, None)
        if found is None:
            found = QueryHistory(query_id, name, deque(maxlen=self._max_progresses))
        found.name = name or found.name
        self._queries[query_id] = found
        while len(self._queries) > _MOST_QUERIES:
            self._queries.popitem(last=False)
        return found

    def _find(self, query: str | None) -> QueryHistory:
        found = [known for known in self.queries() if query in (None, known.name, known.query_id)]
        if not found:
            known = ", ".join(history.label for history in self.queries()) or "none"
            raise DeltaIllegalArgumentException(
                f"The listener has not heard of the query {query or '(any)'}. It knows: {known}. Add it with "
                "spark.streams.addListener(...) before the query starts.",
                error_class="DELTA_STREAM_UNKNOWN_QUERY",
            )
        return found[-1]

    def _copy(self, query: QueryHistory) -> QueryHistory:
        copy = QueryHistory(**vars(query))
        copy.progresses, copy.running = deque(query.progresses), set(query.running)
        return copy
