"""The files that a stream has yet to read, those of their deletion vectors included."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.change_files import ChangeAction, change_actions
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_rows import DELETION_VECTOR, vector_row
from deltaflow.log.protocol.actions import AddCDCFile
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import load_state
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.streams.source_offset import INITIAL_SNAPSHOT_ORDER, DeltaSourceOffset

_LOG = logging.getLogger(__name__)
_ORDER_FIELDS = frozenset({"path", "modificationTime"})


def needed_files(
    log: LogFiles, position: DeltaSourceOffset, last_version: int, *, of_changes: bool
) -> pa.Table:
    """The version (int64) and the path, as in the log, of each file after the position, in a stream's order;
    and of a change file, which the table itself need not have, the time of its commit (recorded_ms).

    Those of the initial snapshot come first, with the snapshot's version. The files of deletion vectors
    follow the data files of their version. `of_changes`: whether the stream reads change rows. Commits that
    are missing are passed over, and so is, with a warning, a snapshot that the log no longer has.
    """
    first = position.reservoir_version
    pieces: list[pa.Table] = []
    if position.is_starting_version:
        rest = _rest_of_snapshot(log, position)
        count = len(rest)
        columns = [pa.repeat(pa.scalar(first, pa.int64()), count), rest, pa.nulls(count, pa.int64())]
        pieces.append(pa.table(columns, schema=_NEEDED))
        first += 1
    paths: list[str] = []
    versions: list[int] = []
    times: list[int | None] = []
    for commit in log.commits_present(first, last_version):
        files: Sequence[ChangeAction] = [add for add in commit.adds if add.data_change]
        if of_changes:
            files = change_actions(commit)
        if commit.version == position.reservoir_version:
            files = files[max(position.index + 1, 0) :]
        of_table = [file for file in files if not isinstance(file, AddCDCFile)]
        vectors = pa.array([vector_row(file.deletion_vector) for file in of_table], DELETION_VECTOR)
        needed = [*(file.path for file in files), *vector_uris(vectors)]
        paths += needed
        versions += [commit.version] * len(needed)
        times += [None if of_table else commit.timestamp_ms] * len(needed)
    columns = [pa.array(versions, pa.int64()), pa.array(paths, pa.string()), pa.array(times, pa.int64())]
    return pa.concat_tables([*pieces, pa.table(columns, schema=_NEEDED)])


_NEEDED = pa.schema(
    [
        pa.field("version", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("recorded_ms", pa.int64()),
    ]
)


def _rest_of_snapshot(log: LogFiles, position: DeltaSourceOffset) -> pa.Array:
    """The paths of the files of the initial snapshot after the position, and those of their vectors."""
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
    rest = files.select(["path", "deletion_vector"]).take(order.slice(max(position.index + 1, 0)))
    vectors = pa.array(vector_uris(rest["deletion_vector"]), pa.string())
    return pa.concat_arrays([*rest["path"].chunks, vectors])
