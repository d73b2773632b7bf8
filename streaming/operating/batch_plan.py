"""A batch of a stream as a restart will run it."""

from __future__ import annotations

import msgspec


class SourceStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one source gives to a batch. A number is None where it is not known."""

    source: str
    """The source's number in the checkpoint, or its name."""
    table: str | None
    """The table's directory; None for a source of another format, which is not planned."""
    start: str | None
    """The offset after which the batch begins, as JSON; None for a first batch."""
    end: str | None
    """The offset at which it ends."""
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    """By the files' statistics; None if those of one file lack it."""
    paths: tuple[str, ...] = ()
    """The paths of the files, as in the table's log; of more than 1,000 files the first 1,000."""


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The next batch of a stream."""

    batch_id: int
    is_replay: bool
    """Whether the batch was planned before, and was not recorded as done: its offsets are fixed."""
    is_in_sink: bool | None
    """Whether the sink's table has the batch already, and skips it; None without a table."""
    sources: tuple[SourceStep, ...]

    @property
    def files(self) -> int:
        """The number of files of all Delta tables."""
        return sum(step.files or 0 for step in self.sources)

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(step.bytes or 0 for step in self.sources)

    @property
    def rows(self) -> int | None:
        """Their rows; None if those of one file are not known."""
        rows = [step.rows for step in self.sources if step.files]
        return None if None in rows else sum(row for row in rows if row is not None)
