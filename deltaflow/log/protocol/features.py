"""Every table feature of the protocol: whether tables that have it are read and written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from deltaflow.errors import UnsupportedFeatureError
from deltaflow.log.protocol.actions import Metadata, Protocol
from deltaflow.log.protocol.properties import CONSTRAINTS_PREFIX
from deltaflow.log.protocol.schema import CURRENT_DEFAULT, GENERATION_EXPRESSION, READS_SHREDDED_VARIANTS
from deltaflow.log.protocol.type_widening import TYPE_CHANGES, check_type_changes
from deltaflow.log.untrusted_json import decode_json

NEW_TABLE_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
NEWEST_READER_VERSION = 3
NEWEST_WRITER_VERSION = 7
LEGACY_READER_OF_COLUMN_MAPPING = 2
"""The reader version that has columnMapping: without lists, it is the only feature for readers."""

CLUSTERING = "clustering"

Activity = Callable[[Metadata], bool]


def _no_metadata(metadata: Metadata) -> bool:
    return False


def _property(name: str, value: str = "true") -> Activity:
    return lambda metadata: metadata.configuration.get(name, "").lower() == value


def _property_prefix(prefix: str) -> Activity:
    return lambda metadata: any(name.startswith(prefix) for name in metadata.configuration)


def _column_metadata(prefix: str) -> Activity:
    return lambda metadata: (
        prefix in (metadata.schema_string or "")
        and any(
            name.startswith(prefix)
            for field in _fields(_schema_json(metadata))
            for name in field.get("metadata") or {}
        )
    )


def _type(name: str) -> Activity:
    return lambda metadata: name in (metadata.schema_string or "") and name in _types(_schema_json(metadata))


def _has_constrained_columns(metadata: Metadata) -> bool:
    """NOT NULL columns, or columns with an expression of their own."""
    return _HAS_INVARIANTS(metadata) or (
        "false" in (metadata.schema_string or "")
        and any(field.get("nullable") is False for field in _fields(_schema_json(metadata)))
    )


_HAS_INVARIANTS = _column_metadata("delta.invariants")


def has_change_data_feed(metadata: Metadata) -> bool:
    """Whether the table records its changes."""
    # The second name is that of the property's first release.
    names = ("delta.enableChangeDataFeed", "delta.enableChangeDataCapture")
    return any(_property(name)(metadata) for name in names)


def _column_mapping(metadata: Metadata) -> bool:
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature by its protocol name, and what deltaflow does with tables that support it.

    `is_active` says whether a table's metadata asks for it. `writes`: "inactive" means that tables are
    written while the feature is not active, "supported" that their protocol has to have it where it is.
    `for_readers`: readers have to support it, too. `reads`: "unused" means that versions are read in which no
    column needs it, as `is_used` says. `legacy_writer`: the writer version, without lists of
    features, that has it; None if only lists have it. `requires`: a feature that protocols with this one
    have, too. `preview`: the name from before it was final; a protocol with it needs no other.
    `reason`: a sentence that says why it is refused.
    """

    name: str
    is_active: Activity
    writes: Literal["always", "supported", "inactive", "never"]
    for_readers: bool = False
    reads: Literal["always", "unused", "never"] = "always"
    is_used: Activity = _no_metadata
    legacy_writer: int | None = None
    requires: str | None = None
    preview: str | None = None
    reason: str = ""

    def is_readable(self, metadata: Metadata | None) -> bool:
        """Whether tables that list the feature are read; without metadata, whether some are."""
        return self.reads == "always" or (
            self.reads == "unused" and (metadata is None or not self.is_used(metadata))
        )


