"""Every table feature of the protocol: whether tables that have it are read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.actions import Metadata, Protocol

NEW_TABLE_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
NEWEST_READER_VERSION = 3
NEWEST_WRITER_VERSION = 7

Activity = Callable[[Metadata], bool]


def _never(metadata: Metadata) -> bool:
    return False


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


def _not_null_columns(metadata: Metadata) -> bool:
    return any(field.get("nullable") is False for field in _fields(_schema_json(metadata)))


def _column_mapping(metadata: Metadata) -> bool:
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature by its protocol name.

    `legacy_reader` and `legacy_writer` are the versions from which it is supported without feature
    lists. `is_active` says whether a table's metadata makes use of it. A table is read if `reads`, or
    if the feature concerns writers only, or is legacy and not active; likewise for writes: "always",
    "inactive" (only while the metadata does not activate it) or "never".
    """

    name: str
    is_active: Activity
    writes: str
    for_readers: bool = False
    reads: bool = True
    legacy_reader: int | None = None
    legacy_writer: int | None = None


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("appendOnly", _property("delta.appendOnly"), "always", legacy_writer=2),
        Feature("invariants", _column_metadata("delta.invariants"), "inactive", legacy_writer=2),
        Feature("checkConstraints", _property_prefix("delta.constraints."), "inactive", legacy_writer=3),
        Feature("changeDataFeed", _property("delta.enableChangeDataFeed"), "inactive", legacy_writer=4),
        Feature(
            "generatedColumns", _column_metadata("delta.generationExpression"), "inactive", legacy_writer=4
        ),
        Feature(
            "columnMapping",
            _column_mapping,
            "inactive",
            for_readers=True,
            reads=False,
            legacy_reader=2,
            legacy_writer=5,
        ),
        Feature("identityColumns", _column_metadata("delta.identity."), "inactive", legacy_writer=6),
        Feature("allowColumnDefaults", _column_metadata("CURRENT_DEFAULT"), "inactive"),
        Feature("timestampNtz", _always, "always", for_readers=True),
        Feature("v2Checkpoint", _always, "always", for_readers=True),
        Feature("vacuumProtocolCheck", _always, "always", for_readers=True),
        Feature("domainMetadata", _always, "always"),
        Feature("inCommitTimestamp", _property("delta.enableInCommitTimestamps"), "inactive"),
        Feature("deletionVectors", _always, "never", for_readers=True, reads=False),
        Feature("typeWidening", _always, "never", for_readers=True, reads=False),
        Feature("typeWidening-preview", _always, "never", for_readers=True, reads=False),
        Feature("variantType", _always, "never", for_readers=True, reads=False),
        Feature("variantType-preview", _always, "never", for_readers=True, reads=False),
        Feature("variantShredding", _always, "never", for_readers=True, reads=False),
        Feature("variantShredding-preview", _always, "never", for_readers=True, reads=False),
        Feature("catalogManaged", _always, "never", for_readers=True, reads=False),
        Feature("rowTracking", _always, "never"),
        Feature("clustering", _always, "never"),
        Feature("icebergCompatV1", _always, "never"),
        Feature("icebergCompatV2", _always, "never"),
    )
}


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
    return FEATURES["appendOnly"].is_active(metadata)


def _unreadable(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    version = protocol.min_reader_version
    if not 1 <= version <= NEWEST_READER_VERSION:
        yield f"reader version {version}"
    if version == NEWEST_READER_VERSION:
        for name in protocol.reader_features or ():
            if name not in FEATURES or not FEATURES[name].reads:
                yield name
    # A property that changes how files are read counts even where the protocol forgets to announce it.
    elif _column_mapping(metadata):
        yield "columnMapping"


def _unwritable(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    version = protocol.min_writer_version
    if not 1 <= version <= NEWEST_WRITER_VERSION:
        yield f"writer version {version}"
    if _not_null_columns(metadata):
        yield "NOT NULL columns"
    if version == NEWEST_WRITER_VERSION:
        supported = [FEATURES.get(name, name) for name in protocol.writer_features or ()]
    else:
        supported = [
            feature
            for feature in FEATURES.values()
            if feature.legacy_writer and feature.legacy_writer <= version
        ]
    for feature in supported:
        if not isinstance(feature, Feature):
            yield feature
        elif feature.writes == "never" or (feature.writes == "inactive" and feature.is_active(metadata)):
            yield feature.name
    if version < NEWEST_WRITER_VERSION:
        yield from _active_without_support(metadata, version)


def _active_without_support(metadata: Metadata, writer_version: int) -> Iterator[str]:
    """Features that a table's properties ask for and that its protocol does not announce.

    Writing such a table would promise to its owner what no writer keeps.
    """
    for feature in FEATURES.values():
        announced = feature.legacy_writer is not None and feature.legacy_writer <= writer_version
        if not announced and feature.writes == "inactive" and feature.is_active(metadata):
            yield feature.name


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
