"""Gives Spark the partitions and the files of a scan at planning time.

A scan is named by its description, a JSON object: what it reads (`reads`), the table's path and id, its
version or the offsets of a stream. The rooms above register a function for each value of `reads`, which
finds the files. Nothing in a plan keeps a Python object alive, and another process can answer for a
description as well.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, TimestampType

from deltaflow.errors import CorruptLogError, DeltaIllegalStateException, StoreError
from deltaflow.log import Metadata, Snapshot
from deltaflow.log.commits.validation import ROW_INDEX
from deltaflow.log.files.aggregates import aggregates, fewest_files_with
from deltaflow.log.files.data_path import complete_paths as complete_paths
from deltaflow.log.files.data_path import hadoop_path as hadoop_path
from deltaflow.log.files.data_skipping import may_match
from deltaflow.log.files.deletion_vectors import DeletionVector, read_deletion_vectors
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.partition_values import first_wrong_value, typed_values_or_null
from deltaflow.log.protocol.column_mapping import mapping_mode, table_schema, visible_schema
from deltaflow.log.protocol.row_tracking import row_id_columns
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.messages import (
    AggregatesAnswer,
    AggregatesRequest,
    BadPartitionValueRequest,
    BitmapsRequest,
    ColumnMapping,
    FilesRequest,
    PartitionsRequest,
    Relation,
    RowIdColumns,
    VectorsAnswer,
    VectorsRequest,
)

# Spark asks two or three times about a scan of a plan, and a few times more for a self-join or a micro-batch.
_KEPT_LISTINGS = 16
_KEPT_STATISTICS = 4
_BYTES_OF_BITMAPS = 4 * 1024 * 1024
"""What one answer has of them: the driver holds a few copies of it, and executors get one at a time."""

_ROW_IDS = {"baseRowId": "base_row_id", "defaultRowCommitVersion": "default_row_commit_version"}

NEWEST = "newest"
"""What a scan without a version reads: the JVM asks `scan.pin` for one at each execution of its query."""

STREAM = "stream"
"""What the scan of a micro-batch reads: files that several versions have added."""

READ_ALL: Mapping[str, str] = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of a relation that has to read all of its files, whatever the session's settings are."""

FilesOf = Callable[[dict[str, Any]], "ScannedFiles"]
_files_by_reads: dict[str, FilesOf] = {}


@dataclass(frozen=True)
class ScannedFiles:
    """The files that a scan reads: a row each, with at least the columns path (as in the log),
    partition_values (map), size, modification_time and deletion_vector."""

    path: str
    partition_columns: Mapping[str, str]
    """Each with its physical name."""
    files: pa.Table
    statistics: FileStatistics | None = None
    """The statistics of `files`, row by row, for data skipping."""
    vectors: Sequence[DeletionVector] | None = None
    """The rows of each file that are left out; by default those that the log's deletion vectors delete."""
    numbers: pa.Array | None = None
    """The number of each file, which its rows have in the column FILE. See `relation`."""
    with_stats: Callable[[pa.Table], pa.Table] | None = None
    """Gives some of `files` the column stats (Snapshot.with_stats); None where they have it or need none."""


FILE, POSITION = "\0file", ROW_INDEX
"""Columns with the places of rows: the number of the file, and the position in it. Spark's reader fills the
second by its name. The same are fields of `_metadata`, which Spark makes for every row before it filters."""


def finds_files(reads: str) -> Callable[[FilesOf], FilesOf]:
    """Decorator: the function finds the files of scans whose description has this value of `reads`."""

    def add(function: FilesOf) -> FilesOf:
        _files_by_reads[reads] = function
        return function

    return add


def relation(
    description: dict[str, Any],
    path: str,
    schema: StructType,
    partition_columns: Sequence[str],
    size_in_bytes: int,
    mapping_mode: str,
    options: Mapping[str, str] | None = None,
    *,
    vectors: int | None,
    row_ids: RowIdColumns | None = None,
    places: bool = False,
) -> Relation:
    """The answer from which the JVM makes a HadoopFsRelation over the scan.

    `options` are those of Spark's Parquet reader. The data schema has the partition columns, too, so that
    they keep their positions in the table. `schema` and `mapping_mode` are those of
    deltaflow.log.protocol.column_mapping. `vectors`: how many files have deletion vectors, None if that
    is not known yet. `row_ids`: for `_metadata` with row ids (`row_ids_of`). `places`: FILE and
    POSITION, too.
    """
    visible = visible_schema(schema)
    partition_schema = StructType([visible[name] for name in partition_columns])
    if places:
        # A table can have columns of many names, but not of these.
        visible = StructType([*visible.fields, StructField(POSITION, LongType())])
        partition_schema = StructType([*partition_schema.fields, StructField(FILE, IntegerType())])
    return Relation(
        root=hadoop_path(path),
        pinned=description["reads"] != NEWEST,
        scan=msgspec.json.encode(description).decode(),
        partition_schema=partition_schema.json(),
        # With all columns, Spark keeps the table's order, by which a stream matches columns.
        data_schema=visible.json(),
        mapping=column_mapping(schema, mapping_mode),
        size_in_bytes=size_in_bytes,
        options=dict(options or {}),
        vectors=vectors,
        row_ids=row_ids,
    )


