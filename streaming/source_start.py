"""The load of a stream and the start of its query: what is read, by which options, in which schema."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from deltaflow.batch.options import required_path
from deltaflow.batch.read.change_scans import with_change_columns
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaTableNotFoundError,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import Snapshot
from deltaflow.log.protocol.column_mapping import table_schema, visible_schema
from deltaflow.log.protocol.schema_reading import can_read
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.file_index import hadoop_path, row_ids_of
from deltaflow.spark.scan.messages import RowIdColumns
from deltaflow.streaming.messages import (
    ReadLimits,
    SourceSchemaAnswer,
    SourceSchemaRequest,
    StartSourceAnswer,
    StartSourceRequest,
)
from deltaflow.streaming.reading import (
    DescribedReading,
    described_fields,
    reading_of,
    schema_of_json,
    stream_log,
)
from deltaflow.streaming.schema_tracking import check_start_of_tracking, schema_log, with_merged_changes
from deltaflow.streaming.source_options import check_load_options, reads_change_feed, source_options
from deltaflow.streaming.stream_records import SourceRecord, record_source
from deltaflow.streaming.tracking_options import check_location, tracking_options

_PATH_WITH_VERSION = re.compile(r"(?P<path>.*)@(?:v[0-9]+|[0-9]{17})", re.DOTALL)


@dispatcher.handle("source.schema")
def source_schema(request: SourceSchemaRequest) -> SourceSchemaAnswer:
    """readStream.load: the table's schema, or that of the stream's schema log."""
    snapshot = snapshot_to_read(request.path, request.options)
    schema = snapshot.schema
    log = schema_log(tracking_options(request.options, request.settings), snapshot)
    if log is not None:
        log = with_merged_changes(log, stream_log(snapshot.path), request.settings)
        if log.current is not None:
            schema = table_schema(log.current.metadata, table=snapshot.path)
    if request.user_schema is not None:
        given = schema_of_json(request.user_schema)
        # Types, names and order have to be equal. Nullability is taken from the table. Spark gives the newest
        # schema of a table by name, which a schema log overrules.
        if given.simpleString() not in (schema.simpleString(), snapshot.schema.simpleString()):
            raise DeltaIllegalArgumentException(
                error_class="DELTA_READ_SOURCE_SCHEMA_CONFLICT",
                given=given.simpleString(),
                schema=schema.simpleString(),
                table=snapshot.path,
            )
    visible = visible_schema(schema)
    if reads_change_feed(request.options):
        # delta-spark refuses row ids of change rows, too.
        return SourceSchemaAnswer(schema=with_change_columns(visible).json(), row_ids=None)
    return SourceSchemaAnswer(schema=visible.json(), row_ids=row_ids_of(snapshot))


@dispatcher.handle("source.start")
def start_source(request: StartSourceRequest) -> StartSourceAnswer:
    """Starts a query: checks its options, and that the table, or the schema log, still has the schema of the
    load.

    Spark matches the columns of the batches to the schema of the load by position.
    """
    snapshot = snapshot_to_read(request.path, request.options)
    options = source_options(request.options, request.settings, request.source_filter, request.metadata_path)
    log = schema_log(options.tracking, snapshot, request.metadata_path)
    if log is not None:
        check_location(options.tracking, request.metadata_path)
        check_start_of_tracking(log, options, snapshot.path)
    answer = None
    if request.defined is not None:
        answer = msgspec.json.decode(request.defined, type=SourceSchemaAnswer)
    reading = reading_of(snapshot, options, schema_log=log, row_ids=_row_ids(answer, snapshot))
    defined = None if answer is None else schema_of_json(answer.schema)
    is_same = (
        defined is not None
        and defined.simpleString() == reading.rows_schema.simpleString()
        and can_read(defined, reading.rows_schema, may_add_columns=True)
    )
    if not is_same:
        raise DeltaIllegalStateException(
            error_class="DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS",
            read_schema="unknown" if defined is None else defined.simpleString(),
            data_schema=reading.rows_schema.simpleString(),
            table=snapshot.path,
        )
    record_source(request.metadata_path, SourceRecord(snapshot.path, snapshot.table_id, options))
    return StartSourceAnswer(
        schema=visible_schema(reading.rows_schema).json(),
        root=hadoop_path(snapshot.path),
        reading=msgspec.json.encode(DescribedReading(**described_fields(reading))).decode(),
        limits=ReadLimits(**options.limits()),
        has_schema_log=log is not None,
    )


def _row_ids(defined: SourceSchemaAnswer | None, newest: Snapshot) -> RowIdColumns | None:
    """The columns with row ids by which the stream was defined."""
    row_ids = None if defined is None else defined.row_ids
    if row_ids is not None and row_ids != row_ids_of(newest):
        raise DeltaIllegalStateException(
            "The table had row tracking when the stream was defined, and has none, or another one, now. Load "
            "the stream again.",
            error_class="DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS",
            table=newest.path,
        )
    return row_ids


def snapshot_to_read(given: str | None, options: Mapping[str, str]) -> Snapshot:
    """The newest version of the table that readStream.load names, without files."""
    path = required_path(given)
    check_load_options(options)
    log = stream_log(path)
    snapshot = log.snapshot_if_exists()
    if snapshot is None:
        version = _PATH_WITH_VERSION.fullmatch(path)
        if version is not None and stream_log(version["path"]).exists():
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", options=path[len(version["path"]) :]
            )
        raise DeltaTableNotFoundError(
            f"{path} is not a Delta table: the table schema is not set. Check the path, or write a table "
            "there first.",
            error_class="DELTA_SCHEMA_NOT_SET",
            table=log.path,
        )
    if not snapshot.schema.fields:
        raise DeltaAnalysisException(error_class="DELTA_SCHEMA_NOT_SET", table=log.path)
    return snapshot
