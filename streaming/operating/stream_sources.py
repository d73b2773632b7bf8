"""The sources of a stream by its checkpoint: their tables, options and positions. Starts no JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec

from deltaflow.errors import DeltaError, DeltaIllegalArgumentException
from deltaflow.log import Snapshot
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint, reservoir_id
from deltaflow.log.streams.source_offset import DeltaSourceOffset, parse_offset
from deltaflow.store import qualified_path, store_for
from deltaflow.streaming.bounds import ending_version, first_offset, offset_before
from deltaflow.streaming.reading import Reading, reading_of, stream_log
from deltaflow.streaming.schema_tracking import check_start_of_tracking, schema_log, with_merged_changes
from deltaflow.streaming.source_options import SourceOptions, options_without_spark
from deltaflow.streaming.stream_records import SourceRecord, metadata_path, source_record
from deltaflow.streaming.tracking_options import check_location


@dataclass(frozen=True)
class StreamSource:
    """A source of a stream."""

    name: str
    """Its number in the checkpoint, or its name."""
    table_id: str | None
    """The id of the Delta table in its offset; None without an offset of one."""
    path: str | None
    """The table's directory; None if it is not known, or if the source does not read a Delta table."""
    options: SourceOptions
    metadata_path: str
    """Its directory below the checkpoint."""

    @property
    def is_delta(self) -> bool:
        """Whether the source reads a Delta table."""
        return self.table_id is not None or self.path is not None

    def newest(self) -> Snapshot:
        """The newest version of the table, without files."""
        return stream_log(self.known_path()).snapshot()

    def known_path(self) -> str:
        """The table's directory; DeltaIllegalArgumentException (DELTA_STREAM_TABLE_UNKNOWN) without one."""
        if self.path is None:
            raise DeltaIllegalArgumentException(
                f"The checkpoint does not name the table with the id {self.table_id} that source {self.name} "
                "reads: the stream was begun by another Delta implementation or an older release, or has not "
                "run since its checkpoint was rebuilt. Give the path of the table in tables=[...], and the "
                "options of its readStream.",
                error_class="DELTA_STREAM_TABLE_UNKNOWN",
            )
        return self.path

    def reading(self, newest: Snapshot, *, is_start: bool = False) -> Reading:
        """What a query reads that starts now, and what excludeRegex leaves out, which only Spark decides.

        Its schema log, if it has one, is read and not written. With `is_start` the errors are those of the
        load and start of a query with such a log.
        """
        log = schema_log(self.options.tracking, newest, self.metadata_path)
        if log is not None:
            log = msgspec.structs.replace(log, is_dry=True)
        if log is not None and is_start:
            log = with_merged_changes(log, stream_log(newest.path), {})
            check_location(self.options.tracking, self.metadata_path)
            check_start_of_tracking(log, self.options, newest.path)
        options = replace(self.options, exclude_regex=None)
        return reading_of(newest, options, schema_log=log, counts_rows=True)


def stream_sources(
    checkpoint: StreamCheckpoint, tables: Sequence[str], options: Mapping[str, Any]
) -> list[StreamSource]:
    """The sources of a stream, in their order.

    `tables` are paths of tables, in any order, for a checkpoint that names none or that was moved with them.
    `options` are those of the next start, for all sources, in place of recorded ones.
    DeltaIllegalArgumentException for a table that no source reads.
    """
    entry = None if checkpoint.newest_planned is None else checkpoint.offsets(checkpoint.newest_planned)
    records = _records(checkpoint, entry)
    names = list(records) if entry is None else list(entry.offsets)
    offsets = {} if entry is None else entry.offsets
    ids = {name: reservoir_id(json) for name, json in offsets.items() if json}
    by_id = {record.table_id: folder for folder, record in records.items()}
    for name, own_id in ids.items():
        # A stream that has adopted another table has the old one's record until it runs.
        if own_id is not None and name in records and records[name].table_id not in ids.values():
            by_id.setdefault(own_id, name)
    given = {path: _table_id(path) for path in map(qualified_path, tables)}
    texts = {name: _text(value) for name, value in options.items()}
    found = []
    for name in names:
        json = None if entry is None else entry.offsets[name]
        table_id = None if json is None else reservoir_id(json)
        record, folder = records.get(name), name
        if (record is None or record.table_id != table_id) and table_id in by_id:
            # One source that occurs twice in a query has two offsets, and one folder with a record.
            folder = by_id[table_id]
            record = records[folder]
        if table_id is None and json is not None:
            record = None
        path = next((path for path, own in given.items() if own is not None and own == table_id), None)
        if path is None and record is not None:
            path = record.path
        recorded = None if record is None else record.options
        own = options_without_spark(texts, recorded)
        found.append(StreamSource(name, table_id, path, own, metadata_path(checkpoint, folder)))
    if entry is None and not found:
        options_of_all = options_without_spark(texts)
        return [
            StreamSource(str(i), None, path, options_of_all, metadata_path(checkpoint, str(i)))
            for i, path in enumerate(given)
        ]
    found = _with_other_tables(found, list(given))
    places = {_place(source.path) for source in found if source.path is not None}
    unused = [path for path in given if _place(path) not in places]
    if unused:
        raise DeltaIllegalArgumentException(
            f"The stream with the checkpoint {checkpoint.directory} reads no table at {unused[0]}. Its "
            f"sources read: {', '.join(source.path or 'another format' for source in found)}.",
            file=checkpoint.directory,
        )
    return found


def _with_other_tables(sources: list[StreamSource], paths: list[str]) -> list[StreamSource]:
    """Gives the tables whose id is not in an offset to the sources without one, in order: they are new, or
    have replaced the table that was at their path.
    """
    known = {source.path for source in sources}
    left = iter([path for path in paths if path not in known])
    found = []
    for source in sources:
        path = source.path
        if path is None and source.is_delta:
            path = next(left, None)
        found.append(replace(source, path=path))
    return found


def start_position(
    source: StreamSource, reading: Reading, newest: Snapshot, entry: BatchOffsets | None
) -> DeltaSourceOffset:
    """Where a stream goes on whose last batch that is done has this entry, or that has done none."""
    json = None if entry is None else entry.offsets.get(source.name)
    if json is not None:
        return parse_offset(json, reading.table_id, reading.path)
    bound = ending_version(reading, newest)
    last_version = newest.version if bound is None else min(newest.version, bound)
    return first_offset(reading, newest, last_version, bound)


def start_of_first_batch(reading: Reading, newest: Snapshot, end_json: str) -> DeltaSourceOffset:
    """Where a stream began whose first batch was planned, up to `end`, and is not done."""
    return offset_before(reading, newest, parse_offset(end_json, reading.table_id, reading.path))


def _records(checkpoint: StreamCheckpoint, entry: BatchOffsets | None) -> dict[str, SourceRecord]:
    names = (str(number) for number in count()) if entry is None else iter(entry.offsets)
    found = {}
    for name in names:
        record = source_record(checkpoint, name)
        if record is not None:
            found[name] = record
        elif entry is None:
            break
    return found


def _table_id(path: str) -> str | None:
    """The id of the table at a path; None where it cannot be read, which `newest` reports."""
    try:
        return stream_log(path).snapshot().table_id
    except DeltaError:
        return None


def _place(path: str) -> str:
    """The path as its store knows it."""
    try:
        return store_for(path)[1]
    except DeltaError:  # which the source reports
        return path


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