def row_ids_of(snapshot: Snapshot) -> RowIdColumns | None:
    """What the JVM has to know of a table's row tracking; None unless it is enabled."""
    columns = row_id_columns(snapshot.protocol, snapshot.metadata, snapshot.path)
    return None if columns is None else RowIdColumns(*columns)


def mapping_of(metadata: Metadata, path: str) -> ColumnMapping | None:
    """As `column_mapping`, by the metadata of the table at `path`."""
    mode = mapping_mode(metadata, path)
    # Every write asks: only the schema of a mapped table is parsed.
    return None if mode == "none" else column_mapping(table_schema(metadata, table=path), mode)


def column_mapping(schema: StructType, mapping_mode: str) -> ColumnMapping | None:
    """What the JVM has to know of a table's column mapping; None if the table is not mapped."""
    if mapping_mode == "none":
        return None
    return ColumnMapping(schema=schema.json(), by_id=mapping_mode == "id")


@dataclass(frozen=True)
class _Listing:
    partitions: pa.Table
    """A row for each partition, a string column for each partition column."""
    files: pa.Table
    """partition (index of a row of `partitions`), path (complete, decoded), size, modificationTime, vector
    (index of a row of `with_vectors`, or null), baseRowId, defaultRowCommitVersion (null without any)."""
    statistics: FileStatistics | None
    with_vectors: pa.Table
    """The files of the scan that have deletion vectors, with the columns of the scan's files."""
    vectors: Sequence[DeletionVector] | None
    """Their vectors, if the scan has others than those of the log."""
    with_stats: Callable[[pa.Table], pa.Table] | None
    """As of ScannedFiles."""


@functools.lru_cache(_KEPT_LISTINGS)
def _listing(scan: str) -> _Listing:
    description = msgspec.json.decode(scan)
    listing = _list(_files_by_reads[description["reads"]](description))
    _recent.append((description, listing))
    return listing


@functools.lru_cache(_KEPT_STATISTICS)
def _statistics_of(scan: str, partitions: tuple[int, ...]) -> FileStatistics | None:
    """The statistics of the files in these partitions. So a condition on partitions comes first, and only the
    statistics of the files that it leaves are read."""
    statistics = _listing(scan).statistics
    return None if statistics is None else statistics.of(_array(in_partitions(scan, partitions)))


def _selected(scan: str, partitions: Sequence[int] | None) -> tuple[pa.Table, FileStatistics | None]:
    """The files of the scan in these partitions (None: all of them), and their statistics."""
    listing = _listing(scan)
    if partitions is None:
        return listing.files, listing.statistics
    files = listing.files.filter(in_partitions(scan, partitions))
    return files, _statistics_of(scan, tuple(partitions))


def in_partitions(scan: str, partitions: Sequence[int]) -> pa.ChunkedArray:
    """A mask over the files of a scan, which is true for the files of these partitions."""
    return pc.is_in(_listing(scan).files["partition"], pa.array(partitions, pa.int32()))


_recent: deque[tuple[dict[str, Any], _Listing]] = deque(maxlen=_KEPT_LISTINGS)


def failed_read_error(uri: str, reason: str | None) -> StoreError | None:
    """The error for a file of this URI that Spark's readers miss, or cannot read for a `reason`; None if no
    recent scan listed the file."""
    file = unquote(uri)
    for description, listing in reversed(list(_recent)):
        if pc.index(listing.files["path"], file).as_py() >= 0:
            version = description.get("version")
            return StoreError(
                error_class="DELTA_FILE_NOT_FOUND_DETAILED" if reason is None else "DELTA_FAILED_READ_FILE",
                file=file,
                table=description["path"],
                version=version,
                path=file,
                read="a stream or the change data feed of the table"
                if version is None
                else f"version {version} of the table",
                root=description["path"],
                reason=reason,
            )
    return None


