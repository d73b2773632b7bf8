"""Damaged logs, a few of the cases of `python -m tests.log.fuzz`; and that the fuzzer can find something."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from deltaflow.log import delta_log
from deltaflow.log.replay.listing import Listing
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import list_newest, load_state
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.state import TableState
from tests.log import fuzz
from tests.log.fuzz import Log

CASES = range(120)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Log]:
    return fuzz.sound_logs(tmp_path_factory.mktemp("sound"))


def test_a_damaged_log_gives_a_right_state_or_an_error_that_names_the_file(
    logs: list[Log], tmp_path: Path
) -> None:
    outcomes: Counter[str] = Counter()
    for case in CASES:
        outcome, finding = fuzz.run_case(case, logs, tmp_path / f"case-{case}")
        assert finding is None, f"case {case}: {finding}"
        outcomes[outcome] += 1
    # Neither is everything refused, nor is everything believed.
    assert outcomes["state"] > len(CASES) / 4
    assert outcomes["CorruptLogError"] > len(CASES) / 10


def test_sound_logs_give_their_state_by_every_reading(logs: list[Log], tmp_path: Path) -> None:
    for number, log in enumerate(logs):
        assert fuzz.finding(log, tmp_path / str(number), None) == ("state", None)
        states = list(fuzz.plain_states(log))
        assert len(states) >= 2
        assert len(set(states)) == 1


def test_a_wrong_table_and_a_crash_are_found(
    logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def an_older_one(log: LogFiles) -> tuple[Listing, TableState]:
        listing = list_newest(log)
        newest = listing.latest_version
        return listing, replace(load_state(log, listing, newest - 1), version=newest)

    with monkeypatch.context() as patch:
        patch.setattr(delta_log, "load_newest", an_older_one)
        assert "not in the files" in str(fuzz.finding(logs[0], tmp_path / "older", None)[1])

    def crash(self: Snapshot) -> int:
        raise IndexError("of a library")

    monkeypatch.setattr(Snapshot, "size_in_bytes", property(crash))
    assert fuzz.finding(logs[0], tmp_path / "crash", None) == ("crash", "IndexError: of a library")
