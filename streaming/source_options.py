"""Options and settings of the streaming source, with the names and values of delta-spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from deltaflow.batch.options import boolean_option, option
from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.log.files.data_skipping import Predicate
from deltaflow.log.protocol.properties import (
    STREAMING_OFFSET_VALIDATION_ENABLED,
    STREAMING_TRAILING_COMMIT_VALIDATION_ENABLED,
    STREAMING_TYPE_CHANGES_ALLOWED,
    STREAMING_TYPE_CHANGES_TRACKED,
    STREAMING_TYPE_CHANGES_UNCHECKED,
    STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES,
    STREAMING_UNSAFE_NULLABILITY_CHANGE,
    STREAMING_UNSAFE_PARTITION_COLUMN_CHANGES,
    STREAMING_UNSAFE_SCHEMA_CHANGES_AT_START,
    TIMESTAMP_OUT_OF_RANGE_ENABLED,
    size_bytes,
)
from deltaflow.spark.expressions.java_regex import regex_fault
from deltaflow.spark.expressions.timestamps import timestamp_of_text
from deltaflow.streaming.messages import SourceFilter
from deltaflow.streaming.tracking_options import NAMES as TRACKING_NAMES
from deltaflow.streaming.tracking_options import TrackingOptions, tracking_options, with_given

DEFAULT_MAX_FILES_PER_TRIGGER = 1000
_LOG = logging.getLogger(__name__)
_LARGEST_INT = 2**31 - 1
_LARGEST_LONG = 2**63 - 1

_TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
_CHANGE_FEED = ("readChangeFeed", "readChangeData")
# Options that would change which rows come, by what they need: they are refused, not ignored.
_NEEDS = {
    "withEventTimeOrder": "the event time order of the initial snapshot",
    "computeUpdates": "all files of a commit in one batch",
    "netChanges": "all commits of a range in one batch",
}
_KNOWN = (
    "path",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
    "ignoreDeletes",
    "ignoreChanges",
    "ignoreFileDeletion",
    "skipChangeCommits",
    "excludeRegex",
    "failOnDataLoss",
    "sourceFilter",
    *TRACKING_NAMES,
    *_CHANGE_FEED,
    *_NEEDS,
)


@dataclass(frozen=True)
class SourceOptions:
    """The source's options and settings, checked; None means not set."""

    max_files_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_rows_per_trigger: int | None
    starting_version: int | str | None
    """A version, or "latest"."""
    starting_timestamp_ms: int | None
    ending_version: int | None
    ending_timestamp_ms: int | None
    ignore_deletes: bool
    ignore_changes: bool
    skip_change_commits: bool
    exclude_regex: str | None
    fail_on_data_loss: bool
    source_filter: str | None
    source_predicate: Predicate | None
    """The part of the filter that files can be chosen by (see deltaflow.log.files.data_skipping)."""
    validate_offsets: bool
    validate_trailing_commit: bool
    allow_start_out_of_range: bool
    unsafe_schema_at_start: bool
    unsafe_partition_columns: bool
    unsafe_nullability: bool
    unsafe_mapping: bool = False
    """Whether renamed and dropped columns are passed over, without a schema log."""
    reads_widened: bool = True
    """Whether a type may be widened on the way of the stream."""
    asks_for_widened: bool = False
    """Whether that needs a schema log, and so consent, even without other changes."""
    read_change_feed: bool = False
    """Whether the stream reads change rows; it passes over nothing then, and ignores the options that say so.
    """
    tracking: TrackingOptions = field(default_factory=TrackingOptions)

    @property
    def has_start(self) -> bool:
        """Whether the stream begins at a version, and not with a snapshot."""
        return self.starting_version is not None or self.starting_timestamp_ms is not None

    def limits(self) -> dict[str, int | None]:
        """The limits of a batch by the fields of Limits; by default a number of files."""
        limits = (self.max_files_per_trigger, self.max_bytes_per_trigger, self.max_rows_per_trigger)
        if limits == (None, None, None):
            limits = (DEFAULT_MAX_FILES_PER_TRIGGER, None, None)
        return dict(zip(("files", "bytes", "rows"), limits, strict=True))

    @property
    def reads_stats(self) -> bool:
        """Whether files are chosen by their statistics."""
        return self.max_rows_per_trigger is not None or self.source_predicate is not None


