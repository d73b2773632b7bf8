"""DESCRIBE HISTORY: what was done to a table, one row for each version (delta-spark's DeltaHistory)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql.types import (
    BooleanType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltaflow.batch.timestamps import moment_of
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.log.replay.commit_history import CommitRecord
from deltaflow.spark.sql.statements import Rows

_TEXTS = MapType(StringType(), StringType())
_JOB = StructType(
    [
        StructField(name, StringType())
        for name in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
    ]
)
HISTORY = StructType(
    [
        StructField("version", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("userId", StringType()),
        StructField("userName", StringType()),
        StructField("operation", StringType()),
        StructField("operationParameters", _TEXTS),
        StructField("job", _JOB),
        StructField("notebook", StructType([StructField("notebookId", StringType())])),
        StructField("clusterId", StringType()),
        StructField("readVersion", LongType()),
        StructField("isolationLevel", StringType()),
        StructField("isBlindAppend", BooleanType()),
        StructField("operationMetrics", _TEXTS),
        StructField("userMetadata", StringType()),
        StructField("engineInfo", StringType()),
    ]
)
"""The output of DESCRIBE HISTORY."""


def describe_history(path: str, limit: int | None) -> Rows:
    """The rows of HISTORY of a table's newest versions, `limit` of them, the newest first."""
    if not isinstance(limit, int | None):
        raise DeltaIllegalArgumentException(
            f"DESCRIBE HISTORY … LIMIT needs a whole number of versions, and has {limit!r}."
        )
    log = DeltaLog.for_table(path, with_files=False)
    return [_row(record) for record in log.history(limit)]


def _row(record: CommitRecord) -> tuple[Any, ...]:
    """What the commit's writer says; null for what it does not, or by another type."""
    info = record.info or {}
    said = (_value(info.get(field.name), field.dataType) for field in HISTORY.fields[2:])
    return (record.version, moment_of(record.timestamp_ms), *said)


def _value(value: Any, data_type: Any) -> Any:
    match data_type:
        case StringType():
            return _text(value)
        case MapType():
            return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else None
        case StructType():
            return (
                [_text(value.get(name)) for name in data_type.names] if isinstance(value, Mapping) else None
            )
        case BooleanType():
            return value if isinstance(value, bool) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    """A parameter may be of any type: texts as they are, all else as JSON has it."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
