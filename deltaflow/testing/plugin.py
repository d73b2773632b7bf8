"""The fixture `fault_trials` of pytest, its marker and its options."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from deltaflow.testing.faults import FaultKind
from deltaflow.testing.processes import Processes
from deltaflow.testing.trials import Check, Outcome, Pipeline, Recording, Trial

_MARKER = "faults"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line."""
    group = parser.getgroup("deltaflow")
    group.addoption(
        "--faults-at", metavar="PATTERN", help="Only the steps whose names fit, such as '*commit*'."
    )
    group.addoption("--faults-most", metavar="N", type=int, help="At most N trials of a kind in each test.")


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(at='*', most=None, kinds=('kill',), seed=0): which faults the fixture fault_trials tries",
    )


class FaultTrials:
    """Runs pipelines under faults; use the fixture `fault_trials`."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        at: str,
        most: int | None,
        kinds: Sequence[FaultKind],
        seed: int,
    ) -> None:
        self._folder, self._processes = folder, processes
        self._at, self._most, self._kinds, self._seed = at, most, kinds, seed

    def run(
        self,
        function: str,
        *,
        check: Check | None = None,
        ignored: Iterable[str] = (),
        together: int = 1,
        timeout_s: float = 180,
    ) -> list[Outcome]:
        """Runs the pipeline `module:function` once for every fault, and again until it is through.

        AssertionError names each fault after which a table lacks a row, has one twice, could not be read in
        between, or `check(folder)` fails. `ignored`: columns whose values differ from run to run.
        `together`: of how many trials the processes are killed by one kill, which saves starts of Java.
        `timeout_s`: what a run may take.
        """
        folder = self._folder / f"pipeline-{sum(1 for _ in self._folder.iterdir())}"
        folder.mkdir()
        pipeline = Pipeline(
            function,
            str(folder),
            self._processes,
            check=check,
            ignored=ignored,
            together=together,
            timeout_s=timeout_s,
        )
        trials = list(self._trials(pipeline.record()))
        assert trials, f"{function} takes no step whose name fits {self._at!r}"
        outcomes = list(pipeline.run(trials))
        bad = [
            f"{outcome.trial.name}: {'; '.join(outcome.problems)}" for outcome in outcomes if outcome.problems
        ]
        assert not bad, f"{len(bad)} of {len(outcomes)} trials went wrong:\n" + "\n".join(bad)
        return outcomes

    def _trials(self, recording: Recording) -> Iterator[Trial]:
        for kind in self._kinds:
            faults = recording.faults(kind, self._at)
            if self._most is not None and len(faults) > self._most:
                faults = [
                    faults[i]
                    for i in sorted(random.Random(self._seed).sample(range(len(faults)), self._most))
                ]
            yield from (Trial(str(fault), [[fault]]) for fault in faults)


def _chosen(marker: pytest.Mark | None) -> dict[str, Any]:
    """What the marker says; UsageError for what it has no meaning for."""
    chosen: dict[str, Any] = {"at": "*", "most": None, "kinds": ("kill",), "seed": 0}
    if marker is None:
        return chosen
    wrong = [*map(repr, marker.args), *sorted(marker.kwargs.keys() - chosen.keys())]
    chosen |= marker.kwargs
    wrong += [f"the kind {kind!r}" for kind in chosen["kinds"] if kind not in get_args(FaultKind)]
    if wrong:
        raise pytest.UsageError(
            f"The marker {_MARKER} does not know {', '.join(wrong)}. It takes at, most, kinds and seed by "
            f"their names, and a sequence of these kinds: {', '.join(get_args(FaultKind))}."
        )
    return chosen


@pytest.fixture(scope="session")
def processes_of_trials() -> Iterator[Processes]:
    """Starts the processes of all trials."""
    with Processes() as processes:
        yield processes


@pytest.fixture
def fault_trials(
    request: pytest.FixtureRequest,
    processes_of_trials: Processes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> FaultTrials:
    """Runs pipelines under faults, which the marker `faults` and the options `--faults-*` choose."""
    chosen = _chosen(request.node.get_closest_marker(_MARKER))
    at, most = request.config.getoption("--faults-at"), request.config.getoption("--faults-most")
    # The module of the pipeline may stand beside the test.
    monkeypatch.setattr(sys, "path", [*sys.path, str(request.path.parent), str(request.config.rootpath)])
    return FaultTrials(
        tmp_path,
        processes_of_trials,
        at or chosen["at"],
        most or chosen["most"],
        tuple(chosen["kinds"]),
        int(chosen["seed"]),
    )