def check_load_options(options: Mapping[str, str]) -> None:
    """Refuses, when a stream is defined, options that deltaflow lacks or that no stream can have."""
    time_travel = [name for name in _TIME_TRAVEL if option(options, name) is not None]
    if time_travel:
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", options=", ".join(time_travel)
        )
    reads_change_feed(options)
    asked = [name for name in _NEEDS if (option(options, name) or "false").lower() != "false"]
    for name in asked:
        raise DeltaUnsupportedOperationException(
            f"streaming with option {name} needs {_NEEDS[name]}, which deltaflow does not support yet. "
            "Remove it",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )


def reads_change_feed(options: Mapping[str, str]) -> bool:
    """Whether the options ask for change rows; DELTA_ILLEGAL_OPTION for a value that is no boolean."""
    asked = [boolean_option(options, name) for name in _CHANGE_FEED]
    return any(asked)


def source_options(
    options: Mapping[str, str],
    settings: Mapping[str, str],
    source_filter: SourceFilter | None = None,
    metadata_path: str = "",
) -> SourceOptions:
    """Parses the options of a readStream when its query starts.

    `source_filter` is the option sourceFilter as Spark has parsed it, `metadata_path` the directory of the
    source below its query's checkpoint. Raises DELTA_ILLEGAL_OPTION for a wrong
    value.
    """
    unknown = sorted(name for name in options if name.lower() not in {known.lower() for known in _KNOWN})
    if unknown:
        _LOG.info("options that the streaming source of Delta does not know: %s", ", ".join(unknown))
    starting_version = _starting_version(options)
    ending_version = _number(options, "endingVersion", 0, _LARGEST_LONG, _VERSION)
    if starting_version is not None and option(options, "startingTimestamp") is not None:
        raise DeltaIllegalArgumentException(error_class="DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET")
    if ending_version is not None and option(options, "endingTimestamp") is not None:
        raise DeltaIllegalArgumentException(error_class="DELTA_MULTIPLE_CDC_BOUNDARY", boundary="ending")
    ignores_file_deletion = boolean_option(options, "ignoreFileDeletion")
    if ignores_file_deletion:
        _LOG.warning(
            "The option ignoreFileDeletion is deprecated. Use ignoreDeletes for commits that only delete, "
            "ignoreChanges or skipChangeCommits for commits that change data."
        )
    return SourceOptions(
        max_files_per_trigger=_number(
            options, "maxFilesPerTrigger", 1, _LARGEST_INT, "must be a positive integer"
        ),
        max_bytes_per_trigger=_bytes(options),
        max_rows_per_trigger=_number(
            options, "maxRowsPerTrigger", 1, _LARGEST_LONG, "must be a positive integer"
        ),
        starting_version=starting_version,
        starting_timestamp_ms=_timestamp_ms(options, "startingTimestamp"),
        ending_version=ending_version,
        ending_timestamp_ms=_timestamp_ms(options, "endingTimestamp"),
        ignore_deletes=boolean_option(options, "ignoreDeletes"),
        ignore_changes=boolean_option(options, "ignoreChanges") or ignores_file_deletion,
        skip_change_commits=boolean_option(options, "skipChangeCommits"),
        exclude_regex=_regex(options),
        fail_on_data_loss=option(options, "failOnDataLoss") is None
        or boolean_option(options, "failOnDataLoss"),
        source_filter=option(options, "sourceFilter"),
        source_predicate=_predicate(options, source_filter),
        validate_offsets=STREAMING_OFFSET_VALIDATION_ENABLED.of(settings),
        validate_trailing_commit=STREAMING_TRAILING_COMMIT_VALIDATION_ENABLED.of(settings),
        allow_start_out_of_range=TIMESTAMP_OUT_OF_RANGE_ENABLED.of(settings),
        unsafe_schema_at_start=STREAMING_UNSAFE_SCHEMA_CHANGES_AT_START.of(settings),
        unsafe_partition_columns=STREAMING_UNSAFE_PARTITION_COLUMN_CHANGES.of(settings),
        unsafe_nullability=STREAMING_UNSAFE_NULLABILITY_CHANGE.of(settings),
        unsafe_mapping=STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES.of(settings),
        reads_widened=STREAMING_TYPE_CHANGES_ALLOWED.of(settings),
        asks_for_widened=STREAMING_TYPE_CHANGES_TRACKED.of(settings)
        and not STREAMING_TYPE_CHANGES_UNCHECKED.of(settings),
        read_change_feed=reads_change_feed(options),
        tracking=tracking_options(options, settings, metadata_path),
    )


