"""What a query of ours records of its tables in its checkpoint; see docs/decisions/0017.

A checkpoint of Spark names neither the table of a source nor that of the sink, but `lag` and `plan_restart`
have to find them. The files are hints: Spark, delta-spark and a query of ours itself never read them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from deltaflow.batch.options import option
from deltaflow.errors import StoreError
from deltaflow.log.streams.checkpoint import RECORD, SOURCES, StreamCheckpoint
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import is_absolute_path, store_for
from deltaflow.streaming.source_options import SourceOptions
from deltaflow.streaming.tracking_options import checkpoint_of, place_below

_LOG = logging.getLogger(__name__)
_SINK = "sink"
# No others: options may hold credentials.
_RECORDED_OPTIONS = ("mergeSchema", "overwriteSchema", "quarantinePath")


class SourceRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The file `<checkpoint>/sources/<source>/deltaflow.json`."""

    path: str
    """The table's directory."""
    table_id: str
    options: SourceOptions
    """A schemaTrackingLocation is recorded by its place below the checkpoint, which may be moved."""


class SinkRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The file `<checkpoint>/sink/deltaflow.json`."""

    path: str
    """The table's directory."""
    output_mode: str
    options: dict[str, str]


def record_source(metadata_path: str, record: SourceRecord) -> None:
    """Records a source in the directory that Spark gives it below its query's checkpoint."""
    location = record.options.tracking.location
    if location is not None:
        place = place_below(checkpoint_of(metadata_path), location)
        record = _with_location(record, location if place is None else place or ".")
    _write(metadata_path, record)


def metadata_path(checkpoint: StreamCheckpoint, source: str) -> str:
    """The directory of a source below its query's checkpoint."""
    return f"{checkpoint.directory}/{SOURCES}/{source}"


def record_sink(checkpoint: str, path: str, output_mode: str, options: Mapping[str, str]) -> None:
    """Records the table that the query of a checkpoint writes."""
    recorded = {name: value for name in _RECORDED_OPTIONS if (value := option(options, name)) is not None}
    _write(f"{checkpoint.rstrip('/')}/{_SINK}", SinkRecord(path, output_mode, recorded))


def source_record(checkpoint: StreamCheckpoint, source: str) -> SourceRecord | None:
    """What is recorded of a source, which is named as in the checkpoint's offsets; None if nothing is."""
    record = _read(checkpoint, f"{SOURCES}/{source}", SourceRecord)
    location = None if record is None else record.options.tracking.location
    if record is None or location is None or is_absolute_path(location):
        return record
    return _with_location(record, f"{checkpoint.directory}/{location}".removesuffix("/."))


def _with_location(record: SourceRecord, location: str) -> SourceRecord:
    options = record.options
    options = replace(options, tracking=replace(options.tracking, location=location))
    return msgspec.structs.replace(record, options=options)


def sink_record(checkpoint: StreamCheckpoint) -> SinkRecord | None:
    """What is recorded of the sink; None if nothing is, as where it is no Delta table."""
    return _read(checkpoint, _SINK, SinkRecord)


def _write(directory: str, record: SourceRecord | SinkRecord) -> None:
    """Writes a record unless it is there. A query does not depend on it: a failure is a warning."""
    content = msgspec.json.encode(record, order="sorted")
    try:
        store, root = store_for(directory)
        path = f"{root}/{RECORD}"
        try:
            if store.read(path) == content:
                return
        except FileNotFoundError:
            pass
        with store.open_output(path) as file:
            file.write(content)
    except (StoreError, OSError) as error:
        _LOG.warning("The table of a stream was not recorded in its checkpoint: %s", error)


_Record = TypeVar("_Record", SourceRecord, SinkRecord)


def _read(checkpoint: StreamCheckpoint, folder: str, kind: type[_Record]) -> _Record | None:
    path = f"{checkpoint.directory}/{folder}/{RECORD}"
    try:
        return decode_json(checkpoint.store.read(path), as_type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        _LOG.warning("The record %s is not read, because another release wrote it: %s", path, error)
        return None
