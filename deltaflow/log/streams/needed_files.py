"""The files that a stream has yet to read, those of their deletion vectors included."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_rows import DELETION_VECTOR, vector_row
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import load_state
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.streams.source_offset import INITIAL_SNAPSHOT_ORDER, DeltaSourceOffset

_LOG = logging.getLogger(__name__)
_ORDER_FIELDS = frozenset({"path", "modificationTime"})


def needed_files(log: LogFiles, position: DeltaSourceOffset, last_version: int) -> pa.Table:
    """The version (int64) and the path, as in the log, of each file after the position, in a stream's order.

    Those of the initial snapshot come first, with the snapshot's version. The files of deletion vectors
    follow the data files of their version. Commits that are missing are passed over, and so is, with a
    warning, a snapshot that the log no longer has.
    """
    first = position.reservoir_version
    pieces: list[pa.Table] = []
    if position.is_starting_version:
        pieces.append(_table(_rest_of_snapshot(log, position), first))
        first += 1
    paths: list[str] = []
    versions: list[int] = []
    for commit in log.commits_present(first, last_version):
        adds = [add for add in commit.adds if add.data_change]
        if commit.version == position.reservoir_version:
            adds = adds[max(position.index + 1, 0) :]
        vectors = pa.array([vector_row(add.deletion_vector) for add in adds], DELETION_VECTOR)
        needed = [*(add.path for add in adds), *vector_uris(vectors)]
        paths += needed
        versions += [commit.version] * len(needed)
    return pa.concat_tables([*pieces, _table(pa.array(paths, pa.string()), pa.array(versions, pa.int64()))])


def _table(paths: pa.Array, versions: pa.Array | int) -> pa.Table:
    if isinstance(versions, int):
        versions = pa.repeat(pa.scalar(versions, pa.int64()), len(paths))
    return pa.table({"version": versions, "path": paths})


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
