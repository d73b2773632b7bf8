"""Streams across changes of their table's schema: the option schemaTrackingLocation.

Such a stream reads the table in the schema of the newest entry of its schema log. A commit that changes the
metadata is a barrier: a batch ends before it, and when this batch is done, the changed metadata become a new
entry and the query fails (DELTA_STREAMING_METADATA_EVOLUTION). The next start reads on in the new schema, if
the change only adds columns, or is allowed. Sources: delta-spark's DeltaSourceMetadataEvolutionSupport and
DeltaSourceMetadataTrackingLog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import msgspec
from pyspark.sql.types import StructType

from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
)
from deltaflow.log import Commit, DeltaLog, Metadata, Protocol, Snapshot
from deltaflow.log.protocol.column_mapping import keeps_columns, table_schema, without_mapping
from deltaflow.log.protocol.features import listed_features, supported_features
from deltaflow.log.protocol.properties import STREAMING_MERGE_CONSECUTIVE_SCHEMA_CHANGES
from deltaflow.log.protocol.schema_reading import can_read
from deltaflow.log.streams.schema_changes import (
    column_changes,
    has_changed,
    merged_ahead,
    obstacle_to_evolution,
    with_changes,
)
from deltaflow.log.streams.schema_log import SchemaLog, TrackedMetadata, protocol_fields, tracked_metadata
from deltaflow.log.streams.source_offset import DeltaSourceOffset
from deltaflow.store import store_for
from deltaflow.streaming.reading import Reading
from deltaflow.streaming.source_options import SourceOptions
from deltaflow.streaming.tracking_options import ALWAYS, SETTINGS, TrackingOptions, checkpoint_key

# ------------------------------------------------------------------------------------- load and start


def schema_log(tracking: TrackingOptions, newest: Snapshot, metadata_path: str = "") -> SchemaLog | None:
    """The schema log of a stream; None without the option, and where a setting lets it read without one.

    Errors are those of SchemaLog.read.
    """
    if tracking.location is None or tracking.is_ignored:
        return None
    log = SchemaLog.read(tracking.location, newest.table_id, tracking.tracking_id, metadata_path)
    return msgspec.structs.replace(
        log, current=_completed(log.current, newest), before=_completed(log.before, newest)
    )


def _completed(entry: TrackedMetadata | None, newest: Snapshot) -> TrackedMetadata | None:
    """An entry of an older release, which may lack properties and protocol, with those of the table."""
    if entry is None:
        return None
    if entry.table_configurations is None:
        entry = msgspec.structs.replace(entry, table_configurations=newest.metadata.configuration)
    if entry.protocol_json is None:
        entry = msgspec.structs.replace(entry, **protocol_fields(newest.protocol))
    return entry


def with_merged_changes(log: SchemaLog, table: DeltaLog, settings: Mapping[str, str]) -> SchemaLog:
    """The schema log after the load of its stream: consecutive changes without files become one entry.

    The first entry is none of them. The stream reads rows of earlier versions in its schema, those of a
    snapshot, and a change after it needs the consent that is asked for between two entries.
    """
    tracked = log.current
    if tracked is None or log.before is None or not STREAMING_MERGE_CONSECUTIVE_SCHEMA_CHANGES.of(settings):
        return log
    newest = table.snapshot().version
    commits = _without_gap(table, tracked.delta_commit_version, newest)
    merged = merged_ahead(tracked, commits)
    return log if merged is None else log.with_entry(merged, replaces_current=True, table=table.path)


def _without_gap(table: DeltaLog, first: int, last: int) -> Iterator[Commit]:
    for expected, commit in enumerate(table.commits_present(first, last), first):
        if commit.version != expected:
            return
        yield commit


def check_start_of_tracking(log: SchemaLog, options: SourceOptions, table: str) -> None:
    """Checks at the start of a query that the schema log is its source's, and that it may go on with the
    newest entry.

    DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT if the log is another source's, DELTA_ILLEGAL_OPTION for a stream
    that may pass over lost commits, DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION for a
    change that has to be allowed, DELTA_SCHEMA_CHANGED_WITH_VERSION for one that no stream can follow.
    """
    if not options.fail_on_data_loss:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input="false",
            name="failOnDataLoss",
            explain="must not be false beside schemaTrackingLocation, since a lost commit may have changed "
            "the schema",
        )
    if log.current is None:
        return
    _check_path(log, log.current, options.tracking, table)
    if log.before is not None:
        _check_allowed(log, log.before, log.current, options, table)


def _check_path(log: SchemaLog, current: TrackedMetadata, tracking: TrackingOptions, table: str) -> None:
    own, other = log.source_metadata_path, current.source_metadata_path
    if tracking.checks_path and store_for(own)[1] != store_for(other)[1]:
        raise DeltaIllegalArgumentException(
            f"The schema log {log.directory} is that of the source {other}, and the query's source is {own}. "
            "Give each source of a query, and each query, a schemaTrackingLocation of its own, or tell "
            "sources of one table apart by the option streamingSourceTrackingId. A checkpoint that was "
            "moved or copied goes on with the session's setting "
            f"{SETTINGS}schemaTracking.metadataPathCheck.enabled set to false.",
            error_class="DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
            table=table,
        )


def _check_allowed(
    log: SchemaLog, before: TrackedMetadata, current: TrackedMetadata, options: SourceOptions, table: str
) -> None:
    old, new = _schema(before, table), _schema(current, table)
    version = current.delta_commit_version
    _check_possible(old, new, version, options.reads_widened, table)
    changes, tracking = column_changes(old, new), options.tracking
    kinds = [
        ("RENAME COLUMN", "allowSourceColumnRename", changes.renamed, tracking.renames),
        ("DROP COLUMN", "allowSourceColumnDrop", changes.dropped, tracking.drops),
        ("TYPE WIDENING", "allowSourceColumnTypeChange", changes.widened, tracking.type_changes),
    ]
    missing = [
        (kind, name)
        for kind, name, found, allowed in kinds
        if found and not {ALWAYS, str(version)}.intersection(allowed)
    ]
    if not missing:
        return
    key = checkpoint_key(log.source_metadata_path)
    raise DeltaIllegalStateException(
        error_class="DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
        op_type=" AND ".join(kind for kind, _ in missing),
        previous=before.delta_commit_version,
        current=version,
        changes=str(changes),
        options=", ".join(f'.option("{name}", "{version}")' for _, name in missing),
        settings=", ".join(f"SET {SETTINGS}{name}.{key} = {version}" for _, name in missing),
        table=table,
    )


def _check_possible(old: StructType, new: StructType, version: int, may_widen: bool, table: str) -> None:
    """DELTA_SCHEMA_CHANGED_WITH_VERSION if no stream can read data of the older schema in the newer one."""
    if obstacle_to_evolution(old, new, may_widen=may_widen) is not None:
        raise DeltaIllegalStateException(
            error_class="DELTA_SCHEMA_CHANGED_WITH_VERSION",
            changed_in=version,
            read_schema=without_mapping(old).simpleString(),
            data_schema=without_mapping(new).simpleString(),
            remedy="The change is incompatible: start the query from scratch with a new checkpoint location.",
            table=table,
        )


def _schema(entry: TrackedMetadata, table: str) -> StructType:
    return table_schema(entry.metadata, table=table, version=entry.delta_commit_version)


# ------------------------------------------------------------------------------------- while it runs


def with_first_entry(reading: Reading, newest: Snapshot, first: int, last: int | None = None) -> Reading:
    """The reading of a stream whose schema log is empty, with the first entry: the metadata of a version.

    `last` is the end of a batch that was planned before the log began: the metadata are those that can read
    all of it. DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA if there are none. If the query
    was loaded with other metadata it fails with DELTA_STREAMING_METADATA_EVOLUTION, as after a change.
    """
    log = reading.schema_log
    assert log is not None
    assert log.current is None
    snapshot = _snapshot(reading, min(first, newest.version))
    metadata, protocol, version = snapshot.metadata, snapshot.protocol, snapshot.version
    if last is not None:
        metadata, protocol = _metadata_of_batch(reading, snapshot, last)
        version = max(version, last)
    entry = tracked_metadata(metadata, protocol, version, log.source_metadata_path)
    log = log.with_entry(entry, table=reading.path)
    loaded = _snapshot(reading, reading.version)
    if has_changed(entry, loaded.metadata, loaded.protocol):
        raise _evolution(entry, reading.path)
    return replace(reading, schema_log=log, version=version)


def _metadata_of_batch(reading: Reading, start: Snapshot, last: int) -> tuple[Metadata, Protocol]:
    """The newest metadata and protocol of a batch's versions, with which all its files can be read."""
    all_metadata, protocol = [start.metadata], start.protocol
    for commit in reading.log.commits_present(start.version, last):
        all_metadata += [] if commit.metadata is None else [commit.metadata]
        if commit.protocol is None:
            continue
        if not supported_features(protocol) <= supported_features(commit.protocol):
            raise _cannot_begin(reading, start.version, last)
        protocol = commit.protocol
    *earlier, newest = (table_schema(metadata, table=reading.path) for metadata in all_metadata)
    for schema in earlier:
        if not (keeps_columns(schema, newest) and can_read(newest, schema, may_add_columns=True)):
            raise _cannot_begin(reading, start.version, last)
    return all_metadata[-1], protocol


