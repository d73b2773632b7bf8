"""The check of histories finds what is wrong with one; no JVM."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from tests.batch.random_operations import Condition, Row
from tests.races.check import Report, check
from tests.races.history import History, Version
from tests.races.jobs import DONE, Told
from tests.races.operations import VECTORS, Contents, Operation

LEVELS = ["Serializable", "WriteSerializable"]
FIRST: Row = (1, "a", 0, None, None)
SECOND: Row = (2, "b", 0, None, None)
NEW: Row = (3, "a", 0, None, None)


def operation(identity: str, kind: str, where: str = "true", rows: tuple[Row, ...] = ()) -> Operation:
    holds = {
        "true": lambda row: True,
        "p = 'a'": lambda row: row[1] == "a",
        "id = 3": lambda row: row[0] == 3,
    }[where]
    return Operation(identity, kind, Condition(where, holds), rows, (), None, 1, 1, False, False)


APPEND = operation("append", "append", rows=(NEW[:3],))
UPDATE = operation("update", "update", "p = 'a'")
DELETE = operation("delete", "delete", "p = 'a'")
COPY = operation("copy", "copy", "p = 'a'")


def version(own: Operation, read: int, rows: list[Row], **info: Any) -> tuple[Operation, int, list[Row], Any]:
    return own, read, rows, info


def checked(isolation: str, *commits: Any, told: dict[str, str] | None = None) -> Report:
    """A history that begins with FIRST and SECOND; the outcomes of operations are `told`, DONE without."""
    history = History(lambda path: b"")
    history.versions.append(Version(0, Contents(Counter([FIRST, SECOND])), {}, 2, 0, True))
    operations = {one.id: one for one in (APPEND, UPDATE, DELETE, COPY, *(own for own, *_ in commits))}
    tells: dict[str, Told] = {}
    for number, (own, read, rows, info) in enumerate(commits, start=1):
        fields = {"userMetadata": own.id, "readVersion": read, "operation": "", "operationParameters": {}}
        removes = 0 if own.kind in ("append", "copy") else 1
        history.versions.append(
            Version(number, Contents(Counter(rows)), {**fields, **info}, 1, removes, False)
        )
        tells[own.id] = {"id": own.id, "outcome": DONE, "before": read, "after": len(commits)}
    for identity, outcome in (told or {}).items():
        tells.setdefault(identity, {"id": identity, "before": 0, "after": len(commits)})["outcome"] = outcome
    return check(history, isolation, operations, list(tells.values()))


def updated(row: Row) -> Row:
    return (*row[:2], row[2] + 1, *row[3:])


@pytest.mark.parametrize("isolation", LEVELS)
def test_operations_one_after_the_other(isolation: str) -> None:
    report = checked(
        isolation,
        version(APPEND, 0, [FIRST, SECOND, NEW]),
        version(UPDATE, 1, [updated(FIRST), SECOND, updated(NEW)]),
        version(DELETE, 2, [SECOND]),
    )
    assert (report.faults, report.commits, report.reordered, report.without_order) == ([], 3, 0, "")


@pytest.mark.parametrize("isolation", LEVELS)
def test_an_append_that_an_update_has_not_seen(isolation: str) -> None:
    """It may come after the update, unless the level is Serializable."""
    report = checked(
        isolation,
        version(APPEND, 0, [FIRST, SECOND, NEW]),
        version(UPDATE, 0, [updated(FIRST), SECOND, NEW]),
    )
    if isolation == "Serializable":
        assert len(report.faults) == 1
        assert "version 2 is not what its operation makes" in report.faults[0]
    else:
        assert (report.faults, report.reordered, report.without_order) == ([], 1, "")


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([updated(FIRST), SECOND], "lost"),
        ([updated(FIRST), SECOND, NEW, NEW], "doubled"),
        ([updated(FIRST), FIRST, SECOND, updated(NEW)], "resurrected"),
        ([FIRST, SECOND, NEW], "not updated"),
    ],
)
def test_a_row_that_should_not_be_so(isolation: str, rows: list[Row], what: str) -> None:
    report = checked(isolation, version(APPEND, 0, [FIRST, SECOND, NEW]), version(UPDATE, 1, rows))
    assert len(report.faults) == 1, what


def test_an_update_may_not_overlook_what_another_one_wrote() -> None:
    """Both add 1 to what they have read: one of the two is lost."""
    twice = replace(UPDATE, id="append")
    report = checked(
        "WriteSerializable",
        version(twice, 0, [updated(FIRST), SECOND]),
        version(UPDATE, 0, [updated(FIRST), SECOND]),
    )
    assert any("version 2" in fault for fault in report.faults)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        ("ConcurrentAppendException DELTA_CONCURRENT_APPEND", "and is in the log as [1]"),
        ("Py4JError", "failed with Py4JError"),
    ],
)
def test_a_failed_operation_has_no_commit_and_a_known_error(outcome: str, fault: str) -> None:
    commits = [version(APPEND, 0, [FIRST, SECOND, NEW])] if fault.startswith("and") else []
    report = checked("Serializable", *commits, told={"append": outcome})
    assert fault in report.faults[0]


@pytest.mark.parametrize("has_x", [False, True])
def test_an_operation_may_fail_for_a_column_that_is_so(has_x: bool) -> None:
    history = History(lambda path: b"")
    history.versions.append(Version(0, Contents(Counter(), has_x=has_x), {}, 0, 0, True))
    rename = operation("rename", "x to y")
    told = {"id": "rename", "outcome": "SchemaError DELTA_COLUMN_NOT_FOUND", "before": 0, "after": 0}
    assert bool(check(history, "Serializable", {"rename": rename}, [told]).faults) is has_x


@pytest.mark.parametrize(
    ("contents", "vector", "fault"),
    [
        (Contents(Counter([(1, "a", 1 << 40, None, None)])), False, "values of v that are no INT"),
        (Contents(Counter([(1, "a", 1 << 40, None, None)]), is_v_long=True), False, None),
        (Contents(Counter(), properties=((VECTORS, "false"),)), True, "new deletion vectors"),
        (Contents(Counter(), properties=((VECTORS, "true"),)), True, None),
    ],
)
def test_what_the_type_and_the_properties_do_not_allow(
    contents: Contents, vector: bool, fault: str | None
) -> None:
    history = History(lambda path: b"")
    add: dict[str, Any] = {"deletionVector": {}} if vector else {}
    history.check_settings(contents, 1, [add], {"operation": "UPDATE"})
    assert len(history.problems) == bool(fault)
    assert all(fault is not None and fault in problem for _, problem in history.problems)


def test_an_operation_that_is_done_has_a_commit() -> None:
    assert checked("Serializable", told={"append": DONE}).faults[0].endswith("is in the log as []")


def test_a_version_of_nobody() -> None:
    stranger = replace(APPEND, id="stranger")
    history = History(lambda path: b"")
    history.versions += [
        Version(0, Contents(Counter()), {}, 0, 0, True),
        Version(1, Contents(Counter([NEW])), {"userMetadata": stranger.id}, 1, 0, False),
    ]
    assert "of no operation" in check(history, "Serializable", {}, []).faults[0]


def test_that_there_is_no_order_is_told() -> None:
    """The copy has seen the append, the update has not, and the update has seen the copy."""
    copied = [(row[0] + 100, *row[1:]) for row in (FIRST, NEW)]
    report = checked(
        "WriteSerializable",
        version(APPEND, 0, [FIRST, SECOND, NEW]),
        version(COPY, 1, [FIRST, SECOND, NEW, *copied]),
        version(UPDATE, 0, [updated(FIRST), SECOND, NEW, *map(updated, copied)]),
    )
    assert report.faults == []
    assert report.without_order.startswith("there is none: at most 2 of 3 versions")
    assert [line.split(";")[0] for line in report.history] == ["1 (read 0", "2 (read 1", "3 (read 0"]


def random_history(chance: random.Random) -> list[Any]:
    """Commits each of which has overlooked the appends that came after the version it read."""
    states, commits = [Counter([FIRST, SECOND])], []
    for number in range(1, 6):
        kind = chance.choice(["append", "append", "copy", "update", "update", "delete"])
        where = chance.choice(["true", "true", "p = 'a'", "id = 3"]) if kind == "delete" else "true"
        row = (chance.choice([3, 50 + number]), "a", 0)
        own = operation(f"{kind} {number}", kind, where, (row,) if kind == "append" else ())
        read = chance.choice([number - 1, max(0, number - 3)])
        overlooked: Counter[Row] = Counter()
        for other in range(read + 1, number):
            if commits[other - 1][0].kind == "append":
                overlooked += states[other] - states[other - 1]
        seen = states[-1] - overlooked
        made = own.after(Contents(seen), (), None).rows
        states.append(states[-1] - (seen - made) + (made - seen))
        commits.append(version(own, read, list(states[-1].elements())))
    return commits


def has_an_order(commits: list[Any]) -> bool:
    """By a look at all orders in which no operation comes before one that it has seen."""
    changes, before = [], Counter([FIRST, SECOND])
    for _, _, rows, _ in commits:
        after = Counter(rows)
        changes.append((before - after, after - before))
        before = after
    for order in permutations(range(len(commits))):
        places = {number: place for place, number in enumerate(order)}
        if any(places[earlier] > places[n] for n in order for earlier in range(commits[n][1])):
            continue
        rows = Counter([FIRST, SECOND])
        for number in order:
            made = commits[number][0].after(Contents(rows), (), None).rows
            if (rows - made, made - rows) != changes[number]:
                break
            rows = made
        else:
            return True
    return False


def test_an_order_is_found_where_there_is_one() -> None:
    chance, found = random.Random(0), Counter[bool]()
    for _ in range(300):
        commits = random_history(chance)
        report = checked("WriteSerializable", *commits)
        assert report.faults == []
        assert has_an_order(commits) is not bool(report.without_order), commits
        found[bool(report.without_order)] += 1
    assert found[True] > 5


def test_a_fault_is_of_the_engine_that_has_made_the_version() -> None:
    rows = [updated(FIRST), SECOND]
    by_deltalake = version(UPDATE, 1, rows, engineInfo="delta-rs:py-1.6.6")
    report = checked("Serializable", version(APPEND, 0, [FIRST, SECOND, NEW]), by_deltalake)
    assert (len(report.faults), len(report.faults_of_deltalake)) == (0, 1)
