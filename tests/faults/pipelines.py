"""The pipelines that are tried, and the faults that each of them is tried with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from deltaflow.store import store_for
from deltaflow.testing.faults import Fault, FaultKind
from deltaflow.testing.trials import Recording, Trial
from tests.object_store.server import ObjectStoreServer


@dataclass(frozen=True)
class Tried:
    """A pipeline: `module:function`, the columns whose values differ from run to run, and where it writes."""

    function: str
    ignored: tuple[str, ...] = ()
    on_s3: bool = False

    @property
    def has_spark(self) -> bool:
        """Whether each of its processes starts a JVM."""
        return self.function.startswith(_SPARK)

    @property
    def together(self) -> int:
        """Of how many trials the processes are killed by one kill."""
        return 12 if self.has_spark else 1

    @contextmanager
    def folder(self, parent: str | None = None) -> Iterator[str]:
        """A new folder for its trials, on a local disk or on a server of S3's protocol in this process."""
        with tempfile.TemporaryDirectory(dir=parent) as local:
            if not self.on_s3:
                yield local
                return
            with ObjectStoreServer() as server, pytest.MonkeyPatch.context() as patch:
                for name, value in (
                    ("AWS_ENDPOINT_URL", server.endpoint),
                    ("AWS_ACCESS_KEY_ID", "test"),
                    ("AWS_SECRET_ACCESS_KEY", "test"),
                    ("AWS_DEFAULT_REGION", "us-east-1"),
                ):
                    patch.setenv(name, value)
                store, _ = store_for("s3://trials/t")
                store._fs.call_s3("create_bucket", Bucket="trials")  # type: ignore[attr-defined]
                yield "s3://trials"
                type(store._fs).clear_instance_cache()  # type: ignore[attr-defined]


_LOG, _SPARK = "tests.faults.log_pipelines", "tests.faults.spark_pipelines"
_OF_LOG = ("commits", "checkpoints_v2", "replace", "clean_up", "vacuum_log", "rewind", "fork")
PIPELINES: dict[str, Tried] = {
    **{name: Tried(f"{_LOG}:{name}") for name in _OF_LOG},
    **{f"{name}_on_s3": Tried(f"{_LOG}:{name}", on_s3=True) for name in _OF_LOG[:3]},
    **{
        name: Tried(f"{_SPARK}:{name}")
        for name in (
            "batch",
            "overwrite",
            "stream",
            "compacted_stream",
            "optimize",
            "dml",
            "dml_with_vectors",
            "dml_with_feed",
            "vacuum",
        )
    },
    **{
        name: Tried(f"{_SPARK}:{name}", ("_recorded_at",))
        for name in ("apply_changes_1", "apply_changes_2", "apply_changes_forgetting")
    },
    "quarantine": Tried(f"{_SPARK}:quarantine", ("query_id",)),
}
KINDS: tuple[FaultKind, ...] = ("kill", "lost_reply", "stale_listing", "raise", "delay")
MOST_KILLS = 5


def every_fault(recording: Recording, kinds: tuple[FaultKind, ...] = KINDS) -> Iterator[Trial]:
    """One trial for each step of the recording and each kind of fault that can happen there."""
    for kind in kinds:
        yield from (Trial(str(fault), [[fault]]) for fault in recording.faults(kind))


def schedules(recording: Recording, name: str, seed: int, number: int) -> Iterator[Trial]:
    """Random trials: one to five runs that are killed, with up to two other faults in each before that."""
    steps = len(recording.points)
    for index in range(number):
        chance = random.Random(f"{seed} {name} {index}")
        stages = []
        for run in range(chance.randint(1, MOST_KILLS)):
            others: list[FaultKind] = chance.choices(KINDS[1:], k=chance.randint(0, 2))
            kinds: list[FaultKind] = [*others, "kill"]
            # A run that goes on where another one was killed takes fewer steps.
            left = steps if run == 0 else max(1, steps // 2)
            stages.append([Fault(kind, chance.randint(1, left)) for kind in kinds])
        yield Trial(f"schedule {seed}-{index}", stages, must_fire=False)
