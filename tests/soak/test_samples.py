"""The verdict over samples: what grows is told, what is level or only fills at first is not."""

from __future__ import annotations

import pytest

from tests.soak.samples import BOUNDS, verdict


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
