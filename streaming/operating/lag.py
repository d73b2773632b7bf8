"""How far a stream is behind its tables, and how long until what it still needs is deleted. Starts no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from deltaflow.errors import DeltaError
from deltaflow.log import Snapshot
from deltaflow.log.replay.log_files import Clock, system_clock
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.expiry import Expiry
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.store import qualified_path
from deltaflow.streaming.backlog import Backlog, Outstanding
from deltaflow.streaming.bounds import ending_version
from deltaflow.streaming.initial_snapshot import initial_snapshot
from deltaflow.streaming.operating.stream_sources import (
    StreamSource,
    start_of_first_batch,
    start_position,
    stream_sources,
)
from deltaflow.streaming.operating.text import amount, duration, size, text_of
from deltaflow.streaming.reading import Reading


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """How long until something is deleted that a stream has still to read."""

    seconds: float
    """Negative if it may have been deleted by now."""
    version: int
    """The version whose commit, or whose file, goes first."""
    file: str | None
    """The file, as in the table's log; None for a commit."""
    by: str
    """What deletes it: "log clean-up" or "vacuum"."""
    is_gone: bool
    """Whether it has been deleted."""

    def __str__(self) -> str:
        what = f"the commit of version {self.version}"
        if self.file is not None:
            what = f"the file {self.file} of version {self.version}"
        if self.is_gone:
            return f"{what} is deleted already"
        when = "now" if self.seconds <= 0 else f"in {duration(self.seconds)}"
        return f"{what} may be deleted by a {self.by} {when}"


class SourceLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far one source of a stream is behind. A number is None where it is not known."""

    source: str
    """The source's number in the checkpoint, or its name."""
    table: str | None
    """The table's directory; None for a source of another format."""
    table_id: str | None
    version: int | None = None
    """The version that is read next, or in part: the position of the source."""
    index: int | None = None
    """The number of the last file that is read of that version; negative if none is."""
    is_initial_snapshot: bool = False
    """Whether the source is inside of the snapshot with which the stream began."""
    newest_version: int | None = None
    versions: int | None = None
    """The number of versions that are not completely read."""
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    """By the files' statistics; None if those of one file lack it."""
    seconds: int | None = None
    """The age of the oldest version that is not completely read; 0 if all are."""
    headroom: tuple[Headroom, ...] = ()
    """What is in danger, most urgent first: at most one entry for the log's clean-up and one for a vacuum."""
    error: str | None = None
    """Why the source cannot be measured."""


class StreamLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream is behind."""

    checkpoint: str
    query_id: str | None
    batch_id: int | None
    """The last batch that is done; None before the first."""
    sources: tuple[SourceLag, ...]

    @property
    def headroom(self) -> Headroom | None:
        """The most urgent of all sources; None if nothing is in danger."""
        found = [headroom for source in self.sources for headroom in source.headroom]
        return min(found, key=lambda headroom: headroom.seconds, default=None)

    def __str__(self) -> str:
        return text_of(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        done = "no batch is done" if self.batch_id is None else f"batch {self.batch_id} is done"
        yield f"Stream {self.query_id or '?'}: {done}"
        table = Table("source", "at version", "newest", "versions", "files", "bytes", "rows", "behind")
        table.columns[0].overflow = "fold"
        for lag in self.sources:
            position = "" if lag.version is None else str(lag.version)
            if lag.index is not None and lag.index >= 0:
                position += f", file {lag.index}"
            if lag.is_initial_snapshot:
                position += " (snapshot)"
            table.add_row(
                lag.table or f"source {lag.source}",
                position,
                amount(lag.newest_version),
                amount(lag.versions),
                amount(lag.files),
                size(lag.bytes),
                amount(lag.rows),
                "?" if lag.seconds is None else duration(lag.seconds),
            )
        yield table
        for lag in self.sources:
            for headroom in lag.headroom:
                yield f"Source {lag.source}: {headroom}"
            if lag.error is not None:
                yield f"Source {lag.source}: {lag.error}"


def lag(
    checkpoint: str,
    *,
    tables: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    clock: Clock = system_clock,
) -> StreamLag:
    """How far the stream with this checkpoint directory is behind its tables. Starts no JVM.

    The numbers are those that the running stream reports in its progress after its last batch (`versions` is
    `versionsBehind`, `files` is `numFilesOutstanding`, …), and rows besides. A stream that was not begun by
    deltaflow does not name its tables in its checkpoint: their paths are given in `tables`, in any order, and
    those options of its readStream that bound what it reads in `options`. DeltaIllegalArgumentException
    (DELTA_NOT_A_STREAM_CHECKPOINT) if `checkpoint` is none; what is wrong with a source is in its `error`.
    """
    found = StreamCheckpoint(qualified_path(checkpoint))
    done = found.newest_done
    entry = None if done is None else found.offsets(done)
    sources = stream_sources(found, tables, options or {})
    first = found.offsets(found.planned[0]) if entry is None and found.planned else None
    return StreamLag(
        checkpoint=found.directory,
        query_id=found.query_id,
        batch_id=done,
        sources=tuple(_source_lag(source, entry, first, clock) for source in sources),
    )


def _source_lag(
    source: StreamSource, done: BatchOffsets | None, planned: BatchOffsets | None, clock: Clock
) -> SourceLag:
    """The lag of a source; `planned` is the first batch of a stream that has done none."""
    found = SourceLag(source=source.name, table=source.path, table_id=source.table_id)
    if not source.is_delta:
        return msgspec.structs.replace(found, error="It does not read a Delta table, and is not measured.")
    try:
        return _measured(found, source, done, planned, clock)
    except DeltaError as error:
        return msgspec.structs.replace(found, error=str(error))


def _measured(
    found: SourceLag,
    source: StreamSource,
    done: BatchOffsets | None,
    planned: BatchOffsets | None,
    clock: Clock,
) -> SourceLag:
    newest = source.newest()
    reading = source.reading(newest)
    planned_end = None if planned is None else planned.offsets.get(source.name)
    if planned_end is not None:
        position = start_of_first_batch(reading, newest, planned_end)
    else:
        position = start_position(source, reading, newest, done)
    found = msgspec.structs.replace(
        found,
        table=reading.path,
        table_id=position.reservoir_id,
        version=position.reservoir_version,
        index=position.index,
        is_initial_snapshot=position.is_starting_version,
        newest_version=newest.version,
        headroom=tuple(_headroom(_expiry(reading, position), clock())),
    )
    try:
        outstanding = _outstanding(reading, newest, position, clock)
    except DeltaError as error:
        return msgspec.structs.replace(found, error=str(error))
    return msgspec.structs.replace(found, **outstanding._asdict())


def _outstanding(
    reading: Reading, newest: Snapshot, position: DeltaSourceOffset, clock: Clock
) -> Outstanding:
    bound = ending_version(reading, newest)
    last_version = newest.version if bound is None else min(newest.version, bound)
    initial = None
    if position.is_starting_version:
        initial = initial_snapshot(reading, position.reservoir_version)
    return Backlog(reading, clock).outstanding(last_version, position, initial)


def _expiry(reading: Reading, position: DeltaSourceOffset) -> Iterable[Expiry | None]:
    return reading.log.stream_expiry(position, of_changes=reading.options.read_change_feed)


def _headroom(expiries: Iterable[Expiry | None], now_ms: int) -> list[Headroom]:
    found = [
        Headroom(
            seconds=timedelta(milliseconds=expiry.at_ms - now_ms).total_seconds(),
            version=expiry.version,
            file=expiry.path,
            by="log clean-up" if expiry.path is None else "vacuum",
            is_gone=expiry.is_gone,
        )
        for expiry in expiries
        if expiry is not None
    ]
    return sorted(found, key=lambda headroom: headroom.seconds)
