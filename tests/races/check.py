"""Whether a history is one of its isolation level, by a model of plain rows.

Serializable: each commit makes of the version before it what its operation makes of it; the operations one
after the other, in the order of the versions, give the table.

WriteSerializable: the same, but a commit may not have seen appends that were committed while it ran; and
there is an order of all operations in which each does what it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.races.history import History, Version
from tests.races.jobs import DONE, Told
from tests.races.operations import Contents, Operation

_MAY_FAIL = ("Concurrent", "MetadataChanged", "ProtocolChanged")
"""What begins the names of the errors of operations that met another one."""
_IS_THERE, _IS_NOT_THERE = "SchemaError FIELD_ALREADY_EXISTS", "SchemaError DELTA_COLUMN_NOT_FOUND"
_MAY_FAIL_TOO: dict[str, tuple[tuple[str, ...], Callable[[Contents], bool]]] = {
    "add x": ((_IS_THERE, "DeltaError"), lambda table: table.has_x),
    "drop x": ((_IS_NOT_THERE,), lambda table: not table.has_x),
    "x to y": ((_IS_NOT_THERE, _IS_THERE), lambda table: not table.has_x or table.has_y),
    "y to x": ((_IS_NOT_THERE, _IS_THERE), lambda table: not table.has_y or table.has_x),
    "set x": (("AnalysisException UNRESOLVED_COLUMN", "DeltaError"), lambda table: not table.has_x),
    # A vacuum has deleted what the version had.
    "restore": (("StoreError DELTA_FILE_NOT_FOUND_DETAILED", "DeltaError"), lambda table: True),
}
"""By kind: errors that tell that the table was not so as the operation wants it, and whether it was not."""
_BY_DELTALAKE = ("CommitFailedError",)
OUT_OF_DATE = "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
_SEARCHED = 200_000
"""How many steps the search for an order takes at most."""

_WINDOW = 64
"""How many versions after the first that is not placed are considered for its place."""


@dataclass
class Report:
    """What was found in a history."""

    operations: int
    outcomes: Counter[str]
    commits: int
    """Commits of operations; a VACUUM makes two."""
    reordered: int = 0
    """How many operations come later in the order than in the log."""
    without_order: str = ""
    """Why no order of all operations was found, if none was."""
    faults: list[str] = field(default_factory=list)
    faults_of_deltalake: list[str] = field(default_factory=list)
    """Commits of deltalake that are not as the isolation level wants them."""
    history: list[str] = field(default_factory=list)
    """What each version is, to look into faults with."""


@dataclass(frozen=True)
class Effect:
    """How a commit changed a table."""

    added: tuple[tuple[object, int], ...]
    removed: tuple[tuple[object, int], ...]
    changed: tuple[tuple[str, object], ...]
    """The fields of Contents beside rows that have another value, and the value."""

    @staticmethod
    def between(before: Contents, after: Contents) -> Effect:
        added, removed = after.rows - before.rows, before.rows - after.rows
        changed = [
            (name, getattr(after, name))
            for name in ("has_x", "has_y", "is_v_long", "properties")
            if getattr(before, name) != getattr(after, name)
        ]
        return Effect(_ordered(added), _ordered(removed), tuple(changed))


def _ordered(rows: Counter[object]) -> tuple[tuple[object, int], ...]:
    return tuple(sorted(rows.items(), key=repr))


def check(
    history: History, isolation: str, operations: Mapping[str, Operation], told: Sequence[Told]
) -> Report:
    """Compares a history with what the writers say; `operations` by their ids."""
    return _Check(history, isolation, operations, told).run()


class _Check:
    def __init__(
        self,
        history: History,
        isolation: str,
        operations: Mapping[str, Operation],
        told: Sequence[Told],
    ) -> None:
        self.versions = history.versions
        self.contents = [version.contents for version in self.versions]
        self.isolation = isolation
        self.operations = operations
        self.told = {one["id"]: one for one in told}
        outcomes = Counter(f"{operations[one['id']].kind}: {one['outcome']}" for one in told)
        self.report = Report(len(told), outcomes, len(self.versions) - 1)
        for number, problem in history.problems:
            self.fault_of(self.versions[number], problem)

    def run(self) -> Report:
        by_operation: dict[str, list[Version]] = {}
        for version in self.versions[1:]:
            if version.id not in self.told:
                self.fault(f"version {version.number} is of no operation: {version.info}")
            else:
                by_operation.setdefault(version.id, []).append(version)
        for one in self.told.values():
            self.check_outcome(one, self.operations[one["id"]], by_operation.get(one["id"], []))
        for version in self.versions[1:]:
            if version.id in self.told and not self.is_as_modelled(version):
                self.fault_of(version, f"is not what its operation makes: {self.named(version)}")
        is_sound = not self.report.faults and not self.report.faults_of_deltalake
        if self.isolation == "WriteSerializable" and is_sound:
            found = self.order()
            if isinstance(found, str):
                self.report.without_order = found
            else:
                self.report.reordered = sum(place > number for place, number in enumerate(found, start=1))
        self.report.history = [self.told_of(version) for version in self.versions[1:]]
        return self.report

    def fault(self, text: str) -> None:
        self.report.faults.append(text)

    def fault_of(self, version: Version, text: str) -> None:
        """A fault of the engine that has made the version, since each is compared with the one before it."""
        by_deltalake = version.info.get("engineInfo", "").startswith("delta-rs")
        faults = self.report.faults_of_deltalake if by_deltalake else self.report.faults
        faults.append(f"version {version.number} {text}")

    def told_of(self, version: Version) -> str:
        """What a version is, by what it read, and how it changed the table."""
        if version.id not in self.told:
            return f"{version.number}: {version.info}"
        done = Effect.between(self.contents[version.number - 1], version.contents)
        files = f"{version.adds} files added, {version.removes} removed"
        read = self.read_version(version)
        return f"{version.number} (read {read}; {files}): {self.operations[version.id]}; {done}"

    def named(self, version: Version) -> str:
        read = self.read_version(version)
        since = [
            f"{other.number} ({self.operations[other.id].kind}, adds alone: {other.only_adds})"
            for other in self.versions[read + 1 : version.number]
        ]
        return f"{self.operations[version.id]} read {read}, then came {since}, {version.info}"

    def read_version(self, version: Version) -> int:
        """The version that an operation read; at the earliest, if its commit does not say it."""
        found = version.info.get("readVersion")
        return self.told[version.id]["before"] if found is None else found

    def check_outcome(self, one: Told, operation: Operation, versions: list[Version]) -> None:
        """A commit of every operation that is done, but of none that failed."""
        outcome = one["outcome"]
        numbers = [version.number for version in versions]
        if outcome != DONE:
            if versions:
                self.fault(f"{operation} failed with {outcome}, and is in the log as {numbers}")
            told, is_unfit = _MAY_FAIL_TOO.get(operation.kind, ((), lambda table: False))
            is_told = outcome.startswith(told) and any(map(is_unfit, self.seen(one)))
            is_conflict = outcome.startswith((*_MAY_FAIL, *_BY_DELTALAKE)) or OUT_OF_DATE in outcome
            if not is_told and not is_conflict:
                self.fault(f"{operation} failed with {outcome}: {one.get('message')}")
            return
        if any(not one["before"] < number <= one["after"] for number in numbers):
            self.fault(f"{operation} ran from {one['before']} to {one['after']}, and is {numbers}")
        if operation.kind == "vacuum":
            expected = len(versions) in (0, 2)
        elif len(versions) == 1:
            expected = True
        else:
            expected = not versions and self.was_nothing_to_do(operation, one)
        if not expected:
            self.fault(f"{operation} is done, and is in the log as {numbers}")

    def was_nothing_to_do(self, operation: Operation, one: Told) -> bool:
        """Whether an operation that is done without a commit changes nothing of a version of its time."""
        if operation.kind == "restore":  # of the version that is the newest one
            return True
        return any(operation.after(before, self.contents, None) == before for before in self.seen(one))

    def seen(self, one: Told) -> list[Contents]:
        """The versions of an operation's time."""
        return self.contents[one["before"] : one["after"] + 1]

    def is_as_modelled(self, version: Version) -> bool:
        done = Effect.between(self.contents[version.number - 1], version.contents)
        return any(self.effect(version, before) == done for before in self.may_have_seen(version))

    def may_have_seen(self, version: Version) -> list[Contents]:
        """The contents for which the commit of a version may have been made."""
        newest = self.contents[version.number - 1]
        found = [newest]
        if self.isolation == "WriteSerializable":
            rows = Counter(newest.rows)
            for number in range(version.number - 1, self.read_version(version), -1):
                if self.versions[number].only_adds and self.operations[self.versions[number].id].only_adds:
                    rows -= self.contents[number].rows - self.contents[number - 1].rows
                    found.append(replace(newest, rows=Counter(rows)))
        return found

    def effect(self, version: Version, before: Contents) -> Effect:
        """What the operation of a version makes of a table."""
        operation = self.operations[version.id]
        if version.info["operation"].startswith(("OPTIMIZE", "REORG", "VACUUM")):
            return Effect.between(before, before)
        target = version.info["operationParameters"].get("version")
        return Effect.between(
            before, operation.after(before, self.contents, None if target is None else int(target))
        )

    def order(self) -> list[int] | str:
        """An order of all versions in which each does what it did, close to that of the log; or why there is
        none."""
        done = {
            version.number: Effect.between(self.contents[version.number - 1], version.contents)
            for version in self.versions[1:]
        }
        last = len(self.versions) - 1
        order: list[int] = []
        seen: set[tuple[int, frozenset[int]]] = set()
        """What was placed already, at the start of every step: the first version that was not, and others."""
        states = [self.contents[0]]
        choices = [self.candidates(1, frozenset())]
        placed: list[tuple[int, frozenset[int]]] = [(1, frozenset())]
        most, stuck = 0, 1
        for _ in range(_SEARCHED):
            if len(order) == last:
                return order
            first, others = placed[-1]
            if len(order) > most:
                most, stuck = len(order), first
            number = next(choices[-1], None)
            if number is None:
                if not order:
                    return f"there is none: at most {most} of {last} versions, and version {stuck} never next"
                for stack in (order, states, choices, placed):
                    stack.pop()
                continue
            if self.effect(self.versions[number], states[-1]) != done[number]:
                continue
            after_first, after_others = first, others | {number}
            while after_first in after_others:
                after_others -= {after_first}
                after_first += 1
            if (after_first, after_others) in seen:
                continue
            seen.add((after_first, after_others))
            order.append(number)
            states.append(_applied(states[-1], done[number]))
            placed.append((after_first, after_others))
            choices.append(self.candidates(after_first, after_others))
        return f"the search gave up: at most {most} of {last} versions, and version {stuck} never next"

    def candidates(self, first: int, others: frozenset[int]) -> Iterator[int]:
        """The versions that may come next: those that had not seen a version that is not placed yet."""
        for number in range(first, min(first + _WINDOW, len(self.versions))):
            has_seen_first = number > first and self.read_version(self.versions[number]) >= first
            if number not in others and not has_seen_first:
                yield number


def _applied(before: Contents, effect: Effect) -> Contents:
    rows = before.rows - Counter(dict(effect.removed)) + Counter(dict(effect.added))
    return replace(before, rows=rows, **dict(effect.changed))