def _list(scanned: ScannedFiles) -> _Listing:
    files = scanned.files
    partitions, numbers = partitions_of(files, scanned.partition_columns)
    if scanned.numbers is not None:  # Each file is a partition.
        values = {name: partitions[name].take(numbers) for name in partitions.column_names}
        partitions = pa.table({**values, FILE: scanned.numbers.cast(pa.string())})
        numbers = pa.array(range(files.num_rows), pa.int32())
    has_vector = files["deletion_vector"].is_valid()
    if scanned.vectors is not None:
        has_vector = pa.chunked_array([pa.repeat(True, files.num_rows)])
    return _Listing(
        partitions,
        pa.table(
            {
                "partition": numbers,
                "path": complete_paths(scanned.path, files["path"]),
                "size": files["size"],
                "modificationTime": files["modification_time"],
                "vector": _numbers(has_vector),
                **_row_ids(files),
            }
        ),
        scanned.statistics,
        files.filter(has_vector),
        scanned.vectors,
        scanned.with_stats,
    )


def _row_ids(files: pa.Table) -> dict[str, Any]:
    if "base_row_id" not in files.column_names:
        return dict.fromkeys(_ROW_IDS, pa.nulls(files.num_rows, pa.int64()))
    return {name: files[column] for name, column in _ROW_IDS.items()}


def _numbers(mask: pa.ChunkedArray) -> pa.Array:
    """The true ones numbered from 0; null for the others."""
    if not pc.any(mask).as_py():  # most tables have no vectors
        return pa.nulls(len(mask), pa.int32())
    mask = _array(mask)
    numbers = pc.subtract(pc.cumulative_sum(mask.cast(pa.int32())), pa.scalar(1, pa.int32()))
    return pc.if_else(mask, numbers, pa.scalar(None, pa.int32()))


def partitions_of(files: pa.Table, columns: Mapping[str, str]) -> tuple[pa.Table, pa.Array]:
    """The distinct partitions, and for each file the index of its partition. `columns` have their physical
    names."""
    numbers = pa.repeat(pa.scalar(0, pa.int32()), files.num_rows)
    if not columns:
        return pa.table({}), numbers
    values: dict[str, pa.Array] = {}
    for name, physical_name in columns.items():
        values[name] = _array(pc.map_lookup(files["partition_values"], physical_name, "first"))
        coded = values[name].dictionary_encode(null_encoding="encode")
        # Encoding the pair anew at each column keeps the numbers below the number of files.
        pair = pc.add(pc.multiply(numbers.cast(pa.int64()), len(coded.dictionary)), coded.indices)
        numbers = pair.dictionary_encode().indices
    rows = pa.table({"number": numbers, "row": pa.array(range(files.num_rows), pa.int64())})
    first = rows.group_by("number", use_threads=False).aggregate([("row", "min")]).sort_by("number")
    return pa.table(values).take(first["row_min"]), numbers


def _array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


@dispatcher.handle("scan.partitions")
def _scan_partitions(request: PartitionsRequest) -> bytes:
    """The log's values as text. Timestamps are microseconds; without a zone, they are in the session's."""
    partitions = _listing(request.scan).partitions
    for name in request.timestamps:
        values = _array(partitions[name])
        instants = typed_values_or_null(values, TimestampType(), request.time_zone)
        wrong = first_wrong_value(values, instants)
        if wrong is not None:
            raise _bad_partition_value(request.scan, name, wrong, "TIMESTAMP")
        position = partitions.column_names.index(name)
        partitions = partitions.set_column(position, name, instants.cast(pa.int64()).cast(pa.string()))
    return _arrow_stream(partitions)


@dispatcher.handle("scan.aggregates")
def _scan_aggregates(request: AggregatesRequest) -> AggregatesAnswer:
    files, statistics = _selected(request.scan, request.partitions)
    if statistics is None:
        return AggregatesAnswer(values=None)
    partitions = _listing(request.scan).partitions
    of_files = {name: partitions[name].take(files["partition"]) for name in partitions.column_names}
    return AggregatesAnswer(values=aggregates(request.functions, statistics, of_files))


@dispatcher.handle("scan.files")
def _scan_files(request: FilesRequest) -> bytes:
    files, statistics = _selected(request.scan, request.partitions)
    keep = None
    if request.predicate is not None and statistics is not None:
        keep = may_match(request.predicate, statistics)
    if request.limit is not None and statistics is not None:
        fewest = fewest_files_with(statistics.num_rows, keep, request.limit)
        keep = fewest if keep is None else pc.and_(keep, fewest)
    if keep is not None:
        files = files.filter(keep)
    _refuse_names_with_colon(files["path"], request.scan)
    if request.row_ids:
        _refuse_files_without_row_ids(files, request.scan)
    else:
        files = files.drop_columns(list(_ROW_IDS))
    if request.live is False:
        _refuse_deleted_rows(files, request.scan)
    return _arrow_stream(files)


