"""Conflict checks against brute force: what commits has a serial order, what does not was in its way."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaflow.log import Conflict
from deltaflow.log.commits import conflicts
from tests.log.histories import OPERATIONS, Attempt, class_of, expected_outcomes, has_serial_order, play

LEVELS = ("Serializable", "WriteSerializable")


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[tuple[str, Any]], list[int]]:
    level = draw(st.sampled_from(LEVELS))
    operations = draw(st.lists(st.sampled_from(OPERATIONS), min_size=2, max_size=4))
    return level, operations, draw(st.permutations([*range(len(operations))] * 2))


def found(attempts: list[Attempt]) -> list[tuple[type[Exception], int] | None]:
    return [
        (class_of(attempt.outcome.error), attempt.version) if isinstance(attempt.outcome, Conflict) else None
        for attempt in attempts
    ]


@settings(max_examples=100, deadline=None)
@given(histories())
def test_any_history(history: tuple[str, list[tuple[str, Any]], list[int]]) -> None:
    level, operations, schedule = history
    world, attempts = play(level, operations, schedule)
    assert found(attempts) == expected_outcomes(level, world, attempts)
    assert has_serial_order(level, world, attempts)


def pairs() -> Any:
    """Two operations that read one version, and commit one after the other."""
    return ((winner, loser) for winner, loser in itertools.product(OPERATIONS, repeat=2))


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.sampled(7)
def test_every_pair(level: str, part: int) -> None:
    for pair in itertools.islice(pairs(), part, None, 8):
        world, attempts = play(level, pair, [0, 1, 0, 1])
        assert found(attempts) == expected_outcomes(level, world, attempts), pair
        assert has_serial_order(level, world, attempts), pair


@pytest.mark.parametrize("rule", conflicts.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.sampled(12)
def test_without_any_one_rule_some_pair_has_no_serial_order(
    monkeypatch: pytest.MonkeyPatch, rule: conflicts.Rule
) -> None:
    monkeypatch.setattr(conflicts, "RULES", tuple(other for other in conflicts.RULES if other is not rule))
    for pair in pairs():
        world, attempts = play("Serializable", pair, [0, 1, 0, 1])
        if not has_serial_order("Serializable", world, attempts):
            return
    pytest.fail(f"{rule.__name__} is not needed")


def test_a_change_of_metadata_may_not_overlook_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception from the exception: an append was made for the metadata that it has read."""
    never = property(lambda loser: False, lambda loser, value: None)
    monkeypatch.setattr(conflicts.Loser, "changes_metadata", never, raising=False)
    world, attempts = play("WriteSerializable", [("insert", 1), ("alter and delete", 1)], [0, 1, 0, 1])
    assert not has_serial_order("WriteSerializable", world, attempts)
