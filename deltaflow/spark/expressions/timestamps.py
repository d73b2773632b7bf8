"""Times that options, paths and statements name as text, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.spark.bridge.java_classes import java_classes_of_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Timestamp(msgspec.Struct, frozen=True):
    """A time, and Spark's own text of it in the session's time zone."""

    micros: int
    text: str

    @property
    def ms(self) -> int:
        """Milliseconds since the epoch, rounded down."""
        return self.micros // 1_000


def timestamp_of_text(text: str, spark: SparkSession | None = None) -> Timestamp:
    """The time in the time zone of the session, or of the active session. One crossing.

    DELTA_TIMESTAMP_INVALID for a text that is no time.
    """
    found = timestamp_or_none(text, spark)
    if found is None:
        raise DeltaIllegalArgumentException(error_class="DELTA_TIMESTAMP_INVALID", timestamp=text)
    return found


def timestamp_or_none(text: str, spark: SparkSession | None = None) -> Timestamp | None:
    """As `timestamp_of_text`; None for a text that is no time."""
    session = None if spark is None else spark._jsparkSession
    found = java_classes_of_context().expressions.Expressions.timestamp(session, text)
    return None if found is None else msgspec.json.decode(found, type=Timestamp)
