"""Every table feature of the protocol: whether tables that have it are read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.actions import Metadata, Protocol

NEW_TABLE_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
NEWEST_READER_VERSION = 3
NEWEST_WRITER_VERSION = 7

Activity = Callable[[Metadata], bool]


def _always(metadata: Metadata) -> bool:
    return True


def _property(name: str) -> Activity:
    return lambda metadata: metadata.configuration.get(name, "").lower() == "true"


def _property_prefix(prefix: str) -> Activity:
    return lambda metadata: any(name.startswith(prefix) for name in metadata.configuration)


def _column_metadata(prefix: str) -> Activity:
    return lambda metadata: any(
        name.startswith(prefix)
        for field in _fields(_schema_json(metadata))
        for name in field.get("metadata") or {}
    )


def _has_not_null_columns(metadata: Metadata) -> bool:
    return any(field.get("nullable") is False for field in _fields(_schema_json(metadata)))


def _column_mapping(metadata: Metadata) -> bool:
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature by its protocol name, and what deltaflow does with tables that support it.

    `is_active` says whether a table's metadata makes use of it. `writes`: "inactive" is only while it
    is not active.
    """

    name: str
    is_active: Activity
    writes: Literal["always", "inactive", "never"]
    reads: bool = True


_APPEND_ONLY = Feature("appendOnly", _property("delta.appendOnly"), "always")
_COLUMN_MAPPING = Feature("columnMapping", _column_mapping, "inactive", reads=False)
_LISTED = (
    _APPEND_ONLY,
    Feature("invariants", _column_metadata("delta.invariants"), "inactive"),
    Feature("checkConstraints", _property_prefix("delta.constraints."), "inactive"),
    Feature("changeDataFeed", _property("delta.enableChangeDataFeed"), "inactive"),
    Feature("generatedColumns", _column_metadata("delta.generationExpression"), "inactive"),
    _COLUMN_MAPPING,
    Feature("identityColumns", _column_metadata("delta.identity."), "inactive"),
    Feature("allowColumnDefaults", _column_metadata("CURRENT_DEFAULT"), "inactive"),
    Feature("inCommitTimestamp", _property("delta.enableInCommitTimestamps"), "inactive"),
    Feature("timestampNtz", _always, "always"),
    Feature("v2Checkpoint", _always, "always"),
    Feature("vacuumProtocolCheck", _always, "always"),
    Feature("domainMetadata", _always, "always"),
    Feature("rowTracking", _always, "never"),
    Feature("clustering", _always, "never"),
    Feature("icebergCompatV1", _always, "never"),
    Feature("icebergCompatV2", _always, "never"),
    Feature("deletionVectors", _always, "never", reads=False),
    Feature("typeWidening", _always, "never", reads=False),
    Feature("typeWidening-preview", _always, "never", reads=False),
    Feature("variantType", _always, "never", reads=False),
    Feature("variantType-preview", _always, "never", reads=False),
    Feature("variantShredding", _always, "never", reads=False),
    Feature("variantShredding-preview", _always, "never", reads=False),
    Feature("catalogManaged", _always, "never", reads=False),
)
FEATURES = {feature.name: feature for feature in _LISTED}


def check_readable(protocol: Protocol, metadata: Metadata, table: str, version: int) -> None:
    """UnsupportedFeatureError naming what a reader of the table needs and deltaflow lacks."""
    missing = list(_unreadable(protocol, metadata))
    if missing:
        raise UnsupportedFeatureError(
            f"deltaflow cannot read the table {table}: it needs {', '.join(missing)} (protocol: reader "
            f"version {protocol.min_reader_version}). Read it with a Delta implementation that "
            "has this, or drop the feature from the table there.",
            features=missing,
            table=table,
            version=version,
        )


def check_writable(protocol: Protocol, metadata: Metadata, table: str, version: int | None = None) -> None:
    """UnsupportedFeatureError naming what a writer of the table needs and deltaflow lacks."""
    missing = sorted({*_unreadable(protocol, metadata), *_unwritable(protocol, metadata)})
    if missing:
        raise UnsupportedFeatureError(
            f"deltaflow cannot write the table {table}: it needs {', '.join(missing)} (protocol: writer "
            f"version {protocol.min_writer_version}). Write it with a Delta implementation that "
            "has this, or drop the feature from the table there.",
            features=missing,
            error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            table=table,
            version=version,
        )


def is_append_only(metadata: Metadata) -> bool:
    """Whether commits may not remove data (PROTOCOL.md, "Append-only Tables")."""
    return _APPEND_ONLY.is_active(metadata)


def _unreadable(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    version = protocol.min_reader_version
    if not 1 <= version <= NEWEST_READER_VERSION:
        yield f"reader version {version}"
    elif version == NEWEST_READER_VERSION:
        for name in protocol.reader_features or ():
            if name not in FEATURES or not FEATURES[name].reads:
                yield name
    # It changes how files are read: heeded even where the protocol forgets to announce it.
    if _COLUMN_MAPPING.is_active(metadata) and _COLUMN_MAPPING.name not in (protocol.reader_features or ()):
        yield _COLUMN_MAPPING.name


def _unwritable(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    version = protocol.min_writer_version
    if _has_not_null_columns(metadata):
        yield "NOT NULL columns"
    if not 1 <= version <= NEWEST_WRITER_VERSION:
        yield f"writer version {version}"
    elif version == NEWEST_WRITER_VERSION:
        for name in protocol.writer_features or ():
            feature = FEATURES.get(name)
            if feature is None or not _may_write(feature, metadata):
                yield name
    else:
        # Also what a version does not support yet: the table's owner asked for it, and no writer keeps it.
        for feature in FEATURES.values():
            if feature.writes == "inactive" and feature.is_active(metadata):
                yield feature.name


def _may_write(feature: Feature, metadata: Metadata) -> bool:
    return feature.writes == "always" or (feature.writes == "inactive" and not feature.is_active(metadata))


def _schema_json(metadata: Metadata) -> Any:
    try:
        return msgspec.json.decode(metadata.schema_string)
    except msgspec.DecodeError:
        return None


def _fields(schema: Any) -> Iterator[dict[str, Any]]:
    """All struct fields of a schema's JSON, nested ones included."""
    if isinstance(schema, list):
        for item in schema:
            yield from _fields(item)
    elif isinstance(schema, dict):
        for field in schema.get("fields") or ():
            yield field
            yield from _fields(field.get("type"))
        yield from _fields(schema.get("elementType"))
        yield from _fields(schema.get("keyType"))
        yield from _fields(schema.get("valueType"))
