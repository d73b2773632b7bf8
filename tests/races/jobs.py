"""What a writer of a race has to do, and what it says that became of it."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.batch.random_operations import Features
from tests.races.operations import Operation, operation

DONE = "done"
Told = dict[str, Any]
"""What a writer says of an operation: its `id` and `outcome` (DONE, or the name of an error with its
`message`), the newest version `before` and `after` it, and how long it took."""


@dataclass(frozen=True)
class Job:
    """What one writer has to do: the operations `<prefix>/0` up to `<prefix>/<number>`."""

    engine: str
    """spark or deltalake."""
    path: str
    """The table, as the engine names it."""
    features: Features
    prefix: str
    number: int
    retention_hours: float
    """Of a VACUUM."""

    def operations(self) -> list[Operation]:
        identities = [f"{self.prefix}/{number}" for number in range(self.number)]
        by_deltalake = self.engine == "deltalake"
        return [operation(one, self.features, by_deltalake=by_deltalake) for one in identities]

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def of_text(text: str) -> Job:
        fields = json.loads(text)
        return Job(**{**fields, "features": Features(**fields["features"])})


class Writer(Protocol):
    """An engine that carries out operations."""

    def newest(self) -> int: ...

    def run(self, operation: Operation) -> None: ...


def carry_out(writer_of: Callable[[Job], Writer]) -> None:
    """Says "ready"; then reads a Job of each line of standard input, carries it out, and prints what became
    of its operations, as JSON in one line."""
    logging.getLogger("deltaflow").setLevel(logging.ERROR)  # it warns of each write that lost a race
    print("ready", flush=True)
    for line in sys.stdin:
        job = Job.of_text(line)
        writer = writer_of(job)
        told = [_told(writer, own) for own in job.operations()]
        print(json.dumps(told), flush=True)


def _told(writer: Writer, operation: Operation) -> Told:
    began, before = time.monotonic(), writer.newest()
    try:
        writer.run(operation)
        outcome = {"outcome": DONE}
    except Exception as error:  # the check says which errors may be
        outcome = {"outcome": _name(error), "message": str(error)[:500]}
    seconds = round(time.monotonic() - began, 3)
    return {"id": operation.id, "before": before, "after": writer.newest(), "seconds": seconds, **outcome}


def _name(error: Exception) -> str:
    """The condition of an error that has one, else its class."""
    condition = getattr(error, "getErrorClass", lambda: None)()
    return f"{type(error).__name__} {condition or ''}".strip()
