"""The pipelines that are tried, and the faults that each of them is tried with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from deltaflow.store import store_for
from deltaflow.testing.faults import Fault, FaultKind
from deltaflow.testing.trials import Recording, Trial
from tests.faults.hadoop_pipelines import PLACE, Place
from tests.object_store.server import ObjectStoreServer
from tests.spark.hadoop.bare_stores import write_stores_jar
from tests.webhdfs import WebHdfsServer


@dataclass(frozen=True)
class Tried:
    """A pipeline as of `Pipeline`, and where it writes."""

    function: str
    ignored: tuple[str, ...] = ()
    compared_at_end: tuple[str, ...] = ()
    place: Literal["local", "s3", "webhdfs", "s3a"] = "local"

    @property
    def has_jvm(self) -> bool:
        """Whether each of its processes starts a JVM."""
        return not self.function.startswith((_LOG, _FSSPEC))

    @property
    def together(self) -> int:
        """Of how many trials the processes are killed by one kill."""
        return 12 if self.has_jvm else 1

    @contextmanager
    def folder(self, parent: str | None = None) -> Iterator[str]:
        """A new folder for its trials, on a local disk or on a server in this process."""
        with tempfile.TemporaryDirectory(dir=parent) as local, pytest.MonkeyPatch.context() as patch:
            match self.place:
                case "local":
                    yield local
                case "webhdfs":
                    # The server knows the folder by its local path.
                    inner = Path(local, "server", *Path(local).parts[1:], "folder")
                    inner.parent.mkdir(parents=True)
                    folder = Path(local, "folder")
                    folder.mkdir()
                    inner.symlink_to(folder)
                    with WebHdfsServer(Path(local, "server")) as server:
                        _use_hadoop(patch, local, server.url, {})
                        yield str(folder)
                case place:
                    with ObjectStoreServer() as objects:
                        if place == "s3a":
                            _use_hadoop(patch, local, "", objects.settings())
                        # A server knows the objects of every server that this process has had.
                        yield from _bucket(patch, objects, f"{place}://trials/{Path(local).name}")


def _bucket(patch: pytest.MonkeyPatch, server: ObjectStoreServer, folder: str) -> Iterator[str]:
    for name, value in (
        ("AWS_ENDPOINT_URL", server.endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        patch.setenv(name, value)
    store, _ = store_for("s3://trials/t")
    store._fs.call_s3("create_bucket", Bucket="trials")  # type: ignore[attr-defined]
    yield folder
    type(store._fs).clear_instance_cache()  # type: ignore[attr-defined]


def _use_hadoop(patch: pytest.MonkeyPatch, folder: str, root: str, settings: dict[str, str]) -> None:
    place = Place(str(write_stores_jar(Path(folder, "stores.jar"))), root, settings)
    patch.setenv(PLACE, msgspec.json.encode(place).decode())


_LOG, _FSSPEC, _HADOOP, _SPARK = (
    f"tests.faults.{name}_pipelines" for name in ("log", "fsspec", "hadoop", "spark")
)
_COMMITS = ("commits", "checkpoints_v2", "replace")
_OF_LOG = (
    *_COMMITS,
    "checkpoints_of_parts",
    "checkpoints_v2_of_parquet",
    "clean_up",
    "vacuum_log",
    "upkeep",
    "rewind",
    "adopt",
    "fork",
    "rebuild",
)
_OF_SPARK = (
    "stream",
    "dml_with_vectors",
    "compacted_stream",
    "optimize",
    "vacuum",
    "batch",
    "overwrite",
    "dml",
    "dml_with_feed",
    "schema_tracking",
)
_CHANGES = ("apply_changes_1", "apply_changes_2")
PIPELINES: dict[str, Tried] = {
    **{name: Tried(f"{_LOG}:{name}") for name in _OF_LOG},
    **{f"{name}_on_s3": Tried(f"{_LOG}:{name}", place="s3") for name in (*_COMMITS, "upkeep", "rewind")},
    **{f"{name}_on_fsspec": Tried(f"{_FSSPEC}:{name}") for name in ("commits", "checkpoints_v2", "upkeep")},
    **{
        f"{name}_on_webhdfs": Tried(f"{_HADOOP}:{name}", place="webhdfs")
        for name in (*_COMMITS, "clean_up", "vacuum_log", "upkeep", "rewind")
    },
    **{f"{name}_on_s3a": Tried(f"{_HADOOP}:{name}", place="s3a") for name in (*_COMMITS, "upkeep", "rewind")},
    **{name: Tried(f"{_SPARK}:{name}") for name in _OF_SPARK},
    **{name: Tried(f"{_SPARK}:{name}", ("_recorded_at",)) for name in _CHANGES},
    # A run that is killed half-way through forgetting remembers the horizon once more when it runs again.
    "apply_changes_forgetting": Tried(
        f"{_SPARK}:apply_changes_forgetting", ("_recorded_at",), ("target/_changes/deletes",)
    ),
    "quarantine": Tried(f"{_SPARK}:quarantine", ("query_id",)),
}
KINDS: tuple[FaultKind, ...] = ("kill", "lost_reply", "stale_listing", "raise", "delay")
MOST_KILLS = 5


def every_fault(
    recording: Recording, kinds: tuple[FaultKind, ...] = KINDS, distance: int = 1
) -> Iterator[Trial]:
    """One trial for each kind of fault, and each step of the recording where it can happen.

    With a `distance`, of each kind the first one and each that is so many steps after the one before.
    """
    for kind in kinds:
        yield from (Trial(str(fault), [[fault]]) for fault in recording.faults(kind)[::distance])


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
