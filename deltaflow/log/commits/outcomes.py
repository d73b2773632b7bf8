"""What a commit says of itself, and what may become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deltaflow.errors import CommitOutcomeUnknownError, DeltaConcurrentModificationException


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit tells about itself in commitInfo.

    Values of `parameters` are as delta-spark writes them: strings, plain ("Append") or the JSON text of a
    list ('["month"]'), numbers, true or false, and None. Values of `metrics` are numbers as strings.
    """

    name: str
    parameters: Mapping[str, str | bool | int | None] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    source_offsets: list[str] | None = None
    """Of a stream's batch: the offset at which each source ended, as Spark's checkpoint has it."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is in the log, as this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The commit is not in the log: another writer won, and `error` says which rule forbids to go on."""

    error: DeltaConcurrentModificationException


@dataclass(frozen=True, slots=True)
class Unknown:
    """The put failed in a way that may still have landed."""

    error: CommitOutcomeUnknownError


Outcome = Committed | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class Lost:
    """Another commit has the version, or the log's directory is gone."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The put failed with this error, and the version is not there and will not be."""

    error: Exception
