"""Settings of the session for a while: what the user's session says of writes and reads is not for ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session_settings(spark: SparkSession, values: Mapping[str, str | None]) -> Iterator[None]:
    """The settings of the session have these values in the block; those that are None are unset."""
    before = {name: spark.conf.get(name, None) for name in values}

    def set_all(settings: Mapping[str, str | None]) -> None:
        for name, value in settings.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)

    set_all(values)
    try:
        yield
    finally:
        set_all(before)
