"""Table properties and session settings: names, defaults, values (delta-spark's DeltaConfigs)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.protocol.column_names import column_paths
from deltaflow.log.protocol.intervals import interval_ms

CONSTRAINTS_PREFIX = "delta.constraints."
"""Of the properties that are CHECK constraints, in any case: the name follows it."""
_Value = TypeVar("_Value")
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

    def of(self, configuration: Mapping[str, str], table: str | None = None) -> _Value:
        """The value, or the default; DeltaIllegalArgumentException naming a wrong value and whose it is."""
        text = configuration.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise DeltaIllegalArgumentException(
                f"{self.name} is {text!r}; it needs to be {self.needs}.",
                error_class=(
                    "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED"
                    if self.name.startswith("delta.")
                    else "DELTA_ILLEGAL_OPTION"
                ),
                table=table,
            ) from error


def _boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


def _integer(text: str) -> int:
    """As Java reads an int: no blanks, no underscores."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = _integer(text)
        if number < least:
            raise ValueError(text)
        return number

    return parse


def _between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = _integer(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return parse


def _ratio(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def size_bytes(text: str) -> int:
    """A size above 0, as Spark reads it: 1048576, 1m and 1MB are the same. ValueError for another text."""
    match = re.fullmatch(r"([0-9]+)(?:([kmgtp])?b?)", text.strip().lower())
    size = 0 if match is None else int(match[1]) * 1024 ** "_kmgtp".index(match[2] or "_")
    if size == 0:
        raise ValueError(text)
    return size


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
CHECKPOINT_INTERVAL = Property("delta.checkpointInterval", 10, _at_least(1), "a positive integer")
CHECKPOINT_POLICY = Property("delta.checkpointPolicy", "classic", _one_of("classic", "v2"), "classic or v2")
CHECKPOINT_WRITE_STATS_AS_JSON = _flag("delta.checkpoint.writeStatsAsJson", default=True)
CHECKPOINT_WRITE_STATS_AS_STRUCT = _flag("delta.checkpoint.writeStatsAsStruct", default=True)
CHECKPOINTS_PROTECTED_BEFORE = Property(
    "delta.requireCheckpointProtectionBeforeVersion", 0, _at_least(0), "an integer, 0 or larger"
)
COLUMN_MAPPING_MODE = Property(
    "delta.columnMapping.mode", "none", _one_of("none", "id", "name"), "none, id or name"
)
COLUMN_MAPPING_MAX_ID = Property(
    "delta.columnMapping.maxColumnId", 0, _between(0, 2**31 - 1), "an integer from 0 to 2147483647"
)
DATA_SKIPPING_NUM_INDEXED_COLS = Property(
    "delta.dataSkippingNumIndexedCols", 32, _at_least(-1), "an integer, -1 or larger"
)
DELETED_FILE_RETENTION_MS = Property("delta.deletedFileRetentionDuration", _days(7), interval_ms, _INTERVAL)
DROP_FEATURE_RETENTION_MS = Property(
    "delta.dropFeatureTruncateHistory.retentionDuration", _days(1), interval_ms, _INTERVAL
)
ENABLE_ROW_TRACKING = _flag("delta.enableRowTracking", default=False)
ROW_TRACKING_SUSPENDED = _flag("delta.rowTrackingSuspended", default=False)
MATERIALIZED_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
MATERIALIZED_ROW_COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
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

AUTO_COMPACT_ENABLED: Property[bool | None] = Property(
    "spark.databricks.delta.autoCompact.enabled", None, _boolean, "true or false"
)
AUTO_COMPACT_MAX_FILE_SIZE = Property(
    "spark.databricks.delta.autoCompact.maxFileSize", 128 << 20, _at_least(0), "a number of bytes"
)
AUTO_COMPACT_MIN_FILE_SIZE: Property[int | None] = Property(
    "spark.databricks.delta.autoCompact.minFileSize", None, _at_least(0), "a number of bytes"
)
AUTO_COMPACT_MIN_NUM_FILES = Property(
    "spark.databricks.delta.autoCompact.minNumFiles", 50, _at_least(0), "an integer, 0 or larger"
)
ALLOW_ARBITRARY_PROPERTIES = _flag("spark.databricks.delta.allowArbitraryProperties.enabled", default=False)
CONVERT_METADATA_CHECK_ENABLED = _flag("spark.databricks.delta.convert.metadataCheck.enabled", default=True)
CHECKPOINT_PART_SIZE: Property[int | None] = Property(
    "spark.databricks.delta.checkpoint.partSize", None, _at_least(1), "a positive integer"
)
CONSTRAINTS_ASSUME_DROP_IF_EXISTS = _flag(
    "spark.databricks.delta.constraints.assumesDropIfExists.enabled", default=False
)
DYNAMIC_PARTITION_OVERWRITE_ENABLED = _flag(
    "spark.databricks.delta.dynamicPartitionOverwrite.enabled", default=True
)
CLUSTERING_MIN_CUBE_SIZE = Property(
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold",
    100 << 30,
    _at_least(0),
    "a number of bytes",
)
CLUSTERING_TARGET_CUBE_SIZE = Property(
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize",
    150 << 30,
    _at_least(0),
    "a number of bytes",
)
FAST_DROP_FEATURE_ENABLED = _flag(
    "spark.databricks.delta.tableFeatures.fastDropFeature.enabled", default=True
)
MAX_COMMIT_ATTEMPTS: Property[int | None] = Property(
    "spark.databricks.delta.maxCommitAttempts", None, _at_least(1), "a positive integer"
)
OPTIMIZE_MAX_DELETED_ROWS_RATIO = Property(
    "spark.databricks.delta.optimize.maxDeletedRowsRatio", 0.05, _ratio, "a number from 0 to 1"
)
OPTIMIZE_MAX_FILE_SIZE = Property(
    "spark.databricks.delta.optimize.maxFileSize", 1 << 30, _at_least(0), "a number of bytes"
)
OPTIMIZE_MIN_FILE_SIZE = Property(
    "spark.databricks.delta.optimize.minFileSize", 1 << 30, _at_least(0), "a number of bytes"
)
MERGE_MATERIALIZE_SOURCE = Property(
    "spark.databricks.delta.merge.materializeSource",
    "auto",
    _one_of("auto", "all", "none"),
    "auto, all or none",
)
MERGE_REPARTITION_BEFORE_WRITE = _flag(
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled", default=True
)
OPTIMIZE_WRITE_BIN_SIZE_BYTES = Property(
    "spark.databricks.delta.optimizeWrite.binSize",
    512 << 20,
    lambda text: size_bytes(f"{text}m" if text.strip().isdigit() else text),
    "a size larger than 0, such as 512 (MiB) or 512mb",
)
OPTIMIZE_WRITE_ENABLED: Property[bool | None] = Property(
    "spark.databricks.delta.optimizeWrite.enabled", None, _boolean, "true or false"
)
OPTIMIZE_ZORDER_CHECK_STATS = _flag(
    "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled", default=True
)
SYNC_IDENTITY_MAY_LOWER_MARK = _flag(
    "spark.databricks.delta.identityColumn.allowSyncIdentityToLowerHighWaterMark.enabled", default=False
)
RESTORE_PROTOCOL_DOWNGRADE_ALLOWED = _flag(
    "spark.databricks.delta.restore.protocolDowngradeAllowed", default=False
)
RETENTION_CHECK_ENABLED = _flag("spark.databricks.delta.retentionDurationCheck.enabled", default=True)
REPLACE_WHERE_CHECKS_ROWS = _flag("spark.databricks.delta.replaceWhere.constraintCheck.enabled", default=True)
REPLACE_WHERE_DATA_COLUMNS_ENABLED = _flag(
    "spark.databricks.delta.replaceWhere.dataColumns.enabled", default=True
)
IGNORE_CORRUPT_FILES = _flag("spark.sql.files.ignoreCorruptFiles", default=False)
IGNORE_MISSING_FILES = _flag("spark.sql.files.ignoreMissingFiles", default=False)
SESSION_TIME_ZONE = Property("spark.sql.session.timeZone", "UTC", str, "")
SCHEMA_AUTO_MERGE_ENABLED = _flag("spark.databricks.delta.schema.autoMerge.enabled", default=False)
STREAMING_ALLOW_SCHEMA_LOCATION_OUTSIDE_CHECKPOINT = _flag(
    "spark.databricks.delta.streaming.allowSchemaLocationOutsideCheckpointLocation", default=False
)
STREAMING_MERGE_CONSECUTIVE_SCHEMA_CHANGES = _flag(
    "spark.databricks.delta.streaming.schemaTracking.mergeConsecutiveSchemaChanges.enabled", default=True
)
STREAMING_SCHEMA_TRACKING_ENABLED = _flag(
    "spark.databricks.delta.streaming.schemaTracking.enabled", default=True
)
STREAMING_METADATA_PATH_CHECK = _flag(
    "spark.databricks.delta.streaming.schemaTracking.metadataPathCheck.enabled", default=True
)
STREAMING_OFFSET_VALIDATION_ENABLED = _flag(
    "spark.databricks.delta.streaming.offsetValidation.enabled", default=True
)
STREAMING_TRAILING_COMMIT_VALIDATION_ENABLED = _flag(
    "spark.databricks.delta.streaming.trailingCommitValidation.enabled", default=True
)
STREAMING_UNSAFE_COLUMN_MAPPING_CHANGES = _flag(
    "spark.databricks.delta.streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
    default=False,
)
STREAMING_UNSAFE_NULLABILITY_CHANGE = _flag(
    "spark.databricks.delta.streaming.unsafeReadOnNullabilityChange.enabled", default=False
)
STREAMING_UNSAFE_PARTITION_COLUMN_CHANGES = _flag(
    "spark.databricks.delta.streaming.unsafeReadOnPartitionColumnChanges.enabled", default=False
)
STREAMING_UNSAFE_SCHEMA_CHANGES_AT_START = _flag(
    "spark.databricks.delta.streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled",
    default=False,
)
STREAMING_TYPE_CHANGES_ALLOWED = _flag(
    "spark.databricks.delta.typeWidening.allowTypeChangeStreamingDeltaSource", default=True
)
STREAMING_TYPE_CHANGES_UNCHECKED = _flag(
    "spark.databricks.delta.typeWidening.bypassStreamingTypeChangeCheck", default=False
)
STREAMING_TYPE_CHANGES_TRACKED = _flag(
    "spark.databricks.delta.typeWidening.enableStreamingSchemaTracking", default=False
)
CHANGE_FEED_SCHEMA_MODE = Property(
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable",
    "endversion",
    _one_of("endversion", "latest", "legacy"),
    "endVersion, latest or legacy",
)
TIMESTAMP_OUT_OF_RANGE_ENABLED = _flag(
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", default=False
)
TIME_TRAVEL_BY_PATH_ENABLED = _flag(
    "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled", default=True
)
TXN_VERSION_AUTO_RESET_ENABLED = _flag(
    "spark.databricks.delta.write.txnVersion.autoReset.enabled", default=False
)
USER_METADATA: Property[str | None] = Property(
    "spark.databricks.delta.commitInfo.userMetadata", None, str, ""
)
WRITE_CHECKSUM_ENABLED = _flag("spark.databricks.delta.writeChecksumFile.enabled", default=True)
VACUUM_LITE_ENABLED = _flag("spark.databricks.delta.vacuum.lite.enabled", default=False)
VACUUM_LOGGING_ENABLED: Property[bool | None] = Property(
    "spark.databricks.delta.vacuum.logging.enabled", None, _boolean, "true or false"
)
CHECKPOINT_V2_FILE_FORMAT = Property(
    "spark.databricks.delta.checkpointV2.topLevelFileFormat",
    "json",
    _one_of("json", "parquet"),
    "json or parquet",
)

ENABLE_VARIANT_SHREDDING = _flag("delta.enableVariantShredding", default=False)
IGNORE_PROTOCOL_DEFAULTS = _flag("delta.ignoreProtocolDefaults", default=False)
DATA_SKIPPING_STATS_COLUMNS: Property[list[tuple[str, ...]] | None] = Property(
    "delta.dataSkippingStatsColumns",
    None,
    column_paths,
    "columns, separated by commas; names with other characters than letters, digits and _ in `backticks`",
)
DATA_SKIPPING_STRING_PREFIX_LENGTH = Property(
    "delta.dataSkippingStringPrefixLength", 32, _at_least(0), "an integer, 0 or larger"
)
AUTO_COMPACT: Property[bool | None] = Property(
    "delta.autoOptimize.autoCompact", None, _boolean, "true or false"
)
AUTO_OPTIMIZE: Property[bool | None] = Property("delta.autoOptimize", None, _boolean, "true or false")
OPTIMIZE_WRITE: Property[bool | None] = Property(
    "delta.autoOptimize.optimizeWrite", None, _boolean, "true or false"
)
RANDOMIZE_FILE_PREFIXES = _flag("delta.randomizeFilePrefixes", default=False)
RANDOM_PREFIX_LENGTH = Property(
    "delta.randomPrefixLength", 2, _between(1, 255), "an integer from 1 to 255, which names of files may have"
)
SYMLINK_MANIFEST_ENABLED = _flag("delta.compatibility.symlinkFormatManifest.enabled", default=False)
TARGET_FILE_SIZE_BYTES: Property[int | None] = Property(
    "delta.targetFileSize", None, size_bytes, "a size larger than 0, such as 134217728 or 128mb"
)

_OTHER_FLAGS = (
    "delta.castIcebergTimeType",
    "delta.enableChangeDataCapture",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableFullRetentionRollback",
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    "delta.enableInCommitTimestamps",
    "delta.enableMaterializePartitionColumnsFeature",
    "delta.enableTypeWidening",
    "delta.ignoreIcebergBucketPartition",
    "delta.writePartitionColumnsToParquet",
)
_OTHER_INTERVALS = (
    "delta.checkpointRetentionDuration",
    "delta.sampleRetentionDuration",
)
_OTHER_NUMBERS = (
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
)
_TABLE_PROPERTIES: tuple[Property[Any], ...] = (
    APPEND_ONLY,
    AUTO_COMPACT,
    AUTO_OPTIMIZE,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    CHECKPOINT_WRITE_STATS_AS_JSON,
    CHECKPOINT_WRITE_STATS_AS_STRUCT,
    CHECKPOINTS_PROTECTED_BEFORE,
    COLUMN_MAPPING_MODE,
    DATA_SKIPPING_NUM_INDEXED_COLS,
    DATA_SKIPPING_STATS_COLUMNS,
    DATA_SKIPPING_STRING_PREFIX_LENGTH,
    DELETED_FILE_RETENTION_MS,
    DROP_FEATURE_RETENTION_MS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    ENABLE_ROW_TRACKING,
    ENABLE_VARIANT_SHREDDING,
    IGNORE_PROTOCOL_DEFAULTS,
    ISOLATION_LEVEL,
    LOG_RETENTION_MS,
    OPTIMIZE_WRITE,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    ROW_TRACKING_SUSPENDED,
    SET_TRANSACTION_RETENTION_MS,
    SYMLINK_MANIFEST_ENABLED,
    TARGET_FILE_SIZE_BYTES,
    # `protocol_for` checks the values of these two.
    Property("delta.minReaderVersion", None, str, ""),
    Property("delta.minWriterVersion", None, str, ""),
    *(_flag(name, default=False) for name in _OTHER_FLAGS),
    *(Property(name, None, interval_ms, _INTERVAL) for name in _OTHER_INTERVALS),
    *(Property(name, None, _at_least(0), "an integer, 0 or larger") for name in _OTHER_NUMBERS),
)
KNOWN: Mapping[str, Property[Any]] = {known.name.lower(): known for known in _TABLE_PROPERTIES}
"""All table properties, by their names in lower case. deltaflow.log.protocol.features says which of them
activate features."""


def check_constraints(configuration: Mapping[str, str]) -> dict[str, str]:
    """The expressions of the CHECK constraints by their names, in the order of these."""
    return {
        name[len(CONSTRAINTS_PREFIX) :]: expression
        for name, expression in sorted(configuration.items())
        if name.lower().startswith(CONSTRAINTS_PREFIX)
    }
