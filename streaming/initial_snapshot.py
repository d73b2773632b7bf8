"""The initial snapshot of a stream: a table's files at one version, by (modification time, path).

The cost of a batch is that of its own files: the snapshot is sorted once, by one number for each file, and
its columns are neither copied nor sorted.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.streams.source_offset import INITIAL_SNAPSHOT_ORDER
from deltaflow.streaming.commits import COLUMNS
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.schema_checks import check_metadata

_FIELDS = frozenset(
    {
        "path",
        "partitionValues",
        "size",
        "modificationTime",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
    }
)


class InitialSnapshot:
    """The files of a table at a version, in the order in which a stream reads them; immutable, but for the
    reading that has passed the check last."""

    def __init__(self, reading: Reading, version: int) -> None:
        fields = _FIELDS | {"stats"} if reading.reads_stats else _FIELDS
        snapshot = reading.log.snapshot_with_fields(version, fields)
        self.metadata = snapshot.metadata
        self.timestamp_ms = snapshot.timestamp_ms
        self.has_in_commit_timestamp = has_in_commit_timestamps(snapshot.protocol, snapshot.metadata)
        files = snapshot.with_stats(snapshot.files).select(COLUMNS.names)
        self._batches: list[pa.RecordBatch] = files.to_batches()
        self._order = pc.sort_indices(files, sort_keys=INITIAL_SNAPSHOT_ORDER)
        self._bytes_up_to = pc.cumulative_sum(files["size"].take(self._order))
        self.checked_for: Reading | None = None

    @property
    def num_rows(self) -> int:
        """The number of files."""
        return len(self._order)

    def slice(self, first: int, count: int) -> pa.Table:
        """At most `count` files (COLUMNS) in order, beginning with number `first`."""
        wanted = self._order.slice(first, count)
        if len(self._batches) == 1:
            return pa.Table.from_batches([self._batches[0].take(wanted)])
        # Taken from each record batch alone: Arrow's `take` over all of them would copy the files first.
        pieces, positions, start = [], [], 0
        for batch in self._batches:
            end = start + batch.num_rows
            is_inside = pc.and_(pc.greater_equal(wanted, start), pc.less(wanted, end))
            inside = pc.indices_nonzero(is_inside)
            if len(inside):
                pieces.append(batch.take(pc.subtract(wanted.take(inside), start)))
                positions.append(inside)
            start = end
        if not pieces:
            return COLUMNS.empty_table()
        files = pa.Table.from_batches(pieces).combine_chunks()
        return files.take(pc.sort_indices(pa.concat_arrays(positions)))

    def bytes_from(self, first: int) -> int:
        """The sum of the sizes of the files, beginning with number `first`."""
        if first >= self.num_rows:
            return 0
        before = self._bytes_up_to[first - 1].as_py() if first else 0
        return int(self._bytes_up_to[-1].as_py() - before)

    def rows_from(self, first: int) -> int | None:
        """The number of rows of the files, beginning with number `first`; None if that of one is unknown.

        For a reading that counts rows.
        """
        files = pa.Table.from_batches(self._batches, COLUMNS)
        rows = FileStatistics(files, StructType()).num_rows.take(self._order.slice(first))
        return None if rows.null_count else int(pc.sum(rows).as_py() or 0)


_lock = threading.Lock()
_in_use: WeakValueDictionary[tuple[str, str, int, bool], InitialSnapshot] = WeakValueDictionary()


def initial_snapshot(reading: Reading, version: int) -> InitialSnapshot:
    """The snapshot with which a stream begins. All streams inside of it share one object.

    Raises DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE if the log no longer has the version, and the errors
    of `check_metadata` for a stream that does not track its schema.
    """
    key = reading.path, reading.table_id, version, reading.reads_stats
    with _lock:
        snapshot = _in_use.get(key)
    if snapshot is None:
        with reading.needs(version):
            snapshot = InitialSnapshot(reading, version)
        with _lock:
            _in_use[key] = snapshot
    # Each batch comes here twice, and the check parses the schema.
    if reading.schema_log is None and snapshot.checked_for is not reading:
        check_metadata(reading, snapshot.metadata, version)
        snapshot.checked_for = reading
    return snapshot
