"""What a table's configuration may become: session defaults, known names, valid values (DeltaConfigs)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from deltaflow.errors import DeltaAnalysisException, DeltaIllegalArgumentException
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.indexed_columns import check_statistics_columns
from deltaflow.log.protocol.properties import ALLOW_ARBITRARY_PROPERTIES, IGNORE_PROTOCOL_DEFAULTS, KNOWN
from deltaflow.log.protocol.protocols import FEATURE_PREFIX, is_of_protocol

_SESSION_DEFAULTS = "spark.databricks.delta.properties.defaults."
_CONSTRAINTS_PREFIX = "delta.constraints."
_NOT_FOR_USERS = "delta.columnMapping.maxColumnId"


def with_session_defaults(metadata: Metadata, session: Mapping[str, str], table: str) -> Metadata:
    """The metadata of a new table: properties that it does not set are the session's defaults.

    Those are the settings spark.databricks.delta.properties.defaults.<property without "delta.">. Of what
    they say about the protocol nothing counts if delta.ignoreProtocolDefaults is set, by either.
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
        if name not in own and _is_default(name) and not (ignores_protocol and is_of_protocol(name))
    }
    if not missing:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**missing, **metadata.configuration})


def with_checked_properties(
    metadata: Metadata, before: Mapping[str, str], session: Mapping[str, str], table: str
) -> Metadata:
    """The metadata with the names of new properties in their usual case.

    New is what `before`, the table's configuration, does not have or has otherwise; what a table has
    already another writer may have set, who knows more. Raises DeltaAnalysisException for an unknown name
    (unless the session allows them) and DeltaIllegalArgumentException for a wrong value.
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


def checked_name(name: str, value: str, session: Mapping[str, str], table: str) -> str:
    """The usual name of a property that may be set to this value; raises as `with_checked_properties`."""
    lower = name.lower()
    if not lower.startswith("delta.") or lower.startswith((_CONSTRAINTS_PREFIX, FEATURE_PREFIX)):
        return canonical_name(name)
    if lower == _NOT_FOR_USERS.lower():
        raise DeltaIllegalArgumentException(
            error_class="DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=_NOT_FOR_USERS, table=table
        )
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
    """A property's name in the case that it has in tables: Delta's own are found whatever their case."""
    lower = name.lower()
    if lower.startswith(FEATURE_PREFIX):
        return FEATURE_PREFIX + name[len(FEATURE_PREFIX) :]
    return KNOWN[lower].name if lower in KNOWN else name


def _is_default(name: str) -> bool:
    return name.lower() in KNOWN or name.startswith(FEATURE_PREFIX)
