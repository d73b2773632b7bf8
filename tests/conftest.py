"""Fixtures that every test of Spark shares: one session, and an independent reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests; tests that stop a context run in a process of their own."""
    import deltaflow

    # Spark's Python workers would be whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = deltaflow.session(
        "deltaflow tests",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.streaming.stopTimeout": "60s",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A path for a table, with nothing there."""
    return str(tmp_path / "table")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame as sorted tuples; nulls sort first."""
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: [(v is not None, str(v)) for v in row])


def rows_by_deltalake(path: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a table as the independent implementation reads them, sorted as in `rows`."""
    import deltalake

    found = deltalake.DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=lambda row: [(v is not None, str(v)) for v in row])
