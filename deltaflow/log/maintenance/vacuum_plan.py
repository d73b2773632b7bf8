"""What a vacuum may delete: the old files of a table's directory that no version within the retention has.

Memory: the paths of the table's files and tombstones and those of the old files in its directory, as columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.files.data_places import LogPlaces, comparable_places
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_rows import DELETION_VECTOR, vector_row
from deltaflow.log.maintenance.data_listing import LISTING_SCHEMA
from deltaflow.log.maintenance.vacuum_candidates import Find, VacuumSearch, in_directory, linked_places
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.properties import DELETED_FILE_RETENTION_MS, RETENTION_CHECK_ENABLED
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot, newest_snapshot
from deltaflow.store import DataDirectory

_HOUR_MS = 3_600_000
_FOR_EVER_MS = 1 << 53
_FIELDS = frozenset({"path", "deletionVector", "deletionTimestamp"})


@dataclass(frozen=True, slots=True)
class Retention:
    """How long files that the table no longer needs are kept, in milliseconds."""

    of_table_ms: int
    """The table's delta.deletedFileRetentionDuration."""
    given_ms: int | None
    is_checked: bool

    @property
    def ms(self) -> int:
        """The retention that holds: the given one, or else the table's."""
        return self.of_table_ms if self.given_ms is None else self.given_ms


def retention(snapshot: Snapshot, hours: float | None, session: Mapping[str, str]) -> Retention:
    """The retention of a vacuum with this argument; DeltaIllegalArgumentException where it is not safe."""
    of_table_ms = DELETED_FILE_RETENTION_MS.of(snapshot.metadata.configuration, snapshot.path)
    is_checked = RETENTION_CHECK_ENABLED.of(session, snapshot.path)
    if hours is None:
        return Retention(of_table_ms, None, is_checked)
    if hours < 0:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE", table=snapshot.path
        )
    given_ms = math.ceil(min(hours * _HOUR_MS, _FOR_EVER_MS))
    if is_checked and given_ms < of_table_ms:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
            configured_retention_hours=math.ceil(of_table_ms / _HOUR_MS),
            table=snapshot.path,
        )
    return Retention(of_table_ms, given_ms, is_checked)


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """What may be deleted of a table's directory."""

    directory: DataDirectory
    places: LogPlaces
    version: int
    """The version that was the newest after the directory had been listed. What later commits add stays."""
    files: pa.Table
    """By LISTING_SCHEMA."""
    empty_directories: list[str]
    num_directories: int
    """How many directories were listed, the table's own included."""
    done_version: int
    """When everything of the plan has been deleted, vacuums have deleted what commits up to this version
    removed; -1 if that cannot be said."""

    @property
    def size_in_bytes(self) -> int:
        """The total size of the files."""
        return int(pc.sum(self.files["size"]).as_py() or 0)


def plan_vacuum(
    log: LogFiles, snapshot: Snapshot, retention_ms: int, find: Find = in_directory
) -> VacuumPlan:
    """What may be deleted of the table whose metadata `snapshot` has.

    Of the files that are found, these are kept: files that were modified within the retention, as far as that
    is known; files of every version that was the newest at some time within the retention, as far as the log
    has it; files whose tombstones say that they were removed within the retention; and whatever a listing of
    the directory leaves out. UnsupportedFeatureError if the table has features that deltaflow does not write.
    """
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    directory = log.store.data_directory(log.path)
    places = LogPlaces(directory)
    search = VacuumSearch(log, snapshot, directory, places, log.clock() - retention_ms)
    # The log is read after the files are found, so that it names every one that is committed by then.
    found = find(search)
    newest, referenced = _referenced(log, places, search.before_ms)
    files = files_outside(pa.Table.from_batches(found.files, LISTING_SCHEMA), referenced)
    referenced.clear()
    if found.linked is None and files.num_rows:
        named = (newest.files, newest.tombstones)
        found.linked = [link for each in named for link in linked_places(search, each["path"].chunks)]
    files = _without_linked(files, found.linked or ())
    if files.num_rows:
        # Tombstones do not suffice: the time of one may be earlier than its commit, and a checkpoint leaves
        # out those that have expired by the table's property, which may be shorter than this retention.
        since = log.commits_present(search.last_version + 1, newest.version)
        files = files_outside(files, places.of_each(_removed_paths(since)))
    return VacuumPlan(
        directory,
        places,
        newest.version,
        files,
        sorted(found.empty_directories),
        found.num_directories,
        search.last_version if found.is_complete else -1,
    )


def files_outside(files: pa.Table, places: Iterable[pa.Array]) -> pa.Table:
    """The files that are in none of the places (`LogPlaces`)."""
    kept = pa.chunked_array(list(places), pa.string())
    return files.filter(pc.invert(_are_in(files, kept))) if len(kept) else files


def files_within(files: pa.Table, places: Iterable[pa.Array]) -> pa.Table:
    """The files that are in one of the places (`LogPlaces`)."""
    wanted = pa.chunked_array(list(places), pa.string())
    return files.filter(_are_in(files, wanted)) if len(wanted) else files.slice(0, 0)


def _are_in(files: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:
    own = pa.chunked_array([comparable_places(chunk) for chunk in files["path"].chunks], pa.string())
    return pc.is_in(own, value_set=places)


def paths_added_since(log: LogFiles, version: int) -> tuple[int, list[str]]:
    """The newest version, and the paths of all files that commits after `version` add, of the files of their
    deletion vectors, and of their change files."""
    listing = log.list_next(version)
    latest = max(listing.latest_version, version)
    commits = list(log.commits(listing, version + 1, latest))
    adds = [add for commit in commits for add in commit.adds]
    changes = [change.path for commit in commits for change in commit.cdc]
    vectors = pa.array([vector_row(add.deletion_vector) for add in adds], DELETION_VECTOR)
    return latest, [*(add.path for add in adds), *vector_uris(vectors), *changes]


def _referenced(log: LogFiles, places: LogPlaces, before_ms: int) -> tuple[Snapshot, list[pa.Array]]:
    """The newest version, and the places of its files and of those that were removed within the retention."""
    with_paths = replace(log, file_fields=_FIELDS)
    newest = newest_snapshot(with_paths)
    tombstones = newest.tombstones
    # A tombstone without a time counts as the oldest.
    is_young = pc.greater_equal(pc.fill_null(tombstones["deletion_timestamp"], 0), before_ms)
    found: list[pa.Array] = []
    for files in (newest.files, tombstones.filter(is_young)):
        found += places.of(files["path"].chunks)
        found += places.of_vectors(files["deletion_vector"].chunks)
    return newest, found


def _without_linked(files: pa.Table, linked: Iterable[str]) -> pa.Table:
    """The files but those that links in the directory lead to: the log may name them by the links."""
    for place in linked:
        is_it = pc.equal(files["path"], place)
        is_below = pc.starts_with(files["path"], f"{place}/")
        files = files.filter(pc.invert(pc.or_(is_it, is_below)))
    return files


def _removed_paths(commits: Iterable[Commit]) -> Iterator[str]:
    """The paths of files, with those of deletion vectors, that commits have removed, and of change data."""
    for commit in commits:
        yield from (remove.path for remove in commit.removes)
        vectors = [vector_row(remove.deletion_vector) for remove in commit.removes]
        yield from vector_uris(pa.array(vectors, DELETION_VECTOR))
        yield from (change.path for change in commit.cdc)
