"""The operation that a commit records, and the possible outcomes of a commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deltaflow.errors import CommitOutcomeUnknownError, DeltaConcurrentModificationException


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation that a commit records in commitInfo.

    Values of `parameters` are as delta-spark writes them: strings, plain ("Append") or the JSON text of a
    list ('["month"]'), numbers, true or false, and None. Values of `metrics` are numbers as strings.
    """

    name: str
    parameters: Mapping[str, str | bool | int | None] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    source_offsets: list[str] | None = None
    """For a stream's batch: the offset at which each source ended, as in Spark's checkpoint."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """What the commit says of itself to other writers."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is in the log, as this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The commit is not in the log: another writer won, and `error` says which rule is broken."""

    error: DeltaConcurrentModificationException


@dataclass(frozen=True, slots=True)
class Unknown:
    """The put failed, and the commit may be in the log all the same."""

    error: CommitOutcomeUnknownError


Outcome = Committed | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class Lost:
    """Another commit has the version, or the log's directory is gone."""

    is_certain: bool = True
    """False if the file of the version was not there when it was read back, or not readable: its storage may
    have shown an older state or a part of it, and the commit may be this one."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The put failed with this error, and the commit will never be in the log."""

    error: Exception
