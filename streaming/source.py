"""The streaming source: a table's rows as of its start, then what every later commit adds.

`latest_offset` admits files up to the limit, a batch is the files between two offsets; both come
from the log alone, so a batch can be listed again after a restart. A trigger without news costs two
listings of the log from the newest known version on; a micro-batch costs five, and reads each of its
commits three times (for the snapshot, the end offset, the batch's plan). Source: delta-spark's DeltaSource.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from deltaflow.batch.options import required_path
from deltaflow.errors import (
    CorruptLogError,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    UnsupportedFeatureError,
)
from deltaflow.log import (
    FILES_SCHEMA,
    AddFile,
    Commit,
    DeltaLog,
    Metadata,
    schema_from_string,
)
from deltaflow.log.files import refuse_deletion_vectors
from deltaflow.spark.dispatcher import dispatcher
from deltaflow.spark.scan import ScannedFiles, relation, scan_kind
from deltaflow.streaming.offsets import BASE_INDEX, DeltaSourceOffset, parse_offset
from deltaflow.streaming.options import SourceOptions, source_options

# Spark's own default for a relation whose size is unknown: nobody broadcasts it.
_UNKNOWN_SIZE = 2**63 - 1
_KEPT_SNAPSHOTS = 8


@dataclass(frozen=True)
class Reading:
    """What a stream reads, and how; schema and partition columns are the table's when it started."""

    log: DeltaLog
    schema: StructType
    partition_columns: tuple[str, ...]
    options: SourceOptions


class DeltaSource:
    """The state of one source between two calls: what it reads, and the bound of Trigger.AvailableNow."""

    def __init__(self, table_id: str, reading: Reading) -> None:
        self._log = reading.log
        self._reading = reading
        self._table_id = table_id
        self._last_version: int | None = None

    def prepare_for_available_now(self) -> None:
        """From now on the stream ends at the version that is the newest now."""
        self._last_version = self._log.snapshot().version

    def latest_offset(self, start_json: str | None, max_files: int | None) -> DeltaSourceOffset:
        """The end of the next batch: at most `max_files` files after `start` (None: no limit)."""
        snapshot = self._log.snapshot()
        last_version = snapshot.version if self._last_version is None else self._last_version
        if start_json is None:
            offset = DeltaSourceOffset(snapshot.table_id, last_version, BASE_INDEX, True)
        else:
            offset = parse_offset(start_json, snapshot.table_id, self._log.path)
        return _advance(self._reading, offset, last_version, max_files)

    def batch(self, start_json: str | None, end_json: str) -> dict[str, Any]:
        """The relation over the files between two offsets; nothing is read before Spark plans the batch."""
        parse_offset(end_json, self._table_id, self._log.path)
        reading = self._reading
        description = {
            "kind": "stream",
            "path": self._log.path,
            "id": self._table_id,
            "start": start_json,
            "end": end_json,
            "schema": reading.schema.json(),
            "partitionColumns": reading.partition_columns,
            "options": dataclasses.asdict(reading.options),
        }
        return relation(
            description, self._log.path, reading.schema, list(reading.partition_columns), _UNKNOWN_SIZE
        )


def _advance(
    reading: Reading,
    offset: DeltaSourceOffset,
    last_version: int,
    max_files: int | None,
) -> DeltaSourceOffset:
    """The offset after `max_files` more files, or after `last_version` where those are fewer."""
    room = max_files
    if offset.is_starting_version:
        waiting = _initial_files(reading, offset).num_rows - (max(offset.index, -1) + 1)
        if room is not None and room < waiting:
            return _at(offset, offset.reservoir_version, max(offset.index, -1) + room, True)
        room = None if room is None else room - waiting
        offset = _at(offset, offset.reservoir_version + 1, BASE_INDEX, False)
    for commit in _commits(reading.log, offset.reservoir_version, last_version):
        done = max(offset.index, -1) + 1
        waiting = len(_stream_files(reading, commit)) - done
        if waiting > 0 and room is not None and room < waiting:
            return offset if room == 0 else _at(offset, commit.version, done - 1 + room, False)
        room = None if room is None else room - max(waiting, 0)
        offset = _at(offset, commit.version + 1, BASE_INDEX, False)
    return offset


