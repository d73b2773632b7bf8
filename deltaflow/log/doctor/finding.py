"""What a check has found, and what repairs it."""

from __future__ import annotations

import enum

import msgspec

NAMED_FILES = 5


class Severity(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Readers fail, or miss rows, or see wrong ones."""
    WARNING = "warning"
    """The table is read right today, but something that it should have is damaged or gone."""
    ADVICE = "advice"
    """Nothing is wrong. The repair makes the table smaller or faster."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding. `what` and `repair` are sentences for people."""

    check: str
    severity: Severity
    what: str
    repair: str
    version: int | None = None
    files: list[str] = []
    """Some of the files: as in the log if they are the table's, or else by their names."""
    count: int | None = None
    """The number of all such files."""
    size_bytes: int | None = None
    """The size of all such files together."""
