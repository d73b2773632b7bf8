"""`option("readChangeFeed", "true")`: the change rows of a range of versions, as scans by Spark.

The relation that a load returns has a description of the range. At each execution of a query Spark's
optimizer asks for its scans (`pin`), since a range without an end goes to the newest version. There are two
kinds of scans: of the files in which commits have recorded their change rows, and of the files of the table
that commits have added and removed.
Source: delta-spark's CDCReader.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.batch.options import boolean_option, option, required_path
from deltaflow.batch.read.change_scans import change_relation, partition_names, with_change_columns
from deltaflow.batch.read.computed_changes import is_net, keys_of, steps
from deltaflow.batch.read.load_path import load_path, no_table_at, version_number
from deltaflow.batch.read.messages import (
    ChangeFeedAnswer,
    ChangeFeedRequest,
    ChangeScansAnswer,
    ChangeScansRequest,
)
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaTableNotFoundError,
    DeltaUnsupportedOperationException,
    VersionNotFoundError,
)
from deltaflow.log import Commit, DeltaLog, Metadata, Snapshot
from deltaflow.log.files.change_files import change_files
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.protocol.column_mapping import (
    is_mapped,
    keeps_columns,
    physical_name,
    physical_partition_columns,
    table_schema,
    without_mapping,
)
from deltaflow.log.protocol.features import has_change_data_feed
from deltaflow.log.protocol.properties import CHANGE_FEED_SCHEMA_MODE, TIMESTAMP_OUT_OF_RANGE_ENABLED
from deltaflow.log.protocol.schema_reading import can_read, can_read_removed
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.expressions.timestamps import timestamp_of_text
from deltaflow.spark.scan.file_index import ScannedFiles, finds_files, hadoop_path
from deltaflow.spark.scan.messages import Relation

_OPTIONS = ("readChangeFeed", "readChangeData")
# The second name is that of the option's first release.
_KEPT_RANGES = 4


class DescribedRange(Message, frozen=True):
    """The range of versions that a load names, and the schema with which its change rows are read."""

    path: str
    id: str
    start: int
    end: int | None
    """None for the newest version at each execution."""
    schema: str
    """With the metadata of column mapping."""
    schema_version: int
    mapping_mode: str
    is_empty: bool = False
    """Whether the range has no version, as one after the newest may have."""
    keys: tuple[str, ...] = ()
    """The key columns by which the change rows are computed; none if they are as the commits tell them."""
    is_net: bool = False
    """Whether a key has at most one change in the range."""


class DescribedChanges(Message, frozen=True):
    """The description of a scan of change rows."""

    path: str
    id: str
    start: int
    end: int
    end_time_ms: int | None
    """When the last version was committed, which tells it from another one with the same number: a log may be
    put back from a copy."""
    schema: str
    recorded: bool
    """Whether the files are those of cdc actions."""
    computed: bool
    """Whether cdc actions are passed over."""
    partition_columns: tuple[str, ...]
    """The physical names of the columns by which the files are partitioned."""
    reads: str = "changes"


@dataclass(frozen=True)
class _Bound:
    """The start or the end of a range. It has the time by which it was found, if it was."""

    version: int
    timestamp_ms: int | None


@dispatcher.handle("changes.load")
def load(request: ChangeFeedRequest) -> ChangeFeedAnswer:
    """The change rows that a load names: the schema, and the range."""
    options, settings = request.options, request.settings
    for name in _OPTIONS:
        boolean_option(options, name)  # the JVM asks for every value but false
    loaded = load_path(required_path(request.path), options, settings)
    if loaded.travels:
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", options=", ".join(_OPTIONS)
        )
    if loaded.partition:
        raise DeltaUnsupportedOperationException(
            f"{loaded.path} is a part of the table {loaded.table_path}, and a change data feed is that of a "
            "whole table. Load the table, and filter its change rows",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )
    log = DeltaLog.for_table(loaded.table_path, with_files=False)
    try:
        newest = log.snapshot()
    except DeltaTableNotFoundError as error:
        raise no_table_at(log.path) from error
    may_be_later = TIMESTAMP_OUT_OF_RANGE_ENABLED.of(settings)
    start = _bound(log, options, "starting", may_be_later)
    if start is None:
        raise DeltaIllegalArgumentException(error_class="DELTA_NO_START_FOR_CDC_READ", table=log.path)
    end = _bound(log, options, "ending", may_be_later)
    is_empty = _is_empty(start, end, newest, may_be_later)
    schema_of = newest if is_empty else _schema_snapshot(log, start, end, newest, settings)
    visible = without_mapping(schema_of.schema)
    description = DescribedRange(
        path=log.path,
        id=newest.table_id,
        start=start.version,
        end=None if end is None else end.version,
        schema=schema_of.schema.json(),
        schema_version=schema_of.version,
        mapping_mode=schema_of.mapping_mode,
        is_empty=is_empty,
        keys=keys_of(options, visible, log.path),
        is_net=is_net(options),
    )
    return ChangeFeedAnswer(
        root=hadoop_path(log.path),
        scan=msgspec.json.encode(description).decode(),
        schema=with_change_columns(visible).json(),
        is_computed=bool(description.keys),
    )


def _bound(log: DeltaLog, options: Mapping[str, str], boundary: str, may_be_later: bool) -> _Bound | None:
    version, timestamp = option(options, f"{boundary}Version"), option(options, f"{boundary}Timestamp")
    if version is not None and timestamp is not None:
        raise DeltaIllegalArgumentException(error_class="DELTA_MULTIPLE_CDC_BOUNDARY", boundary=boundary)
    number = version_number(version)
    if number is not None:
        return _Bound(number, None)
    if timestamp is None:
        return None
    timestamp_ms = timestamp_of_text(timestamp).ms
    if boundary == "starting":
        return _Bound(log.first_version_since(timestamp_ms, may_be_later=may_be_later), timestamp_ms)
    try:
        return _Bound(log.version_at_timestamp(timestamp_ms), timestamp_ms)
    except VersionNotFoundError as error:
        if not may_be_later or error.error_class != "DELTA_TIMESTAMP_GREATER_THAN_COMMIT":
            raise
        return _Bound(log.snapshot().version, timestamp_ms)


def _is_empty(start: _Bound, end: _Bound | None, newest: Snapshot, may_be_later: bool) -> bool:
    """Whether the range is one without versions that is allowed; errors for others."""
    if start.version > newest.version:
        if may_be_later:
            return True
        raise DeltaIllegalArgumentException(
            error_class="DELTA_CDC_START_VERSION_AFTER_LATEST",
            start=start.version,
            latest=newest.version,
            table=newest.path,
        )
    if end is None or end.version >= start.version:
        return False
    if (
        start.timestamp_ms is not None
        and end.timestamp_ms is not None
        and start.timestamp_ms <= end.timestamp_ms
        and end.version == start.version - 1
    ):
        return True  # no commit lies between the two times
    raise DeltaIllegalArgumentException(
        error_class="DELTA_INVALID_CDC_RANGE", start=start.version, end=end.version, table=newest.path
    )


def _schema_snapshot(
    log: DeltaLog, start: _Bound, end: _Bound | None, newest: Snapshot, settings: Mapping[str, str]
) -> Snapshot:
    """The version whose schema the change rows have: that at the range's end if the table is mapped."""
    last = newest if end is None or end.version >= newest.version else _snapshot_at(log, end.version)
    snapshots = (_snapshot_at(log, start.version), last, newest)
    is_any_mapped = any(snapshot.mapping_mode != "none" for snapshot in snapshots)
    return last if is_any_mapped and CHANGE_FEED_SCHEMA_MODE.of(settings) == "endversion" else newest


