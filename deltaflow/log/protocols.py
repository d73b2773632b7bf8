"""The protocol that a table gets from its properties, when it is made and when its metadata changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException, UnsupportedFeatureError
from deltaflow.log.actions import Metadata, Protocol
from deltaflow.log.features import (
    FEATURES,
    NEW_TABLE_PROTOCOL,
    NEWEST_READER_VERSION,
    NEWEST_WRITER_VERSION,
    supported_features,
)
from deltaflow.log.properties import IGNORE_PROTOCOL_DEFAULTS

_READER_VERSION = "delta.minReaderVersion"
_WRITER_VERSION = "delta.minWriterVersion"
_OF_PROTOCOL = (_READER_VERSION, _WRITER_VERSION, IGNORE_PROTOCOL_DEFAULTS.name)
FEATURE_PREFIX = "delta.feature."
_LEGACY_READER_OF_COLUMN_MAPPING = 2


def without_protocol_properties(metadata: Metadata) -> Metadata:
    """The metadata as it is committed: properties that speak of the protocol stand in the protocol."""
    configuration = {
        name: value for name, value in metadata.configuration.items() if not is_of_protocol(name)
    }
    if len(configuration) == len(metadata.configuration):
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)


def protocol_for(metadata: Metadata, current: Protocol | None, table: str) -> Protocol:
    """The protocol of a table with this metadata: `current` as long as it has all that is asked for.

    Asked for are the versions of delta.minReaderVersion and delta.minWriterVersion, features that
    delta.feature.<name> names and features that other properties or the schema activate. Raises
    UnsupportedFeatureError for a feature or version that deltaflow does not know, and
    DeltaIllegalArgumentException for a value that is none.
    """
    reader = _version(metadata.configuration, _READER_VERSION, NEWEST_READER_VERSION, table)
    writer = _version(metadata.configuration, _WRITER_VERSION, NEWEST_WRITER_VERSION, table)
    named = _named_features(metadata.configuration, table)
    writer_known = max(writer or 0, 0 if current is None else current.min_writer_version)
    if reader == NEWEST_READER_VERSION and writer_known < NEWEST_WRITER_VERSION:
        raise DeltaIllegalArgumentException(
            f"{_READER_VERSION} {reader} needs {_WRITER_VERSION} {NEWEST_WRITER_VERSION}. Set both.",
            error_class="DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE",
            table=table,
        )
    if current is None and writer == NEWEST_WRITER_VERSION:
        current = NEW_TABLE_PROTOCOL
    elif current is None:
        current = Protocol(
            min_reader_version=reader or NEW_TABLE_PROTOCOL.min_reader_version,
            min_writer_version=writer or NEW_TABLE_PROTOCOL.min_writer_version,
        )
    supported = supported_features(current)
    active = {feature.name for feature in FEATURES.values() if feature.is_active(metadata)}
    missing = (named | active) - supported
    reader = max(reader or 0, current.min_reader_version)
    writer = max(writer or 0, current.min_writer_version)
    if not missing and (reader, writer) == (current.min_reader_version, current.min_writer_version):
        return current
    legacy_writers = [FEATURES[name].legacy_writer for name in missing - named]
    if named & missing or None in legacy_writers or NEWEST_WRITER_VERSION in (writer, *legacy_writers):
        return _with_features(supported | missing, reader)
    writer = max([writer, *(version for version in legacy_writers if version is not None)])
    if any(FEATURES[name].for_readers for name in missing):
        reader = max(reader, _LEGACY_READER_OF_COLUMN_MAPPING)
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def _with_features(names: Iterable[str], reader_version: int) -> Protocol:
    """Writer version 7; reader version 3 only if something needs its list of features."""
    writer_features = sorted(names)
    reader_features = [name for name in writer_features if name in FEATURES and FEATURES[name].for_readers]
    with_legacy_reader = all(FEATURES[name].legacy_writer is not None for name in reader_features)
    if reader_version < NEWEST_READER_VERSION and with_legacy_reader:
        legacy_reader = _LEGACY_READER_OF_COLUMN_MAPPING if reader_features else 1
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
    """Whether a property, by its usual name, speaks of the protocol and not of the table's metadata."""
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
    return {known[name.lower()] for name in named}
