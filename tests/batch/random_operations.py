"""Random operations on a table, compared after each with the same on a list of rows.

The rows must be the model's at every version that the table still has, as Spark and as deltalake read them.
Features of the table are on or off by chance. The long run, 40 sequences of 25 operations:

    python -m tests.batch.random_operations [FIRST SEED]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import deltaflow
from deltaflow import DeltaTable
from deltaflow.tables import DeltaMergeBuilder

Row = tuple[Any, ...]
"""id, p (a partition in half of the tables), v; in tests.races two more, which these operations leave."""
SCHEMA = "id LONG, p STRING, v INT"
_PARTS = ("a", "b", None)
CLAUSES = ("update", "delete", "insert", "source update", "source delete")
BEFORE = ("delete", "update_preimage")
GENERATED = "id * 2 + coalesce(v, 0)"


@dataclass(frozen=True)
class Features:
    """What a table has beside rows."""

    by_partition: bool
    mapping: str
    """`delta.columnMapping.mode`."""
    generated: bool
    """A column g, which the operations leave to the table."""
    vectors: bool
    """`delta.enableDeletionVectors`."""
    feed: bool
    """`delta.enableChangeDataFeed`."""
    widening: bool = False
    """`delta.enableTypeWidening`."""

    @staticmethod
    def by_chance(chance: random.Random) -> Features:
        return Features(
            by_partition=chance.random() < 0.5,
            mapping=chance.choice(["none", "none", "name", "id"]),
            generated=chance.random() < 0.3,
            vectors=chance.random() < 0.5,
            feed=chance.random() < 0.7,
        )

    def create(self, spark: SparkSession, path: str, **properties: str) -> None:
        """Creates the table, with further properties."""
        table = DeltaTable.create(spark).location(path).addColumns(StructType.fromDDL(SCHEMA))
        if self.generated:
            table = table.addColumn("g", "LONG", generatedAlwaysAs=GENERATED)
        if self.by_partition:
            table = table.partitionedBy("p")
        if self.mapping != "none":
            table = table.property("delta.columnMapping.mode", self.mapping)
        if self.vectors:
            table = table.property("delta.enableDeletionVectors", "true")
        if self.feed:
            table = table.property("delta.enableChangeDataFeed", "true")
        if self.widening:
            table = table.property("delta.enableTypeWidening", "true")
        for name, value in properties.items():
            table = table.property(name, value)
        table.execute()


@dataclass(frozen=True)
class Condition:
    """A predicate in SQL, and by Python: true, false or None."""

    sql: str
    holds: Callable[[Row], bool | None]

    def of(self, alias: str) -> str:
        """In SQL, with the columns of an alias."""
        words = self.sql.split(" ")
        return " ".join(f"{alias}.{word}" if word in ("id", "p", "v") else word for word in words)


def _less(value: int | None, bound: int) -> bool | None:
    return None if value is None else value < bound


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def condition(chance: random.Random) -> Condition:
    number, part = chance.randrange(40), chance.choice("ab")
    return chance.choice(
        [
            Condition(f"id % 3 = {number % 3}", lambda row: row[0] % 3 == number % 3),
            Condition(f"v < {number}", lambda row: _less(row[2], number)),
            Condition(f"NOT v < {number}", lambda row: None if row[2] is None else row[2] >= number),
            Condition("v IS NULL", lambda row: row[2] is None),
            Condition("p IS NULL", lambda row: row[1] is None),
            Condition(f"p = '{part}'", lambda row: None if row[1] is None else row[1] == part),
            Condition(
                f"p = '{part}' AND v < {number}",
                lambda row: _both(None if row[1] is None else row[1] == part, _less(row[2], number)),
            ),
            Condition("true", lambda row: True),
            Condition("v < 0", lambda row: _less(row[2], 0)),
        ]
    )


def new_rows(chance: random.Random, number: int, ids: Sequence[int] | None = None) -> list[Row]:
    """Rows of random ids, or of these."""
    ids = [chance.randrange(60) for _ in range(number)] if ids is None else ids
    return [(i, chance.choice(_PARTS), chance.choice([None, chance.randrange(40)])) for i in ids]


@dataclass
class Game:
    """A table, and what has to be in it at each of its versions."""

    spark: SparkSession
    path: str
    chance: random.Random
    features: Features
    versions: dict[int, list[Row]] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    rows_after: list[Row] = field(default_factory=list)
    """What the operation that runs has to leave in the table."""

    @property
    def rows(self) -> list[Row]:
        return self.versions[max(self.versions)]

    @property
    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.path)

    def play(self, steps: int) -> None:
        self.features.create(self.spark, self.path)
        self.done.append(str(self.features))
        self.check("create", [])
        often = [self.append, self.update, self.delete, self.merge]
        seldom = [self.overwrite, self.replace, self.optimize, self.vacuum, self.restore]
        operations = [*often, *often, *seldom]
        for _ in range(steps):
            operation = self.chance.choice(operations)
            self.rows_after = self.rows
            operation()
            self.check(operation.__name__, self.rows_after)
        if self.features.feed:
            self.check_feed()

    def check(self, name: str, rows: list[Row]) -> None:
        newest = deltalake.DeltaTable(self.path).version()
        for version in range(max(self.versions, default=-1) + 1, newest + 1):
            self.versions[version] = rows
            self.retained.add(version)
        assert self.versions[newest] == rows, f"{name} committed nothing after {self.done}"
        loaded = self.spark.read.format("delta")
        frame = loaded.load(self.path)
        assert _sorted(frame) == _key_sorted(rows), self.done
        if self.features.generated:
            assert frame.where(f"NOT g <=> {GENERATED}").isEmpty(), self.done
        for version in sorted(self.retained):
            of_version = _key_sorted(self.versions[version])
            at = f"version {version} after {self.done}"
            assert _sorted(loaded.option("versionAsOf", version).load(self.path)) == of_version, at
            assert _by_deltalake(self.path, version) == of_version, at

    def check_feed(self) -> None:
        """The changes of each pair of versions, applied to the rows of the one, give those of the other."""
        first, last = min(self.retained), max(self.retained)
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        of_version: dict[int, list[tuple[Row, str]]] = {version: [] for version in self.retained}
        if first < last:
            changes = feed.option("startingVersion", first + 1).option("endingVersion", last).load(self.path)
            for row in changes.toArrow().to_pylist():
                of_version[row["_commit_version"]].append(
                    ((row["id"], row["p"], row["v"]), row["_change_type"])
                )
        for start in sorted(self.retained):
            rows = Counter(self.versions[start])
            for end in range(start + 1, last + 1):
                kinds = Counter(kind for _, kind in of_version[end])
                assert kinds["update_preimage"] == kinds["update_postimage"], self.done
                rows.subtract(row for row, kind in of_version[end] if kind in BEFORE)
                assert min(rows.values(), default=0) >= 0, (
                    f"{end} deletes rows that are not there: {self.done}"
                )
                rows.update(row for row, kind in of_version[end] if kind not in BEFORE)
                assert +rows == Counter(self.versions[end]), f"changes from {start} to {end} of {self.done}"

    def new_rows(self, number: int, ids: Sequence[int] | None = None) -> list[Row]:
        return new_rows(self.chance, number, ids)

    def frame(self, rows: list[Row]) -> DataFrame:
        return self.spark.createDataFrame(rows, SCHEMA).repartition(self.chance.randint(1, 3))

    def write(self, rows: list[Row], mode: str) -> None:
        writer = self.frame(rows).write.format("delta").mode(mode)
        if self.features.by_partition:
            writer = writer.partitionBy("p")
        writer.save(self.path)

    def append(self) -> None:
        rows = self.new_rows(self.chance.randint(1, 12))
        self.write(rows, "append")
        self.done.append(f"append {rows}")
        self.rows_after = [*self.rows, *rows]

    def overwrite(self) -> None:
        rows = self.new_rows(self.chance.randint(5, 30))
        self.write(rows, "overwrite")
        self.done.append(f"overwrite {rows}")
        self.rows_after = rows

    def replace(self) -> None:
        rows = [row for row in self.new_rows(self.chance.randint(0, 8)) if row[0] % 3 == 1]
        writer = self.frame(rows).write.format("delta").mode("overwrite")
        writer.option("replaceWhere", "id % 3 = 1").save(self.path)
        self.done.append(f"replace where id % 3 = 1 by {rows}")
        self.rows_after = [*(row for row in self.rows if row[0] % 3 != 1), *rows]

    def delete(self) -> None:
        where = condition(self.chance)
        if self.chance.random() < 0.5:
            self.table.delete(where.sql)
        else:
            self.spark.sql(f"DELETE FROM delta.`{self.path}` WHERE {where.sql}")
        self.done.append(f"delete {where.sql}")
        self.rows_after = [row for row in self.rows if not where.holds(row)]

    def update(self) -> None:
        where, part = condition(self.chance), self.chance.choice(["a", "b"])
        moves = self.chance.random() < 0.4
        if self.chance.random() < 0.5:
            values = {"v": "v + 1", "p": f"'{part}'"} if moves else {"v": "v + 1"}
            self.table.update(where.sql, values)
        else:
            values_sql = f"v = v + 1, p = '{part}'" if moves else "v = v + 1"
            self.spark.sql(f"UPDATE delta.`{self.path}` SET {values_sql} WHERE {where.sql}")
        self.done.append(f"update {where.sql}, moves to {part}: {moves}")

        self.rows_after = updated(self.rows, where, part if moves else None)

    def merge(self) -> None:
        chance = self.chance
        source = self.new_rows(0, chance.sample(range(80), chance.randint(0, 15)))
        when = condition(chance)
        clauses = chance.sample(CLAUSES, chance.randint(1, len(CLAUSES)))
        self.done.append(f"merge {source} when {when.sql} {clauses}")
        merge = merge_of(self.table, self.frame(source), when, clauses)
        told = merge.execute().collect()[0]
        self.rows_after, updated, deleted, inserted = merged(self.rows, source, when, clauses)
        assert (told.num_updated_rows, told.num_deleted_rows) == (updated, deleted), self.done
        assert (told.num_inserted_rows, told.num_affected_rows) == (inserted, updated + deleted + inserted)

    def optimize(self) -> None:
        builder = self.table.optimize()
        if self.features.by_partition and self.chance.random() < 0.4:
            builder = builder.where("p = 'a'")
        if self.chance.random() < 0.5:
            builder.executeCompaction()
            self.done.append("optimize")
        else:
            builder.executeZOrderBy("id", "v")
            self.done.append("optimize zorder by")

    def vacuum(self) -> None:
        hours = self.chance.choice([0, 168])
        self.table.vacuum(hours)
        self.done.append(f"vacuum {hours}")
        if hours == 0:
            self.retained = {max(self.versions)}

    def restore(self) -> None:
        version = self.chance.choice(sorted(self.retained))
        self.table.restoreToVersion(version)
        self.done.append(f"restore {version}")
        self.rows_after = self.versions[version]


def updated(rows: Iterable[Row], where: Condition, part: str | None) -> list[Row]:
    """The rows after 1 was added to the `v` of some, which also moved to a part, if it is given."""

    def one(row: Row) -> Row:
        return (row[0], part or row[1], None if row[2] is None else row[2] + 1, *row[3:])

    return [one(row) if where.holds(row) else row for row in rows]


def merge_of(
    table: DeltaTable, source: DataFrame, when: Condition, clauses: Sequence[str]
) -> DeltaMergeBuilder:
    """A MERGE by the column id, with some of CLAUSES in an order, as `merged` carries it out."""
    of_target = when.of("t")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    for clause in clauses:
        match clause:
            case "update":
                merge = merge.whenMatchedUpdate(of_target, {"v": "s.v", "t.p": F.col("s.p")})
            case "delete":
                merge = merge.whenMatchedDelete("s.v < 20")
            case "insert":
                merge = merge.whenNotMatchedInsert("s.v IS NOT NULL", {"id": "s.id", "p": "s.p", "v": "s.v"})
            case "source update":
                merge = merge.whenNotMatchedBySourceUpdate(of_target, {"v": "t.v - 1"})
            case "source delete":
                merge = merge.whenNotMatchedBySourceDelete("t.id % 7 = 0")
    return merge


def merged(
    rows: list[Row], source: list[Row], when: Condition, clauses: Sequence[str]
) -> tuple[list[Row], int, int, int]:
    """The rows that `merge_of` leaves; how many of them it updates, deletes and inserts."""
    by_id = {row[0]: row for row in source}
    kept: list[Row] = []
    counts = {"update": 0, "delete": 0}
    for row in rows:
        other = by_id.get(row[0])
        is_true = {
            "update": other is not None and when.holds(row),
            "delete": other is not None and _less(other[2], 20),
            "source update": other is None and when.holds(row),
            "source delete": other is None and row[0] % 7 == 0,
        }
        first = next((clause for clause in clauses if is_true.get(clause)), None)
        if first is not None:
            counts[first.removeprefix("source ")] += 1
        if first == "update":
            assert other is not None
            kept.append((row[0], other[1], other[2], *row[3:]))
        elif first == "source update":
            kept.append((*row[:2], None if row[2] is None else row[2] - 1, *row[3:]))
        elif first is None:
            kept.append(row)
    there = {row[0] for row in rows}
    new = [row for row in source if row[0] not in there and row[2] is not None] if "insert" in clauses else []
    return [*kept, *new], counts["update"], counts["delete"], len(new)


def _sorted(frame: DataFrame) -> list[Row]:
    return _key_sorted([(row["id"], row["p"], row["v"]) for row in frame.toArrow().to_pylist()])


def _by_deltalake(path: str, version: int) -> list[Row]:
    """By its engine: the reader that gives pyarrow's tables knows no column mapping."""
    table = deltalake.DeltaTable(path, version=version)
    rows = deltalake.QueryBuilder().register("t", table).execute("SELECT id, p, v FROM t").read_all()
    return _key_sorted([(row["id"], row["p"], row["v"]) for row in pa.table(rows).to_pylist()])


def _key_sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def play(spark: SparkSession, path: str, seed: int, steps: int) -> Game:
    """One sequence of operations; needs `spark.databricks.delta.retentionDurationCheck.enabled` false."""
    chance = random.Random(seed)
    game = Game(spark, path, chance, Features.by_chance(chance))
    game.play(steps)
    return game


def main(first_seed: int) -> None:
    config: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }
    spark = deltaflow.session("random operations", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    steps = 0
    for seed in range(first_seed, first_seed + 40):
        with tempfile.TemporaryDirectory() as folder:
            steps += len(play(spark, str(Path(folder, "table")), seed, 25).done)
        print(f"seed {seed}: {steps} operations so far, all as the model", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