def _snapshot_at(log: DeltaLog, version: int) -> Snapshot:
    try:
        return log.snapshot_at(version)
    except VersionNotFoundError as error:
        raise VersionNotFoundError(
            error_class="DELTA_TRUNCATED_TRANSACTION_LOG",
            place=log.path,
            missing_version=version,
            available=error.message,
            table=log.path,
        ) from error


@dispatcher.handle("changes.pin")
def pin(request: ChangeScansRequest) -> ChangeScansAnswer:
    """The scans with the change rows of a range, for one execution of a query.

    Raises DELTA_MISSING_CHANGE_DATA if the table did not record its changes at a version of the range, and
    DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_… if one has a schema that the feed's schema cannot read.
    """
    described = msgspec.json.decode(request.scan, type=DescribedRange)
    log = DeltaLog.for_table(described.path, with_files=False)
    snapshot = log.snapshot() if request.version is None else None
    newest = request.version if snapshot is None else snapshot.version
    assert newest is not None
    if described.is_empty:
        return ChangeScansAnswer(version=newest, relations=[], steps=[])
    end = newest if described.end is None else min(described.end, newest)
    if snapshot is not None and end == snapshot.version:
        time_ms: int | None = snapshot.timestamp_ms
    else:
        time_ms = log.commit_times_ms(end, end).get(end)
    changes = _changes(
        described.path, described.id, described.start, end, time_ms, computed=bool(described.keys)
    )
    _check(changes, described, end)
    relations = list(_relations(changes, described, end, time_ms))
    if not described.keys:
        return ChangeScansAnswer(version=newest, relations=relations, steps=[])
    visible = without_mapping(StructType.fromJson(msgspec.json.decode(described.schema)))
    return ChangeScansAnswer(
        version=newest,
        relations=relations,
        steps=steps(described.keys, net=described.is_net, schema=visible, table=described.path),
    )


@dataclass(frozen=True)
class _Changes:
    """The change files of a range of versions."""

    metadata: dict[int, Metadata]
    """That of the first version, and of each later one that has changed it."""
    files: dict[tuple[bool, tuple[str, ...]], pa.Table]
    """By CHANGE_FILES; whether they are recorded, and their partition columns by physical names."""
    before: Metadata | None
    """That of the version before the range, if the first version has other metadata and removes rows."""


