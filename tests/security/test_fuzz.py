"""A few inputs of the fuzzers, without coverage; and what the long runs found."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.security.fuzz import TARGETS, fault, mutations

INPUTS = 40


@pytest.mark.parametrize("name", TARGETS)
def test_no_case_crashes(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    for seed in target.seeds():
        assert fault(target, seed) is None
        for data in itertools.islice(mutations(seed, chance), INPUTS):
            found = fault(target, data)
            assert found is None, f"{data!r}\n{found}"