def _at(offset: DeltaSourceOffset, version: int, index: int, initial: bool) -> DeltaSourceOffset:
    return DeltaSourceOffset(offset.reservoir_id, version, index, initial)


def _commits(log: DeltaLog, start: int, end: int) -> Iterator[Commit]:
    if start > end:
        return
    try:
        yield from log.commits(start, end)
    except CorruptLogError as error:
        if error.error_class != "DELTA_VERSIONS_NOT_CONTIGUOUS":
            raise
        earliest = min(log.available_versions(), default=start)
        if earliest <= start:
            raise
        # Not broken: the cleanup of the log left nothing before a checkpoint.
        raise DeltaIllegalStateException(
            error_class="DELTA_MISSING_FILES_UNEXPECTED_VERSION",
            start_version=start,
            earliest_version=earliest,
            table=log.path,
        ) from error


def _stream_files(reading: Reading, commit: Commit) -> Sequence[AddFile]:
    """The files of a commit that a stream emits, in log order; raises where the stream must not go on."""
    if commit.metadata is not None:
        _check_metadata(reading, commit.metadata, commit.version)
    files = _files_by_options(reading, commit)
    # A stream that started after a change of the partition columns may have commits from before it to
    # read, and these need not tell the columns.
    columns = set(reading.partition_columns)
    for add in files:
        if add.partition_values.keys() != columns:
            raise _partitioned_anew(reading, add.partition_values, commit.version)
        if add.deletion_vector is not None:
            raise UnsupportedFeatureError(
                f"deltaflow cannot stream version {commit.version} of the table {reading.log.path}: it needs "
                f"deletionVectors, because the file {add.path} has a deletion vector, which hides rows. "
                "Read it with a Delta implementation that has this, or start with a new checkpoint location "
                "once the table has no vectors any more (REORG TABLE ... APPLY (PURGE)).",
                features=["deletionVectors"],
                table=reading.log.path,
                version=commit.version,
                file=add.path,
            )
    return files


def _files_by_options(reading: Reading, commit: Commit) -> Sequence[AddFile]:
    log, options = reading.log, reading.options
    adds = [add for add in commit.adds if add.data_change]
    removes = [remove for remove in commit.removes if remove.data_change]
    if not removes:
        return adds
    if options.skip_change_commits:
        return []
    if options.ignore_changes:
        return adds
    if adds:
        raise DeltaIllegalStateException(
            error_class="DELTA_SOURCE_TABLE_IGNORE_CHANGES",
            change_info=_change_info(commit, removes[0].path),
            changed_in=commit.version,
            table=log.path,
        )
    if not options.ignore_deletes:
        raise DeltaIllegalStateException(
            error_class="DELTA_SOURCE_IGNORE_DELETE",
            removed_file=_change_info(commit, removes[0].path),
            changed_in=commit.version,
            table=log.path,
        )
    return []


def _change_info(commit: Commit, removed_path: str) -> str:
    info = commit.commit_info
    if info is None or info.operation is None:
        return removed_path
    return f"{info.operation} ({msgspec.json.encode(info.operation_parameters or {}).decode()})"


def _check_metadata(reading: Reading, metadata: Metadata, version: int) -> None:
    """A stream reads with one schema: a version whose data it would not read whole and right stops it."""
    changed = schema_from_string(metadata.schema_string, table=reading.log.path)
    if not _reads(reading.schema, changed):
        raise DeltaIllegalStateException(
            error_class="DELTA_SCHEMA_CHANGED_WITH_VERSION",
            changed_in=version,
            read_schema=reading.schema.simpleString(),
            data_schema=changed.simpleString(),
            table=reading.log.path,
        )
    if set(metadata.partition_columns) != set(reading.partition_columns):
        raise _partitioned_anew(reading, metadata.partition_columns, version)


