"""Streams killed (SIGKILL) at each point of a batch lose and double nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pytest

import deltaflow

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("killed_streams.py")
WAIT_S = 240.0


class Held(NamedTuple):
    """A stream, the point at which its process is killed, and what its second batch has left then."""

    name: str
    kind: str
    point: str
    in_log: bool
    on_disk: bool


STREAMS = [
    Held("delta-offset", "delta", "offset written", False, False),
    Held("delta-files", "delta", "files written", False, True),
    Held("delta-put", "delta", "commit put", True, True),
    Held("delta-committed", "delta", "write committed", True, True),
    Held("files-files", "files", "files written", False, True),
    Held("files-put", "files", "commit put", True, True),
    Held("counts-files", "counts", "files written", False, True),
    Held("counts-committed", "counts", "write committed", True, True),
]


class Killed(NamedTuple):
    """Where the killed streams lie, and what their process had printed."""

    folder: Path
    shown: list[str]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """All streams, run in one process until each is held at its point; then it is killed."""
    folder = tmp_path_factory.mktemp("killed")
    for held in STREAMS:
        deliver(held.kind, folder / held.name, range(90))
    packages = str(Path(deltaflow.__file__).parents[1])
    search_path = os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = [str(folder), json.dumps([held[:3] for held in STREAMS])]
    shown: list[str] = []
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # a process group that holds its JVM too
            env={**os.environ, "PYTHONPATH": search_path},
        ) as process,
    ):
        assert process.stdout is not None
        waiting = {f"AT {held.name}\n" for held in STREAMS}
        try:
            while waiting and (line := process.stdout.readline()):
                shown.append(line)
                waiting.discard(line)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert not waiting, (folder / "stderr").read_text()[-5000:]
    deadline = time.monotonic() + WAIT_S
    while running(process.pid):
        assert time.monotonic() < deadline, "the JVM outlives its group's SIGKILL"
        time.sleep(0.02)
    return Killed(folder, shown)


def running(group: int) -> bool:
    """Whether a process of the group is alive; one that nobody waited for is not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            return True
    return False


def deliver(kind: str, folder: Path, numbers: range) -> None:
    """Three more files of the source, with the numbers."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    for part in (numbers[i::3] for i in range(3)):
        if kind == "files":
            text = "".join(json.dumps({"id": number}) + "\n" for number in part)
            (source / f"{part[0]:05}.json").write_text(text)
        else:
            deltalake.write_deltalake(str(source), pa.table({"id": list(part)}), mode="append")


def versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


def numbered(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def actions(table: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in all versions."""
    texts = [path.read_text() for path in sorted((table / "_delta_log").glob("*.json"))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return [action[kind] for action in found if kind in action]


def program() -> ModuleType:
    """The program's module, for the streams that it defines."""
    spec = importlib.util.spec_from_file_location("killed_streams", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("held", STREAMS, ids=lambda held: held.name)
def test_killed_and_started_again(killed: Killed, streams: Any, held: Held) -> None:
    folder = killed.folder / held.name
    sink, checkpoint = folder / "sink", folder / "checkpoint"

    # Spark has planned the batch and does not know of its end; the log has it whole or not at all.
    assert numbered(checkpoint / "offsets") == [0, 1]
    assert numbered(checkpoint / "commits") == [0]
    there = [0, 1] if held.in_log else [0]
    assert versions(sink) == there
    assert [txn["version"] for txn in actions(sink, "txn")] == there
    orphans = {path.name for path in sink.glob("*.parquet")} - {add["path"] for add in actions(sink, "add")}
    assert bool(orphans) == (held.on_disk and not held.in_log)
    before = {path.name: path.read_bytes() for path in (sink / "_delta_log").iterdir()}

    deliver(held.kind, folder, range(90, 99))
    frame, mode = program().stream(streams.spark, folder, held.kind)
    streams.copy(frame, str(sink), str(checkpoint), mode=mode)

    for name, content in before.items():
        assert (sink / "_delta_log" / name).read_bytes() == content
    found = deltalake.DeltaTable(str(sink)).to_pyarrow_table()
    if held.kind == "counts":
        counted = dict(zip(*found.to_pydict().values(), strict=True))
        assert counted == Counter(i % 3 for i in range(99))
    else:
        assert sorted(found["id"].to_pylist()) == list(range(99))
    assert [txn["version"] for txn in actions(sink, "txn")] == list(range(6))
    assert versions(sink) == list(range(6))
    assert numbered(checkpoint / "commits") == list(range(6))
    assert not orphans & {add["path"] for add in actions(sink, "add")}


def test_console(killed: Killed) -> None:
    """Its output is the JVM's, so it needs a process of its own to be read."""
    assert "Batch: 0\n" in killed.shown
    shown = [line.strip(" |\n") for line in killed.shown]
    assert {str(number) for number in range(90)} <= set(shown)
