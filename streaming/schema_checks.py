"""Checks that a version of the table can still be read with the schema that the stream started with."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from deltaflow.errors import (
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import Metadata, Snapshot
from deltaflow.log.protocol.column_mapping import (
    is_mapped,
    keeps_columns,
    physical_names,
    table_schema,
    without_mapping,
)
from deltaflow.log.protocol.properties import STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES
from deltaflow.log.protocol.schema_reading import can_read_removed, obstacle_to_reading
from deltaflow.log.protocol.type_widening import fits_widened
from deltaflow.log.streams.schema_changes import column_changes
from deltaflow.streaming.reading import Reading

_RETRY = (
    "Load the stream again and start it with the same checkpoint to read with the new schema. If it stops "
    "here again, it needs a new checkpoint location."
)
_INCOMPATIBLE = (
    "The change is incompatible: load the stream again, and start the query from scratch with a new "
    "checkpoint location."
)


def check_start(reading: Reading, version: int, newest: int) -> None:
    """Checks the schema of the version with which a stream goes on.

    Checks nothing if the version is still to come, or if the stream has a schema log (see schema_tracking);
    nor if the log no longer has the version of a table without column mapping. Of a mapped one, columns could
    have been renamed since (DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT).
    """
    if version > newest or reading.options.unsafe_schema_at_start or reading.schema_log is not None:
        return
    snapshot = _snapshot_to_check(reading, version)
    if snapshot is not None:
        check_metadata(reading, snapshot.metadata, version)


def check_removed(reading: Reading, version: int) -> None:
    """Checks that the stream's schema can read the rows that a version has removed which has changed the
    columns, if the stream goes on with it: they have the columns of the version before.

    Checks nothing where `check_start` would not, but for streams with a schema log.
    """
    if reading.options.unsafe_schema_at_start or (
        reading.options.unsafe_mapping and is_mapped(reading.schema)
    ):
        return
    before = _snapshot_to_check(reading, version - 1)
    if before is not None and not can_read_removed(reading.schema, before.schema):
        raise DeltaIllegalStateException(
            error_class=_error_class(reading),
            changed_in=version,
            read_schema=without_mapping(reading.schema).simpleString(),
            data_schema=without_mapping(before.schema).simpleString(),
            remedy=f"Version {version} has removed rows with these columns. {_INCOMPATIBLE}",
            table=reading.path,
        )


def _snapshot_to_check(reading: Reading, version: int) -> Snapshot | None:
    """The table at a version; None, or DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT, if the log no longer
    has it."""
    snapshot = reading.snapshot_if_there(version)
    if snapshot is None and is_mapped(reading.schema) and not reading.options.unsafe_mapping:
        raise DeltaIllegalStateException(
            error_class="DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT",
            start_version=version,
            config=STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES.name,
            table=reading.path,
        )
    return snapshot


def check_metadata(reading: Reading, metadata: Metadata, version: int) -> None:
    """Raises an error if the stream's schema cannot read all data of the version correctly."""
    check_table_id(reading, metadata.id)
    if metadata.schema_string is None:  # A table without columns has no rows.
        return
    changed = table_schema(metadata, table=reading.path, version=version)
    # A change after the stream's own version can be read after a new start, with the new schema.
    is_new = version >= reading.version
    older, newer = (reading.schema, changed) if is_new else (changed, reading.schema)
    _check_columns(reading, older, newer, version)
    if not _can_read(reading, reading.schema, changed, is_older=not is_new):
        retryable = is_new and _can_read(reading, changed, reading.schema, is_older=True)
        raise DeltaIllegalStateException(
            error_class=_error_class(reading),
            changed_in=version,
            read_schema=reading.schema.simpleString(),
            data_schema=changed.simpleString(),
            remedy=_RETRY if retryable else _INCOMPATIBLE,
            table=reading.path,
        )
    check_partition_columns(reading, physical_names(changed, metadata.partition_columns).values(), version)


def _can_read(reading: Reading, reader: T.StructType, data: T.StructType, *, is_older: bool) -> bool:
    """Whether the reader's schema can read the data. Older data may have narrower types, and columns that are
    gone, where that is allowed."""
    options = reading.options
    widens = is_older and options.reads_widened
    obstacle = obstacle_to_reading(
        reader,
        data,
        fits=lambda narrow, wide: fits_widened(narrow, wide) if widens else narrow == wide,
        may_omit_columns=is_older and options.unsafe_mapping and is_mapped(reader),
        may_add_columns=True,
        takes_any_nulls=options.unsafe_nullability,
    )
    return obstacle is None


def _check_columns(reading: Reading, older: T.StructType, newer: T.StructType, version: int) -> None:
    """Raises an error if a column of a mapped table was renamed or dropped between the version and that of
    the stream's schema, or if a type was widened that needs consent."""
    is_checked = (is_mapped(older) or is_mapped(newer)) and not reading.options.unsafe_mapping
    is_kept = not is_checked or keeps_columns(older, newer)
    if is_kept and reading.options.asks_for_widened:
        is_kept = not any(fits_widened(old, new) for _, old, new in column_changes(older, newer).widened)
    if not is_kept:
        changed = newer if version >= reading.version else older
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
            changed_in=version,
            read_schema=without_mapping(reading.schema).simpleString(),
            incompatible_schema=without_mapping(changed).simpleString(),
            table=reading.path,
        )


def check_partition_columns(
    reading: Reading, columns: Iterable[str], version: int, *, of_removed: bool = False
) -> None:
    """Raises an error if a version, or a file that it adds or removes, has other partition columns than the
    stream.

    They are compared by their physical names, which a rename does not change.
    """
    wanted = reading.physical_partition_columns
    if set(columns) == set(wanted.values()) or reading.options.unsafe_partition_columns:
        return
    names = {
        physical: name for name, physical in physical_names(reading.schema, reading.schema.names).items()
    }
    found = ", ".join(names.get(column, column) for column in columns)
    what = "has removed files that were" if of_removed else "is"
    raise DeltaIllegalStateException(
        f"Detected a change of the partition columns: the stream reads the table partitioned by "
        f"({', '.join(wanted)}), but version {version} {what} partitioned by ({found}). Load the stream "
        "again and start it with the same checkpoint. If it stops here again, it needs a new checkpoint "
        "location.",
        error_class=_error_class(reading),
        table=reading.path,
        version=version,
    )


def check_table_id(reading: Reading, table_id: str) -> None:
    """Raises an error if another table was created at the stream's path: it has another id."""
    if table_id != reading.table_id:
        raise DeltaIllegalStateException(
            error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            new_table_id=table_id,
            old_table_id=reading.table_id,
            table=reading.path,
        )


def _error_class(reading: Reading) -> str:
    if reading.options.has_start:
        return "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"
    return "DELTA_SCHEMA_CHANGED_WITH_VERSION"
