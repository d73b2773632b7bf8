"""Options of the streaming source and sink, as streaming users of Delta know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltaflow.batch.options import boolean_option, option, unsupported_options
from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException

DEFAULT_MAX_FILES_PER_TRIGGER = 1000
_TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
# Each would change which rows come; so none is passed over in silence.
_NOT_YET = (
    "maxBytesPerTrigger",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
    "ignoreFileDeletion",
    "excludeRegex",
    "readChangeFeed",
    "readChangeData",
    "schemaTrackingLocation",
    "schemaLocation",
    "allowSourceColumnRename",
    "allowSourceColumnDrop",
    "allowSourceColumnTypeChange",
    "withEventTimeOrder",
)


@dataclass(frozen=True)
class SourceOptions:
    """The source's options, checked."""

    max_files_per_trigger: int
    ignore_deletes: bool
    ignore_changes: bool
    skip_change_commits: bool


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parses the options of a readStream; raises one of ours for a bad or unsupported one."""
    time_travel = [name for name in _TIME_TRAVEL if option(options, name) is not None]
    if time_travel:
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", options=", ".join(time_travel)
        )
    unsupported_options(options, _NOT_YET, "streaming")
    if (option(options, "failOnDataLoss") or "true").lower() == "false":
        raise DeltaUnsupportedOperationException(
            "streaming with option failOnDataLoss=false is not supported yet. Remove it",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )
    return SourceOptions(
        _max_files(options),
        boolean_option(options, "ignoreDeletes"),
        boolean_option(options, "ignoreChanges"),
        boolean_option(options, "skipChangeCommits"),
    )


def _max_files(options: Mapping[str, str]) -> int:
    value = option(options, "maxFilesPerTrigger")
    if value is None:
        return DEFAULT_MAX_FILES_PER_TRIGGER
    # Spark's ReadLimit.maxFiles takes a Java int.
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 2**31:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=value,
            name="maxFilesPerTrigger",
            explain="must be a positive integer",
        )
    return int(value)
