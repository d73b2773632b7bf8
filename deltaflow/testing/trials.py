"""Trials: runs of a pipeline with faults, and then without, after which its tables have what they must have.

A pipeline is a function `module:function(folder)`. It writes its tables somewhere below the folder, and
does all that is left to do when it is called again. One run without a fault tells the steps, and the rows
of every version of every table. Of a trial, whatever happens in it,

- the tables have the same rows in the end, and no other table is there;
- each version that a reader sees, who looks all the while, and each version that is in the log in the end,
  is whole (every file that it names is there) and has the rows of a version of the run without a fault.
"""

from __future__ import annotations

import posixpath
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import structs

from deltaflow.errors import DeltaError
from deltaflow.testing.faults import Fault, FaultKind
from deltaflow.testing.processes import Processes
from deltaflow.testing.table_states import Reader, tables_below
from deltaflow.testing.worker import Orders, PointReport, Report, Task

_TRIALS_WITHOUT_KILL = 100
_PAUSE_S = 0.02
_STALLED_S = 20.0
"""After which a run that does nothing may wait for a lock that a trial holds which stands still."""
Check = Callable[[str], object]
"""Raises AssertionError if the content of a trial's folder is wrong."""


@dataclass(frozen=True)
class Recording:
    """What runs without a fault have done."""

    points: Sequence[PointReport]
    """The steps that every one of them has taken, in their order."""
    varying: Sequence[str]
    """The names of steps that one of them has taken more often than another."""
    states: dict[str, list[str]]
    """The digests of the versions of each table, by its place in the folder; that of the newest is first."""
    losing: frozenset[str]
    """The tables of which not every version was readable in the end."""

    def faults(self, kind: FaultKind, at: str = "*") -> list[Fault]:
        """One of this kind for each step where it can happen and whose name fits the pattern.

        No kill where the folder is as it was at the step before of these: it would leave the same.
        """
        found = [point for point in self.points if kind in point.kinds and fnmatchcase(point.name, at)]
        if kind == "kill":
            contents = [None, *(point.content for point in found)]
            found = [
                point
                for before, point in zip(contents, found, strict=False)
                if point.content is None or point.content != before
            ]
        return [Fault(kind, point.occurrence, point.name) for point in found]


@dataclass
class Trial:
    """A run for each of the stages, with its faults, and one without."""

    name: str
    stages: Sequence[Sequence[Fault]]
    must_fire: bool = True
    """Whether a fault that did not happen is an error."""


@dataclass
class Outcome:
    """What has become of a trial; `problems` are in words, none if all was well."""

    trial: Trial
    problems: list[str]
    fired: list[str]
    runs: int
    seconds: float
    seen: int
    """How many versions the reader has looked at."""


@dataclass
class _Active:
    trial: Trial
    folder: str
    stages: Sequence[Sequence[Fault]]
    fired: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0
    readers: dict[str, Reader] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    seen: int = 0
    is_done: bool = False
    is_first: bool = False


