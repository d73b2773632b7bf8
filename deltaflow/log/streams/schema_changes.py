"""What changes between two versions of a table's metadata, as a stream that tracks its schema sees it.

Sources: delta-spark's DeltaSourceMetadataEvolutionSupport and DeltaColumnMapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from pyspark.sql import types as T

from deltaflow.log.protocol.actions import Metadata, Protocol
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.data_types import inner_fields, is_nested, transformed_schema, with_metadata
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION, schema_from_string
from deltaflow.log.protocol.schema_reading import Path, dotted, obstacle_to_reading
from deltaflow.log.protocol.type_widening import fits_widened
from deltaflow.log.streams.schema_log import TrackedMetadata, metadata_fields, protocol_fields

_OF_WRITERS = (GENERATION_EXPRESSION, "delta.identity.")
"""Metadata of columns that tell a reader nothing; identity columns change theirs with each write."""
_TABLE_PROPERTY = "delta."


def has_changed(tracked: TrackedMetadata, metadata: Metadata | None, protocol: Protocol | None) -> bool:
    """Whether actions of a later version say something else than the entry: schema, partition columns,
    properties of Delta, or protocol. None stands for an action that a commit does not have.
    """
    return _metadata_has_changed(tracked, metadata) or _protocol_has_changed(tracked, protocol)


def _metadata_has_changed(tracked: TrackedMetadata, new: Metadata | None) -> bool:
    if new is None:
        return False
    old = tracked.metadata
    if old.partition_columns != new.partition_columns:
        return True
    if _properties(old) != _properties(new):
        return True
    return old.schema_string != new.schema_string and _read_schema(old) != _read_schema(new)


def _properties(metadata: Metadata) -> dict[str, str]:
    return {name: value for name, value in metadata.configuration.items() if name.startswith(_TABLE_PROPERTY)}


def _read_schema(metadata: Metadata) -> T.StructType:
    schema = schema_from_string(metadata.schema_string)
    return with_metadata(schema, lambda name: not name.startswith(_OF_WRITERS))


def _protocol_has_changed(tracked: TrackedMetadata, new: Protocol | None) -> bool:
    old = tracked.protocol
    return new is not None and (old is None or _comparable(old) != _comparable(new))


def _comparable(protocol: Protocol) -> tuple[object, ...]:
    features = (protocol.reader_features, protocol.writer_features)
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    return (*versions, *(None if names is None else frozenset(names) for names in features))


def merged_ahead(tracked: TrackedMetadata, commits: Iterable[Commit]) -> TrackedMetadata | None:
    """The entry with all changes of the commits from its own version on that have no files; None if it stays.

    No row is read between these changes, so that they are one to a stream. `commits` begin with that of the
    entry's version and have no gap.
    """
    merged = tracked
    for commit in commits:
        has_files = commit.adds or commit.removes or commit.cdc
        if has_files or (commit.metadata is None and commit.protocol is None):
            break
        merged = with_changes(merged, commit.metadata, commit.protocol, commit.version)
    return None if merged.delta_commit_version == tracked.delta_commit_version else merged


def with_changes(
    tracked: TrackedMetadata, metadata: Metadata | None, protocol: Protocol | None, version: int
) -> TrackedMetadata:
    """The entry with the actions of a later version in place of its own."""
    changed = {"delta_commit_version": version, "previous_metadata_seq_num": None}
    if metadata is not None:
        changed |= metadata_fields(metadata)
    if protocol is not None:
        changed |= protocol_fields(protocol)
    return msgspec.structs.replace(tracked, **changed)


class ColumnChanges(NamedTuple):
    """How the columns of an older schema have come into a newer one, by their paths of names."""

    renamed: list[tuple[Path, Path]]
    dropped: list[Path]
    widened: list[tuple[Path, T.DataType, T.DataType]]
    """Columns of another type, with the old and the new one."""

    def __str__(self) -> str:
        parts = [f"renamed '{dotted(old)}' to '{dotted(new)}'" for old, new in self.renamed]
        parts += [f"dropped '{dotted(path)}'" for path in self.dropped]
        parts += [
            f"changed the type of '{dotted(path)}' from {old.simpleString()} to {new.simpleString()}"
            for path, old, new in self.widened
        ]
        return ", ".join(parts)


def column_changes(old: T.StructType, new: T.StructType) -> ColumnChanges:
    """The changes that a stream goes on after only if it is allowed to. New columns are none of them.

    Columns are the same if their physical names are (which of a table without column mapping are their own).
    """
    changes = ColumnChanges([], [], [])
    for path, field, kept_path, kept in _pairs(old, new, (), ()):
        if kept is None:
            changes.dropped.append(path)
            continue
        if field.name != kept.name:
            changes.renamed.append((path, kept_path))
        if not (is_nested(field.dataType) or is_nested(kept.dataType)) and field.dataType != kept.dataType:
            changes.widened.append((kept_path, field.dataType, kept.dataType))
    return changes


def _pairs(
    old: T.DataType, new: T.DataType, path: Path, new_path: Path
) -> Iterator[tuple[Path, T.StructField, Path, T.StructField | None]]:
    """Each column of the older type, and the one that it has become; what is within a dropped one is none."""
    by_name = {physical_name(field): field for field in inner_fields(new)}
    for field in inner_fields(old):
        kept = by_name.get(physical_name(field))
        inside, new_inside = (*path, field.name), (*new_path, field.name if kept is None else kept.name)
        yield inside, field, new_inside, kept
        if kept is not None:
            yield from _pairs(field.dataType, kept.dataType, inside, new_inside)


def obstacle_to_evolution(old: T.StructType, new: T.StructType, *, may_widen: bool) -> str | None:
    """Why no stream can go on from the older schema with the newer one, in words; None if one may.

    That are changes of a type that is not widened, and columns that no longer take nulls.
    """
    return obstacle_to_reading(
        _physical(new),
        _physical(old),
        fits=lambda data, reader: data == reader or (may_widen and fits_widened(data, reader)),
        may_omit_columns=True,
        may_add_columns=True,
    )


def _physical(schema: T.StructType) -> T.StructType:
    return transformed_schema(
        schema, field=lambda field: T.StructField(physical_name(field), field.dataType, field.nullable)
    )