@functools.lru_cache(_KEPT_RANGES)
def _changes(
    path: str, table_id: str, start: int, end: int, end_time_ms: int | None, *, computed: bool
) -> _Changes:
    log = DeltaLog.for_table(path, with_files=False)
    first = _snapshot_at(log, start).metadata
    if first.id != table_id:
        raise DeltaIllegalStateException(
            error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            new_table_id=first.id,
            old_table_id=table_id,
            table=path,
        )
    metadata = {start: first}
    before = None
    times = log.commit_times_ms(start, end)
    pieces: dict[tuple[bool, tuple[str, ...]], list[pa.Table]] = {}
    columns = tuple(physical_partition_columns(first, path).values())
    for commit in log.commits(start, end):
        of_table = replace(commit, cdc=()) if computed else commit
        found = change_files(of_table, _time_ms(commit, times), path)
        columns_before = columns
        if commit.metadata is not None:
            metadata[commit.version] = commit.metadata
            columns = tuple(physical_partition_columns(commit.metadata, path).values())
            if commit.version == start and found.removed.num_rows:
                before = _snapshot_at(log, start - 1).metadata
                columns_before = tuple(physical_partition_columns(before, path).values())
        for recorded, partitioned_by, files in (
            (True, columns, found.recorded),
            (False, columns_before, found.removed),
            (False, columns, found.added),
        ):
            if files.num_rows:
                pieces.setdefault((recorded, partitioned_by), []).append(files)
    return _Changes(metadata, {key: pa.concat_tables(tables) for key, tables in pieces.items()}, before)


def _time_ms(commit: Commit, times: Mapping[int, int]) -> int:
    info = commit.commit_info
    if info is not None and info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    return times[commit.version]


def _check(changes: _Changes, described: DescribedRange, end: int) -> None:
    schema = StructType.fromJson(msgspec.json.decode(described.schema))
    first, *later = sorted(changes.metadata)
    for version in (first, *later):
        if not (described.keys or has_change_data_feed(changes.metadata[version])):
            raise DeltaAnalysisException(
                error_class="DELTA_MISSING_CHANGE_DATA",
                start=described.start,
                end=end,
                unrecorded=version,
                table=described.path,
            )
    # The first version's is looked at last, as by delta-spark, which names another condition for it.
    for version in (*later, first):
        found = table_schema(changes.metadata[version], table=described.path, version=version)
        if not _is_compatible(found, version, schema, described.schema_version):
            raise _incompatible(schema, version, described, end)
    if changes.before is not None:
        found = table_schema(changes.before, table=described.path, version=first - 1)
        if not can_read_removed(schema, found):
            raise _incompatible(schema, first - 1, described, end)


def _incompatible(
    schema: StructType, version: int, described: DescribedRange, end: int
) -> DeltaUnsupportedOperationException:
    return DeltaUnsupportedOperationException(
        error_class="DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
        if version > described.start
        else "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
        start=described.start,
        end=end,
        read_schema=without_mapping(schema).simpleString(),
        read_version=described.schema_version,
        incompatible_version=version,
        config=CHANGE_FEED_SCHEMA_MODE.name,
        table=described.path,
    )


def _is_compatible(found: StructType, version: int, schema: StructType, schema_version: int) -> bool:
    """Whether change rows of a version's schema can be read with the feed's schema."""
    is_older = version <= schema_version
    older, newer = (found, schema) if is_older else (schema, found)
    if (is_mapped(older) or is_mapped(newer)) and not keeps_columns(older, newer):
        return False
    return can_read(newer, older, may_add_columns=True, takes_any_nulls=not is_older)


def _relations(
    changes: _Changes, described: DescribedRange, end: int, end_time_ms: int | None
) -> Iterator[Relation]:
    schema = StructType.fromJson(msgspec.json.decode(described.schema))
    names = {physical_name(field): field.name for field in schema.fields}
    for (recorded, partitioned_by), files in changes.files.items():
        scan = DescribedChanges(
            path=described.path,
            id=described.id,
            start=described.start,
            end=end,
            end_time_ms=end_time_ms,
            schema=described.schema,
            recorded=recorded,
            computed=bool(described.keys),
            partition_columns=partitioned_by,
        )
        yield change_relation(
            scan,
            described.path,
            schema,
            described.mapping_mode,
            [names[column] for column in partitioned_by if column in names],
            recorded=recorded,
            size_in_bytes=pc.sum(files["size"]).as_py(),
            vectors=files.num_rows - files["deletion_vector"].null_count,
        )


@finds_files("changes")
def files_of_changes(description: dict[str, Any]) -> ScannedFiles:
    """The files of one scan of change rows."""
    scan = msgspec.convert(description, DescribedChanges)
    changes = _changes(scan.path, scan.id, scan.start, scan.end, scan.end_time_ms, computed=scan.computed)
    schema = StructType.fromJson(msgspec.json.decode(scan.schema))
    names = {physical_name(field): field.name for field in schema.fields}
    columns = partition_names(
        {names[column]: column for column in scan.partition_columns if column in names},
        recorded=scan.recorded,
    )
    files = changes.files[scan.recorded, scan.partition_columns]
    return ScannedFiles(scan.path, columns, files, FileStatistics(files, schema))
