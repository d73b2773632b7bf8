"""Filtered reads: the same rows as plain Parquet, from no more files than the statistics allow."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest

from deltaflow.log import DeltaLog
from tests.plans import files_read
from tests.tables import actions, commit_file, ids, load, write_commit

pytestmark = pytest.mark.spark

PREDICATES = 50


def ids_and_files(frame):
    """Ids of the frame's rows, and the number of files that its only scan read."""
    return ids(frame), files_read(frame)


@pytest.fixture(scope="module")
def mixed(spark, tmp_path_factory):
    """Thirty files over all types, with nulls, NaN and -0.0; some without statistics of some columns."""
    path = str(tmp_path_factory.mktemp("skipping") / "table")
    spark.range(0, 600, 1, 1).selectExpr(
        "id",
        "cast(if(id % 7 = 0, null, id div 3) as int) as i",
        "if(id between 100 and 140, null, id * 10) as l",
        "case when id = 333 then double('NaN') when id % 50 = 0 then -0.0D else id / 8D end as d",
        "cast(id % 100 as float) / 10 as f",
        "cast(id * 1.25 as decimal(20, 4)) as dec",
        "if(id % 11 = 0, null, concat(char(97 + cast(id div 25 as int)), 'é', id)) as s",
        "concat(repeat('long', 10), lpad(id, 5, '0')) as t",
        "date_add(date'2024-01-01', cast(id div 10 as int)) as day",
        "timestamp_micros(1704067200000000 + id * 7777777) as ts",
        "named_struct('x', cast(id div 20 as int), 'y', cast(id as string)) as n",
        "id % 2 = 0 as flag",
    ).repartitionByRange(30, "id").write.format("delta").save(path)
    return path


@dataclass(frozen=True)
class Leaf:
    """A test of one column: its SQL, and whether a file may have a row for which it is true (or false)."""

    sql: str
    may_be: Callable[[dict[str, Any], bool], bool]


def bounds(stats: dict[str, Any], path: str) -> tuple[Any, Any, Any]:
    def of(group: str) -> Any:
        value = stats.get(group, {})
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return of("minValues"), of("maxValues"), of("nullCount")


def comparison(path: str, op: str, sql_value: str, value: Any) -> Leaf:
    opposite = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "<>", "<>": "="}

    def may_be(stats: dict[str, Any], outcome: bool) -> bool:
        low, high, nulls = bounds(stats, path)
        if nulls == stats["numRecords"]:
            return False
        if low is None or high is None:
            return True
        return {
            "<": low < value,
            "<=": low <= value,
            ">": high > value,
            ">=": high >= value,
            "=": low <= value <= high,
            "<>": low != value or high != value,
        }[op if outcome else opposite[op]]

    return Leaf(f"{path} {op} {sql_value}", may_be)


def null_test(path: str, negated: bool) -> Leaf:
    def may_be(stats: dict[str, Any], outcome: bool) -> bool:
        nulls = bounds(stats, path)[2]
        return nulls is None or (nulls < stats["numRecords"] if negated is outcome else nulls > 0)

    return Leaf(f"{path} IS {'NOT ' if negated else ''}NULL", may_be)


def any_of(path: str, pairs: list[tuple[str, Any]]) -> Leaf:
    leaves = [comparison(path, "=", sql, value) for sql, value in pairs]

    def may_be(stats: dict[str, Any], outcome: bool) -> bool:
        return (any if outcome else all)(leaf.may_be(stats, outcome) for leaf in leaves)

    return Leaf(f"{path} IN ({', '.join(sql for sql, _ in pairs)})", may_be)


def prefix(path: str, start: str) -> Leaf:
    def may_be(stats: dict[str, Any], outcome: bool) -> bool:
        low, high, nulls = bounds(stats, path)
        if nulls == stats["numRecords"]:
            return False
        if low is None or high is None:
            return True
        low, high = low[: len(start)], high[: len(start)]
        return low <= start <= high if outcome else (low, high) != (start, start)

    return Leaf(f"{path} LIKE '{start}%'", may_be)


