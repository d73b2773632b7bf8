"""A version of a table as readers see it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.file_rows import FILES_SCHEMA, file_keys
from deltaflow.log.files.file_state import NoFileState
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.file_totals import FileTotals
from deltaflow.log.files.generated_bounds import generated_bounds
from deltaflow.log.files.stored_statistics import StoredStatistics, with_texts
from deltaflow.log.protocol.actions import DomainMetadata, SetTransaction
from deltaflow.log.protocol.clustering import CLUSTERING_DOMAIN, clustering_columns
from deltaflow.log.protocol.column_mapping import mapping_mode, physical_partition_columns, table_schema
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import check_readable, has_generated_columns
from deltaflow.log.protocol.indexed_columns import ColumnPath
from deltaflow.log.replay.checkpoint_statistics import CheckpointStatistics
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles, no_table
from deltaflow.log.replay.segment import list_newest, load_newest, load_state
from deltaflow.log.replay.state import TableState

__all__ = ["FILES_SCHEMA", "Snapshot", "replay"]


class Snapshot:
    """A table at one version; immutable.

    CorruptLogError if the state lacks its protocol or metadata, UnsupportedFeatureError if the table
    has features that deltaflow does not read.
    """

    def __init__(self, path: str, state: TableState) -> None:
        if state.protocol is None or state.metadata is None:
            missing = "protocol" if state.protocol is None else "metaData"
            raise CorruptLogError(
                f"The log of {path} has no {missing} action up to version {state.version}. Restore the first "
                "commits, or the checkpoint that lacks it, from a copy.",
                error_class="DELTA_STATE_RECOVER_ERROR",
                table=path,
                version=state.version,
            )
        check_readable(state.protocol, state.metadata, path, state.version)
        self.path = path
        self.version = state.version
        self.timestamp_ms = state.timestamp_ms
        """When the version was committed: in-commit timestamp, else modification time of its log file."""
        self.protocol = state.protocol
        self.metadata = state.metadata
        self._state = state

    @property
    def table_id(self) -> str:
        """The id in metaData: a table with another id is another table."""
        return self.metadata.id

    @property
    def partition_columns(self) -> list[str]:
        """Names in partition order."""
        return list(self.metadata.partition_columns)

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, partition columns included, with the metadata of its column mapping."""
        return table_schema(self.metadata, table=self.path, version=self.version)

    @property
    def mapping_mode(self) -> str:
        """none, name or id: by what the columns are found in data files."""
        return mapping_mode(self.metadata, self.path)

    @cached_property
    def physical_partition_columns(self) -> dict[str, str]:
        """The partition columns in their order, each with its name in partition values."""
        return physical_partition_columns(self.metadata, self.path)

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        """The newest txn action of every application."""
        return self._state.transactions

    @property
    def transactions_expire(self) -> bool:
        """Whether checkpoints may have fewer `transactions`, since they leave expired ones out."""
        return self._state.transactions_expire

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The domainMetadata of every domain that was not removed."""
        return self._state.domains

    @property
    def clustering_columns(self) -> list[ColumnPath]:
        """The paths of the columns by which the table is clustered, in their order."""
        return clustering_columns(self.domains.get(CLUSTERING_DOMAIN), self.schema, self.path)

    @cached_property
    def files(self) -> pa.Table:
        """The active files, one row each, by FILES_SCHEMA. Statistics in a checkpoint stay there."""
        return self._state.file_state.files

    @property
    def text_bytes(self) -> int:
        """How many bytes the statistics have that are in memory, and not in a checkpoint; those of files that
        were removed since count, too."""
        return self._state.file_state.text_bytes

    def with_stats(self, files: pa.Table) -> pa.Table:
        """Some of `files` with the column `stats`, the statistics as JSON text, which are read for them.

        CorruptLogError if the log has them no more: its checkpoint was deleted, and the version cannot be
        made from newer ones.
        """
        return with_texts(files, self._stored)

    @cached_property
    def _stored(self) -> StoredStatistics | None:
        source = self._state.file_state.stats_source
        if source is None:
            return None
        assert isinstance(source, CheckpointStatistics)
        return _StatisticsOfVersion(self.path, self.table_id, self.version, source)

    @property
    def has_lost_statistics(self) -> bool:
        """Whether the checkpoint that this snapshot was made of was found to have gone."""
        source = self._state.file_state.stats_source
        return source is not None and source.is_gone

    @cached_property
    def statistics(self) -> FileStatistics:
        """The statistics of `files`, row by row."""
        return self.statistics_of(self.files)

    def statistics_of(self, files: pa.Table) -> FileStatistics:
        """The statistics of some of `files`, with the bounds that follow from generated partition columns.

        They are read when they are asked for, column by column.
        """
        if not has_generated_columns(self.protocol):
            return FileStatistics(files, self.schema, stored=self._stored)
        bounds = generated_bounds(files, self.schema, self.partition_columns)
        return FileStatistics(files, self.schema, bounds, self._stored)

    def number_of_rows(self, files: pa.Table) -> int | None:
        """The rows of some of `files` that are in the table, by their statistics; None where one does not
        say it."""
        rows = FileStatistics(files, self.schema, stored=self._stored).num_rows
        return None if rows.null_count else pc.sum(rows, min_count=0).as_py()

    @property
    def tombstones(self) -> pa.Table:
        """The removed files that the log still knows, one row each, by TOMBSTONES_SCHEMA.

        Among them are expired ones (deletion_timestamp before the table's retention; null is 0), which a
        checkpoint leaves out.
        """
        return self._state.file_state.tombstones

    @property
    def num_files(self) -> int:
        """Number of active files."""
        return int(self.files.num_rows)

    @cached_property
    def num_deletion_vectors(self) -> int:
        """Number of active files that have a deletion vector."""
        return int(self.num_files - self.files["deletion_vector"].null_count)

    @cached_property
    def size_in_bytes(self) -> int:
        """Sum of the sizes of the active files."""
        return int(pc.sum(self.files["size"]).as_py() or 0)

    @property
    def file_totals(self) -> FileTotals:
        """Totals over the active files; a snapshot that `after` makes can mostly derive its own from them."""
        totals = self._state.file_totals
        if totals is None:
            totals = FileTotals.of(self.files)
            self._state = replace(self._state, file_totals=totals)
        return totals

    def txn_version(self, app_id: str) -> int | None:
        """The newest version that an application committed; None if it never did."""
        transaction = self.transactions.get(app_id)
        return None if transaction is None else transaction.version

    def after(self, commits: Iterable[Commit]) -> Snapshot:
        """The table after the commits that follow this version."""
        return replay(self.path, commits, self)

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r}, version={self.version})"


@dataclass(slots=True)
class _StatisticsOfVersion:
    """The statistics of one version's files in a checkpoint, or in another one after that has gone."""

    path: str
    table_id: str
    version: int
    source: CheckpointStatistics
    useless: Sequence[Checkpoint] = ()
    """The checkpoints that have been tried before."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _others: tuple[pa.Table, pa.Array, StoredStatistics | None] | None = None
    """All files of the version as they were read anew, their keys, and where their statistics are."""

    def read(self, rows: pa.Array, leaves: Sequence[tuple[str, ...]] | None) -> Iterator[pa.Array]:
        return self.source.read(rows, leaves)

    def elsewhere(self, files: pa.Table, error: CorruptLogError) -> tuple[pa.Table, StoredStatistics | None]:
        with self._lock:
            if self._others is None:
                self._others = self._read_anew(error)
        others, keys, stored = self._others
        places = pc.index_in(file_keys(files, self.path), value_set=keys)
        if places.null_count:
            raise error
        return others.take(places), stored

    def _read_anew(self, error: CorruptLogError) -> tuple[pa.Table, pa.Array, StoredStatistics | None]:
        useless, log = [*self.useless, self.source.checkpoint], self.source.log
        listing = log.list(0)
        usable = [checkpoint for checkpoint in listing.checkpoints if checkpoint not in useless]
        try:
            state = load_state(log, replace(listing, checkpoints=usable), self.version)
        except CorruptLogError as other:
            error.add_note(f"Version {self.version} cannot be made without it: {other}")
            raise error from other
        if state.metadata is None or state.metadata.id != self.table_id:
            raise error
        others, source = state.file_state.files, state.file_state.stats_source
        stored = None
        if source is not None:
            assert isinstance(source, CheckpointStatistics)
            stored = _StatisticsOfVersion(self.path, self.table_id, self.version, source, useless)
        return others, file_keys(others, self.path), stored


def replay(path: str, commits: Iterable[Commit], previous: Snapshot | None = None) -> Snapshot:
    """The table after `commits`, which follow `previous` (or are all from version 0), without a gap."""
    state = TableState() if previous is None else previous._state
    return Snapshot(path, state.after(commits, path))


def replay_for_totals(path: str, commits: Sequence[Commit], previous: Snapshot | None) -> Snapshot:
    """As `replay`, for a caller that needs `file_totals` and nothing else of the files.

    Its cost does not grow with the table as long as the totals follow from the commits' actions alone.
    """
    state = TableState() if previous is None else previous._state
    totals = FileTotals.of(FILES_SCHEMA.empty_table()) if previous is None else previous.file_totals
    state = replace(state, file_state=NoFileState(), file_totals=totals).after(commits, path)
    if state.file_totals is not None:
        return Snapshot(path, state)
    return replay(path, commits, previous)


def newest_snapshot(log: LogFiles) -> Snapshot:
    """The table at its newest version; DeltaTableNotFoundError without a table."""
    found = load_newest(log)
    if found is None:
        raise no_table(log.path)
    return Snapshot(log.path, found[1])


def snapshot_at(log: LogFiles, version: int, earlier: Snapshot | None) -> Snapshot:
    """The table at a version of its log; `earlier` is that version or one before it, if one is known."""
    if earlier is None:
        return Snapshot(log.path, load_state(log, list_newest(log), version))
    if version == earlier.version:
        return earlier
    listing = log.list(earlier.version + 1)
    return earlier.after(log.commits_or_compactions(listing, earlier.version + 1, version))
