"""A bound on what the decoding of a checkpoint may take."""

from __future__ import annotations

from deltaflow.errors import CorruptLogError
from deltaflow.log.limits import MAX_CHECKPOINT_EXPANSION, MIN_EXPANDED_BYTES, MIN_ROW_BYTES
from deltaflow.log.replay.checkpoint_file import CheckpointFile


class CheckpointBudget:
    """What is left of the memory that a checkpoint may take when it is decoded; see deltaflow.log.limits."""

    def __init__(self, file: CheckpointFile, path: str) -> None:
        self._path = path
        self._left = max(MIN_EXPANDED_BYTES, MAX_CHECKPOINT_EXPANSION * file.size)
        self._check(file.parquet.metadata.num_rows * MIN_ROW_BYTES)

    def spend(self, size: int) -> None:
        """CorruptLogError if so many more bytes are too many."""
        self._check(size)
        self._left -= size

    def _check(self, size: int) -> None:
        if size > self._left:
            raise CorruptLogError(
                f"{self._path} is a small file, but its content would fill the memory: it has more than "
                f"{MAX_CHECKPOINT_EXPANSION} times as many bytes. No table needs such a checkpoint: look at "
                "who wrote it.",
                file=self._path,
            )
