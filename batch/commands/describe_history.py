"""DESCRIBE HISTORY: one row for each version, with its operation (delta-spark's DeltaHistory)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql.types import BooleanType, LongType, MapType, StringType, StructType, TimestampType

from deltaflow.batch.result_rows import datetime_of, schema_of
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.log.replay.commit_history import CommitRecord
from deltaflow.spark.sql.statements import Rows

_TEXTS = MapType(StringType(), StringType())
_JOB = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
HISTORY = schema_of(
    version=LongType(),
    timestamp=TimestampType(),
    userId=StringType(),
    userName=StringType(),
    operation=StringType(),
    operationParameters=_TEXTS,
    job=schema_of(**dict.fromkeys(_JOB, StringType())),
    notebook=schema_of(notebookId=StringType()),
    clusterId=StringType(),
    readVersion=LongType(),
    isolationLevel=StringType(),
    isBlindAppend=BooleanType(),
    operationMetrics=_TEXTS,
    userMetadata=StringType(),
    engineInfo=StringType(),
)
"""The output of DESCRIBE HISTORY."""


def describe_history(path: str, limit: int | None) -> Rows:
    """The rows of HISTORY for the newest `limit` versions of a table, the newest one first."""
    if not isinstance(limit, int | None):
        raise DeltaIllegalArgumentException(
            f"DESCRIBE HISTORY … LIMIT needs a whole number of versions, and has {limit!r}."
        )
    log = DeltaLog.for_table(path, with_files=False)
    return [_row(record) for record in log.history(limit)]


def _row(record: CommitRecord) -> tuple[Any, ...]:
    """A field is null if the commitInfo lacks it, or has it with another type."""
    info = record.info or {}
    values = (_value(info.get(field.name), field.dataType) for field in HISTORY.fields[2:])
    return (record.version, datetime_of(record.timestamp_ms), *values)


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
    """A parameter of any type: a string as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
