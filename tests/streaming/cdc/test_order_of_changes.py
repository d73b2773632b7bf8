"""The target is the same for every order of the changes of a key and for every way to cut them into batches.

Many small worlds of changes are applied at once, each with keys of its own: a batch is as good a trial as
hundreds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from pyspark.sql import functions as F

from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import ByConditions
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.side_tables import Write
from deltaflow.streaming.cdc.target import Target
from tests.tables import load
from tests.trials import trials

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

WORLDS, CHANGES, BATCHES = 150, 8, 3
SCHEMA = "world INT, key INT, a STRING, b INT, op STRING, at INT, batch INT"


@dataclass(frozen=True)
class Change:
    world: int
    key: int
    a: str | None
    b: int | None
    op: str
    at: int


def worlds(seed: int, *, ties: bool = False) -> list[Change]:
    choice = random.Random(seed)
    changes = []
    for world in range(WORLDS):
        for at in range(1, CHANGES + 1):
            if ties:
                at = choice.randint(1, 3)
            op = choice.choice("uuuud")
            a = choice.choice(["x", "y", "z", None])
            b = choice.choice([1, 2, 3, None])
            changes.append(Change(world, choice.choice([1, 1, 2]), a, b, op, at))
    return changes


def apply(spark, table, changes, seed, batches=BATCHES, **options):
    """Applies the changes in a random order, cut at random."""
    choice = random.Random(seed)
    rows = [(c.world, c.key, c.a, c.b, c.op, c.at, choice.randrange(batches)) for c in changes]
    frame = spark.createDataFrame(rows, SCHEMA)
    applier = Applier(
        target=Target(table, None),
        envelope=ByConditions(F.col("at"), F.col("op") == "d"),
        data_columns=DataColumns(
            ["world", "key"],
            except_columns=("op", "at", "batch"),
            track_history=options.get("track_history"),
        ),
        scd_type=options.get("scd_type", 1),
        ignore_null_updates=options.get("ignore_null_updates", False),
        horizon_ms=10**9,
    )
    for batch in range(batches):
        applier.apply(frame.where(F.col("batch") == batch), Write("test", batch))


def by_key(changes):
    found: dict[tuple[int, int], list[Change]] = {}
    for change in sorted(changes, key=lambda change: change.at):
        found.setdefault((change.world, change.key), []).append(change)
    return found


def lives(changes, *, ignore_nulls):
    """For each change of one key, in order: its sequence, and the row after it; None after a delete."""
    row = None
    for change in changes:
        if change.op == "d":
            row = None
        elif row is None or not ignore_nulls:
            row = (change.a, change.b)
        else:
            row = (row[0] if change.a is None else change.a, row[1] if change.b is None else change.b)
        yield change.at, row


def newest(changes, *, ignore_nulls=False):
    rows = []
    for key, of_key in by_key(changes).items():
        *_, (_, row) = lives(of_key, ignore_nulls=ignore_nulls)
        if row is not None:
            rows.append((*key, *row))
    return rows


def history(changes, *, ignore_nulls=False, tracked=None):
    rows = []
    for key, of_key in by_key(changes).items():
        open_row = None
        for at, row in lives(of_key, ignore_nulls=ignore_nulls):
            if tracked and open_row and row and row[tracked - 1] == open_row[tracked - 1]:
                open_row = (*row, open_row[2])
                continue
            if open_row:
                rows.append((*key, *open_row, at))
            open_row = (*row, at) if row else None
        if open_row:
            rows.append((*key, *open_row, None))
    return rows


def found(spark, table, *names):
    rows = load(spark, table).select("world", "key", "a", "b", *names).collect()
    return sorted((tuple(row) for row in rows), key=repr)


def in_order(rows):
    return sorted(rows, key=repr)


ROWS = [pytest.param(False, id="whole rows", marks=pytest.mark.long), pytest.param(True, id="parts of rows")]


@pytest.mark.parametrize("seed", trials(5, short=1))
@pytest.mark.parametrize("ignore_nulls", ROWS)
@pytest.mark.sampled(2)
def test_current_rows(spark, table, ignore_nulls, seed):
    changes = worlds(seed)
    apply(spark, table, changes, seed, ignore_null_updates=ignore_nulls)
    assert found(spark, table) == in_order(newest(changes, ignore_nulls=ignore_nulls))


@pytest.mark.parametrize("seed", trials(5, short=1))
@pytest.mark.parametrize("ignore_nulls", ROWS)
@pytest.mark.sampled(2)
def test_history(spark, table, ignore_nulls, seed):
    changes = worlds(seed)
    apply(spark, table, changes, seed, scd_type=2, ignore_null_updates=ignore_nulls)
    expected = history(changes, ignore_nulls=ignore_nulls)
    assert found(spark, table, "__START_AT", "__END_AT") == in_order(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long
def test_history_of_some_columns(spark, table, seed):
    changes = worlds(seed)
    apply(spark, table, changes, seed, scd_type=2, track_history=["a"])
    expected = history(changes, tracked=1)
    assert found(spark, table, "__START_AT", "__END_AT") == in_order(expected)


@pytest.mark.parametrize(
    ("scd_type", "ignore_nulls"),
    [
        pytest.param(1, False, id="current rows"),
        pytest.param(2, True, id="history by parts", marks=pytest.mark.long),
        pytest.param(1, True, id="current rows by parts", marks=pytest.mark.long),
        pytest.param(2, False, id="history", marks=pytest.mark.long),
    ],
)
def test_equal_sequences(spark, tmp_path, scd_type, ignore_nulls):
    """Which of two changes with equal sequences wins does not depend on when they come."""
    changes, tables = worlds(7, ties=True), [str(tmp_path / name) for name in ("a", "b")]
    names = ["__START_AT", "__END_AT"] if scd_type == 2 else ["__SEQUENCE"]
    for seed, table in enumerate(tables):
        apply(
            spark,
            table,
            changes,
            seed,
            batches=1 + seed,
            scd_type=scd_type,
            ignore_null_updates=ignore_nulls,
        )
    assert found(spark, tables[0], *names) == found(spark, tables[1], *names)
