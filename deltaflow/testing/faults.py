"""What can happen at a step, and when."""

from __future__ import annotations

import errno
import os
import signal
from typing import Literal

import msgspec

from deltaflow.errors import StoreError
from deltaflow.testing.steps import LISTING, PUT, Step

FaultKind = Literal["kill", "raise", "delay", "lost_reply", "stale_listing"]
"""`kill`: SIGKILL of the process and of what it has started. `raise`: the error that the store gives for an
input/output error, before the call or after it. `delay`: a pause. `lost_reply`: a put that has succeeded
raises. `stale_listing`: a listing as it was before the process's last put into the directory."""
DELAY_S = 0.05


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kind of fault, and the step: the `occurrence`-th (from 1) of a name; without a name, the first one
    from the `occurrence`-th on, of whatever name, at which this kind can happen."""

    kind: FaultKind
    occurrence: int
    name: str | None = None

    def __str__(self) -> str:
        if self.name is None:
            return f"{self.kind} at step {self.occurrence}"
        return f"{self.kind} at {self.name!r}, time {self.occurrence}"


def fits(kind: FaultKind, step: Step, *, has_put: bool) -> bool:
    """Whether a fault can happen at a step; `has_put` says whether a listing lists a file that was put."""
    match kind:
        case "kill":
            return not step.reads
        case "raise":
            return True
        case "delay":
            return not step.reads
        case "lost_reply":
            return step.of_store and step.what.removeprefix("after ") in PUT
        case "stale_listing":
            return step.what == f"after {LISTING}" and has_put


def fail(step: Step) -> None:
    """Raises what the step raises if its storage fails."""
    error = OSError(errno.EIO, os.strerror(errno.EIO), step.path)
    if not step.of_store:
        raise error
    raise StoreError(f"Cannot do what was asked, {step.what}, of {step.path}: {error}", file=step.path)


def kill_own_group() -> None:
    """Ends this process, which leads its group, and the others of the group at once."""
    os.killpg(os.getpid(), signal.SIGKILL)
