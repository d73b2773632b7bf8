"""The streaming source: the rows of a first snapshot, then the rows that every later commit adds, or, with
the option readChangeFeed, the rows that it changes.

`latest_offset` admits files up to the limits, and a batch has the files between two offsets. Both come from
the log alone, so a batch can be listed again after a restart. A trigger lists the log once and reads each new
commit once; the admitted files are kept until the batch is planned. Only a stream that is far behind reads
commits twice, when the log has forgotten them. Source: delta-spark's DeltaSource.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.read.change_scans import change_relation, partition_names
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
)
from deltaflow.log import Snapshot
from deltaflow.log.files.change_files import recorded_files
from deltaflow.log.observer import observe
from deltaflow.log.protocol.column_mapping import physical_names
from deltaflow.log.streams.source_offset import (
    BASE_INDEX,
    METADATA_CHANGE,
    POST_METADATA_CHANGE,
    DeltaSourceOffset,
    check_advance,
    parse_offset,
)
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.messages import HandleRequest
from deltaflow.spark.scan.file_index import STREAM, ScannedFiles, finds_files, relation
from deltaflow.spark.scan.messages import Relation
from deltaflow.streaming.admission import Limits
from deltaflow.streaming.backlog import Backlog
from deltaflow.streaming.batches import files_between, next_batch
from deltaflow.streaming.bounds import ending_version, first_offset, offset_before
from deltaflow.streaming.change_feed import check_feed_at_start
from deltaflow.streaming.commits import COLUMNS
from deltaflow.streaming.initial_snapshot import InitialSnapshot, initial_snapshot
from deltaflow.streaming.messages import (
    BatchAnswer,
    CommitRequest,
    GetBatchRequest,
    LatestOffsetAnswer,
    LatestOffsetRequest,
    MetricsAnswer,
    MetricsRequest,
    OpenSourceRequest,
)
from deltaflow.streaming.reading import (
    DescribedBatch,
    DescribedReading,
    Reading,
    described_fields,
    described_reading,
    schema_of_json,
)
from deltaflow.streaming.schema_checks import check_start, check_table_id
from deltaflow.streaming.schema_tracking import (
    check_position,
    evolve_at_barrier,
    with_first_entry,
)

# Spark's default for a relation of unknown size, which is never broadcast.
_UNKNOWN_SIZE = 2**63 - 1


class DeltaSource:
    """The state of one source between two calls: the table, its newest known version, the admitted files."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._available_now: int | None = None
        """The last version for Trigger.AvailableNow."""
        self._newest: Snapshot | None = None
        self._bound: int | None = None
        """The last version by the ending options; None as long as it is not certain."""
        self._without_end: int | None = None
        """The newest version when they gave none."""
        self._is_checked = False
        self._initial: InitialSnapshot | None = None
        """The initial snapshot while the stream is inside of it."""
        self._admitted: tuple[str | None, str, pa.Table] | None = None
        self._backlog = Backlog(reading)

    def prepare_for_available_now(self) -> None:
        """Ends the stream at the version that is the newest now."""
        self._available_now = self._look_at_log().version

    def latest_offset(self, start_json: str | None, limits: Limits) -> DeltaSourceOffset:
        """The end of the next batch, whose files are kept until the batch is planned."""
        end, files = self.plan_batch(start_json, limits)
        observe("offset planned", path=self.reading.path, version=end.reservoir_version)
        self._admitted = start_json, end.json(), files
        return end

    def plan_batch(self, start_json: str | None, limits: Limits) -> tuple[DeltaSourceOffset, pa.Table]:
        """The end and the files of the next batch, which begins at `start`; the limits admit the files."""
        reading = self.reading
        newest = self._look_at_log()
        last_version = newest.version if self._available_now is None else self._available_now
        if self._bound is None:
            self._bound = ending_version(reading, newest, self._without_end)
            self._without_end = newest.version
        last_version = self._bounded(last_version)
        if start_json is None:
            start = first_offset(reading, newest, last_version, self._bound)
        else:
            start = parse_offset(start_json, reading.table_id, reading.path)
        reading = self._tracked(start, newest, is_first=start_json is None)
        if start_json is None and reading.options.starting_version == "latest":
            # An empty batch puts the latest version into the checkpoint.
            return start, COLUMNS.empty_table()
        if reading.schema_log is not None and start.index == METADATA_CHANGE:
            # With this second offset Spark says that the batch up to the first one is done.
            return msgspec.structs.replace(start, index=POST_METADATA_CHANGE), COLUMNS.empty_table()
        is_initial = start.is_starting_version
        # The old snapshot is released after the new one is found, so that the same one is not built again.
        self._initial = initial_snapshot(reading, start.reservoir_version) if is_initial else None
        if not (is_initial or self._is_checked):
            check_start(reading, start.reservoir_version, last_version)
        end, files = next_batch(reading, start, last_version, limits)
        # A stream that begins behind the last version is checked when its first commit is there.
        is_there = start.reservoir_version <= last_version
        if reading.options.read_change_feed and is_there and not (is_initial or self._is_checked):
            check_feed_at_start(reading, start.reservoir_version, last_version)
        self._is_checked = is_there or not reading.options.read_change_feed
        return end, files

    def _tracked(self, start: DeltaSourceOffset, newest: Snapshot, *, is_first: bool) -> Reading:
        """The reading at the start of a batch, which has a schema in its schema log, if it has such a log."""
        log = self.reading.schema_log
        if log is None:
            return self.reading
        if log.current is None:
            self.reading = with_first_entry(self.reading, newest, start.reservoir_version)
        if start.index == POST_METADATA_CHANGE:
            # Only a stream that was killed at this moment comes here without the new entry.
            evolve_at_barrier(self.reading, start.reservoir_version)
        elif not self._is_checked:
            check_position(self.reading, start, newest, is_first=is_first)
        return self.reading

    def commit(self, end_json: str) -> None:
        """The batch up to this offset is done."""
        reading = self.reading
        observe("batch done", path=reading.path)
        end = parse_offset(end_json, reading.table_id, reading.path)
        if end.is_barrier and reading.schema_log is not None:
            evolve_at_barrier(reading, end.reservoir_version)

    def newest_offset(self) -> DeltaSourceOffset | None:
        """The end of the table, or of the stream by its ending options, at the last look at the log."""
        if self._newest is None:
            return None
        last_version = self._bounded(self._newest.version)
        return DeltaSourceOffset(self.reading.table_id, last_version + 1, BASE_INDEX, False)

    def batch(self, start_json: str | None, end_json: str) -> list[Relation]:
        """The relations over the files between two offsets. They are listed when Spark plans the batch."""
        reading = self.reading
        observe("batch begun", path=reading.path)
        end = parse_offset(end_json, reading.table_id, reading.path)
        if reading.schema_log is not None and reading.schema_log.current is None and start_json != end_json:
            reading = self._with_entry_for_batch(start_json, end)
        if start_json is not None and reading.options.validate_offsets:
            check_advance(parse_offset(start_json, reading.table_id, reading.path), end, reading.path)
        newest = self._newest or self._look_at_log()
        described = DescribedBatch(
            start=start_json, end=end_json, newest_time_ms=newest.timestamp_ms, **described_fields(reading)
        )
        files = None
        if self._admitted is not None and self._admitted[:2] == (start_json, end_json):
            files, self._admitted = self._admitted[2], None
        if not reading.options.read_change_feed:
            return [_relation(reading, described, files)]
        scans = [msgspec.structs.replace(described, recorded=recorded) for recorded in (False, True)]
        if files is None:
            return [_relation(reading, scan, None) for scan in scans]
        parts = [(scan, _of_scan(files, scan.recorded)) for scan in scans]
        # A scan without files is planned only if there is no other.
        parts = [part for part in parts if part[1].num_rows] or parts[:1]
        return [_relation(reading, scan, part) for scan, part in parts]

    def _with_entry_for_batch(self, start_json: str | None, end: DeltaSourceOffset) -> Reading:
        """The reading of a stream that had no schema log when it planned the batch."""
        reading = self.reading
        newest = reading.log.snapshot()
        if start_json is None:
            start = offset_before(reading, newest, end)
        else:
            start = parse_offset(start_json, reading.table_id, reading.path)
        last = end.reservoir_version - (end.index == BASE_INDEX)
        self.reading = with_first_entry(reading, newest, start.reservoir_version, last)
        return self.reading

    def metrics(self, done_json: str | None) -> dict[str, str]:
        """The stream's backlog after the offset, at the source's last look at the log."""
        if self._newest is None or done_json is None:
            return {}
        reading = self.reading
        done = parse_offset(done_json, reading.table_id, reading.path)
        initial = None
        if done.is_starting_version:
            initial = self._initial or initial_snapshot(reading, done.reservoir_version)
        return self._backlog.metrics(self._bounded(self._newest.version), done, initial)

    def _bounded(self, version: int) -> int:
        return version if self._bound is None else min(version, self._bound)

    def _look_at_log(self) -> Snapshot:
        self._newest = newest = self.reading.log.snapshot()
        check_table_id(self.reading, newest.table_id)
        return newest


