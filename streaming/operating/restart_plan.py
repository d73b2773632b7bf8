"""What the next start of a stream will do, by its checkpoint and its tables. Runs nothing, starts no JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.streams.checkpoint import StreamCheckpoint, reservoir_id
from deltaflow.log.streams.source_offset import BARRIERS
from deltaflow.store import qualified_path
from deltaflow.streaming.operating.batch_plan import BatchPlan
from deltaflow.streaming.operating.obstacles import Obstacle, obstacle_of
from deltaflow.streaming.operating.restart import Restart
from deltaflow.streaming.operating.sink_state import sink_state
from deltaflow.streaming.operating.stream_sources import stream_sources
from deltaflow.streaming.operating.text import amount, size, text_of


class RestartPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the next start of a stream will do."""

    checkpoint: str
    query_id: str | None
    has_state: bool
    """Whether the query keeps state. Such a query may run a batch without rows after the others."""
    batch: BatchPlan | None
    """The batch that comes first; None if there is nothing to do, or if an obstacle comes before."""
    later_batches: int
    """How many batches follow until all that is in the tables now is read, or an obstacle comes."""
    sink: str | None
    """The directory of the sink's table; None if the sink is none, or is not known."""
    sink_batch_id: int | None
    """The last batch of this query that the sink's table has."""
    obstacles: tuple[Obstacle, ...]
    """In the order in which the query meets them."""

    @property
    def stops(self) -> Obstacle | None:
        """The obstacle at which the query fails; None if it reads to the end."""
        return next((obstacle for obstacle in self.obstacles if obstacle.is_fatal), None)

    def __str__(self) -> str:
        return text_of(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield f"Stream {self.query_id or '?'}: {self._summary()}"
        if self.batch is not None:
            table = Table("source", "from", "to", "files", "bytes", "rows")
            table.columns[0].overflow = "fold"
            for step in self.batch.sources:
                table.add_row(
                    step.table or f"source {step.source}",
                    "the start" if step.start is None else _position(step.start),
                    "?" if step.end is None else _position(step.end),
                    amount(step.files),
                    size(step.bytes),
                    amount(step.rows),
                )
            yield table
        for obstacle in self.obstacles:
            yield str(obstacle)

    def _summary(self) -> str:
        if self.batch is None:
            return "the next start begins no batch." if self.stops else "there is nothing new to read."
        text = f"the next start {'replays' if self.batch.is_replay else 'begins'} batch {self.batch.batch_id}"
        if self.batch.is_in_sink:
            text += ", which the sink has already and will not write again"
        text += f"; {self.later_batches} follow"
        return text + (", then the query fails." if self.stops else ".")


def _position(json: str) -> str:
    if reservoir_id(json) is None:  # of another format
        return json
    offset = msgspec.json.decode(json)
    version, index = offset["reservoirVersion"], offset["index"]
    text = f"version {version}" + (f", file {index}" if index >= 0 else "")
    text += ", schema change" if index in BARRIERS else ""
    return f"{text} (snapshot)" if offset["isStartingVersion"] else text


def plan_restart(
    checkpoint: str,
    *,
    tables: Sequence[str] = (),
    sink: str | None = None,
    options: Mapping[str, Any] | None = None,
    app_id: str | None = None,
) -> RestartPlan:
    """What the next start of the stream with this checkpoint directory will do, and what will stop it.

    Nothing runs, no JVM is started, and nothing is written. The plan is that of the trigger availableNow;
    with another one the first batch is the same (without limits for `once`). It knows the tables, and not the
    query between them: it cannot see that a changed query, a failing function or a row that breaks a
    constraint stops the stream. Files that the option excludeRegex leaves out are counted.

    `tables` are the paths of the tables that the stream reads, in any order, and `sink` is that of the table
    that it writes, where the checkpoint does not name them (a stream that was begun by another Delta
    implementation) or where others are meant. `options` are those of readStream in the next start, in place
    of the recorded ones. `app_id` is the txnAppId of a foreachBatch that writes with it; by default the
    query's id. DeltaIllegalArgumentException if `checkpoint` is none (DELTA_NOT_A_STREAM_CHECKPOINT), or if
    a table has to be named (DELTA_STREAM_TABLE_UNKNOWN).
    """
    found = StreamCheckpoint(qualified_path(checkpoint))
    target = sink_state(found, None if sink is None else qualified_path(sink), app_id)
    try:
        sources = stream_sources(found, tables, options or {})
    except DeltaIllegalStateException as error:  # The checkpoint itself cannot be read.
        restart = Restart(found, [], target, obstacles=[obstacle_of(error, None, None)])
    else:
        restart = Restart(found, sources, target)
        restart.run()
    return RestartPlan(
        checkpoint=found.directory,
        query_id=found.query_id,
        has_state=found.has_state,
        batch=restart.first,
        later_batches=max(0, restart.num_batches - 1),
        sink=None if target is None else target.path,
        sink_batch_id=None if target is None else target.batch_id,
        obstacles=tuple(restart.obstacles),
    )
