"""The options of a stream that tracks the schema of its table (see schema_tracking)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from deltaflow.batch.options import option
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log.protocol.properties import (
    STREAMING_ALLOW_SCHEMA_LOCATION_OUTSIDE_CHECKPOINT,
    STREAMING_METADATA_PATH_CHECK,
    STREAMING_SCHEMA_TRACKING_ENABLED,
    STREAMING_TYPE_CHANGES_UNCHECKED,
    STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES,
)
from deltaflow.store import qualified_path, store_for

ALWAYS = "always"
SETTINGS = "spark.databricks.delta.streaming."


@dataclass(frozen=True)
class TrackingOptions:
    """schemaTrackingLocation and the options beside it. What is allowed is `always`, or versions as texts."""

    location: str | None = None
    """The directory that schemaTrackingLocation names, as its store knows it; None without the option."""
    tracking_id: str | None = None
    renames: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    type_changes: tuple[str, ...] = ()
    is_ignored: bool = False
    """Whether a setting lets the stream pass over changes of columns without a schema log."""
    checks_location: bool = True
    """Whether the location must lie below the checkpoint."""
    checks_path: bool = True
    """Whether the schema log must be that of the source by the directory that its entries name."""


_ALLOWING = {
    "allowSourceColumnRename": ("renames", ("allowSourceColumnRename", "allowSourceColumnRenameAndDrop")),
    "allowSourceColumnDrop": ("drops", ("allowSourceColumnDrop", "allowSourceColumnRenameAndDrop")),
    "allowSourceColumnTypeChange": ("type_changes", ("allowSourceColumnTypeChange",)),
}
"""By option, the field that it sets, and the settings of the session that set it, too."""
NAMES = ("schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId", *_ALLOWING)


def tracking_options(
    options: Mapping[str, str], settings: Mapping[str, str] | None = None, metadata_path: str = ""
) -> TrackingOptions:
    """The options of a query whose source has this directory below its checkpoint."""
    found = {} if settings is None else settings
    location = option(options, "schemaTrackingLocation") or option(options, "schemaLocation")
    if location and not STREAMING_SCHEMA_TRACKING_ENABLED.of(found):
        raise DeltaUnsupportedOperationException(
            f"The option schemaTrackingLocation is given, and {STREAMING_SCHEMA_TRACKING_ENABLED.name} is "
            "false in this session. Remove the option, or the setting.",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )
    allowed = {
        field: (*_given(options, name), *(value for key in keys for value in _set(found, key, metadata_path)))
        for name, (field, keys) in _ALLOWING.items()
    }
    if STREAMING_TYPE_CHANGES_UNCHECKED.of(found):
        allowed["type_changes"] = (ALWAYS,)
    return TrackingOptions(
        location=None if not location else store_for(qualified_path(location))[1],
        tracking_id=option(options, "streamingSourceTrackingId"),
        **allowed,
        is_ignored=STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES.of(found),
        checks_location=not STREAMING_ALLOW_SCHEMA_LOCATION_OUTSIDE_CHECKPOINT.of(found),
        checks_path=STREAMING_METADATA_PATH_CHECK.of(found),
    )


def with_given(recorded: TrackingOptions, given: Mapping[str, str]) -> TrackingOptions:
    """The recorded options of a query, with the given ones in their place."""
    new = tracking_options(given)
    changed = {
        field.name: value
        for field in fields(TrackingOptions)
        if (value := getattr(new, field.name)) != field.default
    }
    return replace(recorded, **changed)


def _given(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    value = option(options, name)
    return () if value is None else (value.lower(),)


def _set(settings: Mapping[str, str], key: str, metadata_path: str) -> list[str]:
    """What a setting allows: for all streams only always, for one checkpoint a version, too."""
    for_all = settings.get(SETTINGS + key, "").lower()
    for_one = settings.get(f"{SETTINGS}{key}.{checkpoint_key(metadata_path)}", "").lower()
    return [value for value in (for_all if for_all == ALWAYS else "", for_one) if value]


def checkpoint_key(metadata_path: str) -> str:
    """The end of the settings that are for one source of one checkpoint: a hash of its directory, as Java
    hashes a string."""
    value = 0
    units = metadata_path.encode("utf-16-le")
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "little")) & 0xFFFFFFFF
    return f"ckpt_{value - (value >> 31 << 32)}"


def check_location(tracking: TrackingOptions, metadata_path: str) -> None:
    """DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT if the schema log does not lie in the checkpoint
    of its query, with which it is copied, restored and deleted."""
    if tracking.location is None or not tracking.checks_location:
        return
    checkpoint = checkpoint_of(metadata_path)
    if place_below(checkpoint, tracking.location) is None:
        raise DeltaAnalysisException(
            error_class="DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT",
            location=tracking.location,
            checkpoint=checkpoint,
        )


def checkpoint_of(metadata_path: str) -> str:
    """The checkpoint directory of a query, as its store knows it, by the directory of one of its sources."""
    return store_for(metadata_path)[1].rsplit("/", 2)[0]


def place_below(directory: str, location: str) -> str | None:
    """The path from a directory to a location in it ("" for itself); None if it is elsewhere."""
    root, inside = f"{_normal(directory)}/", f"{_normal(location)}/"
    return inside.removeprefix(root).rstrip("/") if inside.startswith(root) else None


def _normal(path: str) -> str:
    scheme, separator, rest = path.rpartition("://")
    return scheme + separator + posixpath.normpath(rest)