def _relation(reading: Reading, scan: DescribedBatch, files: pa.Table | None) -> Relation:
    """The relation over one scan of a batch, whose files are known if they were just admitted."""
    description: dict[str, Any] = msgspec.to_builtins(scan)
    vectors = None
    if files is not None:
        _keep_planned(description, files)
        vectors = files.num_rows - files["deletion_vector"].null_count
    if scan.recorded is not None:
        return change_relation(
            scan,
            reading.path,
            reading.schema,
            reading.mapping_mode,
            reading.partition_columns,
            recorded=scan.recorded,
            size_in_bytes=_UNKNOWN_SIZE,
            vectors=vectors,
        )
    return relation(
        description,
        reading.path,
        reading.schema,
        reading.partition_columns,
        _UNKNOWN_SIZE,
        reading.mapping_mode,
        vectors=vectors,
        row_ids=reading.row_ids,
    )


def _of_scan(files: pa.Table, recorded: bool | None) -> pa.Table:
    """The files of a batch that one of its scans has."""
    if recorded is None:
        return files
    is_recorded = recorded_files(files)
    return files.filter(is_recorded if recorded else pc.invert(is_recorded))


# The files of batches that are about to be planned, by the description of the batch.
_KEPT_BATCHES = 16
_planned: OrderedDict[bytes, pa.Table] = OrderedDict()
_planned_lock = threading.Lock()


