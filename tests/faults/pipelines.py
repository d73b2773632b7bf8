"""The pipelines that are tried, and the faults that each of them is tried with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from deltaflow.testing.faults import Fault, FaultKind
from deltaflow.testing.trials import Recording, Trial


@dataclass(frozen=True)
class Tried:
    """A pipeline: `module:function`, and the columns whose values differ from run to run."""

    function: str
    ignored: tuple[str, ...] = ()


_LOG = "tests.faults.log_pipelines"
PIPELINES: dict[str, Tried] = {
    name: Tried(f"{_LOG}:{name}") for name in ("commits", "checkpoints_v2", "clean_up", "replace")
}
KINDS: tuple[FaultKind, ...] = ("kill", "lost_reply", "stale_listing", "raise", "delay")
MOST_KILLS = 5


def every_fault(recording: Recording, kinds: tuple[FaultKind, ...] = KINDS) -> Iterator[Trial]:
    """One trial for each step of the recording and each kind of fault that can happen there."""
    for kind in kinds:
        yield from (Trial(str(fault), [[fault]]) for fault in recording.faults(kind))


def schedules(recording: Recording, name: str, seed: int, number: int) -> Iterator[Trial]:
    """Random trials: one to five runs that are killed, with up to two other faults in each before that."""
    steps = len(recording.faults("kill"))
    for index in range(number):
        chance = random.Random(f"{seed} {name} {index}")
        stages = []
        for _ in range(chance.randint(1, MOST_KILLS)):
            others: list[FaultKind] = chance.choices(KINDS[1:], k=chance.randint(0, 2))
            kinds: list[FaultKind] = [*others, "kill"]
            stages.append([Fault(kind, chance.randint(1, max(1, steps * 2 // 3))) for kind in kinds])
        yield Trial(f"schedule {seed}-{index}", stages, must_fire=False)
