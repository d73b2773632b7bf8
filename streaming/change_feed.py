"""The option readChangeFeed: a stream of change rows in place of the rows that commits add.

The files of a commit are numbered as the actions of `change_actions`, so that offsets are those of
delta-spark. What a batch reads of them comes from `change_files`: a file that is marked again gives the rows
in which its two deletion vectors differ, so a commit with vectors is read as a whole, and so is one with cdc
actions, whose pairs of update images belong together. Source: delta-spark's DeltaSourceCDCSupport.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import Commit, Metadata
from deltaflow.log.files.change_files import (
    CHANGE_FILES,
    change_actions,
    change_files,
    changes_nothing,
    files_to_admit,
    inserted_files,
    with_change_actions,
)
from deltaflow.log.protocol.actions import AddCDCFile, RemoveFile
from deltaflow.log.protocol.features import has_change_data_feed
from deltaflow.spark.expressions.java_regex import regex_found
from deltaflow.streaming.admission import Selection
from deltaflow.streaming.commits import check_actions
from deltaflow.streaming.initial_snapshot import InitialSnapshot
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.schema_checks import check_partition_columns, check_removed
from deltaflow.streaming.source_filter import file_selection


class SnapshotInserts:
    """The files of the initial snapshot, whose rows are inserts of its version."""

    is_recorded = is_whole = False

    def __init__(self, snapshot: InitialSnapshot, version: int, timestamp_ms: int) -> None:
        self._snapshot = snapshot
        self._version = version
        self._timestamp_ms = timestamp_ms

    @property
    def num_rows(self) -> int:
        """The number of files."""
        return self._snapshot.num_rows

    def slice(self, first: int, count: int) -> pa.Table:
        """At most `count` files, beginning with number `first`, as they are counted."""
        return self._snapshot.slice(first, count)

    def read(self, first: int, stop: int) -> pa.Table:
        """The files with numbers from `first` to before `stop`, as they are read (CHANGE_FILES)."""
        return inserted_files(self.slice(first, stop - first), self._version, self._timestamp_ms)


class CommitChanges:
    """The files with the change rows of a commit, in log order.

    `is_recorded`: whether they are those of cdc actions. `is_whole`: whether one batch reads them all.
    """

    def __init__(self, reading: Reading, commit: Commit, timestamp_ms: int) -> None:
        self._reading = reading
        self._commit = commit
        self._timestamp_ms = timestamp_ms
        actions = change_actions(commit)
        self.is_recorded = bool(commit.cdc)
        self.is_whole = self.is_recorded or any(
            not isinstance(action, AddCDCFile) and action.deletion_vector is not None for action in actions
        )
        self._actions = () if not self.is_recorded and changes_nothing(commit) else actions

    @property
    def num_rows(self) -> int:
        """The number of files."""
        return len(self._actions)

    @cached_property
    def _files(self) -> pa.Table:
        return files_to_admit(self._actions, self._reading.path)

    def slice(self, first: int, count: int) -> pa.Table:
        """At most `count` files, beginning with number `first`, as they are counted."""
        return self._files.slice(first, count)

    def read(self, first: int, stop: int) -> pa.Table:
        """The files with numbers from `first` to before `stop`, as they are read (CHANGE_FILES)."""
        actions = self._actions[first:stop]
        if not actions:
            return CHANGE_FILES.empty_table()
        columns = set(self._reading.physical_partition_columns.values())
        for action in actions:
            if action.partition_values is not None and action.partition_values.keys() != columns:
                check_partition_columns(
                    self._reading,
                    action.partition_values,
                    self._commit.version,
                    of_removed=isinstance(action, RemoveFile),
                )
        found = change_files(
            with_change_actions(self._commit, actions), self._timestamp_ms, self._reading.path
        )
        return pa.concat_tables([found.recorded, found.removed, found.added])


def feed_selection(reading: Reading) -> Selection | None:
    """Selects the files that a stream of change rows reads; None if it reads all.

    Those that excludeRegex leaves out do not count for the limits of a batch, as in delta-spark. (For the
    rows of a table they do.)
    """
    selects, pattern = file_selection(reading), reading.options.exclude_regex
    if pattern is None:
        return selects

    def selection(files: pa.Table) -> pa.Array:
        found = pc.invert(regex_found(pattern, files["path"])).combine_chunks()
        return found if selects is None else pc.and_(found, selects(files))

    return selection


def check_commit(reading: Reading, commit: Commit, start: int, last_version: int) -> None:
    """Checks that a stream can read the change rows of a commit, in a batch from `start` to `last_version`.

    DELTA_MISSING_CHANGE_DATA if the table no longer records its changes; errors of `check_actions`.
    """
    check_actions(reading, commit)
    if commit.metadata is not None:
        check_recorded(reading, commit.metadata, commit.version, start, last_version)


def check_recorded(reading: Reading, metadata: Metadata, version: int, start: int, last_version: int) -> None:
    """DELTA_MISSING_CHANGE_DATA unless the table records its changes with the metadata of a version."""
    if not has_change_data_feed(metadata):
        raise DeltaAnalysisException(
            error_class="DELTA_MISSING_CHANGE_DATA",
            start=start,
            end=last_version,
            unrecorded=version,
            table=reading.path,
        )


def check_feed_at_start(reading: Reading, version: int, last_version: int) -> None:
    """Checks the version with which a stream of change rows goes on: as `check_recorded`, by the table's
    state, and as `check_removed`.

    DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE if the log no longer has that state, unless the stream may
    lose data.
    """
    if not reading.options.fail_on_data_loss and reading.snapshot_if_there(version) is None:
        return
    with reading.needs(version):
        snapshot = reading.log.snapshot_at(version)
    check_recorded(reading, snapshot.metadata, version, version, last_version)
    for commit in reading.log.commits_present(version, version):
        if commit.metadata is not None and change_files(commit, 0, reading.path).removed.num_rows:
            check_removed(reading, version)