_FIELDS = {
    "maxFilesPerTrigger": "max_files_per_trigger",
    "maxBytesPerTrigger": "max_bytes_per_trigger",
    "maxRowsPerTrigger": "max_rows_per_trigger",
    "startingVersion": "starting_version",
    "endingVersion": "ending_version",
    "ignoreDeletes": "ignore_deletes",
    "ignoreChanges": "ignore_changes",
    "ignoreFileDeletion": "ignore_changes",
    "skipChangeCommits": "skip_change_commits",
    "failOnDataLoss": "fail_on_data_loss",
    **dict.fromkeys(_CHANGE_FEED, "read_change_feed"),
}


def options_without_spark(given: Mapping[str, str], recorded: SourceOptions | None = None) -> SourceOptions:
    """The options that a query has recorded, with the given ones in their place; starts no JVM.

    Raises DELTA_ILLEGAL_OPTION for a wrong value and DELTA_UNSUPPORTED_OPTION for an option that only Spark
    can read (`sourceFilter`, `excludeRegex`, starting and ending times) and that has another value than the
    recorded one.
    """
    check_load_options(given)
    fields = {own for name, own in _FIELDS.items() if option(given, name) is not None}
    known = {name: value for name in _FIELDS if (value := option(given, name)) is not None}
    parsed = source_options(known, {})
    base = parsed if recorded is None else recorded
    for name, text in (("sourceFilter", base.source_filter), ("excludeRegex", base.exclude_regex)):
        if option(given, name) not in (None, text):
            raise _needs_spark(name)
    for name in ("startingTimestamp", "endingTimestamp"):
        if option(given, name) is not None:
            raise _needs_spark(name)
    tracking = with_given(base.tracking, given)
    return replace(base, tracking=tracking, **{name: getattr(parsed, name) for name in fields})


def _needs_spark(name: str) -> DeltaUnsupportedOperationException:
    return DeltaUnsupportedOperationException(
        f"The option {name} can only be read by a running Spark. Leave it out: a query of deltaflow records "
        "its own in its checkpoint",
        error_class="DELTA_UNSUPPORTED_OPTION",
    )


_VERSION = "must be greater than or equal to zero"


def _starting_version(options: Mapping[str, str]) -> int | str | None:
    if option(options, "startingVersion") == "latest":
        return "latest"
    return _number(options, "startingVersion", 0, _LARGEST_LONG, _VERSION)


def _number(options: Mapping[str, str], name: str, least: int, most: int, explain: str) -> int | None:
    value = option(options, name)
    if value is None:
        return None
    # Like Java, and unlike Python's int(), allow no blanks and no underscores.
    if re.fullmatch(r"[+-]?[0-9]+", value) is None or not least <= int(value) <= most:
        raise _illegal(value, name, explain)
    return int(value)


def _bytes(options: Mapping[str, str]) -> int | None:
    value = option(options, "maxBytesPerTrigger")
    if value is None:
        return None
    with suppress(ValueError):
        if (size := size_bytes(value)) <= _LARGEST_LONG:
            return size
    raise _illegal(value, "maxBytesPerTrigger", "must be a size configuration such as '10g'")


def _timestamp_ms(options: Mapping[str, str], name: str) -> int | None:
    value = option(options, name)
    return None if value is None else timestamp_of_text(value).ms


def _regex(options: Mapping[str, str]) -> str | None:
    pattern = option(options, "excludeRegex")
    if pattern is None:
        return None
    fault = regex_fault(pattern)
    if fault is not None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_REGEX_OPT_SYNTAX_ERROR", option="excludeRegex", reason=fault
        )
    return pattern


def _predicate(options: Mapping[str, str], read: SourceFilter | None) -> Predicate | None:
    value = option(options, "sourceFilter")
    if value is None or read is None:
        return None
    if read.fault is not None:
        raise _illegal(value, "sourceFilter", f"must be a predicate over the table's columns: {read.fault}")
    return read.predicate


def _illegal(value: str, name: str, explain: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        error_class="DELTA_ILLEGAL_OPTION", input=value, name=name, explain=explain
    )
