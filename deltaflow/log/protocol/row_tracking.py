"""Row tracking by a table's protocol and metadata (PROTOCOL.md, "Row Tracking").

Where the protocol supports it, every new file gets ids for its rows, unless that is suspended. Where the
metadata enables it, rows that are copied or changed keep their ids, in columns of the files that the schema
lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from deltaflow.errors import CorruptLogError, DeltaAnalysisException
from deltaflow.log.protocol.actions import DomainMetadata, Metadata, Protocol
from deltaflow.log.protocol.column_mapping import physical_name, table_schema
from deltaflow.log.protocol.features import supported_features
from deltaflow.log.protocol.properties import (
    ENABLE_ROW_TRACKING,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
    ROW_TRACKING_SUSPENDED,
)
from deltaflow.log.untrusted_json import decode_json

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
"""The metadata domain that has the highest id."""
NO_ROW_ID = -1
"""The highest id of a table that has given none."""
_NAMES = {
    MATERIALIZED_ROW_ID_COLUMN: "_row-id-col-",
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: "_row-commit-version-col-",
}


class RowIdColumns(NamedTuple):
    """The names of the columns in data files that keep what rows had in other files; null for other rows."""

    row_id: str
    row_commit_version: str


class _Mark(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


def supports_row_ids(protocol: Protocol) -> bool:
    """Whether the table has the feature."""
    return FEATURE in supported_features(protocol)


def suspends_row_ids(metadata: Metadata, table: str) -> bool:
    """Whether new files get no ids, since the feature is to be dropped."""
    return ROW_TRACKING_SUSPENDED.of(metadata.configuration, table)


def has_row_ids(protocol: Protocol, metadata: Metadata, table: str) -> bool:
    """Whether every row of the table has an id, which it keeps."""
    return supports_row_ids(protocol) and ENABLE_ROW_TRACKING.of(metadata.configuration, table)


def row_id_columns(protocol: Protocol, metadata: Metadata, table: str) -> RowIdColumns | None:
    """The columns in which copied rows keep their ids; None unless row tracking is enabled.

    CorruptLogError if the metadata lacks their names.
    """
    if not has_row_ids(protocol, metadata, table):
        return None
    missing = [name for name in _NAMES if name not in metadata.configuration]
    if missing:
        raise CorruptLogError(
            f"The table {table} has row tracking enabled, and its metadata lacks {', '.join(missing)}. The "
            "writer that enabled it has broken the protocol. Set delta.enableRowTracking to false.",
            table=table,
        )
    return RowIdColumns(*(metadata.configuration[name] for name in _NAMES))


def with_row_id_columns(
    metadata: Metadata, before: Metadata | None, protocol: Protocol, new_id: Callable[[], str], table: str
) -> Metadata:
    """The metadata with names for the columns that keep ids: those of `before`, or else new ones.

    A table whose protocol lacks row tracking has none. DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION for
    row tracking that is enabled and suspended, DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED for a column of
    the schema that has one of the names.
    """
    configuration = {name: value for name, value in metadata.configuration.items() if name not in _NAMES}
    if supports_row_ids(protocol):
        if has_row_ids(protocol, metadata, table) and suspends_row_ids(metadata, table):
            raise DeltaAnalysisException(
                error_class="DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION", table=table
            )
        known = {} if before is None else before.configuration
        names = {name: known.get(name) or prefix + new_id() for name, prefix in _NAMES.items()}
        _refuse_columns(names.values(), metadata, table)
        configuration |= names
    if configuration == metadata.configuration:
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)


def without_row_tracking(metadata: Metadata) -> Metadata:
    """The metadata without the properties of row tracking."""
    of_feature = (ENABLE_ROW_TRACKING.name, ROW_TRACKING_SUSPENDED.name, *_NAMES)
    kept = {name: value for name, value in metadata.configuration.items() if name not in of_feature}
    return msgspec.structs.replace(metadata, configuration=kept)


def _refuse_columns(names: Iterable[str], metadata: Metadata, table: str) -> None:
    """Refuses columns that have these names, in whatever case: readers of Parquet would mistake them."""
    schema_string = (metadata.schema_string or "").lower()
    if not any(name.lower() in schema_string for name in names):
        return
    for column in table_schema(metadata, table=table).fields:
        for name in names:
            if name.lower() in (column.name.lower(), physical_name(column).lower()):
                raise DeltaAnalysisException(
                    error_class="DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
                    column_name=name,
                    table=table,
                    column=name,
                )


def highest_row_id(domains: Mapping[str, DomainMetadata], table: str) -> int:
    """The highest id that the table has given, by its metadata domains; CorruptLogError if that is broken."""
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return NO_ROW_ID
    try:
        return decode_json(domain.configuration, as_type=_Mark).row_id_high_water_mark
    except msgspec.MsgspecError as error:
        raise CorruptLogError(
            f"The metadata domain {DOMAIN} of {table} has no highest row id: {domain.configuration!r}. "
            "Without it, new rows would get ids of other rows. Restore the commit that set it from a copy.",
            table=table,
        ) from error


def domain_of(highest: int) -> DomainMetadata:
    """The action that records the highest id."""
    return DomainMetadata(
        domain=DOMAIN, configuration=msgspec.json.encode(_Mark(highest)).decode(), removed=False
    )