def _partitioned_anew(reading: Reading, columns: Iterable[str], version: int) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(
        f"Detected a change of the partition columns: the stream reads the table partitioned by "
        f"({', '.join(reading.partition_columns)}), version {version} is partitioned by "
        f"({', '.join(columns)}). Load the stream again and start it with the same checkpoint; where that "
        "stops here as well, it needs a new checkpoint location.",
        error_class="DELTA_SCHEMA_CHANGED_WITH_VERSION",
        table=reading.log.path,
        version=version,
    )


def _reads(reader: DataType, data: DataType) -> bool:
    """Whether `reader` has all of `data`, with the same types, and takes its nulls; what it has more is null.

    So a stream that starts again after columns were added passes the commits that added them.
    """
    match reader, data:
        case StructType(), StructType():
            ours, theirs = ({field.name: field for field in kind.fields} for kind in (reader, data))
            return all(field.nullable for name, field in ours.items() if name not in theirs) and all(
                name in ours
                and (ours[name].nullable or not field.nullable)
                and _reads(ours[name].dataType, field.dataType)
                for name, field in theirs.items()
            )
        case ArrayType(), ArrayType():
            takes_nulls = reader.containsNull or not data.containsNull
            return takes_nulls and _reads(reader.elementType, data.elementType)
        case MapType(), MapType():
            takes_nulls = reader.valueContainsNull or not data.valueContainsNull
            return (
                takes_nulls
                and _reads(reader.keyType, data.keyType)
                and _reads(reader.valueType, data.valueType)
            )
        case _:
            return reader == data


def _initial_files(reading: Reading, start: DeltaSourceOffset) -> pa.Table:
    """The files of the initial snapshot that an offset points into, in the order in which they are read."""
    metadata, files = _initial_snapshot(reading.log, start.reservoir_id, start.reservoir_version)
    _check_metadata(reading, metadata, start.reservoir_version)
    return files


@functools.lru_cache(_KEPT_SNAPSHOTS)
def _initial_snapshot(log: DeltaLog, table_id: str, version: int) -> tuple[Metadata, pa.Table]:
    """Its metadata and its files in order; `table_id` tells a table made anew at the same path.

    Replaying and sorting cost the whole table, and a stream asks at every batch until it is through.
    """
    snapshot = log.snapshot_at(version)
    refuse_deletion_vectors(snapshot.files, log.path, snapshot.version)
    files = snapshot.files.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    return snapshot.metadata, files


@scan_kind("stream")
def files_between(description: dict[str, Any]) -> ScannedFiles:
    """The files of one micro-batch."""
    log = DeltaLog.for_table(description["path"])
    reading = Reading(
        log,
        _schema(description["schema"]),
        tuple(description["partitionColumns"]),
        SourceOptions(**description["options"]),
    )
    end = parse_offset(description["end"], log.snapshot().table_id, log.path)
    if description["start"] is None:
        # The first batch, planned before a restart: it began with the snapshot that the end tells of.
        version = end.reservoir_version if end.is_starting_version else end.reservoir_version - 1
        start = DeltaSourceOffset(end.reservoir_id, version, BASE_INDEX, True)
    else:
        start = parse_offset(description["start"], description["id"], log.path)
    return ScannedFiles(
        log.path,
        reading.partition_columns,
        pa.concat_tables(list(_between(reading, start, end))),
    )


def _between(reading: Reading, start: DeltaSourceOffset, end: DeltaSourceOffset) -> Iterator[pa.Table]:
    yield _COLUMNS.empty_table()
    if start == end:
        return
    first = max(start.index, -1) + 1
    version = start.reservoir_version
    if start.is_starting_version:
        files = _initial_files(reading, start).select(_COLUMNS.names)
        if end.is_starting_version:
            yield files.slice(first, end.index + 1 - first)
            return
        yield files.slice(first)
        first = 0
        version += 1
    last = end.reservoir_version if end.index >= 0 else end.reservoir_version - 1
    for commit in _commits(reading.log, version, last):
        adds = _stream_files(reading, commit)
        stop = end.index + 1 if commit.version == end.reservoir_version else len(adds)
        yield _table(adds[first:stop])
        first = 0


