"""New table properties: session defaults, known names, valid values (delta-spark's DeltaConfigs)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.indexed_columns import check_statistics_columns
from deltaflow.log.protocol.properties import (
    ALLOW_ARBITRARY_PROPERTIES,
    CHECKPOINTS_PROTECTED_BEFORE,
    COLUMN_MAPPING_MODE,
    CONSTRAINTS_PREFIX,
    IGNORE_PROTOCOL_DEFAULTS,
    KNOWN,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from deltaflow.log.protocol.protocols import FEATURE_PREFIX, is_of_protocol

_SESSION_DEFAULTS = "spark.databricks.delta.properties.defaults."
_NOT_FOR_USERS = {
    name.lower(): name
    for name in (
        "delta.columnMapping.maxColumnId",
        MATERIALIZED_ROW_ID_COLUMN,
        MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    )
}

_CLUSTERING_COLUMNS = "clusteringColumns"
"""Spark reads the columns of a catalog's entry from it, as JSON; the table's are in a metadata domain."""


def with_session_defaults(metadata: Metadata, session: Mapping[str, str], table: str) -> Metadata:
    """The metadata of a new table, or of one that is replaced, with the session's defaults for properties
    that it does not set.

    These are the settings spark.databricks.delta.properties.defaults.<property without "delta.">. If
    delta.ignoreProtocolDefaults is set, by the table or a default, those about the protocol are ignored.
    """
    defaults = {
        canonical_name("delta." + setting.removeprefix(_SESSION_DEFAULTS)): value
        for setting, value in session.items()
        if setting.startswith(_SESSION_DEFAULTS)
    }
    own = {canonical_name(name): value for name, value in metadata.configuration.items()}
    ignores_protocol = IGNORE_PROTOCOL_DEFAULTS.of({**defaults, **own}, table)
    missing = {
        name: value
        for name, value in defaults.items()
        if name not in own and _may_be_default(name) and not (ignores_protocol and is_of_protocol(name))
    }
    if not missing:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**missing, **metadata.configuration})


def asks_for_mapping(configuration: Mapping[str, str], session: Mapping[str, str], table: str) -> bool:
    """Whether a table that is made with these properties, and with the session's defaults, is mapped."""
    named = {canonical_name(name): value for name, value in configuration.items()}
    metadata = Metadata(id="", partition_columns=[], configuration=named)
    metadata = with_session_defaults(metadata, session, table)
    return COLUMN_MAPPING_MODE.of(metadata.configuration, table) != "none"


def with_checked_properties(
    metadata: Metadata, before: Mapping[str, str], session: Mapping[str, str], table: str
) -> Metadata:
    """The metadata with its new properties checked, and their names in the canonical case.

    A property is new if `before`, the table's configuration, lacks it or has another value; the others may be
    of a writer that knows more. Raises DeltaAnalysisException for an unknown name (unless the session allows
    them) and DeltaIllegalArgumentException for a wrong value.
    """
    configuration = {
        name: value for name, value in metadata.configuration.items() if before.get(name) == value
    }
    for name, value in metadata.configuration.items():
        if name not in configuration:
            configuration[checked_name(name, value, session, table)] = value
    if configuration != metadata.configuration:
        metadata = msgspec.structs.replace(metadata, configuration=configuration)
    check_statistics_columns(metadata, table)
    return metadata


def with_protected_checkpoints(metadata: Metadata, before: Mapping[str, str]) -> Metadata:
    """The metadata with the version before which checkpoints are protected, if the table has one.

    It is of the log, which stays when the table's metadata is replaced or restored.
    """
    name = CHECKPOINTS_PROTECTED_BEFORE.name
    if name not in before or name in metadata.configuration:
        return metadata
    configuration = {**metadata.configuration, name: before[name]}
    return msgspec.structs.replace(metadata, configuration=configuration)


def checked_name(name: str, value: str, session: Mapping[str, str], table: str) -> str:
    """The canonical name of a property, checked with its value; raises as `with_checked_properties`."""
    lower = name.lower()
    refused = name if name == _CLUSTERING_COLUMNS else _NOT_FOR_USERS.get(lower)
    if refused is not None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=refused, table=table
        )
    if not lower.startswith("delta.") or lower.startswith((CONSTRAINTS_PREFIX, FEATURE_PREFIX)):
        return canonical_name(name)
    if lower in KNOWN:
        KNOWN[lower].of({KNOWN[lower].name: value}, table)
    elif not ALLOW_ARBITRARY_PROPERTIES.of(session, table):
        raise DeltaAnalysisException(
            error_class="DELTA_UNKNOWN_CONFIGURATION",
            config=name,
            disable_check_config=ALLOW_ARBITRARY_PROPERTIES.name,
            table=table,
        )
    return canonical_name(name)


def canonical_name(name: str) -> str:
    """A property's name in its canonical case; the names of Delta's own properties are case-insensitive."""
    lower = name.lower()
    if lower.startswith(FEATURE_PREFIX):
        return FEATURE_PREFIX + name[len(FEATURE_PREFIX) :]
    return KNOWN[lower].name if lower in KNOWN else name


def _may_be_default(name: str) -> bool:
    return name.lower() in KNOWN or name.startswith(FEATURE_PREFIX)
