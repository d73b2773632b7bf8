"""Lets a stream read versions of a table again, or go on with a table that was made anew."""

from __future__ import annotations

from deltaflow.errors import DeltaIllegalArgumentException, VersionNotFoundError
from deltaflow.log.replay.listing import version_runs
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.time_travel import first_version_since
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.checkpoint_edit import (
    CheckpointEdit,
    last_batch_in,
    newest_version,
    note,
    refuse_state,
    refused,
    schema_log_places,
    with_offset,
    written_batch,
)
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset


def plan_rewind(
    checkpoint: str,
    table: str,
    *,
    version: int | None = None,
    timestamp_ms: int | None = None,
    source: str | None = None,
    sink: str | None = None,
) -> CheckpointEdit:
    """Lets the stream of a checkpoint go on with the commit of a version that it has read already.

    `table` is the path of the table that it reads; `source` the source's number in the checkpoint, which is
    needed if several read a Delta table; `sink` the path of the Delta table that the stream writes, if it
    writes one. `version` is the first version that is read again, or `timestamp_ms` its time or one before.
    DeltaUnsupportedOperationException for a query with state, VersionNotFoundError if the log lacks versions.
    """
    found = StreamCheckpoint(checkpoint)
    refuse_state(found, "a rewind")
    entry = _entry(found, sink)
    name, position = delta_source(found, entry, source)
    log, newest = newest_version(table)
    if newest.table_id != position.reservoir_id:
        raise refused(
            checkpoint,
            f"Source {name} of the checkpoint reads the table with the id {position.reservoir_id}, "
            f"and {table} has the id {newest.table_id}: it is another table, or was made anew. "
            "Adopt it in that case.",
        )
    if (version is None) == (timestamp_ms is None):
        raise DeltaIllegalArgumentException("Give either a version or a timestamp to rewind to.")
    if version is None:
        assert timestamp_ms is not None
        version = first_version_since(log, log.list(0), newest, timestamp_ms)
    _check_readable(log, newest, version)
    if (version, BASE_INDEX) >= position.position:
        raise DeltaIllegalArgumentException(
            f"The stream has written what comes before version {position.reservoir_version} of {table}, and "
            f"goes on there: a rewind cannot skip what comes before version {version}. Give an earlier "
            "version.",
            table=table,
            version=version,
        )
    if position.is_starting_version and version > 0:
        raise refused(
            checkpoint,
            f"The stream is inside of the snapshot of version {position.reservoir_version} with which it "
            f"began. The commits from version {version} on do not have the rest of its rows. Let the stream "
            "pass the snapshot, or rewind it to version 0.",
        )
    target = DeltaSourceOffset(position.reservoir_id, version, BASE_INDEX, False)
    last = position.reservoir_version - (position.index < 0)
    steps = [
        f"Source {name} reads {table} again from the commit of version {version} on; now it is at "
        f"{_text(position)}.",
        f"The rows of versions {version} to {last} come again, as far as they have been read. The table that "
        "the stream writes keeps those that it has: restore it to an earlier version, or delete them there, "
        "if they must not be there twice.",
    ]
    if schema_log_places(found.directory, newest.table_id):
        steps.append(
            "The rows come in the newest schema of the stream's schema log, whatever their version's own was."
        )
    return _edit(found, entry, name, target, steps, sink)


def plan_adoption(
    checkpoint: str,
    table: str,
    *,
    version: int | None = None,
    source: str | None = None,
    sink: str | None = None,
) -> CheckpointEdit:
    """Lets the stream of a checkpoint go on with a table that was made anew, and has another id therefore.

    It begins as a new stream does, with a snapshot of the newest version and then the commits after it, or
    with the commit of `version`. Arguments and errors are otherwise those of `plan_rewind`.
    """
    found = StreamCheckpoint(checkpoint)
    refuse_state(found, "another table")
    entry = _entry(found, sink)
    name, position = delta_source(found, entry, source)
    log, newest = newest_version(table)
    if newest.table_id == position.reservoir_id:
        raise refused(
            checkpoint, f"Source {name} of the checkpoint reads {table} already: its id is the same."
        )
    if version is None:
        target = DeltaSourceOffset(newest.table_id, newest.version, BASE_INDEX, True)
        begin = f"with all rows of version {newest.version}, and then the commits after it"
    else:
        _check_readable(log, newest, version)
        target = DeltaSourceOffset(newest.table_id, version, BASE_INDEX, False)
        begin = f"with the commit of version {version}"
    steps = [
        f"Source {name}, which read the table with the id {position.reservoir_id} up to {_text(position)}, "
        f"reads {table} with the id {newest.table_id}, {begin}.",
        "The table that the stream writes keeps the rows of the earlier table.",
    ]
    if entry.batch_id != found.newest_planned:
        steps.append(f"Batch {found.newest_planned}, which was planned, is not run: its table is not there.")
    return _edit(found, entry, name, target, steps, sink)


