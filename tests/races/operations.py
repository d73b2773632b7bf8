"""The operations of a race, each made of its seed, and what each of them does to plain rows.

A writer and the check of the history make the same operation of the same seed, so that a history has to
say no more than the seeds of its commits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tests.batch.random_operations import (
    CLAUSES,
    Condition,
    Features,
    Row,
    condition,
    merged,
    new_rows,
    updated,
)


@dataclass(frozen=True)
class Contents:
    """What a version of a table means, whatever files it has."""

    rows: Counter[Row]
    """id, p, v, x, y; x and y are None in all of them while the table has no such column."""
    has_x: bool = False
    has_y: bool = False
    is_v_long: bool = False
    """Whether v has grown from INT to LONG."""
    properties: tuple[tuple[str, str], ...] = ()
    """Those of PROPERTIES that are set, by their names."""

    def with_property(self, name: str, value: str) -> Contents:
        return replace(self, properties=tuple(sorted({**dict(self.properties), name: value}.items())))


FEED, VECTORS = "delta.enableChangeDataFeed", "delta.enableDeletionVectors"
PROPERTIES = ("note", FEED, VECTORS)


_WEIGHTS = {
    "append": 6,
    "widen": 1,
    "copy": 2,
    "overwrite": 1,
    "replace": 3,
    "replace partitions": 1,
    "update": 5,
    "delete": 3,
    "merge": 5,
    "compact": 2,
    "cluster": 1,
    "purge": 1,
    "vacuum": 1,
    "restore": 1,
    "add x": 1,
    "drop x": 1,
    "set x": 2,
    "x to y": 1,
    "y to x": 1,
    "overwrite schema": 1,
    "append longs": 1,
    "longs": 1,
    "note": 1,
    "feed": 1,
    "vectors": 1,
}
_UNKNOWN_TO_DELTALAKE = {"replace partitions", "copy", "purge"}
_OF_MAPPING = {"drop x", "x to y", "y to x"}
_OF_WIDENING = {"append longs", "longs"}
_PAST_INT = 1 << 40


@dataclass(frozen=True)
class Operation:
    """One operation; `where` and the rows mean what its kind makes of them."""

    id: str
    kind: str
    where: Condition
    rows: tuple[Row, ...]
    """id, p, v: new rows, or the source of a MERGE."""
    clauses: tuple[str, ...]
    part: str | None
    """Where an UPDATE moves rows to."""
    back: int
    """How many versions a RESTORE goes back."""
    files: int
    """How many files it writes at most."""
    in_sql: bool
    is_on: bool
    """Whether it turns a property on, or off."""

    def __str__(self) -> str:
        what = {
            "merge": f"{self.where.sql} {self.clauses} {self.rows}",
            "update": f"{self.where.sql}, moves to {self.part}",
            "restore": f"{self.back} versions back",
            "replace": f"{self.where.sql} by {self.rows}",
            "overwrite schema": f"{self.rows}, with x: {self.in_sql}",
            **dict.fromkeys(("copy", "delete", "set x"), self.where.sql),
            **dict.fromkeys(("append", "overwrite", "replace partitions"), f"{self.rows}"),
            **dict.fromkeys(("widen", "append longs"), f"{self.rows}"),
            **dict.fromkeys(("feed", "vectors"), f"{self.is_on}"),
        }
        return f"{self.id}: {self.kind} {what.get(self.kind, '')}"

    @property
    def only_adds(self) -> bool:
        """Whether it adds rows without having read any; all but "append" may change the schema too."""
        return self.kind in ("append", "widen", "append longs")

    def after(self, before: Contents, versions: Sequence[Contents], target: int | None) -> Contents:
        """What it makes of a table alone; `target` is the version of `versions` that a RESTORE restores."""
        rows, where = list(before.rows.elements()), self.where
        new = _whole(self.rows)
        match self.kind:
            case "append":
                rows += new
            case "widen":
                return replace(before, rows=Counter([*rows, *_whole(self.widened)]), has_x=True)
            case "append longs":
                return replace(before, rows=Counter([*rows, *_whole(self.longs)]), is_v_long=True)
            case "copy":
                rows += [(row[0] + 100, row[1], row[2], None, None) for row in rows if self._copies(row)]
            case "overwrite":
                rows = new
            case "replace":
                rows = [*(row for row in rows if not where.holds(row)), *new]
            case "replace partitions":
                parts = {row[1] for row in new}
                rows = [*(row for row in rows if row[1] not in parts), *new]
            case "update":
                rows = updated(rows, where, self.part)
            case "delete":
                rows = [row for row in rows if not where.holds(row)]
            case "merge":
                found = merged(rows, list(self.rows), where, self.clauses)[0]
                rows = _whole(found)
            case "overwrite schema":
                rows = _whole(self.widened) if self.in_sql else new
                return replace(before, rows=Counter(rows), has_x=self.in_sql, has_y=False, is_v_long=False)
            case "restore":
                assert target is not None
                return versions[target]
            case "add x":
                return replace(before, has_x=True)
            case "drop x":
                return replace(before, rows=Counter((*row[:3], None, row[4]) for row in rows), has_x=False)
            case "set x":
                rows = [(*row[:3], row[0], row[4]) if where.holds(row) else row for row in rows]
            case "x to y":
                rows = [(*row[:3], None, row[3]) for row in rows]
                return replace(before, rows=Counter(rows), has_x=False, has_y=True)
            case "y to x":
                rows = [(*row[:3], row[4], None) for row in rows]
                return replace(before, rows=Counter(rows), has_x=True, has_y=False)
            case "longs":
                return replace(before, is_v_long=True)
            case "note" | "feed" | "vectors":
                return before.with_property(*self.setting)
        return replace(before, rows=Counter(rows))

    @property
    def widened(self) -> list[Row]:
        """The new rows with values of x."""
        return [(*row, number) for number, row in enumerate(self.rows)]

    @property
    def longs(self) -> list[Row]:
        """The new rows with values of v that no INT has."""
        return [(i, p, None if v is None else v + _PAST_INT) for i, p, v in self.rows]

    @property
    def setting(self) -> tuple[str, str]:
        """The name and the value of the property that it sets."""
        name = {"note": "note", "feed": FEED, "vectors": VECTORS}[self.kind]
        return name, self.id if self.kind == "note" else str(self.is_on).lower()

    @property
    def copied(self) -> str:
        """The condition of the rows that "copy" copies; copies of copies are none, so that the table stays
        small."""
        return f"({self.where.sql}) AND id < 80"

    def _copies(self, row: Row) -> bool:
        return bool(self.where.holds(row)) and row[0] < 80


def operation(identity: str, features: Features, *, by_deltalake: bool = False) -> Operation:
    """The operation of an identity, which is its seed, on a table that has these features."""
    chance = random.Random(identity)
    left_out = set()
    if not features.by_partition:
        left_out.add("replace partitions")
    if not features.vectors:
        left_out |= {"purge", "vectors"}
    # The changes of a feed have the columns of its end.
    if features.mapping == "none" or features.feed:
        left_out |= _OF_MAPPING
    if features.feed:
        left_out.add("overwrite schema")
    else:
        left_out.add("feed")
    if not features.widening:
        left_out |= _OF_WIDENING
    if by_deltalake:
        left_out |= _UNKNOWN_TO_DELTALAKE
    weights = {kind: weight for kind, weight in _WEIGHTS.items() if kind not in left_out}
    [kind] = chance.choices(list(weights), list(weights.values()))
    where = condition(chance)
    rows = new_rows(chance, chance.randint(1, 12))
    match kind:
        case "overwrite" | "overwrite schema":
            rows = new_rows(chance, chance.randint(5, 30))
        case "replace":
            if features.by_partition and chance.random() < 0.6:
                part = chance.choice("ab")
                where = Condition(f"p = '{part}'", lambda row: row[1] == part)
                rows = [(row[0], part, row[2]) for row in rows]
            else:
                where = Condition("id % 3 = 1", lambda row: row[0] % 3 == 1)
                rows = [row for row in rows if row[0] % 3 == 1]
        case "merge":
            rows = new_rows(chance, 0, chance.sample(range(80), chance.randint(1, 15)))
    return Operation(
        id=identity,
        kind=kind,
        where=where,
        rows=tuple(rows),
        clauses=tuple(chance.sample(CLAUSES, chance.randint(1, len(CLAUSES)))),
        part=chance.choice(["a", "b", None, None]),
        back=chance.randint(1, 8),
        files=chance.randint(1, 3),
        in_sql=chance.random() < 0.5,
        is_on=chance.random() < 0.5,
    )


def _whole(rows: Iterable[Row]) -> list[Row]:
    """The rows, with None for the columns that they lack."""
    return [(*row, None, None)[:5] for row in rows]
