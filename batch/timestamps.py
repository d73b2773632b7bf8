"""Times of the log as Python has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def moment_of(timestamp_ms: int) -> datetime:
    """A time by its milliseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
