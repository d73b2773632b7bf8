"""The commits that a stream reads, in order and without a gap, and the files that it reads of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log import FILES_SCHEMA, AddFile, Commit, Protocol
from deltaflow.log.files.file_rows import STATS, vector_row
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.features import check_readable, has_change_data_feed
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.schema_checks import check_metadata, check_partition_columns

COLUMNS = pa.schema(
    [
        *(FILES_SCHEMA.field(name) for name in ("path", "partition_values", "size", "modification_time")),
        STATS,
        *(
            FILES_SCHEMA.field(name)
            for name in ("deletion_vector", "base_row_id", "default_row_commit_version")
        ),
    ]
)
"""The columns of a stream's files: the columns of a snapshot's files that a batch needs."""
# Of a commit that leaves the protocol as it is, the metadata alone is checked.
_UNCHANGED = Protocol(min_reader_version=2, min_writer_version=6)


def commits(reading: Reading, first: int, last: int) -> Iterator[Commit]:
    """The commits from `first` to `last`, read lazily.

    Raises DELTA_MISSING_FILES_UNEXPECTED_VERSION if commits are missing before one that exists, unless the
    stream may lose data. The caller has to notice commits that are missing at the end.
    """
    expected = first
    for commit in reading.log.commits_present(first, last):
        if commit.version > expected:
            check_data_loss(reading, expected, commit.version)
        yield commit
        expected = commit.version + 1


def check_data_loss(reading: Reading, expected: int, found: int) -> None:
    """Raises an error, unless that is allowed, because the commits from `expected` to `found` are lost."""
    if reading.options.fail_on_data_loss:
        raise DeltaIllegalStateException(
            error_class="DELTA_MISSING_FILES_UNEXPECTED_VERSION",
            start_version=expected,
            earliest_version=found,
            table=reading.path,
        )


def emitted_files(reading: Reading, commit: Commit) -> pa.Table:
    """The files (COLUMNS) that a stream reads of a commit, in log order; an error if it must not go on."""
    files = checked_files(reading, commit)
    columns = set(reading.physical_partition_columns.values())
    for add in files:
        # A stream that started after a change of the partition columns may read commits from before it, which
        # need not contain metadata: so each file is checked.
        if add.partition_values.keys() != columns:
            check_partition_columns(reading, add.partition_values, commit.version)
    return files_of_adds(files, with_stats=reading.reads_stats)


def checked_files(reading: Reading, commit: Commit) -> Sequence[AddFile]:
    """The files that a stream reads of a commit by its options; an error if it must not go on."""
    check_actions(reading, commit)
    return _files_by_options(reading, commit)


def check_actions(reading: Reading, commit: Commit) -> None:
    """Raises an error if a stream must not go on with the protocol or the metadata of a commit.

    The schema log of a stream that has one decides whether it must stop for other metadata.
    """
    if commit.protocol is not None or commit.metadata is not None:
        protocol = commit.protocol or _UNCHANGED
        check_readable(protocol, commit.metadata, reading.path, commit.version)
    if commit.metadata is not None and reading.schema_log is None:
        check_metadata(reading, commit.metadata, commit.version)


def _files_by_options(reading: Reading, commit: Commit) -> Sequence[AddFile]:
    options = reading.options
    adds = [add for add in commit.adds if add.data_change]
    removed = next((remove for remove in commit.removes if remove.data_change), None)
    if removed is None:
        return adds
    if options.skip_change_commits:
        return []
    if options.ignore_changes or (options.ignore_deletes and not adds):
        return adds
    info, feed = _change_info(commit, removed.path), _feed_as_remedy(reading, commit.version)
    if adds:
        raise DeltaIllegalStateException(
            error_class="DELTA_SOURCE_TABLE_IGNORE_CHANGES",
            change_info=info,
            changed_in=commit.version,
            feed=feed,
            table=reading.path,
        )
    raise DeltaIllegalStateException(
        error_class="DELTA_SOURCE_IGNORE_DELETE",
        removed_file=info,
        changed_in=commit.version,
        feed=feed,
        table=reading.path,
    )


def _change_info(commit: Commit, removed_path: str) -> str:
    info = commit.commit_info
    if info is None or info.operation is None:
        return removed_path
    return f"{info.operation} ({msgspec.json.encode(info.operation_parameters or {}).decode()})"


def _feed_as_remedy(reading: Reading, version: int) -> str:
    """How a stream reads the rows that a version has changed, or those that later versions change."""
    snapshot = reading.snapshot_if_there(version) or reading.log.snapshot()
    if has_change_data_feed(snapshot.metadata):
        return (
            "The table records its changes: to read inserted, changed and deleted rows as such, start the "
            'stream with .option("readChangeFeed", "true").'
        )
    return (
        "The table did not record its changes at this version. For a stream of inserted, changed and deleted "
        f"rows, run ALTER TABLE delta.`{reading.path}` SET TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true), and start one with a new checkpoint and "
        '.option("readChangeFeed", "true").'
    )


def totals(files: pa.Table) -> tuple[int, int, int | None]:
    """Number, bytes and rows of files (COLUMNS) with statistics; None if the rows of one are unknown."""
    rows = FileStatistics(files, StructType()).num_rows
    size = int(pc.sum(files["size"]).as_py() or 0)
    return files.num_rows, size, None if rows.null_count else int(pc.sum(rows).as_py() or 0)


def files_of_adds(adds: Sequence[AddFile], *, with_stats: bool) -> pa.Table:
    """The files of add actions (COLUMNS)."""
    return pa.table(
        [
            [add.path for add in adds],
            [list(add.partition_values.items()) for add in adds],
            [add.size for add in adds],
            [add.modification_time for add in adds],
            [add.stats if with_stats else None for add in adds],
            [vector_row(add.deletion_vector) for add in adds],
            [add.base_row_id for add in adds],
            [add.default_row_commit_version for add in adds],
        ],
        schema=COLUMNS,
    )
