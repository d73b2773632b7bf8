"""What the results of commands are made of: schemas, and times as Spark takes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql.types import DataType, StructField, StructType


def schema_of(**columns: DataType) -> StructType:
    """The schema of these columns, all of which may be null."""
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def datetime_of(timestamp_ms: int) -> datetime:
    """The time of so many milliseconds since the epoch, in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
