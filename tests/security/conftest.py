"""What a hostile table must not touch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECRET = "what-is-outside-of-the-table"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the table, whose old files have to be as before after the test."""
    directory = tmp_path / "outside"
    (directory / "p=1").mkdir(parents=True)
    names = ["secret.parquet", "manifest", "p=1/manifest", ".secret.parquet.crc", f"{UUID(int=1)}.parquet"]
    names += [f"deletion_vector_{UUID(int=7)}.bin", "00000000000000000000.json"]
    for name in names:
        (directory / name).write_text(SECRET)
        os.utime(directory / name, (1, 1))
    before = _contents(directory)
    yield directory
    assert _contents(directory) == before


def streamed(rows: DataFrame, target: str) -> None:
    """Lets a stream write its rows that are there into a table."""
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{target}-checkpoint")
    query = writer.trigger(availableNow=True).start(target)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