def literal(column: str, rng: random.Random) -> tuple[str, Any]:
    """A literal near the column's values, in SQL and as in statistics."""
    n = rng.randrange(-20, 640)
    match column:
        case "i":
            return str(n // 3), n // 3
        case "n.x":
            return str(n // 20), n // 20
        case "id":
            return f"{n}L", n
        case "l":
            return f"{n * 10}L", n * 10
        case "d":
            value = rng.choice([0.0, n / 8])
            return f"{value}D", value
        case "f":
            return f"cast({n % 100 / 10} as float)", n % 100 / 10
        case "dec":
            value = Decimal(n) * Decimal("1.25")
            return f"cast({value} as decimal(20, 4))", float(value)
        case "day":
            day = f"2024-{n % 3 + 1:02}-{n % 28 + 1:02}"
            return f"date'{day}'", day
        case "s":
            value = f"{chr(97 + n // 25 % 26)}é{n}"
            return f"'{value}'", value
        case _:
            value = "long" * 10 + f"{n:05}"
            return f"'{value}'", value


COLUMNS = ["id", "i", "l", "d", "f", "dec", "s", "t", "day", "n.x"]


def random_leaf(rng: random.Random) -> Leaf:
    column = rng.choice(COLUMNS)
    match rng.randrange(8):
        case 0:
            return null_test(column, rng.random() < 0.5)
        case 1:
            return any_of(column, [literal(column, rng) for _ in range(rng.randrange(1, 15))])
        case 2 if column in ("s", "t"):
            text = literal(column, rng)[1]
            return prefix(column, text[: rng.randrange(1, len(text))])
        case _:
            op = rng.choice(["=", "<", "<=", ">", ">=", "<>"])
            return comparison(column, op, *literal(column, rng))


def random_predicate(rng: random.Random, depth: int = 0) -> Leaf:
    choice = rng.randrange(6) if depth < 3 else 0
    if choice < 3:
        return random_leaf(rng)
    left = random_predicate(rng, depth + 1)
    if choice == 3:
        return Leaf(f"NOT ({left.sql})", lambda stats, outcome: left.may_be(stats, not outcome))
    right = random_predicate(rng, depth + 1)
    if choice == 4:
        return Leaf(
            f"({left.sql} AND {right.sql})",
            lambda stats, outcome: (all if outcome else any)(
                side.may_be(stats, outcome) for side in (left, right)
            ),
        )
    return Leaf(
        f"({left.sql} OR {right.sql})",
        lambda stats, outcome: (any if outcome else all)(
            side.may_be(stats, outcome) for side in (left, right)
        ),
    )


@pytest.mark.usefixtures("interpreted")
def test_random_predicates(spark, mixed):
    rng = random.Random(5)
    predicates = [random_predicate(rng) for _ in range(PREDICATES)]
    parquet = spark.read.parquet(mixed)
    expected: dict[str, list[int]] = {}
    for start in range(0, PREDICATES, 40):
        some = predicates[start : start + 40]
        columns = [f"({predicate.sql}) <=> true AS p{i}" for i, predicate in enumerate(some)]
        rows = parquet.selectExpr("id", *columns).collect()
        for i, predicate in enumerate(some):
            expected[predicate.sql] = sorted(row.id for row in rows if row[f"p{i}"])
    snapshot = DeltaLog.for_table(mixed).snapshot()
    files = snapshot.with_stats(snapshot.files)
    stats = [json.loads(text) for text in files["stats"].to_pylist()]
    assert len(stats) == 30
    delta = spark.read.format("delta").load(mixed)
    skipped = 0
    for predicate in predicates:
        found, read = ids_and_files(delta.where(predicate.sql).select("id"))
        assert found == expected[predicate.sql], predicate.sql
        assert read <= sum(predicate.may_be(file, True) for file in stats), predicate.sql
        skipped += 30 - read
    assert skipped > PREDICATES * 10  # a third of all


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("id = 5", 1),
        ("ID = 5", 1),
        ("5 > id", 1),
        ("id < 25", 2),
        ("id BETWEEN 100 AND 139", 2),
        ("id IN (1, 100, 599)", 3),
        (f"id IN ({', '.join(map(str, range(60)))})", 3),
        ("n.x = 7", 1),
        ("n.x IS NULL", 0),
        ("s LIKE 'aé%'", 2),
        ("s LIKE 'aé1%7'", 1),
        ("startswith(s, 'xé')", 2),
        ("l IS NULL", 3),
        ("l IS NULL AND l > 5", 1),
        ("day = '2024-01-05'", 1),
        ("day = timestamp'2024-01-05 00:00:00'", 1),
        ("ts < timestamp'2024-01-01 00:00:00.001'", 1),
        ("ts >= timestamp'2024-01-01 00:05:00' AND ts < '2024-01-01 00:06:00'", 2),
        ("d > 100000", 1),  # the file with a NaN, which is the greatest
        ("d = double('NaN')", 30),
        ("dec = 25.00", 1),
        ("id = 5 AND hash(id) <> 3", 1),
        ("id = 5 OR hash(id) = 3", 30),
        ("flag", 30),
        ("NOT flag", 30),
        ("id = (SELECT max(id) FROM range(6))", 30),
        ("_metadata.file_size > 0 AND id = 5", 1),
    ],
)
@pytest.mark.sampled(6)
def test_what_skips_files(spark, mixed, condition, files):
    found, read = ids_and_files(load(spark, mixed).where(condition).select("id"))
    assert read == files
    assert found == sorted(r.id for r in spark.read.parquet(mixed).where(condition).select("id").collect())


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def test_a_session_of_another_time_zone(spark, mixed, zone):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    condition = "ts >= timestamp_micros(1704068200000000L) AND ts < timestamp_micros(1704068300000000L)"
    found, read = ids_and_files(session.read.format("delta").load(mixed).where(condition).select("id"))
    assert (len(found), read) == (13, 2)


