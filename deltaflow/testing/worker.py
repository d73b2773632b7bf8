"""The processes that run a pipeline until its faults end them: `python -m deltaflow.testing.worker`.

Each line of its standard input is a `Start`, for which it forks: it has imported deltaflow already, so the
new process begins within milliseconds. It prints the new process's id, and when that has ended its exit code.

The new process runs trials one after the other. At a kill that is not the last one, the trial's threads
stand still at their steps from then on, and the next trial begins; at the last one the process kills itself,
and all of them with it. What a trial has left on its storage is then what a process has left that was killed
there.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import importlib
import os
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn, get_args

import msgspec

from deltaflow.testing.faults import DELAY_S, Fault, FaultKind, fail, fits, kill_own_group
from deltaflow.testing.steps import (
    PUT,
    Step,
    hide_directory_states,
    load_wrapped_modules,
    name_of,
    unwatched,
    watch_steps,
)
from deltaflow.testing.table_states import Reader

_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


class Task(msgspec.Struct, frozen=True):
    """A trial that is to go on: its folder, and the faults of each run that is left before the last one."""

    folder: str
    stages: Sequence[Sequence[Fault]]


class Orders(msgspec.Struct, frozen=True):
    """What a worker has to do, and where it reports it."""

    function: str
    reports: str
    output: str
    """The file that gets what the process prints."""
    tasks: Sequence[Task]
    records: bool
    ignored: Sequence[str]
    timeout_s: float


class Start(msgspec.Struct, frozen=True):
    """The orders for a new process, and what it has from the one that gives them."""

    orders: Orders
    environment: dict[str, str]
    import_path: Sequence[str]


class PointReport(msgspec.Struct, frozen=True):
    """A step of a run, and the kinds of faults that can happen there."""

    name: str
    occurrence: int
    kinds: Sequence[FaultKind]
    code: str
    """Where the code takes it, such as "LocalLogStore.put_if_absent: before"."""
    content: str | None
    """A digest of the folder's listing at that time; None if the folder is on no local disk."""


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has become of a run; `stands` says that its process is killed or will be, at a point of it."""

    folder: str
    outcome: str
    """began, stands, failed, done"""
    fired: Sequence[str] = ()
    error: str | None = None
    points: Sequence[PointReport] = ()
    states: dict[str, list[str]] = {}
    """With `records`, the digests of the versions of each table, in their order."""


class _Run:
    """One run of a trial's function."""

    def __init__(self, worker: _Worker, folder: str, faults: Sequence[Fault], *, is_last: bool) -> None:
        self.folder = folder
        self.faults = list(faults)
        self.is_last = is_last
        self.fired: list[str] = []
        self.points: list[PointReport] = []
        self.states: defaultdict[str, list[str]] = defaultdict(list)
        self.ended = threading.Event()
        self.stands = False
        self.error: BaseException | None = None
        self._worker = worker
        self._counts: Counter[str] = Counter()
        self._taken = 0
        self._last_put: dict[str, str] = {}
        self._lock = threading.Lock()

    def go(self, function: Callable[[str], object]) -> None:
        hide_directory_states(any(fault.kind == "stale_listing" for fault in self.faults))

        def run() -> None:
            try:
                function(self.folder)
            except BaseException as error:
                self.error = error
            self.ended.set()

        threading.Thread(target=run, name="pipeline", daemon=True).start()
        self.ended.wait()

    def take(self, step: Step) -> None:
        if self.stands:
            _stand_still()
        name = name_of(step, self.folder)
        with self._lock:
            self._counts[name] += 1
            self._taken += 1
            occurrence, taken = self._counts[name], self._taken
            directory, _, file = step.path.rpartition("/")
            put = self._last_put.get(step.path)
            has_put = step.listing is not None and any(status.name == put for status in step.listing)
            if step.of_store and step.what.removeprefix("after ") in PUT:
                self._last_put[directory] = file
            due = next(
                (
                    fault
                    for fault in self.faults
                    if fits(fault.kind, step, has_put=has_put)
                    and (
                        (fault.name, fault.occurrence) == (name, occurrence)
                        or (fault.name is None and fault.occurrence <= taken)
                    )
                ),
                None,
            )
            if due is not None:
                self.faults.remove(due)
                self.fired.append(f"{due.kind} at {name!r}, time {occurrence}")
        if self._worker.orders.records:
            kinds = [kind for kind in _KINDS if fits(kind, step, has_put=has_put)]
            content = _content_of(self.folder)
            self.points.append(PointReport(name, occurrence, kinds, step.code, content))
            if step.what == "after put_if_absent" and name.endswith("of commit"):
                self._record_state(step.path)
        if due is not None:
            self._happen(due.kind, step, put)

    def _happen(self, kind: FaultKind, step: Step, put: str | None) -> None:
        match kind:
            case "kill":
                self.stands = True
                self._worker.report(self, "stands")
                if self.is_last:
                    kill_own_group()
                self.ended.set()
                _stand_still()
            case "raise" | "lost_reply":
                fail(step)
            case "delay":
                time.sleep(DELAY_S)
            case "stale_listing":
                assert step.listing is not None
                step.listing = [status for status in step.listing if status.name != put]

    def _record_state(self, commit: str) -> None:
        table = commit.rpartition("/_delta_log/")[0]
        with unwatched():
            state = Reader(table, frozenset(self._worker.orders.ignored)).state()
        assert state is not None
        self.states[table[table.index(self.folder) + len(self.folder) :].strip("/")].append(state.digest)


