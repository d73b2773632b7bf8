"""Timestamps without a time zone, out of the time since 1970."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

if TYPE_CHECKING:
    from pyspark.sql import Column


def timestamp_ntz(micros: Column) -> Column:
    """The timestamp without a time zone that is so many microseconds after 1970."""
    # An interval of SQL would be of the old type under spark.sql.legacy.interval.enabled, which multiplies as
    # a double. PySpark rounds the seconds of a long interval, and may so add one: it is multiplied by Spark.
    return F.lit("1970-01-01").cast(T.TimestampNTZType()) + micros * F.lit(timedelta(microseconds=1))