def test_partitions_and_statistics_together(spark, table):
    rows = spark.range(0, 40, 1, 1).selectExpr("id", "id % 2 as p").repartitionByRange(4, "id")
    rows.write.format("delta").partitionBy("p").save(table)
    read = load(spark, table)
    assert ids_and_files(read.where("p = 1 and id < 10").select("id")) == ([1, 3, 5, 7, 9], 1)
    assert ids_and_files(read.where("id < 10").select("id"))[1] == 2
    assert ids_and_files(read.where("p = 1 or id < 10").select("id"))[1] == 8


def test_literals_that_are_no_utf_8(spark, table, settings):
    """Spark's own filters of row groups take them for other ones, too, and are switched off here."""
    for text in "😀\N{REPLACEMENT CHARACTER}":
        spark.createDataFrame([(text,)], "s STRING").write.format("delta").mode("append").save(table)
    conditions = {
        "s < CAST(X'F1' AS STRING)": 2,
        "startswith(s, CAST(X'F0' AS STRING))": 1,
        "s <> CAST(X'FF' AS STRING)": 2,
        "s NOT IN ('a', CAST(X'FF' AS STRING))": 2,
        f"s NOT IN (CAST(X'FF' AS STRING), {', '.join(repr(str(n)) for n in range(20))})": 2,
    }
    with settings({"spark.sql.parquet.filterPushdown": "false"}):
        found = {condition: load(spark, table).where(condition).count() for condition in conditions}
    assert found == conditions


def test_a_column_that_came_later(spark, table):
    spark.range(5).selectExpr("id", "id as v").coalesce(1).write.format("delta").save(table)
    [metadata] = actions(table, "metaData")
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "late", "type": "long", "nullable": True, "metadata": {}})
    write_commit(table, 1, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})
    added = spark.range(5, 6).selectExpr("id", "id as v", "id as late").coalesce(1)
    added.write.format("delta").mode("append").save(table)
    read = load(spark, table)
    assert ids_and_files(read.where("late is null").select("id")) == ([0, 1, 2, 3, 4], 1)
    assert ids_and_files(read.where("late = 5").select("id")) == ([5], 2)
    assert ids_and_files(read.where("not (late <=> 5)").select("id"))[0] == [0, 1, 2, 3, 4]


def test_a_file_without_statistics_is_read(spark, table):
    spark.range(0, 20, 1, 1).repartitionByRange(2, "id").write.format("delta").save(table)
    adds = sorted(actions(table, "add"), key=lambda add: unquote(add["path"]))
    read = load(spark, table)
    assert ids_and_files(read.where("id = 3"))[1] == 1
    del adds[-1]["stats"]
    write_commit(table, 1, {"add": adds[-1]})
    assert ids_and_files(read.where("id = 3")) == ([3], 2)
    stats = json.loads(adds[0]["stats"])
    adds[-1]["stats"] = json.dumps(stats)  # the table's `sound` reads the commits of this test
    commit_file(table, 1).unlink()