_APPEND_ONLY = Feature("appendOnly", _property("delta.appendOnly"), "always", legacy_writer=2)
_COLUMN_MAPPING = Feature("columnMapping", _column_mapping, "always", for_readers=True, legacy_writer=5)
_DOMAIN_METADATA = Feature("domainMetadata", _no_metadata, "always")
_V2_CHECKPOINT = Feature(
    "v2Checkpoint", _property("delta.checkpointPolicy", "v2"), "always", for_readers=True
)
_PARTITION_COLUMNS_IN_FILES = Feature(
    "materializePartitionColumns", _property("delta.enableMaterializePartitionColumnsFeature"), "always"
)
_WRITES_PARTITION_COLUMNS = _property("delta.writePartitionColumnsToParquet")
_CHECKPOINT_PROTECTION = Feature("checkpointProtection", _no_metadata, "always")
# Nothing activates it: a default without the feature is an error, as with delta-spark.
_COLUMN_DEFAULTS = Feature("allowColumnDefaults", _no_metadata, "always")
_TYPE_WIDENING_PREVIEW = Feature("typeWidening-preview", _no_metadata, "always", for_readers=True)
_ENABLES_TYPE_WIDENING = _property("delta.enableTypeWidening")
_HAS_TYPE_CHANGES = _column_metadata(TYPE_CHANGES)
_TYPE_WIDENING = Feature(
    "typeWidening",
    lambda metadata: _ENABLES_TYPE_WIDENING(metadata) or _HAS_TYPE_CHANGES(metadata),
    "always",
    for_readers=True,
    preview=_TYPE_WIDENING_PREVIEW.name,
)
# The property allows writers to write vectors, and asks none to.
_DELETION_VECTORS = Feature(
    "deletionVectors", _property("delta.enableDeletionVectors"), "always", for_readers=True
)
_IN_COMMIT_TIMESTAMP = Feature("inCommitTimestamp", _property("delta.enableInCommitTimestamps"), "always")


_HAS_VARIANTS = _type("variant")
_ICEBERG = "icebergCompat"
_OF_ICEBERG = (
    "Its data files have to be such that Iceberg reads them: with partition columns, and with ids for the "
    "contents of arrays and maps, which deltaflow does not write."
)


def _shredding(name: str, is_active: Activity = _no_metadata, preview: str | None = None) -> Feature:
    return Feature(
        name,
        is_active,
        "always",
        for_readers=True,
        reads="always" if READS_SHREDDED_VARIANTS else "unused",
        is_used=_HAS_VARIANTS,
        requires="variantType",
        preview=preview,
        reason="This Spark cannot read variants that are shredded; Spark 4.1 and newer can.",
    )


def _unreadable(name: str, reason: str) -> Feature:
    return Feature(name, _no_metadata, "never", for_readers=True, reads="never", reason=reason)


def _unwritable(name: str, reason: str, is_active: Activity = _no_metadata) -> Feature:
    return Feature(name, is_active, "never", reason=reason)


_LISTED = (
    _APPEND_ONLY,
    Feature("invariants", _has_constrained_columns, "always", legacy_writer=2),
    Feature("checkConstraints", _property_prefix(CONSTRAINTS_PREFIX), "always", legacy_writer=3),
    Feature("changeDataFeed", has_change_data_feed, "supported", legacy_writer=4),
    Feature("generatedColumns", _column_metadata(GENERATION_EXPRESSION), "supported", legacy_writer=4),
    _COLUMN_MAPPING,
    Feature("identityColumns", _column_metadata("delta.identity."), "supported", legacy_writer=6),
    _COLUMN_DEFAULTS,
    _IN_COMMIT_TIMESTAMP,
    Feature("timestampNtz", _type("timestamp_ntz"), "always", for_readers=True),
    _V2_CHECKPOINT,
    Feature("vacuumProtocolCheck", _no_metadata, "always", for_readers=True),
    _DOMAIN_METADATA,
    Feature("rowTracking", _property("delta.enableRowTracking"), "supported", requires=_DOMAIN_METADATA.name),
    Feature(CLUSTERING, _no_metadata, "always", requires=_DOMAIN_METADATA.name),
    *(
        Feature(
            f"{_ICEBERG}V{i}", _property(f"delta.enableIcebergCompatV{i}"), "inactive", reason=_OF_ICEBERG
        )
        for i in (1, 2, 3)
    ),
    _PARTITION_COLUMNS_IN_FILES,
    _CHECKPOINT_PROTECTION,
    _unwritable("coordinatedCommits-preview", "A service, not the file system, decides who commits."),
    _DELETION_VECTORS,
    _TYPE_WIDENING,
    # The two are alike, and a table that has the older one does not get the other by itself.
    _TYPE_WIDENING_PREVIEW,
    Feature("variantType", _HAS_VARIANTS, "always", for_readers=True, preview="variantType-preview"),
    Feature("variantType-preview", _no_metadata, "always", for_readers=True),
    _shredding("variantShredding", _property("delta.enableVariantShredding"), "variantShredding-preview"),
    _shredding("variantShredding-preview"),
    _unreadable("catalogManaged", "A catalog decides which commits count, and deltaflow cannot ask it."),
    _unreadable("geospatial", "deltaflow lacks the types geometry and geography."),
)
FEATURES = {feature.name: feature for feature in _LISTED}


