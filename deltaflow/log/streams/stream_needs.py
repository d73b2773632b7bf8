"""The files that streams have yet to read, by their checkpoints: a vacuum must not delete them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log.files.data_places import comparable_places
from deltaflow.log.maintenance.vacuum_plan import VacuumPlan
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.features import has_change_data_feed
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.needed_files import needed_files
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset
from deltaflow.store import store_for

_LOG = logging.getLogger(__name__)
_NAMED_FILES = 3


def check_streams(log: LogFiles, metadata: Metadata, plan: VacuumPlan, checkpoints: Sequence[str]) -> None:
    """DELTA_VACUUM_BREAKS_STREAM if a stream has yet to read a file that the plan deletes, or if the plan
    deletes files of its checkpoint.

    `checkpoints` are the checkpoint directories of streams; DeltaIllegalArgumentException if one is not.
    A checkpoint whose stream does not read the table is ignored, with a warning. `metadata` is the table's.
    """
    for checkpoint in checkpoints:
        found = StreamCheckpoint(checkpoint)
        positions = list(_positions(found, metadata.id))
        _check_checkpoint_stays(plan, checkpoint, log.path)
        if not positions:
            _LOG.warning("The stream of the checkpoint %s has nothing to read of %s", checkpoint, log.path)
        for source, position in positions:
            of_changes = found.reads_change_feed(source, metadata.id)
            kinds = [of_changes]
            if of_changes is None:
                # A stream of delta-spark may read either.
                kinds = [False, True] if has_change_data_feed(metadata) else [False]
            for kind in kinds:
                missed = _missed_files(log, plan, position, of_changes=bool(kind))
                if missed is not None:
                    raise _error_of_missed_files(checkpoint, missed, log.path)


def _check_checkpoint_stays(plan: VacuumPlan, checkpoint: str, table: str) -> None:
    """DELTA_VACUUM_BREAKS_STREAM if the plan deletes files of the checkpoint, which lies in the table."""
    _, directory = store_for(checkpoint)
    place = plan.directory.real_place(f"{directory}/metadata")
    if place is None:
        return
    if pc.any(pc.starts_with(plan.files["path"], place.removesuffix("metadata"))).as_py():
        raise DeltaUnsupportedOperationException(
            f"VACUUM would break the stream with the checkpoint {checkpoint}: it lies in the table's "
            "directory, and its files would be deleted. Nothing was deleted. Stop the stream, and move its "
            "checkpoint out of the table, or below a name that begins with _.",
            error_class="DELTA_VACUUM_BREAKS_STREAM",
            table=table,
        )


@dataclass(frozen=True, slots=True)
class _Missed:
    """Files of a version that a stream needs and would not find."""

    version: int
    paths: pa.ChunkedArray
    is_initial: bool


def _error_of_missed_files(
    checkpoint: str, missed: _Missed, table: str
) -> DeltaUnsupportedOperationException:
    names = ", ".join(missed.paths[:_NAMED_FILES].to_pylist())
    others = f" and {len(missed.paths) - _NAMED_FILES} more" if len(missed.paths) > _NAMED_FILES else ""
    part = "the snapshot that it begins with, of" if missed.is_initial else "the commit of"
    return DeltaUnsupportedOperationException(
        f"VACUUM would break the stream with the checkpoint {checkpoint}: it has yet to read {part} "
        f"version {missed.version}, and needs its files {names}{others}. Nothing was deleted. Run the stream "
        "until it has passed that version (with the trigger availableNow, say), or give a longer retention. "
        "Leave the checkpoint out if the stream will not go on.",
        error_class="DELTA_VACUUM_BREAKS_STREAM",
        table=table,
        version=missed.version,
    )


# ------------------------------------------------------------------------------------------- checkpoints


def _positions(checkpoint: StreamCheckpoint, table_id: str) -> Iterator[tuple[str, DeltaSourceOffset]]:
    """The offsets from which the sources of a stream will go on; several if a source's start is not known."""
    done, begun = checkpoint.newest_done, set[str]()
    if done is not None:
        entry = checkpoint.offsets(done)
        begun.update(source for source, json in entry.offsets.items() if json is not None)
        yield from _offsets(entry, table_id)
    for batch in checkpoint.planned:
        if done is not None and batch <= done:
            continue
        for source, end in _offsets(checkpoint.offsets(batch), table_id):
            if source not in begun:
                begun.add(source)
                for start in _before_first_batch(end):
                    yield source, start


def _before_first_batch(end: DeltaSourceOffset) -> Iterator[DeltaSourceOffset]:
    """Where a stream may have begun whose first batch ends at `end`; only its options would say that."""
    if end.is_starting_version:
        yield _start_of(end, end.reservoir_version, is_initial=True)
        return
    if end.reservoir_version > 0:
        yield _start_of(end, end.reservoir_version - 1, is_initial=True)
    yield _start_of(end, 0, is_initial=False)


def _start_of(end: DeltaSourceOffset, version: int, *, is_initial: bool) -> DeltaSourceOffset:
    """The offset before everything in a version of the same table."""
    return DeltaSourceOffset(end.reservoir_id, version, BASE_INDEX, is_initial)


def _offsets(entry: BatchOffsets, table_id: str) -> Iterator[tuple[str, DeltaSourceOffset]]:
    """The table's offsets at the end of a batch, with the names of the sources."""
    for source in entry.offsets:
        offset = entry.delta_offset(source)
        if offset is not None and offset.reservoir_id == table_id:
            yield source, offset


# ------------------------------------------------------------------------------------------------- needs


def _missed_files(
    log: LogFiles, plan: VacuumPlan, position: DeltaSourceOffset, *, of_changes: bool
) -> _Missed | None:
    """The files that a stream at the position needs and the plan deletes, of the first such version."""
    doomed = pa.chunked_array([comparable_places(chunk) for chunk in plan.files["path"].chunks], pa.string())
    # All commits at once: to search the plan for few files costs as much as for many.
    needed = needed_files(log, position, plan.version, of_changes=of_changes)
    places = pa.chunked_array(list(plan.places.of(needed["path"].chunks)), pa.string())
    is_missed = pc.is_in(places, value_set=doomed)
    version = pc.min(needed["version"].filter(is_missed)).as_py()
    if version is None:
        return None
    of_version = pc.and_(is_missed, pc.equal(needed["version"], version))
    is_initial = position.is_starting_version and version == position.reservoir_version
    return _Missed(version, places.filter(of_version), is_initial=is_initial)