def _keep_planned(description: dict[str, Any], files: pa.Table) -> None:
    with _planned_lock:
        _planned[msgspec.json.encode(description)] = files
        while len(_planned) > _KEPT_BATCHES:
            _planned.popitem(last=False)


@finds_files(STREAM)
def files_of_batch(description: dict[str, Any]) -> ScannedFiles:
    """The files of one micro-batch: those that were just admitted, or else from the log."""
    with _planned_lock:
        files = _planned.pop(msgspec.json.encode(description), None)
    if files is None:
        files = _files_from_log(description)
    columns = physical_names(schema_of_json(description["schema"]), description["partitionColumns"])
    if description["recorded"] is not None:
        columns = partition_names(columns, recorded=description["recorded"])
    return ScannedFiles(description["path"], columns, files)


def _files_from_log(description: dict[str, Any]) -> pa.Table:
    """The files of a batch that was planned before, for example by an earlier run of the query."""
    batch = msgspec.convert(description, DescribedBatch)
    files = files_of_planned_batch(described_reading(batch), batch.start, batch.end)
    return _of_scan(files, batch.recorded)


def files_of_planned_batch(reading: Reading, start_json: str | None, end_json: str) -> pa.Table:
    """The files of a batch between two offsets of a checkpoint; the first batch has no start."""
    newest = reading.log.snapshot()
    check_table_id(reading, newest.table_id)
    end = parse_offset(end_json, reading.table_id, reading.path)
    if start_json is None:
        start = offset_before(reading, newest, end)
        if reading.options.validate_offsets:
            check_advance(start, end, reading.path)
    else:
        start = parse_offset(start_json, reading.table_id, reading.path)
    if start.position < end.position and not start.is_starting_version:
        check_start(reading, start.reservoir_version, newest.version)
        if reading.options.read_change_feed:
            check_feed_at_start(reading, start.reservoir_version, end.reservoir_version)
    return files_between(reading, start, end)


@dispatcher.handle("source.open")
def open_source(request: OpenSourceRequest) -> None:
    """Creates the source of a query, without a look at the log: a stop at this moment finds the handle."""
    described = msgspec.json.decode(request.reading, type=DescribedReading)
    dispatcher.keep(request.handle, DeltaSource(described_reading(described)))


def _source(handle: int) -> DeltaSource:
    source: DeltaSource | None = dispatcher.find(handle)
    if source is None:
        raise DeltaIllegalStateException("the stream was stopped", error_class="DELTA_STREAM_STOPPED")
    return source


@dispatcher.handle("source.prepareForAvailableNow")
def _prepare_for_available_now(request: HandleRequest) -> None:
    _source(request.handle).prepare_for_available_now()


@dispatcher.handle("source.latestOffset")
def _latest_offset(request: LatestOffsetRequest) -> LatestOffsetAnswer:
    if request.unknown_limit is not None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_UNKNOWN_READ_LIMIT", limit=request.unknown_limit
        )
    source = _source(request.handle)
    limits = request.limits
    offset = source.latest_offset(request.start, Limits(limits.files, limits.bytes, limits.rows))
    newest = source.newest_offset()
    return LatestOffsetAnswer(offset=offset.json(), newest=None if newest is None else newest.json())


@dispatcher.handle("source.getBatch")
def _get_batch(request: GetBatchRequest) -> BatchAnswer:
    return BatchAnswer(relations=_source(request.handle).batch(request.start, request.end))


@dispatcher.handle("source.commit")
def _commit(request: CommitRequest) -> None:
    _source(request.handle).commit(request.end)


@dispatcher.handle("source.metrics")
def _metrics(request: MetricsRequest) -> MetricsAnswer:
    return MetricsAnswer(metrics=_source(request.handle).metrics(request.done))


@dispatcher.handle("source.close")
def _close(request: HandleRequest) -> None:
    dispatcher.release(request.handle)