def check_readable(protocol: Protocol, metadata: Metadata | None, table: str, version: int) -> None:
    """UnsupportedFeatureError naming what a reader of the table needs and deltaflow lacks.

    `metadata` is None for a protocol that stands alone in a commit.
    """
    missing = list(_missing_for_reading(protocol, metadata))
    if missing:
        is_known = 1 <= protocol.min_reader_version <= NEWEST_READER_VERSION
        raise UnsupportedFeatureError(
            f"deltaflow cannot read the table {table}: it needs {', '.join(missing)} (protocol: reader "
            f"version {protocol.min_reader_version}). Read it with a Delta implementation that "
            f"has this, or drop the feature from the table there.{_reasons(missing)}",
            features=missing,
            error_class=None if is_known else "DELTA_INVALID_PROTOCOL_VERSION",
            table=table,
            version=version,
        )
    if metadata is not None:
        check_type_changes(metadata.schema_string, table, version)


def check_writable(protocol: Protocol, metadata: Metadata, table: str, version: int | None = None) -> None:
    """UnsupportedFeatureError naming what a writer of the table needs and deltaflow lacks."""
    missing = sorted({*_missing_for_reading(protocol, metadata), *_missing_for_writing(protocol, metadata)})
    if missing:
        raise UnsupportedFeatureError(
            f"deltaflow cannot write the table {table}: it needs {', '.join(missing)} (protocol: writer "
            f"version {protocol.min_writer_version}). Write it with a Delta implementation that "
            f"has this, or drop the feature from the table there.{_reasons(missing)}",
            features=missing,
            error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            table=table,
            version=version,
        )


def is_append_only(metadata: Metadata) -> bool:
    """Whether commits may not remove data (PROTOCOL.md, "Append-only Tables")."""
    return _APPEND_ONLY.is_active(metadata)


def has_domain_metadata(protocol: Protocol) -> bool:
    """Whether commits may hold domainMetadata (PROTOCOL.md, "Domain Metadata")."""
    return _DOMAIN_METADATA.name in supported_features(protocol)


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every commit carries its timestamp (PROTOCOL.md, "In-Commit Timestamps")."""
    return _IN_COMMIT_TIMESTAMP.name in supported_features(protocol) and _IN_COMMIT_TIMESTAMP.is_active(
        metadata
    )


def may_write_deletion_vectors(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether writers may mark rows as deleted (PROTOCOL.md, "Deletion Vectors")."""
    return _DELETION_VECTORS.name in supported_features(protocol) and _DELETION_VECTORS.is_active(metadata)


def has_v2_checkpoints(protocol: Protocol) -> bool:
    """Whether the table may have V2 checkpoints, and not multi-part ones (PROTOCOL.md, "V2 Checkpoint")."""
    return _V2_CHECKPOINT.name in supported_features(protocol)