@dispatcher.handle("scan.vectors")
def _scan_vectors(request: VectorsRequest) -> VectorsAnswer:
    return VectorsAnswer(vectors=_listing(request.scan).with_vectors.num_rows)


@dispatcher.handle("scan.bitmaps")
def _scan_bitmaps(request: BitmapsRequest) -> bytes:
    description, listing = msgspec.json.decode(request.scan), _listing(request.scan)
    if listing.vectors is None:
        files = listing.with_vectors.take(pa.array(request.numbers, pa.int32()))
        sizes = pc.struct_field(files["deletion_vector"], "sizeInBytes").to_pylist()
        count = _count_of_part(sizes)
        files = files.slice(0, count)
        if listing.with_stats is not None:
            files = listing.with_stats(files)
        vectors = read_deletion_vectors(files, description["path"], description.get("version"))
        contents = [vector.content_32 for vector in vectors if vector is not None]
    else:
        count = _count_of_part([len(listing.vectors[number].content) for number in request.numbers])
        contents = [listing.vectors[number].content_32 for number in request.numbers[:count]]
    numbers = pa.array(request.numbers[:count], pa.int32())
    return _arrow_stream(pa.table({"vector": numbers, "bitmap": pa.array(contents, pa.binary())}))


def _count_of_part(sizes: Sequence[int]) -> int:
    """How many of the first vectors, of these sizes in bytes, one answer has."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > _BYTES_OF_BITMAPS:
            return max(count, 1)
    return len(sizes)


def _refuse_deleted_rows(files: pa.Table, scan: str) -> None:
    """DeltaIllegalStateException for a file with a deletion vector: its deleted rows would come back."""
    paths = files["path"].filter(files["vector"].is_valid())
    if len(paths):
        description = msgspec.json.decode(scan)
        raise DeltaIllegalStateException(
            f"The file {paths[0]} of the table {description['path']} has a deletion vector, and Spark's "
            "optimizer has left out deltaflow's rule LiveRows, without which deleted rows would come back. "
            "Remove it from spark.sql.optimizer.excludedRules, keep spark.experimental.extraOptimizations as "
            "deltaflow.register has set them, and load the table again.",
            table=description["path"],
            version=description.get("version"),
            file=paths[0].as_py(),
        )


def _refuse_files_without_row_ids(files: pa.Table, scan: str) -> None:
    """CorruptLogError for a file without row ids in a table whose rows all have some. Of a stream, which may
    read files of earlier versions, DeltaIllegalStateException."""
    missing = files.filter(pc.or_(*(files[name].is_null() for name in _ROW_IDS)))
    if missing.num_rows:
        description = msgspec.json.decode(scan)
        if description["reads"] == STREAM:
            raise DeltaIllegalStateException(
                f"The file {missing['path'][0]} of the table {description['path']} has no row ids: it was "
                "added before row tracking was enabled, and the stream reads it as it was added. Leave "
                "_metadata.row_id and _metadata.row_commit_version out of the query, or start it with a new "
                "checkpoint and a snapshot or a version from after that.",
                table=description["path"],
                file=missing["path"][0].as_py(),
            )
        raise CorruptLogError(
            f"The file {missing['path'][0]} of the table {description['path']} has no row ids, though row "
            "tracking is enabled: its writer has broken the protocol. Set delta.enableRowTracking to false, "
            "and to true again, which gives ids to all files.",
            table=description["path"],
            version=description.get("version"),
            file=missing["path"][0].as_py(),
        )


def _refuse_names_with_colon(paths: pa.ChunkedArray, scan: str) -> None:
    """StoreError for a local file whose name has a colon. Hadoop cannot open it: it parses the name of the
    file's checksum as a URI."""
    refused = paths.filter(pc.match_substring_regex(paths, "^(?:/|file:).*:[^/]*$"))
    if len(refused):
        description = msgspec.json.decode(scan)
        raise StoreError(
            f"The table {description['path']} has the file {refused[0]}, whose name has a colon: Hadoop's "
            "local file system, through which Spark reads, cannot open it. Rewrite the file by a Delta "
            "implementation that reads without Hadoop.",
            table=description["path"],
            version=description.get("version"),
            file=refused[0].as_py(),
        )


@dispatcher.handle("scan.badPartitionValue")
def _refuse_partition_value(request: BadPartitionValueRequest) -> None:
    raise _bad_partition_value(request.scan, request.column, request.value, request.type)


def _bad_partition_value(scan: str, column: str, value: str, type_: str) -> CorruptLogError:
    description = msgspec.json.decode(scan)
    return CorruptLogError(
        f"partition value {value!r} of column {column} is no {type_}",
        table=description["path"],
        version=description.get("version"),
        column=column,
    )


def _arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