def _cannot_begin(reading: Reading, first: int, last: int) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(
        error_class="DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA",
        first=first,
        last=last,
        table=reading.path,
    )


def is_barrier(reading: Reading, commit: Commit, start: DeltaSourceOffset) -> bool:
    """Whether a batch that begins at `start` must end before the commit, which changes the metadata."""
    log = reading.schema_log
    if log is None or log.current is None or commit.version <= log.current.delta_commit_version:
        return False
    # Behind the barrier of its own version a stream has come with the new entry.
    is_behind = start.reservoir_version == commit.version and (start.index >= 0 or start.is_barrier)
    return not is_behind and has_changed(log.current, commit.metadata, commit.protocol)


def evolve_at_barrier(reading: Reading, version: int) -> None:
    """Adds the metadata of a version's commit to the schema log and fails the query, unless the log has them.

    All batches up to the version have to be done.
    """
    tracked = _tracked(reading)
    if version <= tracked.delta_commit_version:
        return
    for commit in reading.log.commits_present(version, version):
        if has_changed(tracked, commit.metadata, commit.protocol):
            _evolve(reading, commit.metadata, commit.protocol, version)


def after_barrier(reading: Reading, version: int) -> SchemaLog:
    """The schema log as `evolve_at_barrier` leaves it, for a plan of what comes then."""
    log = reading.schema_log
    assert log is not None
    entry = _tracked(reading)
    for commit in reading.log.commits_present(version, version):
        entry = with_changes(entry, commit.metadata, commit.protocol, version)
    return log.with_entry(entry, table=reading.path)