def has_partition_columns_in_files(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new data files hold the partition columns: by the feature materializePartitionColumns they have
    to, by the property delta.writePartitionColumnsToParquet they should."""
    if _PARTITION_COLUMNS_IN_FILES.name in supported_features(protocol):
        return True
    return _WRITES_PARTITION_COLUMNS(metadata)


def has_column_defaults(protocol: Protocol) -> bool:
    """Whether columns may get default values (PROTOCOL.md, "Default Columns")."""
    return _COLUMN_DEFAULTS.name in supported_features(protocol)


def has_generated_columns(protocol: Protocol) -> bool:
    """Whether writers see to the values of generated columns (PROTOCOL.md, "Generated Columns")."""
    return "generatedColumns" in supported_features(protocol)


def columns_with_defaults(metadata: Metadata) -> dict[str, str]:
    """The defaults of the table's columns, as SQL, by the columns' names."""
    if CURRENT_DEFAULT not in (metadata.schema_string or ""):
        return {}
    schema = _schema_json(metadata)
    fields = schema.get("fields") or () if isinstance(schema, dict) else ()
    return {
        field["name"]: field["metadata"][CURRENT_DEFAULT]
        for field in fields
        if CURRENT_DEFAULT in (field.get("metadata") or {})
    }


def protects_checkpoints(protocol: Protocol) -> bool:
    """Whether the oldest checkpoints of the log may have to stay (the feature checkpointProtection)."""
    return _CHECKPOINT_PROTECTION.name in supported_features(protocol)


def records_type_changes(protocol: Protocol) -> bool:
    """Whether the metadata has to record each change of a column's type (PROTOCOL.md, "Type Widening")."""
    names = {_TYPE_WIDENING.name, _TYPE_WIDENING_PREVIEW.name}
    return not supported_features(protocol).isdisjoint(names)


def widens_types(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether types of columns may grow. Tables with the preview alone would need the version of each change
    in their metadata, which is not known before the commit. Those with Iceberg's features allow some changes
    alone."""
    supported = supported_features(protocol)
    return (
        _ENABLES_TYPE_WIDENING(metadata)
        and _TYPE_WIDENING.name in supported
        and not any(name.startswith(_ICEBERG) for name in supported)
    )


def needed_features(metadata: Metadata, present: Collection[str]) -> set[str]:
    """The features that the metadata asks for, of a protocol that has, or gets, those `present`."""
    return {
        feature.name
        for feature in FEATURES.values()
        if feature.is_active(metadata) and feature.preview not in present
    }


def asks_for_v2_checkpoints(metadata: Metadata) -> bool:
    """Whether the table's checkpoints are to be V2 ones."""
    return _V2_CHECKPOINT.is_active(metadata)


def required_features(name: str) -> set[str]:
    """The features that protocols with this one have, too."""
    required = FEATURES[name].requires
    return set() if required is None else {required}


def listed_features(protocol: Protocol) -> set[str]:
    """The features that the protocol lists, for readers or writers."""
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def supported_features(protocol: Protocol) -> set[str]:
    """The features that the protocol lists or its version implies (PROTOCOL.md, "Supported Features")."""
    if protocol.min_writer_version == NEWEST_WRITER_VERSION:
        return listed_features(protocol)
    return {
        feature.name
        for feature in FEATURES.values()
        if feature.legacy_writer is not None
        and feature.legacy_writer <= protocol.min_writer_version
        and (not feature.for_readers or protocol.min_reader_version >= LEGACY_READER_OF_COLUMN_MAPPING)
    }


def _missing_for_reading(protocol: Protocol, metadata: Metadata | None) -> Iterator[str]:
    version = protocol.min_reader_version
    if not 1 <= version <= NEWEST_READER_VERSION:
        yield f"reader version {version}"
    if version >= NEWEST_READER_VERSION:
        for name in protocol.reader_features or ():
            if name not in FEATURES or not FEATURES[name].is_readable(metadata):
                yield name
    # The property has no meaning where the protocol lacks the feature, but some writers follow it.
    is_mapped = metadata is not None and _COLUMN_MAPPING.is_active(metadata)
    if is_mapped and _COLUMN_MAPPING.name not in supported_features(protocol):
        yield _COLUMN_MAPPING.name


def _reasons(missing: Iterable[str]) -> str:
    reasons = {FEATURES[name].reason for name in missing if name in FEATURES}
    return "".join(f" {reason}" for reason in sorted(reasons) if reason)


def _missing_for_writing(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    version = protocol.min_writer_version
    if not 1 <= version <= NEWEST_WRITER_VERSION:
        yield f"writer version {version}"
    listed = protocol.writer_features or () if version == NEWEST_WRITER_VERSION else ()
    for name in listed:
        if name not in FEATURES or FEATURES[name].writes == "never":
            yield name
    # Active features count even where the protocol does not list them: the table's owner asked for them.
    supported = supported_features(protocol)
    for feature in FEATURES.values():
        if feature.writes == "always" or (feature.writes == "supported" and feature.name in supported):
            continue
        if feature.is_active(metadata):
            yield feature.name


def _schema_json(metadata: Metadata) -> Any:
    try:
        return decode_json(metadata.schema_string or "null")
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


def _types(schema: Any) -> Iterator[str]:
    """The names of all atomic types in a schema's JSON."""
    for field in _fields(schema):
        yield from _atoms(field.get("type"))


def _atoms(data_type: Any) -> Iterator[str]:
    if isinstance(data_type, str):
        yield data_type
    elif isinstance(data_type, dict):
        yield from _atoms(data_type.get("elementType"))
        yield from _atoms(data_type.get("keyType"))
        yield from _atoms(data_type.get("valueType"))
