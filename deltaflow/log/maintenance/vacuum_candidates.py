"""Where a vacuum looks for files that it may delete: in the directory, in the log, or in an inventory.

VACUUM FULL lists the table's directory. VACUUM LITE reads which files commits before the retention have
removed, and so finds no file that was never in the log. VACUUM USING INVENTORY has the listing of somebody
else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaIllegalStateException, VersionNotFoundError
from deltaflow.log.files.data_path import hadoop_path
from deltaflow.log.files.data_places import LogPlaces
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_rows import DELETION_VECTOR, ROWS_PER_BATCH, vector_row
from deltaflow.log.maintenance.data_listing import LISTING_SCHEMA, DataListing, is_hidden, list_data
from deltaflow.log.maintenance.last_vacuum import last_vacuumed_version
from deltaflow.log.protocol.commit import LOG_DIRECTORY, Commit
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.time_travel import version_at
from deltaflow.store import DataDirectory, scheme_of

INVENTORY_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("length", pa.int64()),
        pa.field("isDir", pa.bool_()),
        pa.field("modificationTime", pa.int64()),
    ]
)
"""One row per file or directory: its complete path, as Hadoop prints it, not URI-encoded; bytes;
milliseconds since the epoch. By delta-spark's names."""
_LOOKED_UP_AT_ONCE = 1_000
_LAST_PART = "(?:^|/)[^/]*$"
_ODD_NAMES = "(?:^|/)(?:[_./]|$)"


@dataclass(frozen=True)
class VacuumSearch:
    """What is known when a vacuum begins to look for files."""

    log: LogFiles
    snapshot: Snapshot
    """The newest version, with or without its files."""
    directory: DataDirectory
    places: LogPlaces
    before_ms: int
    """The begin of the retention, in milliseconds since the epoch."""

    @cached_property
    def last_version(self) -> int:
        """The version that was the newest when the retention began, as far as the log has the commits; -1 if
        there was none."""
        listing = self.log.list(0)
        if not listing.commits:
            return -1
        try:
            return version_at(
                self.log, listing, self.snapshot, self.before_ms, versions=sorted(listing.commits)
            )
        except VersionNotFoundError as error:
            is_late = error.error_class == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
            return self.snapshot.version if is_late else -1

    @property
    def partition_columns(self) -> Sequence[str]:
        """The names of folders of partitions."""
        return [*self.snapshot.physical_partition_columns.values()]


Find = Callable[[VacuumSearch], DataListing]
"""Finds the files and empty directories that may be deleted, unless a version within the retention has
them."""


def in_directory(search: VacuumSearch) -> DataListing:
    """By a listing of the table's directory (VACUUM FULL)."""
    return list_data(search.directory, search.partition_columns, search.before_ms)


def in_log(search: VacuumSearch) -> DataListing:
    """By the commits before the retention that no vacuum has looked at: what they removed, with deletion
    vectors, and their change data, as far as it is there (VACUUM LITE).

    DELTA_CANNOT_VACUUM_LITE if the log lacks some of these commits.
    """
    log, last = search.log, search.last_version
    first = last_vacuumed_version(log) + 1
    if first > last:
        return DataListing(num_directories=1)
    listing = log.list(first)
    missing = listing.missing_versions(first, last)
    if missing:
        raise DeltaIllegalStateException(
            error_class="DELTA_CANNOT_VACUUM_LITE", missing=missing[0][0], table=log.path
        )
    removed = pa.Table.from_batches(
        _removed(search.places, log.commits(listing, first, last)), LISTING_SCHEMA
    )
    removed = removed.group_by("path").aggregate([("size", "max")])
    removed = pa.table([removed["path"], removed["size_max"]], schema=LISTING_SCHEMA)
    return DataListing(
        _present(search, _unprotected(search, removed)).to_batches(), num_directories=1, linked=None
    )


def in_inventory(inventory: pa.Table) -> Find:
    """By a table with the columns of INVENTORY_SCHEMA. Rows of other directories are left out, and so is what
    a listing would leave out. The newest of several rows of a file counts."""

    def find(search: VacuumSearch) -> DataListing:
        rows = _below(search.directory.path, inventory)
        newest = [(name, "max") for name in ("length", "isDir", "modificationTime")]
        rows = rows.group_by("path").aggregate(newest)
        is_old = pc.fill_null(pc.less(rows["modificationTime_max"], search.before_ms), False)
        is_directory = pc.fill_null(rows["isDir_max"], True)
        columns = [rows["path"], pc.fill_null(rows["length_max"], 0)]
        found = pa.table(columns, schema=LISTING_SCHEMA)
        above = pc.unique(pc.replace_substring_regex(rows["path"], _LAST_PART, ""))
        is_empty = pc.and_(is_directory, pc.invert(pc.is_in(rows["path"], value_set=above)))
        return DataListing(
            _unprotected(search, found.filter(pc.and_(is_old, pc.invert(is_directory)))).to_batches(),
            _unprotected(search, found.filter(pc.and_(is_old, is_empty)))["path"].to_pylist(),
            num_directories=1 + (pc.sum(is_directory.cast(pa.int64())).as_py() or 0),
            linked=None,
            is_complete=False,
        )

    return find