_COLUMNS = pa.schema(
    [FILES_SCHEMA.field(name) for name in ("path", "partition_values", "size", "modification_time")]
)


def _table(adds: Sequence[AddFile]) -> pa.Table:
    return pa.table(
        [
            [add.path for add in adds],
            [list(add.partition_values.items()) for add in adds],
            [add.size for add in adds],
            [add.modification_time for add in adds],
        ],
        schema=_COLUMNS,
    )


@dispatcher.handle("source.schema")
def source_schema(request: dict[str, Any]) -> dict[str, Any]:
    """readStream.load: the table's schema, and what else its source has to know."""
    return _table_facts(request)


def _table_facts(request: dict[str, Any]) -> dict[str, Any]:
    path = required_path(request["path"])
    options = source_options(request["options"])
    if request["userSchema"] is not None:
        raise DeltaIllegalArgumentException(
            "A Delta stream has the table's schema. Remove .schema(…)",
            error_class="DELTA_READ_SOURCE_SCHEMA_GIVEN",
        )
    snapshot = DeltaLog.for_table(path).snapshot()
    return {
        "schema": snapshot.schema.json(),
        "partitionColumns": snapshot.partition_columns,
        "tableId": snapshot.table_id,
        "maxFiles": options.max_files_per_trigger,
    }


@dispatcher.handle("source.start")
def start_source(request: dict[str, Any]) -> dict[str, Any]:
    """The start of the query: as `source_schema`, where the table still has the schema of readStream.load.

    Spark gives the batches' columns the names that they had then, by position.
    """
    answer = _table_facts(request)
    schema = _schema(answer["schema"])
    defined = None if request["definedSchema"] is None else _schema(request["definedSchema"])
    is_same = (
        defined is not None and defined.simpleString() == schema.simpleString() and _reads(defined, schema)
    )
    if not is_same:
        raise DeltaIllegalStateException(
            error_class="DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS",
            read_schema="unknown" if defined is None else defined.simpleString(),
            data_schema=schema.simpleString(),
            table=request["path"],
        )
    return answer


def _schema(json: str) -> StructType:
    return StructType.fromJson(msgspec.json.decode(json))


@dispatcher.handle("source.open")
def open_source(request: dict[str, Any]) -> None:
    """The query takes up its work. Looks at nothing, so that a stop at this moment finds the handle."""
    reading = Reading(
        DeltaLog.for_table(request["path"]),
        _schema(request["schema"]),
        tuple(request["partitionColumns"]),
        source_options(request["options"]),
    )
    dispatcher.keep(request["handle"], DeltaSource(request["tableId"], reading))


def _source(request: dict[str, Any]) -> DeltaSource:
    source: DeltaSource | None = dispatcher.find(request["handle"])
    if source is None:
        raise DeltaIllegalStateException("the stream was stopped", error_class="DELTA_STREAM_STOPPED")
    return source


@dispatcher.handle("source.prepareForAvailableNow")
def _prepare_for_available_now(request: dict[str, Any]) -> None:
    _source(request).prepare_for_available_now()


@dispatcher.handle("source.latestOffset")
def _latest_offset(request: dict[str, Any]) -> dict[str, Any]:
    if "unknownLimit" in request:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_UNKNOWN_READ_LIMIT", limit=request["unknownLimit"]
        )
    return {"offset": _source(request).latest_offset(request["start"], request["maxFiles"]).json()}


@dispatcher.handle("source.getBatch")
def _get_batch(request: dict[str, Any]) -> dict[str, Any]:
    return _source(request).batch(request["start"], request["end"])


@dispatcher.handle("source.close")
def _close(request: dict[str, Any]) -> None:
    dispatcher.release(request["handle"])
