"""Which actions one commit may hold."""

from __future__ import annotations

from collections.abc import Sequence

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log.files.change_files import CHANGE_COLUMNS
from deltaflow.log.files.file_key import file_key
from deltaflow.log.protocol.actions import (
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaflow.log.protocol.column_mapping import physical_partition_columns, table_schema
from deltaflow.log.protocol.features import (
    has_change_data_feed,
    has_domain_metadata,
    supported_features,
)
from deltaflow.log.protocol.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from deltaflow.log.protocol.row_tracking import FEATURE as ROW_TRACKING

WritableAction = AddFile | RemoveFile | AddCDCFile | SetTransaction | DomainMetadata
_SYSTEM_DOMAIN_PREFIX = "delta."
ROW_INDEX = "_tmp_metadata_row_index"
"""The column in which Spark's reader counts the rows of a file, whatever the file has there."""
_FEATURES_OF_DOMAINS = {ROW_TRACKING_DOMAIN: ROW_TRACKING}


def check_actions(
    actions: Sequence[WritableAction],
    protocol: Protocol,
    metadata: Metadata,
    table: str,
    *,
    append_only: bool,
) -> None:
    """Refuse removes of data if the table is `append_only`, a file, application or domain named twice,
    adds with other partition columns, and domains that the protocol lacks or that belong to the system.
    """
    named: set[tuple[str, str]] = set()
    partition_columns = set(physical_partition_columns(metadata, table).values())
    for action in actions:
        match action:
            case AddFile():
                category, name = "file", file_key(action, table)
                _check_partition_columns(action, partition_columns, table)
            case RemoveFile():
                category, name = "file", file_key(action, table)
                if action.data_change and append_only:
                    raise DeltaUnsupportedOperationException(
                        error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY", table=table
                    )
            case AddCDCFile():
                category, name = "change file", action.path
                _check_partition_columns(action, partition_columns, table)
            case SetTransaction():
                category, name = "application", action.app_id
            case DomainMetadata():
                category, name = "metadata domain", action.domain
                _check_domain(action, protocol, table)
        if (category, name) in named:
            raise DeltaIllegalStateException(
                f"The {category} {name} is named twice in one commit.",
                error_class="DELTA_DUPLICATE_ACTIONS_FOUND",
                table=table,
            )
        named.add((category, name))


def check_reserved_columns(metadata: Metadata, before: Metadata | None, table: str) -> None:
    """Refuse columns of the table that have the names of those that a change data feed adds to its rows, and
    a new one with that in which Spark's reader counts the rows of a file: queries would see the numbers.

    `before`: the metadata that the table has had, None for a new table.
    """
    if _has_row_index(metadata, table) and not (before is not None and _has_row_index(before, table)):
        raise DeltaAnalysisException(
            error_class="DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED",
            column_name=ROW_INDEX,
            table=table,
            column=ROW_INDEX,
        )
    if not has_change_data_feed(metadata) or metadata.schema_string is None:
        return
    reserved = {name.lower() for name in CHANGE_COLUMNS.names}
    names = [name for name in table_schema(metadata, table=table).names if name.lower() in reserved]
    if names:
        was_on = before is None or has_change_data_feed(before)
        raise DeltaIllegalStateException(
            error_class="RESERVED_CDC_COLUMNS_ON_WRITE"
            if was_on
            else "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
            column_list=", ".join(names),
            table=table,
        )


def _has_row_index(metadata: Metadata, table: str) -> bool:
    names = (metadata.schema_string or "").lower()
    return ROW_INDEX in names and ROW_INDEX in (
        name.lower() for name in table_schema(metadata, table=table).names
    )


def _check_partition_columns(action: AddFile | AddCDCFile, partition_columns: set[str], table: str) -> None:
    if set(action.partition_values) != partition_columns:
        raise DeltaIllegalStateException(
            f"The file {action.path} has values of the partition columns "
            f"{sorted(action.partition_values)}, and the table's are {sorted(partition_columns)}.",
            error_class="DELTA_INVALID_PARTITIONING_SCHEMA",
            table=table,
            file=action.path,
        )


def _check_domain(action: DomainMetadata, protocol: Protocol, table: str) -> None:
    feature = _FEATURES_OF_DOMAINS.get(action.domain)
    if action.removed and feature is not None and feature not in supported_features(protocol):
        return  # It goes with its feature.
    if action.domain.startswith(_SYSTEM_DOMAIN_PREFIX):
        raise DeltaUnsupportedOperationException(
            f"The metadata domain {action.domain} belongs to the system: domains of users have names that do "
            f"not begin with '{_SYSTEM_DOMAIN_PREFIX}'.",
            error_class="DELTA_SYSTEM_DOMAIN_METADATA",
            table=table,
        )
    if not has_domain_metadata(protocol):
        raise DeltaUnsupportedOperationException(
            f"The table has no metadata domains, and {action.domain} was to be set. Set the table property "
            "delta.feature.domainMetadata to supported first.",
            error_class="DELTA_DOMAIN_METADATA_NOT_SUPPORTED",
            table=table,
        )
