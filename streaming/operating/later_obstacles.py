"""The obstacles behind the first one: what else the commits hold that stops a stream."""

from __future__ import annotations

from collections.abc import Iterator

from deltaflow.errors import DeltaError
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset
from deltaflow.streaming.admission import Limits
from deltaflow.streaming.batches import next_batch
from deltaflow.streaming.operating.obstacles import Obstacle, obstacle_of
from deltaflow.streaming.schema_tracking import (
    after_barrier,
    check_start_of_tracking,
    with_merged_changes,
)
from deltaflow.streaming.source import DeltaSource
from deltaflow.streaming.source_options import SourceOptions

_MOST = 20


def later_obstacles(source: DeltaSource, error: DeltaError, name: str) -> Iterator[Obstacle]:
    """At most 20 further obstacles of a source behind the first `error`, each behind the commit of the one
    before."""
    newest = source.newest_offset()
    for _ in range(_MOST):
        version = _version_of(error)
        if version is None or newest is None or version + 1 >= newest.reservoir_version:
            return
        behind = DeltaSourceOffset(source.reading.table_id, version + 1, BASE_INDEX, False)
        try:
            next_batch(source.reading, behind, newest.reservoir_version - 1, Limits())
        except DeltaError as found:
            error = found
            yield obstacle_of(error, name, None)
        else:
            return


def next_start_obstacle(
    source: DeltaSource, options: SourceOptions, error: DeltaError, name: str
) -> Iterator[Obstacle]:
    """What the start meets that comes after a change of the schema has ended a query with the `error`."""
    version = _version_of(error)
    if error.error_class != "DELTA_STREAMING_METADATA_EVOLUTION" or version is None:
        return
    reading = source.reading
    log = with_merged_changes(after_barrier(reading, version), reading.log, {})
    try:
        check_start_of_tracking(log, options, reading.path)
    except DeltaError as found:
        yield obstacle_of(found, name, None)


def _version_of(error: DeltaError) -> int | None:
    """The last version that the error is about; None if it is not about one."""
    for name in ("changed_in", "earliest_version"):
        if name in error.parameters:
            number = int(error.parameters[name])
            # Of a gap, the commit behind it is to be read.
            return number if name == "changed_in" else number - 1
    return error.version
