"""Trials by chance: `tests/run` tries a few, `pytest -m long` the others."""

from __future__ import annotations

from typing import Any

import pytest


def trials(number: int, *, short: int) -> list[Any]:
    """The seeds of so many trials, for `parametrize`; all after the first `short` ones are marked as long."""
    return [*range(short), *[pytest.param(seed, marks=pytest.mark.long) for seed in range(short, number)]]
