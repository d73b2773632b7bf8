"""The verdict over samples: what grows is told, what is level or only fills at first is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.samples import BOUNDS, append, grows, runs, verdict


def growing(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.endswith("GROWS")]


def test_what_is_level_is_flat() -> None:
    assert growing(verdict([dict.fromkeys(BOUNDS, 100.0 + n % 3) for n in range(30)])) == []


def test_what_fills_in_the_first_third_is_flat() -> None:
    assert growing(verdict([dict.fromkeys(BOUNDS, float(min(10 * n, 100))) for n in range(60)])) == []


@pytest.mark.parametrize("name", BOUNDS)
def test_what_grows_is_told(name: str) -> None:
    samples = [{**dict.fromkeys(BOUNDS, 100.0), name: 100.0 + 3 * n} for n in range(60)]
    assert growing(verdict(samples)) == [name]


def test_a_few_high_values_are_no_growth() -> None:
    samples = [dict.fromkeys(BOUNDS, 1_000.0 if n % 9 == 8 else 100.0) for n in range(60)]
    assert growing(verdict(samples)) == []


def test_too_few_samples_are_no_proof() -> None:
    assert grows(verdict([dict.fromkeys(BOUNDS, 100.0)] * 5))


def test_the_samples_of_each_driver_are_told_apart(tmp_path: Path) -> None:
    for run, second in [(1, 60), (1, 120), (2, 60)]:
        append(tmp_path / "samples", {"run": run, "second": second})
    assert [[sample["second"] for sample in of_run] for of_run in runs(tmp_path / "samples")] == [
        [60, 120],
        [60],
    ]