class Pipeline:
    """A pipeline under trial, in a folder for all its trials.

    `function` is `module:function`, found with this process's `sys.path`. Its runs are `processes`, started
    one after the other. `check` is called with the folder of each run that is over. `ignored` names columns
    whose values differ from run to run. `compared_at_end` names tables, by their places in the folder, that
    another run than the killed one may put in order: their newest rows are compared at the end, and the
    versions before need only be readable. Of `together` trials, the processes are killed by one kill: more
    are faster, and each of them still stands at a point of its own when its process is killed. A run that
    takes `timeout_s` is an error.
    """

    def __init__(
        self,
        function: str,
        folder: str,
        processes: Processes,
        *,
        check: Check | None = None,
        ignored: Iterable[str] = (),
        compared_at_end: Iterable[str] = (),
        together: int = 1,
        timeout_s: float = 180,
    ) -> None:
        self.function = function
        self._folder = folder
        self._processes = processes
        self._check = check
        self._ignored = frozenset(ignored)
        self._compared_at_end = frozenset(compared_at_end)
        self._together = together
        self._timeout_s = timeout_s
        self._number = 0
        self._recording: Recording | None = None
        self._stalled_s = _STALLED_S

    # ------------------------------------------------------------------------------------------- recording

    def record(self) -> Recording:
        """Runs the function twice, each time in a new folder, without a fault.

        RuntimeError if it fails, and if its tables do not have the same rows in the end.
        """
        runs = [_Active(Trial(f"recording {n}", ()), self._new_folder(), ()) for n in (1, 2)]
        reports = {report.folder: report for report in self._run(runs, records=True)}
        for run in runs:
            report = reports.get(run.folder)
            if report is None or report.outcome != "done":
                raise RuntimeError(f"{self.function} fails without a fault: {run.problems or report}")
            if self._check is not None:
                self._check(run.folder)
        first, second = (reports[run.folder] for run in runs)
        counts = [{p.name: p.occurrence for p in report.points} for report in (first, second)]
        ends = [
            {place: self._digest(posixpath.join(run.folder, place)) for place in tables_below(run.folder)}
            for run in runs
        ]
        if ends[0] != ends[1]:
            raise RuntimeError(
                f"Two runs of {self.function} end with different rows: {ends}. "
                "Name the columns that differ by nature in `ignored`."
            )
        points = [p for p in second.points if p.occurrence <= counts[0].get(p.name, 0)]
        known = {(p.name, p.occurrence): p for p in first.points}
        points = [_in_both(known[p.name, p.occurrence], p) for p in points]
        names = {*counts[0], *counts[1]}
        varying = sorted(name for name in names if counts[0].get(name) != counts[1].get(name))
        states: dict[str, list[str]] = {}
        losing: set[str] = set()
        for place, newest in ends[1].items():
            seen = {*first.states.get(place, ()), *second.states.get(place, ())}
            # Not every table is made by steps.
            left = self._versions_left(posixpath.join(runs[1].folder, place))
            if left is None:
                losing.add(place)
            states[place] = [newest, *sorted({*seen, *(left or ())} - {newest})]
        self._recording = Recording(points, varying, states, frozenset(losing))
        return self._recording

    def _digest(self, table: str) -> str:
        state = Reader(table, self._ignored).state()
        assert state is not None
        return state.digest

    def _versions_left(self, table: str) -> list[str] | None:
        """The digests of all versions; None if not every one is readable any more."""
        reader = Reader(table, self._ignored)
        versions, found = reader.readable_versions(), []
        for version in versions:
            try:
                state = reader.state(version)
            except FileNotFoundError:
                return None
            assert state is not None
            found.append(state.digest)
        return found if versions[:1] == [0] else None

    # -------------------------------------------------------------------------------------------- trials

    def run(self, trials: Iterable[Trial]) -> Iterator[Outcome]:
        """Makes the trials, and tells the outcome of each as soon as it is over; `record` comes first."""
        assert self._recording is not None
        waiting = deque(trials)
        active: list[_Active] = []
        while waiting or active:
            while waiting and not self._is_full(active):
                trial = waiting.popleft()
                active.append(_Active(trial, self._new_folder(), trial.stages))
            active.sort(key=lambda each: not each.is_first)
            self._run(active, records=False)
            for each in active:
                if each.is_done or each.problems:
                    yield self._outcome(each)
            active = [each for each in active if not (each.is_done or each.problems)]

    def _is_full(self, active: Sequence[_Active]) -> bool:
        kills = sum(any(fault.kind == "kill" for stage in a.stages for fault in stage) for a in active)
        return kills >= self._together or len(active) >= _TRIALS_WITHOUT_KILL

    def _outcome(self, active: _Active) -> Outcome:
        trial = active.trial
        wanted = sum(len(stage) for stage in trial.stages)
        if not active.problems and trial.must_fire and len(active.fired) < wanted:
            active.problems.append(
                f"{wanted - len(active.fired)} faults did not happen: the run came to no such step"
            )
        if not active.problems:
            try:
                self._check_end(active)
            except (AssertionError, DeltaError, OSError) as error:
                active.problems.append(f"{type(error).__name__}: {error}")
        return Outcome(trial, active.problems, active.fired, active.runs, active.seconds, active.seen)

    def _check_end(self, active: _Active) -> None:
        assert self._recording is not None
        states = self._recording.states
        places = tables_below(active.folder)
        assert places == sorted(states), f"the tables are {places}, not {sorted(states)}"
        for place in places:
            reader = Reader(posixpath.join(active.folder, place), self._ignored)
            newest = reader.state()
            assert newest is not None
            assert newest.digest == states[place][0], (
                f"{place or 'the table'} has {newest.digest} in the end, not {states[place][0]}"
            )
            for version in reader.readable_versions():
                try:
                    state = reader.state(version)
                except FileNotFoundError:
                    if place not in self._recording.losing:
                        raise
                    continue
                assert state is not None
                self._check_state(place, version, state.digest)
        if self._check is not None:
            self._check(active.folder)

    def _check_state(self, place: str, version: int, digest: str) -> None:
        assert self._recording is not None
        assert place in self._compared_at_end or digest in self._recording.states[place], (
            f"version {version} of {place or 'the table'} has {digest}, as no version without a fault has"
        )

    def _look(self, active: _Active) -> None:
        """What a reader sees of the tables just now."""
        assert self._recording is not None
        for place in self._recording.states:
            if place not in active.readers:
                active.readers[place] = Reader(posixpath.join(active.folder, place), self._ignored)
            reader = active.readers[place]
            newest = reader.newest_version()
            if newest < 0 or newest == active.versions.get(place):
                continue
            state = reader.state()
            assert state is not None
            active.versions[place] = state.version
            active.seen += 1
            self._check_state(place, state.version, state.digest)

    # -------------------------------------------------------------------------------------------- processes

    def _new_folder(self) -> str:
        self._number += 1
        folder = posixpath.join(self._folder, f"trial-{self._number:05}")
        if "://" not in folder:
            Path(folder).mkdir()
        return folder

    def _run(self, active: Sequence[_Active], *, records: bool) -> list[Report]:
        """Lets one process go on with the trials; returns the last report of each run, and notes them."""
        with tempfile.TemporaryDirectory(prefix="deltaflow-trials-") as reports:
            return self._run_process(active, Path(reports, "reports.jsonl"), records=records)

    def _run_process(self, active: Sequence[_Active], reports_file: Path, *, records: bool) -> list[Report]:
        output_file = reports_file.with_suffix(".out")
        orders = Orders(
            function=self.function,
            reports=str(reports_file),
            output=str(output_file),
            tasks=[Task(each.folder, each.stages) for each in active],
            records=records,
            ignored=sorted(self._ignored),
            timeout_s=self._timeout_s,
        )
        by_folder = {each.folder: each for each in active}
        ended: list[Report] = []
        current: _Active | None = None
        began = heard = time.monotonic()
        process = self._processes.start(orders)
        offset = 0
        is_over = has_standing = False
        try:
            while not is_over:
                is_over = self._processes.ended(process, _PAUSE_S)
                found, offset = _new_reports(reports_file, offset)
                for report in found:
                    heard = time.monotonic()
                    each = by_folder[report.folder]
                    if report.outcome == "began":
                        current, began = each, heard
                        each.runs += 1
                    else:
                        each.seconds += heard - began
                        self._note(each, report)
                        has_standing |= report.outcome == "stands"
                        self._stalled_s = max(self._stalled_s, 5 * (heard - began))
                        ended.append(report)
                        current = None
                if current is not None and not (records or current.problems):
                    try:
                        self._look(current)
                    except (AssertionError, DeltaError, OSError) as error:
                        current.problems.append(f"a reader: {type(error).__name__}: {error}")
                silent_s = time.monotonic() - heard
                if current is not None and has_standing and silent_s > self._stalled_s:
                    self._begin_anew(current)
                    current = None
                    break
                if not found and silent_s > self._timeout_s + 60:
                    break
        finally:
            self._processes.end(process)
        if current is not None and not current.problems:
            text = output_file.read_text(errors="replace")
            current.problems.append(f"its process ended or hung, with code {process.code}:\n{text[-3_000:]}")
        if not ended and current is None and not any(each.is_first for each in active):
            output = output_file.read_text(errors="replace")[-3_000:]
            raise RuntimeError(f"The worker ended with code {process.code}: {output}")
        return ended

    def _begin_anew(self, each: _Active) -> None:
        """Lets a trial begin again, as the first one of the next process."""
        each.folder, each.stages = self._new_folder(), each.trial.stages
        each.fired, each.readers, each.versions = [], {}, {}
        each.is_first = True

    def _note(self, each: _Active, report: Report) -> None:
        each.fired += report.fired
        match report.outcome:
            case "done":
                each.is_done = True
            case "stands" | "failed":
                if report.outcome == "failed" and not report.fired:
                    each.problems.append(f"it fails without a fault: {report.error}")
                each.stages = each.stages[1:]


def _in_both(first: PointReport, second: PointReport) -> PointReport:
    """A step that two runs have taken."""
    kinds = [kind for kind in second.kinds if kind in first.kinds]
    contents = (first.content, second.content)
    return structs.replace(
        second, kinds=kinds, content=None if None in contents else "/".join(map(str, contents))
    )


def _new_reports(file: Path, offset: int) -> tuple[list[Report], int]:
    """The whole lines of a file from an offset on, and the offset behind them."""
    if not file.exists():
        return [], offset
    with file.open("rb") as opened:
        opened.seek(offset)
        lines = opened.read().rpartition(b"\n")[0].splitlines()
    found = [msgspec.json.decode(line, type=Report) for line in lines]
    return found, offset + sum(len(line) + 1 for line in lines)
