"""The protocol of a table by its properties: of a new table, and of one whose metadata changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException, UnsupportedFeatureError
from deltaflow.log.protocol.actions import Metadata, Protocol
from deltaflow.log.protocol.features import (
    FEATURES,
    LEGACY_READER_OF_COLUMN_MAPPING,
    NEW_TABLE_PROTOCOL,
    NEWEST_READER_VERSION,
    NEWEST_WRITER_VERSION,
    needed_features,
    supported_features,
)
from deltaflow.log.protocol.properties import IGNORE_PROTOCOL_DEFAULTS

READER_VERSION = "delta.minReaderVersion"
WRITER_VERSION = "delta.minWriterVersion"
_OF_PROTOCOL = (READER_VERSION, WRITER_VERSION, IGNORE_PROTOCOL_DEFAULTS.name)
FEATURE_PREFIX = "delta.feature."


def without_protocol_properties(metadata: Metadata) -> Metadata:
    """The metadata as it is committed: without the properties that the protocol replaces."""
    configuration = {
        name: value for name, value in metadata.configuration.items() if not is_of_protocol(name)
    }
    if len(configuration) == len(metadata.configuration):
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)


def protocol_for(metadata: Metadata, current: Protocol | None, table: str) -> Protocol:
    """The protocol of a table with this metadata: `current` if it supports all that the metadata asks for.

    The metadata asks for the versions delta.minReaderVersion and delta.minWriterVersion (of a table that
    exists: for their features), for features that delta.feature.<name> names, and for features that other
    properties or the schema activate. No feature is dropped; a changed protocol gets its weakest form. Raises
    UnsupportedFeatureError for a feature or version that deltaflow does not know, and
    DeltaIllegalArgumentException for an invalid value.
    """
    reader = _version(metadata.configuration, READER_VERSION, NEWEST_READER_VERSION, table)
    writer = _version(metadata.configuration, WRITER_VERSION, NEWEST_WRITER_VERSION, table)
    named = _named_features(metadata.configuration, table)
    writer_known = max(writer or 0, 0 if current is None else current.min_writer_version)
    if reader == NEWEST_READER_VERSION and writer_known < NEWEST_WRITER_VERSION:
        raise DeltaIllegalArgumentException(
            f"{READER_VERSION} {reader} needs {WRITER_VERSION} {NEWEST_WRITER_VERSION}. Set both.",
            error_class="DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE",
            table=table,
        )
    supported = set() if current is None else supported_features(current)
    active = _with_required(needed_features(metadata, supported | named))
    if current is None:
        return _protocol_of_new_table(reader, writer, named, active)
    wanted = supported | named | active
    if writer is not None and writer < NEWEST_WRITER_VERSION:
        wanted |= supported_features(Protocol(min_reader_version=reader or 1, min_writer_version=writer))
    if wanted == supported:
        return current
    if current.min_writer_version < NEWEST_WRITER_VERSION:
        wanted |= _features_of_same_version(active - supported)
    return weakest_protocol(wanted)


def without_feature(protocol: Protocol, name: str, *, instead: Iterable[str] = ()) -> Protocol:
    """The weakest protocol when a feature that it supports is dropped and others come instead."""
    return weakest_protocol((supported_features(protocol) - {name}).union(instead))


def weakest_protocol(names: Iterable[str]) -> Protocol:
    """The protocol of just these features: one of versions alone, if there is one.

    (1, 7, {appendOnly, invariants, checkConstraints}) is (1, 3).
    """
    features = set(names)
    legacy = _legacy_protocol(features)
    if legacy is not None and supported_features(legacy) == features:
        return legacy
    return _with_features(features, 1)


def merged_protocol(protocol: Protocol, current: Protocol) -> Protocol:
    """The weakest protocol with all that both support; `current` itself if that lacks nothing."""
    supported = supported_features(current)
    missing = supported_features(protocol) - supported
    return weakest_protocol(supported | missing) if missing else current


def _legacy_protocol(names: Iterable[str]) -> Protocol | None:
    """The protocol of versions alone that has at least these features; None if one needs lists."""
    features = [FEATURES.get(name) for name in names]
    writers = [None if feature is None else feature.legacy_writer for feature in features]
    if None in writers:
        return None
    for_readers = any(feature is not None and feature.for_readers for feature in features)
    return Protocol(
        min_reader_version=LEGACY_READER_OF_COLUMN_MAPPING if for_readers else 1,
        min_writer_version=max((writer for writer in writers if writer is not None), default=1),
    )


def _features_of_same_version(names: Iterable[str]) -> set[str]:
    """All features of the lowest version without lists that has these; none if one of these needs lists."""
    legacy = _legacy_protocol(names)
    return set() if legacy is None else supported_features(legacy)


def _protocol_of_new_table(
    reader: int | None, writer: int | None, named: Iterable[str], active: Iterable[str]
) -> Protocol:
    """The protocol of a new table with these versions, or the lowest ones."""
    base = NEW_TABLE_PROTOCOL
    if writer != NEWEST_WRITER_VERSION:
        base = Protocol(
            min_reader_version=reader or base.min_reader_version,
            min_writer_version=writer or base.min_writer_version,
        )
    supported = supported_features(base)
    missing_by_name = set(named) - supported
    by_version = _legacy_protocol(set(active) - supported)
    if missing_by_name or by_version is None or writer == NEWEST_WRITER_VERSION:
        return _with_features(supported.union(named, active), reader or 1)
    return Protocol(
        min_reader_version=max(base.min_reader_version, by_version.min_reader_version),
        min_writer_version=max(base.min_writer_version, by_version.min_writer_version),
    )


def _with_features(names: Iterable[str], reader_version: int) -> Protocol:
    """Writer version 7; reader version 3 only if something needs its list of features."""
    writer_features = sorted(names)
    reader_features = [name for name in writer_features if name in FEATURES and FEATURES[name].for_readers]
    with_legacy_reader = all(FEATURES[name].legacy_writer is not None for name in reader_features)
    if reader_version < NEWEST_READER_VERSION and with_legacy_reader:
        legacy_reader = LEGACY_READER_OF_COLUMN_MAPPING if reader_features else 1
        return Protocol(
            min_reader_version=max(reader_version, legacy_reader),
            min_writer_version=NEWEST_WRITER_VERSION,
            writer_features=writer_features,
        )
    return Protocol(
        min_reader_version=NEWEST_READER_VERSION,
        min_writer_version=NEWEST_WRITER_VERSION,
        reader_features=reader_features,
        writer_features=writer_features,
    )


def is_of_protocol(name: str) -> bool:
    """Whether a property, by its canonical name, belongs to the protocol and not to the metadata."""
    return name in _OF_PROTOCOL or name.startswith(FEATURE_PREFIX)


def _version(configuration: Mapping[str, str], name: str, newest: int, table: str) -> int | None:
    text = configuration.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise DeltaIllegalArgumentException(
            f"The table property {name} needs to be an integer, and is {text!r}.",
            error_class="DELTA_PROTOCOL_PROPERTY_NOT_INT",
            table=table,
        )
    version = int(text)
    if not 1 <= version <= newest:
        raise UnsupportedFeatureError(
            f"The table property {name} asks for version {version}; deltaflow knows 1 to {newest}.",
            features=[f"{name} {version}"],
            error_class="DELTA_INVALID_PROTOCOL_VERSION",
            table=table,
        )
    return version


def _named_features(configuration: Mapping[str, str], table: str) -> set[str]:
    named = {
        name.removeprefix(FEATURE_PREFIX): value
        for name, value in configuration.items()
        if name.startswith(FEATURE_PREFIX)
    }
    known = {name.lower(): name for name in FEATURES}
    unknown = sorted(name for name in named if name.lower() not in known)
    if unknown:
        raise UnsupportedFeatureError(
            f"The table properties ask for features that deltaflow does not know: {', '.join(unknown)}.",
            features=unknown,
            error_class="DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
            table=table,
        )
    for name, value in named.items():
        if value.lower() not in ("supported", "enabled"):
            raise DeltaIllegalArgumentException(
                f"The table property {FEATURE_PREFIX}{name} is {value!r}; the one value it may have is "
                "'supported'.",
                error_class="DELTA_UNSUPPORTED_FEATURE_STATUS",
                table=table,
            )
    return _with_required(known[name.lower()] for name in named)


def _with_required(names: Iterable[str]) -> set[str]:
    """The features, and those that protocols with them have, too."""
    found = set(names)
    return found.union(required for name in found if (required := FEATURES[name].requires) is not None)
