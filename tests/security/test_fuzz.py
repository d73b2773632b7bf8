"""A few inputs of the fuzzers, without coverage; and what the long runs found."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from tests.security.fuzz import STORED_TYPES, TARGETS, fault, mutations

INPUTS = 40


@pytest.mark.parametrize("name", TARGETS)
def test_no_case_crashes(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    seeds = target.seeds()
    some = chance.sample(seeds, min(len(seeds), 12))
    for seed in some:
        assert fault(target, seed) is None
        for data in itertools.islice(mutations(seed, chance), INPUTS // len(some)):
            found = fault(target, data)
            assert found is None, f"{data!r}\n{found}"


@pytest.mark.parametrize("kind", range(len(STORED_TYPES)), ids=str)
def test_statistics_in_columns_may_have_any_type(kind: int) -> None:
    bounds = {f"c{number}": number for number in range(10)}
    said = json.dumps({"numRecords": 3, "minValues": bounds, "maxValues": bounds}).encode()
    assert fault(TARGETS["stored_statistics"], bytes([0, kind]) + said) is None
