"""Times in arguments of operations, as Spark reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from deltaflow.errors import DeltaIllegalArgumentException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def timestamp_of_text(spark: SparkSession, timestamp: str) -> tuple[int, str]:
    """Milliseconds since the epoch, and Spark's text of a time in the session's time zone.

    DELTA_TIMESTAMP_INVALID for what is none.
    """
    query = "SELECT unix_micros(t), string(t) FROM (SELECT try_cast(:t AS TIMESTAMP_LTZ) AS t)"
    [(micros, text)] = spark.sql(query, {"t": timestamp}).collect()
    if micros is None:
        raise DeltaIllegalArgumentException(error_class="DELTA_TIMESTAMP_INVALID", timestamp=timestamp)
    return micros // 1000, text


def moment_of(timestamp_ms: int) -> datetime:
    """A time by its milliseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
