"""Table properties and session settings: names, defaults, values (delta-spark's DeltaConfigs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.actions import Metadata
from deltaflow.log.intervals import interval_ms

_Value = TypeVar("_Value")
_SESSION_DEFAULTS = "spark.databricks.delta.properties.defaults."
_INTERVAL = (
    "a calendar interval such as '2 weeks'; months and years are not accepted (365 days may stand for a year)"
)


@dataclass(frozen=True, slots=True)
class Property(Generic[_Value]):
    """A named value in a table's configuration, or in a session's settings.

    `parse` raises ValueError for a text that is no value; `needs` ends the sentence "needs to be ...".
    """

    name: str
    default: _Value
    parse: Callable[[str], _Value]
    needs: str

    def of(self, configuration: Mapping[str, str], table: str) -> _Value:
        """The value, or the default; DeltaIllegalArgumentException naming the property and a wrong value."""
        text = configuration.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise DeltaIllegalArgumentException(
                f"{self.name} is {text!r}; it needs to be {self.needs}.",
                error_class="DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
                table=table,
            ) from error


def _boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _at_least_minus_one(text: str) -> int:
    number = int(text)
    if number < -1:
        raise ValueError(text)
    return number


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(text)
        return text.lower()

    return parse


def _flag(name: str, *, default: bool) -> Property[bool]:
    return Property(name, default, _boolean, "true or false")


def _days(days: int) -> int:
    return days * 86_400_000


APPEND_ONLY = _flag("delta.appendOnly", default=False)
CHECKPOINT_INTERVAL = Property("delta.checkpointInterval", 10, _positive, "a positive integer")
CHECKPOINT_POLICY = Property("delta.checkpointPolicy", "classic", _one_of("classic", "v2"), "classic or v2")
CHECKPOINT_WRITE_STATS_AS_JSON = _flag("delta.checkpoint.writeStatsAsJson", default=True)
CHECKPOINT_WRITE_STATS_AS_STRUCT = _flag("delta.checkpoint.writeStatsAsStruct", default=False)
DATA_SKIPPING_NUM_INDEXED_COLS = Property(
    "delta.dataSkippingNumIndexedCols", 32, _at_least_minus_one, "an integer, -1 or larger"
)
DELETED_FILE_RETENTION_MS = Property("delta.deletedFileRetentionDuration", _days(7), interval_ms, _INTERVAL)
ENABLE_EXPIRED_LOG_CLEANUP = _flag("delta.enableExpiredLogCleanup", default=True)
ISOLATION_LEVEL = Property(
    "delta.isolationLevel",
    "serializable",
    _one_of("serializable", "writeserializable"),
    "Serializable or WriteSerializable",
)
"""In lower case."""
LOG_RETENTION_MS = Property("delta.logRetentionDuration", _days(30), interval_ms, _INTERVAL)
SET_TRANSACTION_RETENTION_MS: Property[int | None] = Property(
    "delta.setTransactionRetentionDuration", None, interval_ms, _INTERVAL
)

CHECKPOINT_PART_SIZE: Property[int | None] = Property(
    "spark.databricks.delta.checkpoint.partSize", None, _positive, "a positive integer"
)
MAX_COMMIT_ATTEMPTS: Property[int | None] = Property(
    "spark.databricks.delta.maxCommitAttempts", None, _positive, "a positive integer"
)
CHECKPOINT_V2_FILE_FORMAT = Property(
    "spark.databricks.delta.checkpointV2.topLevelFileFormat",
    "json",
    _one_of("json", "parquet"),
    "json or parquet",
)

_CHECKED: Mapping[str, Property[Any]] = {
    known.name.lower(): known
    for known in (
        APPEND_ONLY,
        CHECKPOINT_INTERVAL,
        CHECKPOINT_POLICY,
        CHECKPOINT_WRITE_STATS_AS_JSON,
        CHECKPOINT_WRITE_STATS_AS_STRUCT,
        DATA_SKIPPING_NUM_INDEXED_COLS,
        DELETED_FILE_RETENTION_MS,
        ENABLE_EXPIRED_LOG_CLEANUP,
        ISOLATION_LEVEL,
        LOG_RETENTION_MS,
        SET_TRANSACTION_RETENTION_MS,
    )
}
# Their values are checked where they have their meaning.
_NAMES = {
    **{lower: known.name for lower, known in _CHECKED.items()},
    **{
        name.lower(): name
        for name in (
            "delta.columnMapping.mode",
            "delta.dataSkippingStatsColumns",
            "delta.enableChangeDataFeed",
            "delta.enableDeletionVectors",
            "delta.enableInCommitTimestamps",
            "delta.enableRowTracking",
            "delta.enableTypeWidening",
            "delta.minReaderVersion",
            "delta.minWriterVersion",
        )
    },
}
_FEATURE_PREFIX = "delta.feature."


def with_session_defaults(metadata: Metadata, session: Mapping[str, str]) -> Metadata:
    """The metadata of a new table: properties that it does not set are the session's defaults.

    Those are the settings spark.databricks.delta.properties.defaults.<property without "delta.">.
    """
    own = {name.lower() for name in metadata.configuration}
    defaults: dict[str, str] = {}
    for setting, value in session.items():
        name = "delta." + setting.removeprefix(_SESSION_DEFAULTS)
        is_known = name.lower() in _NAMES or name.startswith(_FEATURE_PREFIX)
        if setting.startswith(_SESSION_DEFAULTS) and is_known and name.lower() not in own:
            defaults[name] = value
    if not defaults:
        return metadata
    return msgspec.structs.replace(metadata, configuration={**defaults, **metadata.configuration})


def with_checked_properties(metadata: Metadata, table: str) -> Metadata:
    """The metadata with its properties' names in the usual case.

    DeltaIllegalArgumentException naming a property and its wrong value.
    """
    configuration = {_NAMES.get(name.lower(), name): value for name, value in metadata.configuration.items()}
    for name in configuration:
        if name.lower() in _CHECKED:
            _CHECKED[name.lower()].of(configuration, table)
    if configuration == metadata.configuration:
        return metadata
    return msgspec.structs.replace(metadata, configuration=configuration)
