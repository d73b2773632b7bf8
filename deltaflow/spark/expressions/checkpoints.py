"""Rows that Spark computes once, for all jobs of an operation (see Checkpoints.java)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.bridge.java_classes import java_classes, java_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


class Checkpoints:
    """Frames whose rows are kept until the commit: Spark's local checkpoints. A context manager: its end
    gives back what it has kept.

    What is lost of them fails the job that reads it, and is never computed anew. But where Spark runs two
    attempts of a task at once, each executor may keep what its own has found, and the next jobs read the one
    or the other: `check` this before a commit.
    """

    def __init__(self) -> None:
        self._kept: list[DataFrame] = []
        self._read: list[DataFrame] = []

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def keep(self, frame: DataFrame) -> DataFrame:
        """The frame's rows, computed by a job now."""
        kept = frame.localCheckpoint(eager=True)
        self._kept.append(kept)
        return kept

    def add(self, checkpointed: Sequence[DataFrame]) -> None:
        """Keeps frames that are checkpoints."""
        self._kept += checkpointed

    def add_read(self, frame: DataFrame) -> None:
        """Checks the checkpoints that the frame reads, too. Who has made them gives them back."""
        self._read.append(frame)

    def check(self, table: str) -> None:
        """DELTA_ROWS_COMPUTED_TWICE if Spark has several copies of some rows. One crossing, where there are
        frames at all; the locations of blocks are asked for in the driver."""
        frames = [*self._kept, *self._read]
        if not frames:
            return
        given = java_list(frames[0].sparkSession, [frame._jdf for frame in frames])
        parts = java_classes(frames[0].sparkSession).expressions.Checkpoints.computedTwice(given)
        if parts:
            raise computed_twice(parts, table)

    def release(self) -> None:
        """Gives back the storage of what was kept."""
        for frame in self._kept:
            java_classes(frame.sparkSession).expressions.Checkpoints.release(frame._jdf)
        self._kept.clear()


def computed_twice(parts: int, table: str) -> DeltaIllegalStateException:
    """The error of a write into the table for whose rows there are so many parts with several copies."""
    return DeltaIllegalStateException(
        error_class="DELTA_ROWS_COMPUTED_TWICE", parts=parts, target=table, table=table
    )