class _NoFunctionError(Exception):
    """The name of a pipeline is that of no function."""


def _function(name: str) -> Callable[[str], object]:
    """The function `module:function`. _NoFunctionError where there is none."""
    module, _, function = name.partition(":")
    found = None
    if module and function:
        try:
            found = getattr(importlib.import_module(module), function, None)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):  # what the module itself imports
                raise
    if not callable(found):
        raise _NoFunctionError(
            f"{name!r} names no function. Give 'module:function', of a module that can be imported."
        )
    called: Callable[[str], object] = found
    return called


class _Worker:
    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._runs: list[_Run] = []
        self._file = os.open(orders.reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def work(self) -> None:
        function = _function(self.orders.function)
        watch_steps(self._take)
        kills = [task.folder for task in self.orders.tasks if _has_kill(task)]
        for task in self.orders.tasks:
            self._finish(task, function, is_last=task.folder == (kills or [""])[-1])
        sys.stdout.flush()
        if any(run.stands for run in self._runs):
            kill_own_group()

    def _finish(self, task: Task, function: Callable[[str], object], *, is_last: bool) -> None:
        for faults in (*task.stages, ()):
            run = _Run(self, task.folder, faults, is_last=is_last)
            self._runs = [other for other in self._runs if other.folder != task.folder] + [run]
            faulthandler.dump_traceback_later(self.orders.timeout_s)
            self.report(run, "began")
            run.go(function)
            if run.stands:
                return
            if run.error is None:
                self.report(run, "done")
                return
            self.report(run, "failed")
            if not run.fired:
                return

    def report(self, run: _Run, outcome: str) -> None:
        error = None
        if outcome == "failed":
            error = f"{type(run.error).__name__}: {run.error}"[:2_000]
        report = Report(
            folder=run.folder,
            outcome=outcome,
            fired=run.fired,
            error=error,
            points=run.points,
            states=run.states,
        )
        os.write(self._file, msgspec.json.encode(report) + b"\n")

    def _take(self, step: Step) -> None:
        run = next((run for run in self._runs if f"{run.folder}/" in f"{step.path}/"), None)
        if run is not None:
            run.take(step)


def _has_kill(task: Task) -> bool:
    return any(fault.kind == "kill" for faults in task.stages for fault in faults)


def _stand_still() -> NoReturn:
    threading.Event().wait()
    raise AssertionError


def _content_of(folder: str) -> str | None:
    """A digest of the names, sizes, times and file numbers of all that is in a folder."""
    if "://" in folder:
        return None
    found: list[tuple[str, int, int, int]] = []
    todo = [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    found.append((entry.path, status.st_size, status.st_mtime_ns, status.st_ino))
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except FileNotFoundError:
            continue  # somebody has just deleted it
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16]


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is gone
    kill_own_group()


def _work(start: Start) -> NoReturn:
    """What a new process does."""
    os.setsid()  # it leads a group, which will have its JVM too
    orders = start.orders
    os.environ.clear()
    os.environ.update(start.environment, PYTHONPATH=os.pathsep.join(start.import_path))
    sys.path[:] = start.import_path
    output = os.open(orders.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = 1
    try:
        _Worker(orders).work()
        code = 0
    except _NoFunctionError as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Forks for each of the orders, one after the other."""
    load_wrapped_modules()
    importlib.import_module("deltaflow.cli.root")
    gc.freeze()  # what is there now is looked at by no process again, and stays shared
    for line in iter(sys.stdin.readline, ""):
        start = msgspec.json.decode(line, type=Start)
        process = os.fork()
        if process == 0:
            _work(start)
        with suppress(BrokenPipeError):  # who gave the orders may end at any moment
            print(process, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
