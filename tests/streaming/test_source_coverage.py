"""Every option, error and setting of delta-spark's streaming source has a test that drives a query.

A test says by the marker `covers` which ones it drives, and has to use each name: as an option that it sets,
or a code that it compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

OPTIONS = [
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "startingVersion",
    "startingTimestamp",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "ignoreFileDeletion",
    "excludeRegex",
    "failOnDataLoss",
    "readChangeFeed",
    "readChangeData",
    "schemaTrackingLocation",
    "schemaLocation",
    "streamingSourceTrackingId",
    "allowSourceColumnRename",
    "allowSourceColumnDrop",
    "allowSourceColumnTypeChange",
    "versionAsOf",
    "timestampAsOf",
    "endingVersion",
    "endingTimestamp",
    "withEventTimeOrder",
    "schema",
    "path",
]
OWN_OPTIONS = ["maxRowsPerTrigger", "sourceFilter"]
ERRORS = [
    "DELTA_ILLEGAL_OPTION",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_TIMESTAMP_INVALID",
    "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
    "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_REGEX_OPT_SYNTAX_ERROR",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
    "DELTA_READ_SOURCE_SCHEMA_CONFLICT",
    "DELTA_SCHEMA_NOT_SET",
    "DELTA_SCHEMA_CHANGED_WITH_VERSION",
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
    "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS",
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
    "DELTA_STREAMING_TRAILING_COMMIT_MISSING",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
    "DELTA_INVALID_PROTOCOL_VERSION",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ",
    "DELTA_UNKNOWN_READ_LIMIT",
    "DELTA_INVALID_SOURCE_VERSION",
    "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION",
    "DELTA_INVALID_SOURCE_OFFSET_FORMAT",
    "DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT",
    "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT",
    "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
    "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED",
    "DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED",
    "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
    "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA",
    "DELTA_STREAMING_METADATA_EVOLUTION",
    "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
    "DELTA_MISSING_CHANGE_DATA",
]
SETTINGS = [
    "streaming.offsetValidation.enabled",
    "streaming.trailingCommitValidation.enabled",
    "streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled",
    "streaming.unsafeReadOnPartitionColumnChanges.enabled",
    "streaming.unsafeReadOnNullabilityChange.enabled",
    "changeDataFeed.timestampOutOfRange.enabled",
    "streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
    "streaming.allowSchemaLocationOutsideCheckpointLocation",
    "streaming.schemaTracking.mergeConsecutiveSchemaChanges.enabled",
    "streaming.schemaTracking.metadataPathCheck.enabled",
]
# Errors that need a feature: the test that refuses the feature covers them until it is supported.
WITH_FEATURES = {
    "types that widen": "typeWidening",
    "identity columns": "identityColumns",
}


def covered() -> dict[str, list[str]]:
    """The tests by the names in their marks `covers`."""
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_source*.py")):
        text = file.read_text()
        for function in ast.parse(text).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            markers = [
                decorator
                for decorator in function.decorator_list
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers"
            ]
            for marker in markers:
                for name in marker.args:
                    assert isinstance(name, ast.Constant)
                    found.setdefault(str(name.value), []).append(f"{file.name}::{function.name}")
    return found


@pytest.mark.parametrize("name", [*OPTIONS, *OWN_OPTIONS, *ERRORS, *SETTINGS])
@pytest.mark.sampled(5)
def test_a_test_drives_it(name: str) -> None:
    assert covered().get(name), f"no test of the streaming source covers {name}"


@pytest.mark.parametrize(("name", "feature"), WITH_FEATURES.items())
def test_a_test_refuses_the_feature_that_it_needs(name: str, feature: str) -> None:
    assert covered().get(feature), f"no test refuses {feature}, which {name} needs"


def test_a_test_uses_what_it_says_to_cover() -> None:
    unused = []
    for name, tests in covered().items():
        for test in tests:
            file, function = test.split("::")
            text = Path(__file__).with_name(file).read_text()
            tree = ast.parse(text)
            [node] = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
            used = "".join(
                ast.unparse(part)
                for part in [
                    *node.body,
                    *(d for d in node.decorator_list if ".covers(" not in ast.unparse(d)),
                    *(constant for constant in tree.body if isinstance(constant, ast.Assign)),
                ]
            ).lower()
            # The name of a setting behind a constant prefix, and a code that an f-string builds.
            setting = name.removeprefix("streaming.")
            spellings = {name, setting, name.rpartition("_WITH_")[0] + "_WITH_{cause}"}
            if not any(spelling.lower() in used for spelling in spellings):
                unused.append((name, test))
    assert unused == []
