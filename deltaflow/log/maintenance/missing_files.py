"""Files of a version that are not there: data files, and files of deletion vectors."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.data_path import complete_paths, store_paths
from deltaflow.log.files.data_places import LogPlaces
from deltaflow.log.files.deletion_vectors import file_uris
from deltaflow.log.maintenance.data_listing import LISTING_SCHEMA, list_data
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.store import absent

_ANY_AGE_MS = 1 << 62
_LOOKED_UP_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """The files of a version of which something is missing; all columns have a row for each file."""

    files: pa.Table
    """Rows of the snapshot's `files`."""
    paths: pa.ChunkedArray
    """The complete paths of the data files, as Hadoop prints them."""
    is_missing: pa.Array
    """Whether the data file is not there."""
    vector_paths: pa.ChunkedArray
    """The complete path of the file of the deletion vector; null for a file without one."""
    is_vector_missing: pa.Array
    """Whether that file is not there."""
    num_rows: pa.Array
    """How many rows the table has in the file, by the log; null if it does not say."""


def find_missing_files(log: LogFiles, snapshot: Snapshot) -> MissingFiles:
    """Looks for all files of a version: by a listing of the directory, then one by one for what it lacks.

    StoreError if a storage cannot be asked.
    """
    files = snapshot.files
    unlisted = listed_sizes(log, snapshot).is_null()
    is_missing = pc.is_in(files["path"], value_set=absent_paths(log, files.filter(unlisted)))
    uris = pa.chunked_array([file_uris(chunk) for chunk in files["deletion_vector"].chunks], pa.string())
    is_vector_missing = pc.is_in(
        uris, value_set=_absent_uris(log, pc.unique(uris.drop_null())), skip_nulls=True
    )
    found = pc.or_(is_missing, is_vector_missing)
    files, uris = files.filter(found), uris.filter(found)
    return MissingFiles(
        files,
        complete_paths(log.path, files["path"]),
        is_missing.filter(found).combine_chunks(),
        complete_paths(log.path, uris),
        is_vector_missing.filter(found).combine_chunks(),
        snapshot.statistics_of(files).num_rows,
    )


def listed_sizes(log: LogFiles, snapshot: Snapshot) -> pa.ChunkedArray:
    """The size of each of a version's files by a listing of the table's directory; null if it lacks the name.

    Names that differ in case alone are two files: one of them does not stand for the other.
    """
    directory = log.store.data_directory(log.path)
    listing = list_data(directory, [*snapshot.physical_partition_columns.values()], _ANY_AGE_MS)
    listed = pa.Table.from_batches(listing.files, LISTING_SCHEMA)
    own = pa.chunked_array(map(LogPlaces(directory).exact, snapshot.files["path"].chunks), pa.string())
    index = pc.index_in(own, value_set=listed["path"], skip_nulls=True)
    return pc.take(listed["size"], index)


def absent_paths(log: LogFiles, files: pa.Table) -> pa.Array:
    """The paths of those files that are not there: a listing has no links, hidden files and other places."""
    return _absent_uris(log, files["path"].combine_chunks())


def _absent_uris(log: LogFiles, paths: pa.Array) -> pa.Array:
    places = store_paths(log.path, pa.chunked_array([paths])).to_pylist()
    gone: set[str] = set()
    for start in range(0, len(places), _LOOKED_UP_AT_ONCE):
        gone.update(absent(places[start : start + _LOOKED_UP_AT_ONCE], log.stores))
    return paths.filter(pa.array([place in gone for place in places], pa.bool_()))
