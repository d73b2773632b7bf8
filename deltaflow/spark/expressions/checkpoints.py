"""Rows that Spark computes once, for all jobs of an operation (see Checkpoints.java)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.bridge.java_classes import java_classes, java_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_LOST = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND]"


class Checkpoints:
    """Frames whose rows are kept until the commit of an operation on `table`: Spark's local checkpoints. A
    context manager: its end gives back what it has kept.

    What is lost of them fails the job that reads it, and is never computed anew: Spark's error about that
    becomes DELTA_ROWS_LOST. But where Spark runs two attempts of a task at once, each executor may keep what
    its own has found, and the next jobs read the one or the other: `check` this before a commit.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._kept: list[DataFrame] = []
        self._read: list[DataFrame] = []

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, _: object, error: BaseException | None, *others: object) -> None:
        for frame in self._kept:
            java_classes(frame.sparkSession).expressions.Checkpoints.release(frame._jdf)
        self._kept.clear()
        if isinstance(error, (Py4JJavaError, PySparkException)) and _LOST in str(error):
            raise DeltaIllegalStateException(
                error_class="DELTA_ROWS_LOST", target=self._table, table=self._table
            ) from error

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

    def check(self) -> None:
        """DELTA_ROWS_COMPUTED_TWICE if Spark has several copies of some rows. One crossing, where there are
        frames at all; the locations of blocks are asked for in the driver."""
        frames = [*self._kept, *self._read]
        if not frames:
            return
        given = java_list(frames[0].sparkSession, [frame._jdf for frame in frames])
        parts = java_classes(frames[0].sparkSession).expressions.Checkpoints.computedTwice(given)
        if parts:
            raise computed_twice(parts, self._table)


def computed_twice(parts: int, table: str) -> DeltaIllegalStateException:
    """The error of a write into the table for whose rows there are so many parts with several copies."""
    return DeltaIllegalStateException(
        error_class="DELTA_ROWS_COMPUTED_TWICE", parts=parts, target=table, table=table
    )
