"""The progress of a query after a batch, as its listener keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One source of a query after a batch. A number is None where the source does not report it."""

    description: str
    input_rows: int
    versions_behind: int | None = None
    seconds_behind: int | None = None
    files_outstanding: int | None = None
    bytes_outstanding: int | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A query after a batch: Spark's StreamingQueryProgress, as far as it is drawn and exported."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    timestamp_ms: int
    """When the batch began, in milliseconds since the epoch."""
    seconds: float
    """How long the batch took."""
    phases: dict[str, float]
    """The seconds of its phases, by Spark's names: latestOffset, queryPlanning, addBatch, walCommit, …"""
    input_rows: int
    output_rows: int | None
    """None if the sink does not count them."""
    input_rows_per_second: float
    processed_rows_per_second: float
    skipped_batches: int
    """How many batches of this run the sink's table had already."""
    sources: tuple[SourceProgress, ...]

    def most(self, name: str) -> int | None:
        """The largest of a number of the sources; None if none has it."""
        return max(self._numbers(name), default=None)

    def total(self, name: str) -> int | None:
        """The sum of a number of the sources; None if none has it."""
        return sum(self._numbers(name)) if self._numbers(name) else None

    def _numbers(self, name: str) -> list[int]:
        found = (getattr(source, name) for source in self.sources)
        return [number for number in found if number is not None]


class _Source(msgspec.Struct, rename="camel"):
    description: str
    num_input_rows: int = 0
    metrics: dict[str, str] = {}


class _Sink(msgspec.Struct, rename="camel"):
    num_output_rows: int = -1
    metrics: dict[str, str] = {}


class _Spark(msgspec.Struct, rename="camel"):
    """The JSON of a StreamingQueryProgress, which is the same in all releases of Spark."""

    id: str
    run_id: str
    batch_id: int
    timestamp: datetime
    duration_ms: dict[str, int]
    sources: list[_Source]
    sink: _Sink
    name: str | None = None
    batch_duration: int | None = None
    num_input_rows: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0


def parse_progress(json: str) -> Progress:
    """The progress of Spark's JSON (`event.progress.json`)."""
    told = msgspec.json.decode(json, type=_Spark)
    phases = {name: ms / 1_000 for name, ms in told.duration_ms.items() if name != "triggerExecution"}
    whole = told.duration_ms.get("triggerExecution", told.batch_duration or 0)
    return Progress(
        query_id=told.id,
        run_id=told.run_id,
        name=told.name,
        batch_id=told.batch_id,
        timestamp_ms=round(told.timestamp.timestamp() * 1_000),
        seconds=whole / 1_000,
        phases=phases,
        input_rows=told.num_input_rows,
        output_rows=None if told.sink.num_output_rows < 0 else told.sink.num_output_rows,
        input_rows_per_second=told.input_rows_per_second,
        processed_rows_per_second=told.processed_rows_per_second,
        skipped_batches=_number(told.sink.metrics, "numSkippedBatches") or 0,
        sources=tuple(_source(source) for source in told.sources),
    )


def _source(told: _Source) -> SourceProgress:
    return SourceProgress(
        description=told.description,
        input_rows=told.num_input_rows,
        versions_behind=_number(told.metrics, "versionsBehind"),
        seconds_behind=_number(told.metrics, "secondsBehind"),
        files_outstanding=_number(told.metrics, "numFilesOutstanding"),
        bytes_outstanding=_number(told.metrics, "numBytesOutstanding"),
    )


def _number(metrics: Mapping[str, str], name: str) -> int | None:
    """A metric of a source or sink; None without it, or where another source means no number by the name."""
    text = metrics.get(name, "")
    return int(text) if text.lstrip("-").isdecimal() else None