def check_position(reading: Reading, start: DeltaSourceOffset, newest: Snapshot, *, is_first: bool) -> None:
    """Adds the metadata at the start of a run to the schema log and fails the query, unless the log has them.

    They differ if nothing of a change was seen: a stream was killed before its first batch and begins later
    now, or its offsets were changed. An offset that was set back is read in the schema of today, unless that
    cannot read older files (DELTA_SCHEMA_CHANGED_WITH_VERSION). Checks nothing if the log of the table no
    longer has that version.
    """
    if start.is_barrier:
        return
    done = start.reservoir_version if start.is_starting_version or start.index >= 0 or is_first else None
    version = min(start.reservoir_version - 1 if done is None else done, newest.version)
    tracked = _tracked(reading)
    if version in (-1, tracked.delta_commit_version):
        return
    snapshot = reading.snapshot_if_there(version)
    if snapshot is None:
        return
    if version < tracked.delta_commit_version:
        old = table_schema(snapshot.metadata, table=reading.path, version=version)
        may_widen = reading.options.reads_widened
        _check_possible(old, reading.schema, tracked.delta_commit_version, may_widen, reading.path)
    elif has_changed(tracked, snapshot.metadata, snapshot.protocol):
        replaces = is_first or start.is_starting_version
        _evolve(reading, snapshot.metadata, snapshot.protocol, version, replaces_current=replaces)


def _evolve(
    reading: Reading,
    metadata: Metadata | None,
    protocol: Protocol | None,
    version: int,
    *,
    replaces_current: bool = False,
) -> NoReturn:
    log = reading.schema_log
    assert log is not None
    entry = with_changes(_tracked(reading), metadata, protocol, version)
    entry = msgspec.structs.replace(entry, source_metadata_path=log.source_metadata_path)
    log.with_entry(entry, replaces_current=replaces_current, table=reading.path)
    raise _evolution(entry, reading.path)


def _evolution(entry: TrackedMetadata, table: str) -> DeltaIllegalStateException:
    protocol = entry.protocol
    assert protocol is not None
    features = sorted(listed_features(protocol))
    return DeltaIllegalStateException(
        error_class="DELTA_STREAMING_METADATA_EVOLUTION",
        changed_in=entry.delta_commit_version,
        schema=without_mapping(_schema(entry, table)).simpleString(),
        configuration=", ".join(f"{name}={value}" for name, value in entry.metadata.configuration.items()),
        protocol=f"{protocol.min_reader_version}, {protocol.min_writer_version} ({', '.join(features)})",
        table=table,
    )


def _tracked(reading: Reading) -> TrackedMetadata:
    log = reading.schema_log
    assert log is not None
    assert log.current is not None
    return log.current


def _snapshot(reading: Reading, version: int) -> Snapshot:
    with reading.needs(version):
        return reading.log.snapshot_at(version)
