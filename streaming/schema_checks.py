"""Checks that a version of the table can still be read with the schema that the stream started with."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from deltaflow.errors import (
    CorruptLogError,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    VersionNotFoundError,
)
from deltaflow.log import Metadata
from deltaflow.log.protocol.column_mapping import (
    is_mapped,
    keeps_columns,
    physical_names,
    table_schema,
    without_mapping,
)
from deltaflow.log.protocol.schema_reading import can_read
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

    Checks nothing if the log no longer has this version, or if the version is still to come.
    """
    if version > newest or reading.options.unsafe_schema_at_start:
        return
    try:
        snapshot = reading.log.snapshot_at(version)
    except VersionNotFoundError:
        return
    except CorruptLogError as error:
        if error.error_class != "DELTA_VERSIONS_NOT_CONTIGUOUS":
            raise
        return
    check_metadata(reading, snapshot.metadata, version)


def check_metadata(reading: Reading, metadata: Metadata, version: int) -> None:
    """Raises an error if the stream's schema cannot read all data of the version correctly."""
    check_table_id(reading, metadata.id)
    if metadata.schema_string is None:  # A table without columns has no rows.
        return
    changed = table_schema(metadata, table=reading.path, version=version)
    _check_mapping(reading, changed, version)
    takes_any_nulls = reading.options.unsafe_nullability
    if not can_read(reading.schema, changed, may_add_columns=True, takes_any_nulls=takes_any_nulls):
        # A change after the stream's own version can be read after a new start, with the new schema.
        is_new = version >= reading.version
        retryable = is_new and can_read(
            changed, reading.schema, may_add_columns=True, takes_any_nulls=takes_any_nulls
        )
        raise DeltaIllegalStateException(
            error_class=_error_class(reading),
            changed_in=version,
            read_schema=reading.schema.simpleString(),
            data_schema=changed.simpleString(),
            remedy=_RETRY if retryable else _INCOMPATIBLE,
            table=reading.path,
        )
    check_partition_columns(reading, physical_names(changed, metadata.partition_columns).values(), version)


def _check_mapping(reading: Reading, changed: T.StructType, version: int) -> None:
    """Raises an error if a column of a mapped table was renamed or dropped between the version and that of
    the stream's schema."""
    if not (is_mapped(reading.schema) or is_mapped(changed)):
        return
    is_older = version < reading.version
    older, newer = (changed, reading.schema) if is_older else (reading.schema, changed)
    if not keeps_columns(older, newer):
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
            changed_in=version,
            read_schema=without_mapping(reading.schema).simpleString(),
            incompatible_schema=without_mapping(changed).simpleString(),
            table=reading.path,
        )


def check_partition_columns(reading: Reading, columns: Iterable[str], version: int) -> None:
    """Raises an error if a version, or a file of it, has other partition columns than the stream.

    They are compared by their physical names, which a rename does not change.
    """
    wanted = reading.physical_partition_columns.values()
    if set(columns) == set(wanted) or reading.options.unsafe_partition_columns:
        return
    raise DeltaIllegalStateException(
        f"Detected a change of the partition columns: the stream reads the table partitioned by "
        f"({', '.join(wanted)}), but version {version} is partitioned by "
        f"({', '.join(columns)}). Load the stream again and start it with the same checkpoint. If it stops "
        "here again, it needs a new checkpoint location.",
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
