"""Full snapshots: the target is as the newest one, and a history as all of them."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
)
from deltaflow.streaming.cdc import Snapshots
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import Current
from deltaflow.streaming.cdc.current_rows import CurrentRows
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.side_tables import Write
from deltaflow.streaming.cdc.target import Target
from tests.streaming.cdc.rivals import before_the_merge
from tests.tables import load, tuples, versions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

SCHEMA = "id INT, name STRING, more MAP<STRING, INT>, day DATE"


def applier(table, scd_type=1, track_history=None):
    return Applier(
        target=Target(table, None),
        envelope=Snapshots(version="day"),
        data_columns=DataColumns(["id"], track_history=track_history),
        scd_type=scd_type,
        ignore_null_updates=False,
        horizon_ms=86_400_000,
    )


def day(number):
    return f"2024-01-{number:02d}"


def batch(spark, *snapshots):
    """The frame of (day, {id: name}); the maps are written in another order each time."""
    rows = []
    for number, held in snapshots:
        entries = ["'a', 1", "'b', 2"] if number % 2 else ["'b', 2", "'a', 1"]
        for key, name in held.items():
            shown = "NULL" if name is None else repr(name)
            rows.append(f"({key}, {shown}, map({', '.join(entries)}), DATE'{day(number)}')")
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(id, name, more, day)")


@pytest.mark.parametrize("scd_type", [pytest.param(1, marks=pytest.mark.long), 2])
def test_snapshots_in_order(spark, tmp_path, scd_type):
    """Random snapshots, cut into batches in two ways: the last one, and the days of all rows."""
    choice = random.Random(scd_type)
    snapshots = [
        (number, {key: choice.choice(["x", "y", None]) for key in choice.sample(range(8), 5)})
        for number in range(1, 6)
    ]
    for cuts in ([1, 4], [5]):
        table = str(tmp_path / f"{cuts}")
        engine, rest = applier(table, scd_type), list(snapshots)
        for batch_id, count in enumerate(cuts):
            engine.apply(batch(spark, *rest[:count]), Write("query", batch_id))
            del rest[:count]
        found = load(spark, table)
        if scd_type == 2:
            assert sorted(
                tuple(map(str, row)) for row in found.select("id", "name", "__START_AT", "__END_AT").collect()
            ) == sorted(intervals(snapshots))
            found = found.where("__END_AT IS NULL")
        assert {row.id: row.name for row in found.collect()} == snapshots[-1][1]


def intervals(snapshots):
    """(key, name, first day, day of the end) of each time that a row stayed the same, as texts."""
    found, open_rows = [], {}
    for number, held in [*snapshots, (None, None)]:
        for key, (name, start) in list(open_rows.items()):
            if held is None or key not in held or held[key] != name:
                end = "None" if held is None else day(number)
                found.append((str(key), str(name), start, end))
                del open_rows[key]
        for key, name in (held or {}).items():
            open_rows.setdefault(key, (name, day(number)))
    return found


@pytest.mark.long
def test_a_snapshot_like_the_one_before_changes_nothing(spark, table):
    engine = applier(table)
    engine.apply(batch(spark, (1, {1: "a", 2: None})), Write("query", 0))
    before = tuples(load(spark, table).select("id", "name", "__SEQUENCE"))
    files = load(spark, table).inputFiles()
    engine.apply(batch(spark, (2, {1: "a", 2: None}), (3, {2: None, 1: "a"})), Write("query", 1))
    assert tuples(load(spark, table).select("id", "name", "__SEQUENCE")) == before
    assert load(spark, table).inputFiles() == files


@pytest.mark.long
def test_old_snapshots_are_refused(spark, table):
    """Also the second half of one that was cut: its first half has deleted the rows of the second."""
    engine = applier(table)
    engine.apply(batch(spark, (2, {1: "a", 2: "b"})), Write("query", 0))
    engine.apply(batch(spark, (3, {1: "a"})), Write("query", 1))
    newest = versions(table)
    for number, held in ((3, {2: "b"}), (1, {1: "x"})):
        with pytest.raises(DeltaIllegalStateException, match=rf"{day(number)} is not newer .* {day(3)}"):
            engine.apply(batch(spark, (number, held)), Write("query", 2))
    assert versions(table) == newest


@pytest.mark.long
def test_old_snapshots_of_a_history_of_some_columns(spark, table):
    """A change that the target shows in an older row counts, too. Names may be in another case."""
    engine = applier(table, scd_type=2)
    object.__setattr__(engine, "data_columns", DataColumns(["id"], track_history=["name"]))
    row = "SELECT 1 AS {id}, 'a' AS name, {more} AS more, {day} AS day"
    for day, more in ((1, 1), (3, 2)):
        engine.apply(spark.sql(row.format(id="id", more=more, day=day)), Write("query", day))
    with pytest.raises(DeltaIllegalStateException, match=r"2 is not newer .* 3"):
        engine.apply(spark.sql(row.format(id="id", more=7, day=2)), Write("query", 4))
    engine.apply(spark.sql(row.format(id="ID", more=9, day=5)), Write("query", 5))
    assert tuples(load(spark, table).select("id", "more", "__START_AT", "__END_AT")) == [(1, 9, 1, None)]


@pytest.mark.long
def test_columns_that_are_not_stored(spark, table):
    """A row that differs in them alone is no change."""
    engine = applier(table, scd_type=2)
    object.__setattr__(engine, "data_columns", DataColumns(["id"], except_columns=("name",)))
    for number, name in enumerate("xxy"):
        engine.apply(batch(spark, (number + 1, {1: name})), Write("query", number))
    assert tuples(load(spark, table).select("id", "__END_AT")) == [(1, None)]


@pytest.mark.parametrize("fills_char", ["true", "false"])
@pytest.mark.sampled(2)
def test_a_table_that_was_there_before(spark, table, setting, fills_char):
    setting("spark.sql.readSideCharPadding", fills_char)
    rows = "(1, 'a', 'k'), (2, 'b', 'k'), (3, 'c', 'k')"
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING, code CHAR(3)) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES {rows}")
    snapshot = spark.sql("SELECT * FROM VALUES (1, 'a', 'k', 1), (2, 'b2', 'k', 1) AS t(id, name, code, day)")
    with pytest.raises(DeltaIllegalArgumentException, match="no place in a history"):
        applier(table, scd_type=2).apply(snapshot, Write("query", 0))
    applier(table).apply(snapshot, Write("query", 0))
    found = load(spark, table).select("id", "name", "__SEQUENCE")
    # The first row is as it was.
    assert tuples(found) == [(1, "a", None), (2, "b2", 1)]


@pytest.mark.long
def test_values_are_compared_as_the_target_has_them(spark, table):
    """An empty text in a partition column is null there; a type that the target does not take is an error."""
    columns = "id INT, n INT, p STRING, v DOUBLE, __START_AT INT, __END_AT INT"
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta PARTITIONED BY (p)")
    engine = applier(table, scd_type=2)
    for day in range(1, 4):
        engine.apply(
            spark.sql(f"SELECT 1 AS id, 2Y AS n, '' AS p, 1.5D AS v, {day} AS day"), Write("query", day)
        )
    assert tuples(load(spark, table).drop("__END_AT")) == [(1, 2, None, 1.5, 1)]
    with pytest.raises(DeltaAnalysisException, match="column v of the changes is bigint"):
        engine.apply(spark.sql("SELECT 1 AS id, 9007199254740993 AS v, 4 AS day"), Write("query", 4))


@pytest.mark.parametrize("options", [{}, {"track_history": ["m"]}], ids=["history", "history of a column"])
@pytest.mark.sampled(2)
def test_a_map_is_the_same_in_another_order(spark, table, options):
    engine = applier(table, scd_type=2, **options)
    for day, entries in enumerate(("X'01', 1, X'02', 2", "X'02', 2, X'01', 1", "X'02', 2, X'01', 3")):
        row = f"SELECT 1 AS id, array(map({entries})) AS m, {day % 2} AS n, {day} AS day"
        engine.apply(spark.sql(row).drop(*([] if options else ["n"])), Write("query", day))
    found = load(spark, table).selectExpr("m[0][X'01']", "__START_AT", "__END_AT")
    assert tuples(found) == [(1, 0, 2), (3, 2, None)]


@pytest.mark.long
def test_maps_within_structs(spark, table):
    """Beside a map, values are compared to their last digit, too."""
    engine = applier(table)
    row = "SELECT 1 AS id, struct(map('a', {n}) AS m, timestamp_micros({micros}) AS t) AS s, {day} AS day"
    for day, (n, micros) in enumerate(((1, 1), (1, 1), (2, 1), (2, 2))):
        engine.apply(spark.sql(row.format(n=n, micros=micros, day=day)), Write("query", day))
    found = load(spark, table).selectExpr("s.m", "unix_micros(s.t)", "__SEQUENCE")
    assert tuples(found) == [({"a": 2}, 2, 3)]


def test_a_batch_that_did_not_end_is_run_again(spark, table, monkeypatch):
    """Its deletes are remembered already: they do not make its snapshots look old."""
    engine = applier(table)
    engine.apply(batch(spark, (1, {1: "a", 2: "b"})), Write("query", 0))
    second = batch(spark, (2, {1: "a"}), (3, {1: "c"}))
    with monkeypatch.context() as patched:
        patched.setattr("deltaflow.streaming.cdc.current_rows.CurrentRows.merge", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.apply(second, Write("query", 1))
    engine.apply(second, Write("query", 1))
    assert tuples(load(spark, table).select("id", "name")) == [(1, "c")]


@pytest.mark.long
def test_a_row_that_was_deleted_since_the_snapshot_was_compared(spark, table, monkeypatch):
    """The snapshot has it, so it is missing: the batch is run again, and finds that."""
    engine = applier(table)
    engine.apply(batch(spark, (1, {1: "a", 2: "b"})), Write("query", 0))
    rival = DeltaTable.forPath(spark.newSession(), table)
    second = batch(spark, (2, {1: "a2", 2: "b"}))
    before_the_merge(monkeypatch, CurrentRows, lambda: rival.delete("id = 2"))
    with pytest.raises(DeltaConcurrentModificationException):
        engine.apply(second, Write("query", 1))
    monkeypatch.undo()
    engine.apply(second, Write("query", 1))
    assert tuples(load(spark, table).select("id", "name")) == [(1, "a2"), (2, "b")]


@pytest.mark.long
def test_rows_that_are_no_rows_of_a_snapshot(spark):
    held = spark.createDataFrame([], SCHEMA).drop("day")
    current = Current(held.schema, lambda: held, ("id",))
    good = spark.createDataFrame([(1, "a", day(1))], "id INT, name STRING, day STRING")
    for bad, reason in (
        ([(1, "b", day(1))], "another row with the same key"),
        ([(None, "b", day(1))], "its key is null"),
        ([(2, "b", None)], "column day, its version, is null"),
    ):
        rows = good.union(spark.createDataFrame(bad, good.schema))
        with pytest.raises(Exception, match=reason + r".*Record: \{"):
            Snapshots(version="day").changes(rows, current).collect()


def test_the_name_of_the_version(spark):
    """It may be in another case than the column; a name that no column has is an error that says so."""
    rows, current = batch(spark, (1, {1: "a"})), Current(None, lambda: None, ["id"])
    assert "day" not in Snapshots(version="DAY").changes(rows, current).columns
    with pytest.raises(DeltaIllegalArgumentException, match=r"no column dya.*id, name, more, day") as raised:
        Snapshots(version="dya").changes(rows, current)
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_COLUMN"


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.sampled(2)
def test_rows_of_one_key_in_the_table_that_becomes_the_target(spark, table, scd_type):
    """Each key of the snapshot is there, and no other value of it. A row without a key stays."""
    rows = [(1, "a"), (1, "a"), (2, "a"), (2, "b"), (3, "a"), (3, "b"), (None, "a"), (5, "b")]
    begun = spark.createDataFrame(rows, "id INT, name STRING")
    if scd_type == 2:
        begun = begun.selectExpr("*", "INT(NULL) AS __START_AT", "INT(NULL) AS __END_AT")
    begun.write.format("delta").save(table)
    held = spark.createDataFrame([(1, "a", 1), (2, "b", 1), (6, "c", 1)], "id INT, name STRING, day INT")
    of_table = applier(table, scd_type)
    for batch_id, version in enumerate((1, 2)):
        of_table.apply(held.withColumn("day", F.lit(version)), Write("q", batch_id))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert set(tuples(found.select("id", "name"))) == {(1, "a"), (2, "b"), (6, "c"), (None, "a")}
