"""Plays the restart of a stream through the code of its sources, without reading a row.

The order is that of Spark's MicroBatchExecution: the sources are made, the last batch of the checkpoint is
asked for again, then each batch is planned, recorded, read and written. The trigger is availableNow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaError
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.source_offset import decode_offset
from deltaflow.store import given_path
from deltaflow.streaming.admission import Limits
from deltaflow.streaming.commits import totals
from deltaflow.streaming.operating.batch_plan import BatchPlan, SourceStep
from deltaflow.streaming.operating.later_obstacles import later_obstacles, next_start_obstacle
from deltaflow.streaming.operating.obstacles import (
    BATCH_MISSING,
    DONE_BEFORE,
    EDIT_INTERRUPTED,
    FILE_NOT_EXIST,
    OTHER_FORMAT,
    Obstacle,
    obstacle,
    obstacle_of,
)
from deltaflow.streaming.operating.sink_state import SinkState, lost_query_id
from deltaflow.streaming.operating.stream_sources import StreamSource
from deltaflow.streaming.source import DeltaSource, files_of_planned_batch
from deltaflow.streaming.source_start import snapshot_to_read

_MOST_PATHS = 1_000
_MOST_FILES_LOOKED_AT = 10_000
"""A larger first batch is only searched for files that its table has removed."""


class _Stopped(Exception):
    """The query fails here; the obstacle is recorded."""


@dataclass
class _Running:
    """A source of the query that is played."""

    source: StreamSource
    delta: DeltaSource
    removed: pa.Array
    """The paths of files that the stream has yet to read and that its table has removed."""


@dataclass
class Restart:
    """The restart of a stream; `run` finds what it does."""

    checkpoint: StreamCheckpoint
    sources: list[StreamSource]
    sink: SinkState | None
    first: BatchPlan | None = None
    """The first batch that runs."""
    num_batches: int = 0
    obstacles: list[Obstacle] = field(default_factory=list)
    _running: dict[str, _Running] = field(default_factory=dict)
    _offsets: dict[str, str | None] = field(default_factory=dict)
    """How far the batches up to now have come, by source."""

    def run(self) -> None:
        """Plays the query until it has read everything, or fails."""
        with suppress(_Stopped):
            self._run()

    def _run(self) -> None:
        newest = self.checkpoint.newest_planned
        # As Spark, which looks at the newest entries alone.
        is_done = newest is not None and self.checkpoint.done[-1:] == [newest]
        batch_id = 0 if newest is None else newest + 1 if is_done else newest
        if self.checkpoint.is_blocked:
            self._stop(
                obstacle(
                    EDIT_INTERRUPTED,
                    f"A change of the checkpoint {self.checkpoint.directory} was interrupted. Spark finds "
                    "that an entry of offsets is missing, and does not start the query.",
                    batch_id=batch_id,
                )
            )
        if newest is None and self.checkpoint.done:
            self._stop(
                obstacle(
                    BATCH_MISSING,
                    f"The checkpoint {self.checkpoint.directory} has no entry in offsets, and by its commits "
                    f"batch {self.checkpoint.done[-1]} is done. Spark fails with such a checkpoint.",
                    batch_id=batch_id,
                )
            )
        self._warn(batch_id, is_replay=newest is not None and not is_done)
        for source in self.sources:
            self._start(source, batch_id)
        if newest is not None:
            start, end = self._entries(newest, batch_id)
            for name, json in (start.offsets if start is not None else {}).items():
                self._offsets[name] = json
            if is_done:
                self._check_done_batch(start, end, batch_id)
            elif self.checkpoint.done[-1:] > [newest]:
                self._refuse_to_replay(newest)
            else:
                self._replay(end)
            self._offsets = dict(end.offsets)
            batch_id = newest + 1
        for running in self._running.values():
            running.delta.prepare_for_available_now()
        while self._plan_and_run(batch_id):
            batch_id += 1

    def _warn(self, batch_id: int, *, is_replay: bool) -> None:
        lost = lost_query_id(self.checkpoint)
        if lost is not None:
            if lost.is_fatal:
                self._stop(lost)
            self.obstacles.append(lost)
        elif self.sink is not None and self.sink.error is None:
            self.obstacles += self.sink.warnings(self.checkpoint, batch_id, is_replay=is_replay)

    def _start(self, source: StreamSource, batch_id: int) -> None:
        if not source.is_delta:
            self.obstacles.append(
                obstacle(
                    OTHER_FORMAT,
                    f"Source {source.name} reads no Delta table: what it gives to a batch is not planned.",
                    is_fatal=False,
                    source=source.name,
                )
            )
            return
        path = source.known_path()
        try:
            reading = source.reading(snapshot_to_read(given_path(path), {}), is_start=True)
        except DeltaError as error:
            self._stop(obstacle_of(error, source.name, batch_id))
        self._running[source.name] = _Running(source, DeltaSource(reading), pa.array([], pa.string()))

    def _entries(self, newest: int, batch_id: int) -> tuple[BatchOffsets | None, BatchOffsets]:
        """The checkpoint's entries of the batch before the newest one, and of the newest one."""
        before = None
        if newest > 0 and newest - 1 not in self.checkpoint.planned:
            self._stop(
                obstacle(
                    BATCH_MISSING,
                    f"The checkpoint {self.checkpoint.directory} has an entry for batch {newest} in offsets, "
                    f"and none for batch {newest - 1}, which Spark needs as its start.",
                    batch_id=batch_id,
                )
            )
        try:
            if newest > 0:
                before = self.checkpoint.offsets(newest - 1)
            return before, self.checkpoint.offsets(newest)
        except DeltaError as error:
            self._stop(obstacle_of(error, None, batch_id))

    def _check_done_batch(self, start: BatchOffsets | None, end: BatchOffsets, batch_id: int) -> None:
        """Spark asks for the batch that is done once more, and drops it."""
        for name, running in self._running.items():
            end_json = end.offsets.get(name)
            if end_json is None:
                continue
            try:
                running.delta.batch(None if start is None else start.offsets.get(name), end_json)
            except DeltaError as error:
                self._stop(obstacle_of(error, name, batch_id))
            self._find_removed(running, end_json)

    def _refuse_to_replay(self, newest: int) -> NoReturn:
        """Spark runs the batch again, and then finds that it is recorded as done."""
        self._stop(
            obstacle(
                DONE_BEFORE,
                f"By the checkpoint's commits batch {self.checkpoint.done[-1]} is done, but its offsets end "
                f"with batch {newest}: entries of offsets are lost.",
                batch_id=newest,
            )
        )

    def _replay(self, end: BatchOffsets) -> None:
        """The batch whose offsets are recorded, and that is not recorded as done."""
        steps: dict[str, tuple[str, pa.Table]] = {}
        for name, running in self._running.items():
            start_json, end_json = self._offsets.get(name), end.offsets.get(name)
            if end_json is None:
                continue
            try:
                running.delta.batch(start_json, end_json)
                files = files_of_planned_batch(running.delta.reading, start_json, end_json)
            except DeltaError as error:
                self._stop(obstacle_of(error, name, end.batch_id))
            self._find_removed(running, start_json or end_json)
            steps[name] = end_json, files
        self._run_batch(end.batch_id, steps, is_replay=True)

    def _plan_and_run(self, batch_id: int) -> bool:
        """Plans a batch of all sources, and runs it if there is something new."""
        steps: dict[str, tuple[str, pa.Table]] = {}
        for name, running in self._running.items():
            limits = Limits(**running.delta.reading.options.limits())
            start_json = self._offsets.get(name)
            try:
                end, files = running.delta.plan_batch(start_json, limits)
            except DeltaError as error:
                self.obstacles.append(obstacle_of(error, name, batch_id))
                self.obstacles += later_obstacles(running.delta, error, name)
                raise _Stopped from error
            steps[name] = end.json(), files
        if all(self._is_same(name, end) for name, (end, _) in steps.items()):
            return False
        self._commit(batch_id)
        self._run_batch(batch_id, steps, is_replay=False)
        return True

    def _commit(self, batch_id: int) -> None:
        """When Spark has planned a batch, it tells the sources that the one before is done."""
        for name, running in self._running.items():
            done = self._offsets.get(name)
            if done is None:
                continue
            try:
                running.delta.commit(done)
            except DeltaError as error:
                self.obstacles.append(obstacle_of(error, name, batch_id))
                self.obstacles += next_start_obstacle(running.delta, running.source.options, error, name)
                raise _Stopped from error

    def _is_same(self, name: str, end_json: str) -> bool:
        start_json = self._offsets.get(name)
        return start_json is not None and decode_offset(start_json, name) == decode_offset(end_json, name)

    def _run_batch(self, batch_id: int, steps: dict[str, tuple[str, pa.Table]], *, is_replay: bool) -> None:
        is_in_sink = None if self.sink is None else self.sink.has(batch_id)
        found = None if self.sink is None else self.sink.obstacle_of_write(batch_id)
        if found is not None:
            self._stop(found)
        starts = dict(self._offsets)
        for name, (end_json, files) in steps.items():
            # A batch that the sink has is not read.
            if not is_in_sink:
                self._check_files(self._running[name], files, batch_id)
            self._offsets[name] = end_json
        self.num_batches += 1
        if self.first is None:
            self.first = BatchPlan(
                batch_id=batch_id,
                is_replay=is_replay,
                is_in_sink=is_in_sink,
                sources=tuple(
                    _step(source, starts.get(source.name), steps.get(source.name)) for source in self.sources
                ),
            )

    def _find_removed(self, running: _Running, position_json: str) -> None:
        """Finds the files to which a vacuum may have come; the others are looked at in the first batch."""
        reading = running.delta.reading
        position = decode_offset(position_json, reading.path)
        of_changes = reading.options.read_change_feed
        removed = reading.log.removed_files(position, of_changes=of_changes)["path"]
        running.removed = pa.concat_arrays(removed.chunks) if removed.num_chunks else running.removed

    def _check_files(self, running: _Running, files: pa.Table, batch_id: int) -> None:
        paths = files["path"]
        if self.num_batches or len(paths) > _MOST_FILES_LOOKED_AT:
            paths = paths.filter(pc.is_in(paths, value_set=running.removed))
        if len(paths) == 0:
            return
        reading = running.delta.reading
        absent = reading.log.absent(store_paths(reading.path, paths).to_pylist())
        if absent:
            self._stop(
                obstacle(
                    FILE_NOT_EXIST,
                    f"The file {absent[0]} of the table {reading.path} is not there"
                    + (f", nor are {len(absent) - 1} others of the batch" if len(absent) > 1 else "")
                    + ". A vacuum may have deleted it.",
                    source=running.source.name,
                    batch_id=batch_id,
                )
            )

    def _stop(self, found: Obstacle) -> NoReturn:
        self.obstacles.append(found)
        raise _Stopped


def _step(source: StreamSource, start: str | None, step: tuple[str, pa.Table] | None) -> SourceStep:
    """What a source gives to a batch with this start; `step` is the batch's end and its files."""
    if step is None:
        return SourceStep(source=source.name, table=source.path, start=start, end=None)
    files, size, rows = totals(step[1])
    return SourceStep(
        source=source.name,
        table=source.path,
        start=start,
        end=step[0],
        files=files,
        bytes=size,
        rows=rows,
        paths=tuple(step[1]["path"].slice(0, _MOST_PATHS).to_pylist()),
    )