def linked_places(search: VacuumSearch, paths: Iterable[pa.Array]) -> Iterator[str]:
    """The places in the table's directory to which links lead that are files of these paths of the log, or on
    the way to them."""
    for chunk in map(search.places.exact, paths):
        above = pc.unique(pc.replace_substring_regex(chunk, _LAST_PART, ""))
        for directory in filter(None, above.to_pylist()):
            real = search.places.real_directory(directory)
            if real is not None and real != directory:
                yield real
        for place in filter(None, chunk.to_pylist()):
            target = search.directory.link_target(place)
            real = None if target is None else search.directory.real_place(target)
            if real is not None:
                yield real


def _removed(places: LogPlaces, commits: Iterable[Commit]) -> Iterator[pa.RecordBatch]:
    """The files that commits removed, with those of deletion vectors, and their change data: by
    LISTING_SCHEMA, with repetitions."""
    files = ((path, size) for commit in commits for path, size in _paths_and_sizes(commit))
    while batch := list(islice(files, ROWS_PER_BATCH)):
        paths, sizes = zip(*batch, strict=True)
        exact = places.exact(pa.array(paths, pa.string()))
        found = pa.RecordBatch.from_arrays([exact, pa.array(sizes, pa.int64())], schema=LISTING_SCHEMA)
        yield found.filter(pc.is_valid(exact))


def _paths_and_sizes(commit: Commit) -> Iterator[tuple[str, int]]:
    for remove in commit.removes:
        yield remove.path, remove.size or 0
        vector = remove.deletion_vector
        if vector is not None:
            for uri in vector_uris(pa.array([vector_row(vector)], DELETION_VECTOR)):
                yield uri, vector.size_in_bytes
    for change in commit.cdc:
        yield change.path, change.size


def _below(root: str, inventory: pa.Table) -> pa.Table:
    """The rows of what is below a directory, by their places in it."""
    rest = re.escape(hadoop_path(root).partition(":")[2].rstrip("/") + "/")
    scheme = {None: "(?:file:(?://)?)?", "s3": "[sS]3[aAnN]?:"}.get(
        scheme_of(root), re.escape(hadoop_path(root).partition(":")[0]) + ":"
    )
    prefix = f"^{scheme}{rest}"
    rows = inventory.filter(pc.fill_null(pc.match_substring_regex(inventory["path"], prefix), False))
    places = pc.replace_substring_regex(pc.replace_substring_regex(rows["path"], prefix, ""), "/+$", "")
    rows = rows.set_column(rows.schema.get_field_index("path"), "path", places)
    return rows.filter(pc.not_equal(rows["path"], ""))


def _unprotected(search: VacuumSearch, files: pa.Table) -> pa.Table:
    """The files, by their column path, but those that a listing would leave out: by their names, or since
    they are behind links or in another table."""
    places = files["path"]
    is_odd = pc.match_substring_regex(places, _ODD_NAMES)
    hidden = [place for place in places.filter(is_odd).to_pylist() if _is_hidden(search, place)]
    files = files.filter(pc.invert(pc.is_in(places, value_set=pa.array(hidden, pa.string()))))
    above = pc.replace_substring_regex(files["path"], _LAST_PART, "")
    closed = pa.array(_closed_directories(search, pc.unique(above).to_pylist()), pa.string())
    files = files.filter(pc.invert(pc.is_in(above, value_set=closed)))
    links = [place for place in files["path"].to_pylist() if search.directory.link_target(place)]
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=pa.array(links, pa.string()))))


def _is_hidden(search: VacuumSearch, place: str) -> bool:
    return any(part == "" or is_hidden(part, search.partition_columns) for part in place.split("/"))


def _closed_directories(search: VacuumSearch, directories: Sequence[str]) -> list[str]:
    """Those of the directories that are behind links, or in or below a directory with a log of its own."""
    above = sorted({part for directory in directories for part in _with_parents(directory)})
    logs = [f"{directory}/{LOG_DIRECTORY}" for directory in above]
    no_tables = set(_absent(search, logs))
    tables = {directory for directory, log in zip(above, logs, strict=True) if log not in no_tables}
    return [
        directory
        for directory in directories
        if directory
        and (
            search.places.real_directory(directory) != directory
            or not tables.isdisjoint(_with_parents(directory))
        )
    ]


def _with_parents(directory: str) -> Iterator[str]:
    """A directory in the table's one, and those between the two."""
    while directory:
        yield directory
        directory = posixpath.dirname(directory)


def _present(search: VacuumSearch, files: pa.Table) -> pa.Table:
    """Those of the files that are there."""
    gone = pa.array(_absent(search, files["path"].to_pylist()), pa.string())
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=gone)))


def _absent(search: VacuumSearch, places: Sequence[str]) -> list[str]:
    """Those of the places at which there is nothing."""
    root = f"{search.directory.path.rstrip('/')}/"
    gone: list[str] = []
    for start in range(0, len(places), _LOOKED_UP_AT_ONCE):
        paths = [root + place for place in places[start : start + _LOOKED_UP_AT_ONCE]]
        gone += [path.removeprefix(root) for path in search.log.store.absent(paths)]
    return gone