def delta_source(
    checkpoint: StreamCheckpoint, entry: BatchOffsets, source: str | None
) -> tuple[str, DeltaSourceOffset]:
    """The name of a Delta source and its offset; DeltaIllegalArgumentException if it is not clear which."""
    found = {name: offset for name in entry.offsets if (offset := entry.delta_offset(name)) is not None}
    names = [source] if source is not None else list(found)
    if len(names) != 1 or names[0] not in found:
        listed = ", ".join(f"{name} (table {offset.reservoir_id})" for name, offset in found.items())
        raise DeltaIllegalArgumentException(
            f"Name the source of {checkpoint.path} that is meant. These have read a Delta table: "
            f"{listed or 'none'}.",
            file=checkpoint.path,
        )
    return names[0], found[names[0]]


def _entry(checkpoint: StreamCheckpoint, sink: str | None) -> BatchOffsets:
    """The offsets up to which the query has certainly written its rows."""
    newest = checkpoint.newest_planned
    # An only source goes back to before its last batch, whether that is written or not.
    is_only = newest is not None and len(checkpoint.offsets(newest).offsets) == 1
    return checkpoint.offsets(written_batch(checkpoint, sink, at_least=is_only))


def _edit(
    checkpoint: StreamCheckpoint,
    entry: BatchOffsets,
    source: str,
    target: DeltaSourceOffset,
    steps: list[str],
    sink: str | None,
) -> CheckpointEdit:
    sources = checkpoint.occurrences(entry, source)
    if sources is None:
        raise refused(
            checkpoint.path,
            f"Several sources of the checkpoint {checkpoint.path} are at the same place of the same table. "
            "It does not say whether they are one source that the query reads several times, which can only "
            "be moved as a whole. Start the stream once with deltaflow, which records its sources.",
        )
    if len(sources) > 1:
        steps = [*steps, f"The query reads this source several times: {', '.join(sources)} are one."]
    last = max(*checkpoint.planned, *checkpoint.done, 0)
    if sink is not None and checkpoint.query_id is not None:
        last = max(last, last_batch_in(sink, checkpoint.query_id) or 0)
    files = with_offset(checkpoint, entry, sources, target.json(), last)
    number = f"The stream goes on with batch {last + 3}, since the table that it writes skips the numbers of "
    steps = [*steps, number + "batches that it has."]
    return CheckpointEdit(
        directory=checkpoint.directory,
        steps=steps,
        files=note(last + 2, steps) | files,
        planned=checkpoint.planned,
    )


def _check_readable(log: LogFiles, newest: Snapshot, version: int) -> None:
    """VersionNotFoundError unless the log has the commits from a version on; the next one to come is fine."""
    listing = log.list(0)
    if 0 <= version <= newest.version + 1 and not listing.missing_versions(version, newest.version):
        return
    runs = ", ".join(f"[{first}, {last}]" for first, last in version_runs(sorted(listing.commits)))
    raise VersionNotFoundError(
        f"The log of {log.path} does not have all commits from version {version} on. Available commits: "
        f"{runs or 'none'}.",
        table=log.path,
        version=version,
    )


def _text(position: DeltaSourceOffset) -> str:
    if position.is_starting_version:
        return f"file {position.index} of the snapshot of version {position.reservoir_version}"
    if position.is_barrier:
        return f"the change of the schema in version {position.reservoir_version}"
    if position.index < 0:
        return f"version {position.reservoir_version}"
    return f"file {position.index} of version {position.reservoir_version}"
