"""The files that streams have yet to read, by their checkpoints: a vacuum must not delete them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log.files.data_places import comparable_places
from deltaflow.log.maintenance.vacuum_plan import VacuumPlan
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import load_state
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.source_offset import BASE_INDEX, INITIAL_SNAPSHOT_ORDER, DeltaSourceOffset
from deltaflow.store import store_for

_LOG = logging.getLogger(__name__)
_NAMED_FILES = 3
_ORDER_FIELDS = frozenset({"path", "modificationTime"})


def check_streams(log: LogFiles, table_id: str, plan: VacuumPlan, checkpoints: Sequence[str]) -> None:
    """DELTA_VACUUM_BREAKS_STREAM if a stream has yet to read a file that the plan deletes, or if the plan
    deletes files of its checkpoint.

    `checkpoints` are the checkpoint directories of streams; DeltaIllegalArgumentException if one is not.
    A checkpoint whose stream does not read the table is ignored, with a warning.
    """
    for checkpoint in checkpoints:
        positions = list(_positions(StreamCheckpoint(checkpoint), table_id))
        _check_checkpoint_stays(plan, checkpoint, log.path)
        if not positions:
            _LOG.warning("The stream of the checkpoint %s has nothing to read of %s", checkpoint, log.path)
        for position in positions:
            missed = _missed_files(log, plan, position)
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
    paths: pa.Array
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


def _positions(checkpoint: StreamCheckpoint, table_id: str) -> Iterator[DeltaSourceOffset]:
    """The offsets from which a stream will go on; several if its start is not known."""
    if checkpoint.newest_done is not None:
        yield from _offsets(checkpoint.offsets(checkpoint.newest_done), table_id)
    elif checkpoint.planned:
        for end in _offsets(checkpoint.offsets(checkpoint.planned[0]), table_id):
            yield from _before_first_batch(end)


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


def _offsets(entry: BatchOffsets, table_id: str) -> Iterator[DeltaSourceOffset]:
    """The table's offsets at the end of a batch."""
    for source in entry.offsets:
        offset = entry.delta_offset(source)
        if offset is not None and offset.reservoir_id == table_id:
            yield offset


# ------------------------------------------------------------------------------------------------- needs


def _missed_files(log: LogFiles, plan: VacuumPlan, position: DeltaSourceOffset) -> _Missed | None:
    """The files that a stream at the position needs and the plan deletes, of the first such version."""
    doomed = pa.chunked_array([comparable_places(chunk) for chunk in plan.files["path"].chunks], pa.string())
    first = position.reservoir_version
    if position.is_starting_version:
        (places,) = plan.places.of([_rest_of_snapshot(log, position)])
        missed = places.filter(pc.is_in(places, value_set=doomed))
        if len(missed):
            return _Missed(first, missed, is_initial=True)
        first += 1
    # All commits at once: to search the plan for few files costs as much as for many.
    paths: list[str] = []
    versions: list[int] = []
    for commit in log.commits_present(first, plan.version):
        adds = [add.path for add in commit.adds if add.data_change]
        if commit.version == position.reservoir_version:
            adds = adds[max(position.index + 1, 0) :]
        paths += adds
        versions += [commit.version] * len(adds)
    (places,) = plan.places.of([pa.array(paths, pa.string())])
    is_missed = pc.is_in(places, value_set=doomed)
    version = pc.min(pa.array(versions, pa.int64()).filter(is_missed)).as_py()
    if version is None:
        return None
    of_version = pc.equal(pa.array(versions, pa.int64()), version)
    return _Missed(version, places.filter(pc.and_(is_missed, of_version)), is_initial=False)


def _rest_of_snapshot(log: LogFiles, position: DeltaSourceOffset) -> pa.Array:
    """The paths of the files of the initial snapshot after the position."""
    ordered, listing = replace(log, file_fields=_ORDER_FIELDS), log.list(0)
    if position.reservoir_version not in listing.rebuildable_versions():
        _LOG.warning(
            "The log of %s no longer has version %d, with which a stream begins: the stream cannot go on",
            log.path,
            position.reservoir_version,
        )
        return pa.array([], pa.string())
    files = Snapshot(log.path, load_state(ordered, listing, position.reservoir_version)).files
    order = pc.sort_indices(files, sort_keys=INITIAL_SNAPSHOT_ORDER)
    return files["path"].take(order.slice(max(position.index + 1, 0))).combine_chunks()
