"""`apply_changes`: streams of changes into tables, what it remembers, and what stops it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    MetadataChangedException,
)
from deltaflow.log import DeltaLog
from deltaflow.streaming import apply_changes
from deltaflow.streaming.cdc import ChangeRows, Debezium, Flat, Snapshots, side_tables
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.apply_changes import _target
from deltaflow.streaming.cdc.changes import ByConditions, Current
from deltaflow.streaming.cdc.current_rows import CurrentRows
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.history_rows import HistoryRows
from deltaflow.streaming.cdc.side_tables import Write
from deltaflow.streaming.cdc.target import Target
from tests.streaming.cdc.rivals import before_the_merge
from tests.tables import actions, load, tuples, versions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

# Of `scd_type`, where a test takes long: the second is among the long trials.
ONE_OF_TWO = [1, pytest.param(2, marks=pytest.mark.long)]

SCHEMA = "id INT, name STRING, op STRING, at INT"
DAY_MS = 86_400_000


def applier(table, *, scd_type=1, horizon_ms=10 * DAY_MS, clock=None, **options):
    found = Applier(
        target=Target(table, None),
        envelope=ByConditions(F.col("at"), F.col("op") == "d", F.col("op") == "t"),
        data_columns=DataColumns(["id"], except_columns=("op", "at"), **options),
        scd_type=scd_type,
        ignore_null_updates=False,
        horizon_ms=horizon_ms,
    )
    if clock is not None:
        object.__setattr__(found, "clock", clock)
    return found


def batch(spark, *rows, schema=SCHEMA):
    return spark.createDataFrame(list(rows), schema)


def current(spark, table):
    return tuples(load(spark, table).select("id", "name"))


def intervals(spark, table):
    return tuples(load(spark, table).select("id", "name", "__START_AT", "__END_AT"))


# --------------------------------------------------------------- as a stream


def land(folder: Path, name: str, *rows):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(("id", "name", "op", "at"), row, strict=True))) for row in rows]
    (folder / f".{name}").write_text("\n".join(lines))
    (folder / f".{name}").rename(folder / name)


@pytest.mark.long
def test_a_stream_of_files(spark, table, tmp_path):
    """Each batch is one commit; a batch that Spark runs again is not applied again."""
    folder, checkpoint = tmp_path / "landed", tmp_path / "checkpoint"
    land(folder, "1.json", (1, "a", "u", 1), (2, "b", "u", 1))

    def run():
        changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
        writer = apply_changes(
            changes, table, keys="id", sequence_by="at", deletes="op = 'd'", except_columns=["op", "at"]
        )
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        assert query.exception() is None

    run()
    land(folder, "2.json", (1, "a2", "u", 3), (2, None, "d", 2))
    run()
    assert current(spark, table) == [(1, "a2")]
    before = versions(table)
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(newest), f".{newest}.crc"):
        (checkpoint / "commits" / name).unlink()
    land(folder, "3.json", (2, "late", "u", 1), (3, "c", "u", 1))
    run()
    assert current(spark, table) == [(1, "a2"), (3, "c")]
    assert len(versions(table)) == len(before) + 1


def test_a_table_by_name(spark, settings):
    spark.sql("DROP TABLE IF EXISTS customers_of_changes")
    try:
        named = applier("unused")
        object.__setattr__(named, "target", Target(None, "customers_of_changes"))
        named.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
        named.apply(batch(spark, (2, None, "d", 2)), Write("q", 1))
        assert tuples(spark.table("customers_of_changes").select("id", "name")) == [(1, "a")]
    finally:
        spark.sql("DROP TABLE IF EXISTS customers_of_changes")


# --------------------------------------------------------------- batches run again


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        pytest.param({}, CurrentRows, id="current rows"),
        pytest.param({"scd_type": 2}, HistoryRows, id="history", marks=pytest.mark.long),
        pytest.param(
            {"scd_type": 2, "track_history": ["name"]},
            HistoryRows,
            id="history of a column",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_batch_that_failed_before_its_commit(spark, table, tmp_path, monkeypatch, options, engine):
    """What a batch remembers before its MERGE does not change what it does when it runs again."""
    batches = [
        batch(
            spark, (1, "a", "u", 1), (2, "b", "u", 1), (3, "c", "u", 1), (4, "d", "u", 9), (4, "d", "d", 5)
        ),
        batch(
            spark, (1, "a", "d", 2), (2, "b2", "u", 3), (2, None, "d", 2), (3, None, "t", 7), (5, "e", "u", 8)
        ),
    ]
    merge, calls = engine.merge, []

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) % 2:
            raise OSError("the process ends")
        return merge(self, *arguments)

    undisturbed = str(tmp_path / "undisturbed")
    for number, rows in enumerate(batches):
        applier(undisturbed, **options).apply(rows, Write("q", number))
    monkeypatch.setattr(engine, "merge", failing)
    for number, rows in enumerate(batches):
        for _ in range(4):
            try:
                applier(table, **options).apply(rows, Write("q", number))
                break
            except OSError:
                continue
    names = ["__START_AT", "__END_AT"] if options else ["__SEQUENCE"]
    read = [tuples(load(spark, path).select("id", "name", *names)) for path in (table, undisturbed)]
    assert read[0] == read[1] != []
    assert len(calls) >= 4


@pytest.mark.long
def test_a_session_whose_writes_have_a_number_of_their_own(spark, settings, table):
    """It is not that of the batches: only the first write to a table would not be skipped."""
    numbered = {
        "spark.databricks.delta.write.txnAppId": "mine",
        "spark.databricks.delta.write.txnVersion": "3",
    }
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0])
    with settings(numbered):
        spark.createDataFrame([(1, "old"), (2, "old")], "id INT, name STRING").write.format("delta").save(
            table
        )
        of_table.apply(batch(spark, (1, None, "d", 5)), Write("q", 0))
        now[0] += 2 * DAY_MS
        of_table.apply(batch(spark, (2, "b", "u", 6)), Write("q", 1))
        assert {name: spark.conf.get(name) for name in numbered} == numbered
    assert current(spark, table) == [(2, "b")]
    assert tuples(load(spark, f"{table}/_changes/deletes").select("_change", "_sequence")) == [("horizon", 5)]


# --------------------------------------------------------------- truncates


@pytest.mark.long
def test_a_truncate(spark, table):
    of_table = applier(table)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    of_table.apply(batch(spark, (2, "b2", "u", 3), (3, "c", "u", 6), (None, None, "t", 5)), Write("q", 1))
    assert current(spark, table) == [(3, "c")]
    # What was before the truncate stays away, also in later batches.
    of_table.apply(batch(spark, (1, "late", "u", 4), (2, "new", "u", 7)), Write("q", 2))
    assert current(spark, table) == [(2, "new"), (3, "c")]


@pytest.mark.parametrize("options", [{}, {"track_history": ["name"]}], ids=["history", "history of a column"])
@pytest.mark.sampled(2)
def test_a_truncate_ends_the_rows_that_are_not_newer(spark, table, options):
    """Also one with its own sequence, in a batch of its own."""
    of_table = applier(table, scd_type=2, **options)
    of_table.apply(batch(spark, (1, "a", "u", 5), (2, "b", "u", 4), (3, "c", "u", 6)), Write("q", 0))
    of_table.apply(batch(spark, (None, None, "t", 5)), Write("q", 1))
    assert intervals(spark, table) == [(2, "b", 4, 5), (3, "c", 6, None)]


@pytest.mark.parametrize("options", [{}, {"track_history": ["name"]}], ids=["whole", "of a column"])
@pytest.mark.long
def test_rows_that_are_valid_since_ever(spark, table, options):
    """Those of a table that was there before every change may have no beginning."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING, __START_AT INT, __END_AT INT) USING delta")
    rows = ", ".join(f"({number}, 'old', NULL, NULL)" for number in range(1, 6))
    spark.sql(f"INSERT INTO delta.`{table}` VALUES {rows}")
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, scd_type=2, horizon_ms=DAY_MS, clock=lambda: now[0], **options)
    of_table.apply(
        batch(spark, (1, "a", "u", 5), (2, None, "d", 6), (4, "old", "u", 4), (9, None, "d", 8)),
        Write("q", 0),
    )
    second = [(4, "old", 4, None)] if not options else []
    since = [(4, "old", None, 4 if second else None)]
    expected = [(1, "a", 5, None), (1, "old", None, 5), (2, "old", None, 6), (3, "old", None, None)]
    expected += [*since, *second, (5, "old", None, None)]
    assert sorted(intervals(spark, table), key=repr) == sorted(expected, key=repr)
    for number in (1, 2):  # the deletes are forgotten
        now[0] += 2 * DAY_MS
        of_table.apply(batch(spark, (6, "f", "u", number)), Write("q", number))
    of_table.apply(batch(spark, (3, "b", "u", 7), (7, "late", "u", 7)), Write("q", 3))
    assert tuples(load(spark, f"{table}/_changes/late").select("id", "_sequence")) == [(7, 7)]
    of_table.apply(batch(spark, (None, None, "t", 9)), Write("q", 4))
    rows = [row for row in intervals(spark, table) if row[0] in (3, 5)]
    assert sorted(rows, key=repr) == [(3, "b", 7, 9), (3, "old", None, 7), (5, "old", None, 9)]


@pytest.mark.parametrize("is_first", [True, False], ids=["the wider first", "the wider last"])
@pytest.mark.parametrize("given", ["", " DEFAULT 9"], ids=["null", "default"])
@pytest.mark.sampled(4)
def test_an_equal_sequence_without_a_column_in_a_history(spark, table, is_first, given):
    """The row is that of the greater change alone, and has what a new row has in the columns it lacks."""
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id INT, name STRING, n INT{given}, __START_AT INT, __END_AT INT) "
        "USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    wider = batch(spark, (1, "x", "u", 2, 7), (2, "z", "u", 2, 7), schema=f"{SCHEMA}, n INT")
    narrow = batch(spark, (1, "z", "u", 2), (2, "x", "u", 2), (2, "w", "u", 5))
    of_table = applier(table, scd_type=2)
    for number, frame in enumerate([wider, narrow] if is_first else [narrow, wider]):
        of_table.apply(frame, Write("q", number))
    new = 9 if given else None
    found = load(spark, table).select("id", "name", "n", "__START_AT", "__END_AT")
    assert tuples(found) == [(1, "z", new, 2, None), (2, "w", new, 5, None), (2, "z", 7, 2, 5)]


@pytest.mark.long
def test_a_history_of_a_column_is_begun_once(spark, table, settings, monkeypatch):
    """The transactions in its log have expired since, and the process is another one."""
    history = f"{table}/_changes/history"
    of_table, schema = applier(table, scd_type=2, track_history=["name"]), f"{SCHEMA}, n INT"
    retention = "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration"
    with settings({retention: "interval 0 seconds"}):
        rows = batch(spark, (1, "x", "u", 1, 1), (1, "x", "u", 3, 2), schema=schema)
        of_table.apply(rows, Write("q", 0))
    DeltaLog.for_table(history).checkpoint()
    monkeypatch.setattr(DeltaLog, "_cache", type(DeltaLog._cache)())
    assert not DeltaLog.for_table(history).snapshot().transactions
    of_table.apply(batch(spark, (1, "w", "u", 2, 9), schema=schema), Write("q", 1))
    whole = [(1, "w", 9, 2, 3), (1, "x", 1, 1, 2), (1, "x", 2, 3, None)]
    for path in (table, history):
        assert tuples(load(spark, path).select("id", "name", "n", "__START_AT", "__END_AT")) == whole


@pytest.mark.long
def test_a_column_that_came_while_a_batch_was_on_its_way(spark, table, monkeypatch):
    """The batch deletes the row and makes it again: nothing of the old one stays in the new column."""
    of_table = applier(table)
    of_table.apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    changes = batch(spark, (1, None, "d", 2), (1, "b", "u", 3))

    def rival():
        session = spark.newSession()
        session.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (n INT)")
        session.sql(f"UPDATE delta.`{table}` SET n = 7")

    before_the_merge(monkeypatch, CurrentRows, rival)
    with pytest.raises(MetadataChangedException, match=r"schema of .* was changed"):
        of_table.apply(changes, Write("q", 1))
    monkeypatch.undo()
    assert tuples(load(spark, table).select("id", "name", "n")) == [(1, "a", 7)]
    of_table.apply(changes, Write("q", 1))
    assert tuples(load(spark, table).select("id", "name", "n")) == [(1, "b", None)]


@pytest.mark.long
def test_a_table_that_numbers_its_rows_beside_a_rival(spark, table, monkeypatch):
    """The rival moves the mark of the numbers, which is no other schema."""
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id INT, name STRING, n BIGINT GENERATED ALWAYS AS IDENTITY) "
        "USING delta"
    )
    of_table = applier(table)
    of_table.apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    insert = f"INSERT INTO delta.`{table}` (id, name) VALUES (2, 'rival')"
    before_the_merge(monkeypatch, CurrentRows, lambda: spark.newSession().sql(insert))
    of_table.apply(batch(spark, (3, "c", "u", 1)), Write("q", 1))
    assert current(spark, table) == [(1, "a"), (2, "rival"), (3, "c")]
    numbers = load(spark, table).select("n").distinct()
    assert numbers.count() == 3


def test_a_row_that_was_deleted_meanwhile_does_not_come_back(spark, table, monkeypatch):
    """The row that a change ends was read before it was deleted."""
    of_table, change = applier(table, scd_type=2), batch(spark, (1, "new", "u", 5))
    of_table.apply(batch(spark, (1, "gone", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    rival = DeltaTable.forPath(spark.newSession(), table)
    before_the_merge(monkeypatch, HistoryRows, lambda: rival.delete("id = 1"))
    with pytest.raises(DeltaConcurrentModificationException):
        of_table.apply(change, Write("q", 1))
    monkeypatch.undo()
    assert intervals(spark, table) == [(2, "b", 1, None)]
    of_table.apply(change, Write("q", 1))
    assert intervals(spark, table) == [(1, "new", 5, None), (2, "b", 1, None)]


@pytest.mark.long
def test_a_truncate_ends_the_rows_of_a_history(spark, table):
    of_table = applier(table, scd_type=2)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    of_table.apply(batch(spark, (2, "b2", "u", 3), (3, "c", "u", 6), (None, None, "t", 5)), Write("q", 1))
    of_table.apply(batch(spark, (1, "late", "u", 4)), Write("q", 2))
    expected = [(1, "a", 1, 4), (1, "late", 4, 5), (2, "b", 1, 3), (2, "b2", 3, 5), (3, "c", 6, None)]
    assert intervals(spark, table) == expected


@pytest.mark.parametrize("options", [{}, {"track_history": ["name"]}], ids=["history", "history of a column"])
@pytest.mark.long
def test_a_truncate_that_comes_after_newer_changes_ends_rows_of_a_history(spark, table, options):
    """The row was valid at the truncate, though a newer change had ended it already."""
    of_table = applier(table, scd_type=2, **options)
    rows = [(1, "a", "u", 1), (1, "b", "u", 4), (2, "c", "u", 1), (2, None, "d", 3), (3, "d", "u", 4)]
    of_table.apply(batch(spark, *rows), Write("q", 0))
    of_table.apply(batch(spark, (None, None, "t", 3)), Write("q", 1))
    assert intervals(spark, table) == [(1, "a", 1, 3), (1, "b", 4, None), (2, "c", 1, 3), (3, "d", 4, None)]


@pytest.mark.long
def test_a_truncate_that_comes_after_newer_changes_of_some_columns(spark, table):
    """A value that was set before it does not stay in a row that has another from after it."""
    of_table = applier(table)
    object.__setattr__(of_table, "ignore_null_updates", True)
    schema = "id INT, name STRING, op STRING, at INT, b STRING"
    rows = [(i, "a", "u", 1, None) for i in (1, 2)] + [(i, None, "u", 4, "b") for i in (1, 2, 3)]
    of_table.apply(batch(spark, *rows, schema=schema), Write("q", 0))
    rows = [(None, None, "t", 3, None), (2, None, "u", 5, "c")]
    of_table.apply(batch(spark, *rows, schema=schema), Write("q", 1))
    assert tuples(load(spark, table).select("id", "name", "b")) == [
        (1, None, "b"),
        (2, None, "c"),
        (3, None, "b"),
    ]
    of_table.apply(batch(spark, (1, "late", "u", 2, None), schema=schema), Write("q", 2))
    assert tuples(load(spark, table).where("id = 1").select("name", "b")) == [(None, "b")]


@pytest.mark.long
def test_many_truncates_in_one_batch(spark, table):
    """The expressions over them grow with their number, and not by its powers."""
    of_table = applier(table)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 60)), Write("q", 0))
    truncates = [(at, None, "t", at) for at in range(10, 50)]
    of_table.apply(
        batch(spark, (3, "c", "u", 30), (4, "d", "u", 49), (5, "e", "u", 50), *truncates), Write("q", 1)
    )
    assert current(spark, table) == [(2, "b"), (5, "e")]


@pytest.mark.long
@pytest.mark.parametrize("end", ["d", "t"])
def test_values_that_were_there_before_every_change(spark, table, end):
    """A delete or truncate ends them, also one that comes after newer changes of other columns."""
    rows = [(1, "old", "old"), (2, "old", "old")]
    spark.createDataFrame(rows, "id INT, name STRING, b STRING").write.format("delta").save(table)
    of_table, schema = applier(table), f"{SCHEMA}, b STRING"
    object.__setattr__(of_table, "ignore_null_updates", True)
    of_table.apply(batch(spark, (1, None, "u", 4, "new"), schema=schema), Write("q", 0))
    read = load(spark, table).select("id", "name", "b")
    assert tuples(read) == [(1, "old", "new"), (2, "old", "old")]
    of_table.apply(
        batch(spark, (1, None, end, 3, None), (2, None, end, 3, None), schema=schema), Write("q", 1)
    )
    assert tuples(load(spark, table).select("id", "name", "b")) == [(1, None, "new")]
    of_table.apply(batch(spark, (1, None, end, 2, None), schema=schema), Write("q", 2))
    assert actions(table, "txn")
    assert not actions(table, "add")


# --------------------------------------------------------------- the horizon


@pytest.mark.parametrize("scd_type", ONE_OF_TWO)
def test_changes_later_than_the_horizon(spark, table, caplog, scd_type):
    """They may be older than a delete that was forgotten: they go to a table of their own."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, scd_type=scd_type, horizon_ms=DAY_MS, clock=lambda: now[0])
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1), (1, None, "d", 5)), Write("q", 0))
    # Within the horizon, the delete is known.
    of_table.apply(batch(spark, (1, "old", "u", 3)), Write("q", 1))
    now[0] += 2 * DAY_MS
    of_table.apply(batch(spark, (2, "b2", "u", 6)), Write("q", 2))
    with caplog.at_level(logging.WARNING, "deltaflow"):
        of_table.apply(
            batch(spark, (1, "older", "u", 4), (3, "new", "u", 2), (2, "b1", "u", 4), (4, "d", "u", 7)),
            Write("q", 3),
        )
    late = load(spark, f"{table}/_changes/late")
    assert "came later than the horizon" in caplog.text
    if scd_type == 1:
        assert current(spark, table) == [(2, "b2"), (4, "d")]
        assert tuples(late.select("id", "name", "_sequence")) == [(1, "older", 4), (3, "new", 2)]
    else:
        expected = [
            (1, "a", 1, 3),
            (1, "old", 3, 5),
            (2, "b", 1, 4),
            (2, "b1", 4, 6),
            (2, "b2", 6, None),
            (4, "d", 7, None),
        ]
        # A row was valid at 4: the change only splits it.
        assert (1, "older", 4, 5) in intervals(spark, table)
        assert tuples(late.select("id", "name", "_sequence")) == [(3, "new", 2)]
        assert len(intervals(spark, table)) == len(expected) + 1
    # Applied again, nothing comes twice.
    versions_before = versions(f"{table}/_changes/late")
    of_table.apply(batch(spark, (1, "older", "u", 4)), Write("q", 3))
    assert versions(f"{table}/_changes/late") == versions_before


@pytest.mark.long
def test_changes_that_are_late_only_when_their_batch_runs_again(spark, table, monkeypatch):
    """Others have deleted the row of a change since the first run. The change is kept, and once."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0])
    schema = f"{SCHEMA}, more MAP<STRING,DOUBLE>, inner STRUCT<a: INT,b: BINARY>"

    def rows(*changes, shown=schema):
        more = [{"x": float("nan")}, (1, None)][: shown.count(", ") - 3]
        values = [(*change, *more) for change in changes]
        return batch(spark, *values, schema=shown)

    of_table.apply(rows((1, "a", "u", 1), (2, "b", "u", 1), (9, None, "d", 50)), Write("q", 0))
    for number in (1, 2):
        now[0] += 2 * DAY_MS
        of_table.apply(rows((3, "c", "u", 60 + number)), Write("q", number))
    of_table.apply(rows((6, "late", "u", 9)), Write("q", 3))
    # Its source has lost a column since then.
    fewer = schema.rpartition(", ")[0]
    last = rows((7, "late", "u", 10), (1, "a2", "u", 11), (2, "b2", "u", 12), shown=fewer)
    merge = CurrentRows.merge

    def fails(*arguments):
        raise OSError("the process ends")

    monkeypatch.setattr(CurrentRows, "merge", fails)
    for deleted in (1, 3, 2):
        with pytest.raises(OSError, match="ends"):
            of_table.apply(last, Write("q", 4))
        spark.sql(f"DELETE FROM delta.`{table}` WHERE id = {deleted}")
    monkeypatch.setattr(CurrentRows, "merge", merge)
    of_table.apply(last, Write("q", 4))
    of_table.apply(last, Write("q", 4))
    late = load(spark, f"{table}/_changes/late").select("id", "name", "_sequence")
    assert tuples(late) == [(1, "a2", 11), (2, "b2", 12), (6, "late", 9), (7, "late", 10)]
    assert current(spark, table) == []
    # Another change of the key at that time is another one.
    of_table.apply(rows((1, "a3", "u", 11)), Write("q", 5))
    assert late.count() == 5


@pytest.mark.long
def test_a_row_that_was_deleted_since_late_changes_were_found(spark, table, monkeypatch):
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0])
    of_table.apply(batch(spark, (1, "a", "u", 1), (9, None, "d", 50)), Write("q", 0))
    for number in (1, 2):
        now[0] += 2 * DAY_MS
        of_table.apply(batch(spark, (3, "c", "u", 60 + number)), Write("q", number))
    rival = DeltaTable.forPath(spark.newSession(), table)
    before_the_merge(monkeypatch, CurrentRows, lambda: rival.delete("id = 1"))
    changes = batch(spark, (7, "late", "u", 10), (1, "a2", "u", 11))
    with pytest.raises(DeltaConcurrentModificationException):
        of_table.apply(changes, Write("q", 3))
    monkeypatch.undo()
    of_table.apply(changes, Write("q", 3))
    late = load(spark, f"{table}/_changes/late")
    assert tuples(late.select("id", "_sequence")) == [(1, 11), (7, 10)]
    assert current(spark, table) == [(3, "c")]


@pytest.mark.long
def test_a_change_with_the_sequence_of_a_delete_that_was_forgotten(spark, table):
    """The row that the delete has ended still tells it."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, scd_type=2, horizon_ms=DAY_MS, clock=lambda: now[0])
    of_table.apply(batch(spark, (1, "a", "u", 1), (1, None, "d", 5)), Write("q", 0))
    now[0] += 2 * DAY_MS
    of_table.apply(batch(spark, (2, "b", "u", 6)), Write("q", 1))
    of_table.apply(batch(spark, (1, "equal", "u", 5), (1, "a3", "u", 3)), Write("q", 2))
    assert intervals(spark, table) == [(1, "a", 1, 3), (1, "a3", 3, 5), (2, "b", 6, None)]


@pytest.mark.parametrize(
    "step", [(side_tables, "forget"), (DeltaTable, "delete")], ids=["before all of it", "half-way"]
)
@pytest.mark.sampled(2)
def test_a_batch_that_failed_before_it_had_forgotten(spark, table, monkeypatch, step):
    """It forgets when it runs again, whatever comes after it; its own deletes are left to the next one."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0])
    first, second = (1, "a", "u", 1), (2, "b", "u", 6)
    of_table.apply(batch(spark, first, (1, None, "d", 5)), Write("q", 0))
    now[0] += 2 * DAY_MS
    of_table.apply(batch(spark, (3, None, "d", 4)), Write("q", 0))
    deletes = f"{table}/_changes/deletes"
    assert tuples(load(spark, deletes).select("_change", "_sequence")) == [("delete", 5)]

    def fail(*arguments):
        raise OSError("the process ends")

    with monkeypatch.context() as patch:
        patch.setattr(*step, fail)
        with pytest.raises(OSError, match="the process ends"):
            of_table.apply(batch(spark, second), Write("q", 1))
    assert current(spark, table) == [(2, "b")]
    now[0] += 1
    of_table.apply(batch(spark, second), Write("q", 1))
    assert tuples(load(spark, deletes).select("_change", "_sequence")) == [("horizon", 5)]
    # The same again forgets nothing more, and the change that may be older than the delete is late.
    before = versions(deletes)
    of_table.apply(batch(spark, second), Write("q", 1))
    assert versions(deletes) == before
    of_table.apply(batch(spark, (1, "older", "u", 4)), Write("q", 2))
    assert tuples(load(spark, f"{table}/_changes/late").select("id", "_sequence")) == [(1, 4)]


@pytest.mark.long
def test_remembered_deletes_are_few_files(spark, settings, table):
    """Each batch reads them. They are forgotten by their own age, and not by that of the file. Their time is
    rounded up, so that Spark does not compile the code of each batch."""
    now = [time.time_ns() // (1_000_000 * DAY_MS) * DAY_MS - 9 * DAY_MS + 1]
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0])
    with settings({"spark.databricks.delta.autoCompact.minNumFiles": "2"}):
        for number in range(2):
            of_table.apply(batch(spark, (number, None, "d", number)), Write("q", number))
            now[0] += DAY_MS * 5 // 8
    deletes = f"{table}/_changes/deletes"
    assert DeltaLog.for_table(deletes).snapshot().num_files == 1
    recorded = F.unix_millis("_recorded_at") % F.lit(DAY_MS) * 16 / F.lit(DAY_MS)
    assert tuples(load(spark, deletes).select("id", recorded)) == [(0, 1.0), (1, 11.0)]
    of_table.apply(batch(spark, (2, "b", "u", 6)), Write("q", 2))
    assert tuples(load(spark, deletes).select("_change", "_sequence")) == [("delete", 1), ("horizon", 0)]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_deletes_are_remembered_whatever_new_tables_are_made_with(spark, settings, table, scd_type):
    """The table of deletes may have column mapping, too."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, scd_type=scd_type, horizon_ms=DAY_MS, clock=lambda: now[0])
    with settings({"spark.databricks.delta.properties.defaults.columnMapping.mode": "name"}):
        of_table.apply(batch(spark, (1, "a", "u", 1), (1, None, "d", 5), (None, None, "t", 2)), Write("q", 0))
        of_table.apply(batch(spark, (1, "late", "u", 3), (2, "late", "u", 1)), Write("q", 1))
        found = load(spark, table)
        assert tuples((found.where("__END_AT IS NULL") if scd_type == 2 else found).select("id")) == []
        now[0] += 2 * DAY_MS
        of_table.apply(batch(spark, (3, "c", "u", 6)), Write("q", 2))
    assert tuples(load(spark, f"{table}/_changes/deletes").select("_change", "_sequence")) == [("horizon", 5)]


@pytest.mark.parametrize(
    "options",
    [{"scd_type": 1}, {"scd_type": 2, "track_history": ["v, x"]}],
)
@pytest.mark.long
def test_names_that_only_mapped_tables_have(spark, table, options):
    """The tables beside the target have them, too."""
    now, columns = [time.time_ns() // 1_000_000], "`the id` INT, `v, x` STRING"
    engine = "__SEQUENCE INT" if options["scd_type"] == 1 else "__START_AT INT, __END_AT INT"
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({columns}, {engine}) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    of_table = applier(table, horizon_ms=DAY_MS, clock=lambda: now[0], **options)
    chosen = replace(of_table.data_columns, keys=["the id"])
    object.__setattr__(of_table, "data_columns", chosen)
    batches = [[(1, "a", "u", 1), (1, None, "d", 2)], [], [(1, "late", "u", 0), (2, "b", "u", 3)]]
    for batch_id, rows in enumerate(batches):
        of_table.apply(batch(spark, *rows, schema=f"{columns}, op STRING, at INT"), Write("q", batch_id))
        now[0] += 2 * DAY_MS
    found = load(spark, table)
    if options["scd_type"] == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("the id", "v, x")) == [(2, "b")]
    assert tuples(load(spark, f"{table}/_changes/late").select("the id", "v, x")) == [(1, "late")]


# --------------------------------------------------------------- schemas and errors


@pytest.mark.parametrize("scd_type", ONE_OF_TWO)
def test_new_columns_of_the_source(spark, table, scd_type):
    of_table = applier(table, scd_type=scd_type)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    wider = batch(spark, (1, "a2", "u", 2, "x"), schema=f"{SCHEMA}, extra STRING")
    of_table.apply(wider, Write("q", 1))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("id", "name", "extra")) == [(1, "a2", "x"), (2, "b", None)]
    # A change without the column leaves nothing of a row that was deleted in between.
    of_table.apply(batch(spark, (1, None, "d", 3), (1, "a3", "u", 4)), Write("q", 2))
    found = load(spark, table).where("id = 1 AND name = 'a3'")
    assert tuples(found.select("extra")) == [(None,)]


@pytest.mark.long
def test_a_new_column_in_a_history_of_some_columns(spark, table):
    """It is kept, too, where a change without it begins a row anew."""
    of_table = applier(table, scd_type=2, track_history=["name"])
    of_table.apply(batch(spark, (1, "a", "u", 2)), Write("q", 0))
    wider = f"{SCHEMA}, extra STRING"
    of_table.apply(batch(spark, schema=wider), Write("q", 1))
    of_table.apply(batch(spark, (1, "a", "u", 3, "x"), (2, "b", "u", 2, "y"), schema=wider), Write("q", 2))
    of_table.apply(batch(spark, (2, "b", "u", 1)), Write("q", 3))
    found = load(spark, table).select("id", "name", "extra", "__START_AT", "__END_AT")
    assert tuples(found) == [(1, "a", "x", 2, None), (2, "b", "y", 1, None)]


@pytest.mark.long
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_column_that_some_batches_do_not_tell(spark, table, scd_type):
    """Where columns have sequences of their own, it keeps its value and its sequence."""
    of_table = applier(table, scd_type=scd_type)
    object.__setattr__(of_table, "ignore_null_updates", True)
    wider = f"{SCHEMA}, extra STRING"
    of_table.apply(batch(spark, (1, "a", "u", 3, "x"), schema=wider), Write("q", 0))
    of_table.apply(batch(spark, (1, "b", "u", 7)), Write("q", 1))
    newest = load(spark, table).where("name = 'b'")
    assert tuples(newest.select("name", "extra")) == [("b", "x")]
    of_table.apply(batch(spark, (1, None, "u", 6, "y"), schema=wider), Write("q", 2))
    newest = load(spark, table).where("name = 'b'")
    assert tuples(newest.select("name", "extra")) == [("b", "y")]


@pytest.mark.long
@pytest.mark.parametrize("tracked", [None, ["name"]])
def test_a_history_that_does_not_ignore_nulls_any_more(spark, table, tracked):
    """A value that an older change set goes on from the newest of these, as before."""
    of_table, schema = applier(table, scd_type=2, track_history=tracked), f"{SCHEMA}, extra STRING"
    object.__setattr__(of_table, "ignore_null_updates", True)
    changes = [(1, "a", "u", 1, "x"), (1, "c", "u", 5, None)]
    of_table.apply(batch(spark, *changes, schema=schema), Write("q", 0))
    object.__setattr__(of_table, "ignore_null_updates", False)
    of_table.apply(batch(spark, (1, "b", "u", 3, "y"), schema=schema), Write("q", 1))
    found = load(spark, table).select("name", "extra", "__START_AT")
    assert tuples(found) == [("a", "x", 1), ("b", "y", 3), ("c", "y", 5)]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_an_older_change_with_a_new_column_after_a_newer_one_without_it(spark, table, scd_type):
    """Nobody has set the column since, as in the other order."""
    of_table = applier(table, scd_type=scd_type)
    object.__setattr__(of_table, "ignore_null_updates", True)
    of_table.apply(batch(spark, (1, "a", "u", 5)), Write("q", 0))
    of_table.apply(batch(spark, (1, None, "u", 3, "x"), schema=f"{SCHEMA}, extra STRING"), Write("q", 1))
    assert tuples(load(spark, table).where("name = 'a'").select("extra")) == [("x",)]


@pytest.mark.long
@pytest.mark.parametrize("scd_type", [1, 2])
def test_an_older_change_with_a_column_that_came_after_the_row(spark, table, scd_type):
    """A change of another row brought the column: the null of this row is no value that a change has set."""
    of_table, wider = applier(table, scd_type=scd_type), f"{SCHEMA}, extra STRING"
    object.__setattr__(of_table, "ignore_null_updates", True)
    of_table.apply(batch(spark, (1, "a", "u", 5)), Write("q", 0))
    of_table.apply(batch(spark, (2, "b", "u", 5, "y"), schema=wider), Write("q", 1))
    of_table.apply(batch(spark, (1, None, "u", 3, "x"), schema=wider), Write("q", 2))
    found = load(spark, table).where("name = 'a'").select("extra", "__COLUMN_SEQUENCES")
    assert tuples(found) == [("x", {"extra": 3})]
    of_table.apply(batch(spark, (1, None, "u", 2, "older"), schema=wider), Write("q", 3))
    assert tuples(load(spark, table).where("name = 'a'").select("extra")) == [("x",)]


@dataclass(frozen=True)
class Parts:
    """An envelope whose records say which columns they leave out."""

    def changes(self, batch, current):
        return batch.select(
            "ID", "NAME", F.lit("upsert").alias("_change"), F.col("at").alias("_sequence"), "_unset"
        )


@pytest.mark.long
def test_parts_of_rows_for_a_table_that_was_there_before(spark, table):
    """The records have the names of the columns in another case."""
    spark.createDataFrame([(1, "old"), (2, "old")], "id INT, name STRING").write.format("delta").save(table)
    of_table = Applier(Target(table, None), Parts(), DataColumns(["id"]), 1, False, DAY_MS)
    rows = [(1, "no value", ["NAME"], 2), (2, "new", [], 2)]
    of_table.apply(
        batch(spark, *rows, schema="ID INT, NAME STRING, _unset ARRAY<STRING>, at INT"), Write("q", 0)
    )
    assert current(spark, table) == [(1, "old"), (2, "new")]


@pytest.mark.parametrize(("kind", "short"), [("CHAR(3)", ""), ("VARCHAR(3)", "  ")])
@pytest.mark.long
def test_keys_of_a_length(spark, table, kind, short):
    """A key is the same whatever blanks the table cuts off or adds."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id {kind}, name STRING) USING delta")
    schema = SCHEMA.replace("id INT", "id STRING")
    of_table, key, other = applier(table), f"k{short}", f"l{short}"
    of_table.apply(batch(spark, ("k    ", "a", "u", 1), (other, "b", "u", 1), schema=schema), Write("q", 0))
    of_table.apply(batch(spark, (key, "a2", "u", 2), ("l     ", None, "d", 2), schema=schema), Write("q", 1))
    of_table.apply(batch(spark, ("l  ", "late", "u", 1), schema=schema), Write("q", 2))
    assert current(spark, table) == [("k  ", "a2")]


@pytest.mark.parametrize("scd_type", ONE_OF_TWO)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.readSideCharPadding", "false"),
        ("spark.sql.legacy.charVarcharAsString", "true"),
        ("spark.sql.preserveCharVarcharTypeInfo", "true"),
    ],
)
@pytest.mark.sampled(3)
def test_keys_of_char_in_a_session_that_reads_them_otherwise(
    spark, table, settings, setting, value, scd_type
):
    history = "" if scd_type == 1 else ", __START_AT INT, __END_AT INT"
    spark.sql(f"CREATE TABLE delta.`{table}` (id CHAR(3), name STRING{history}) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` (id, name) VALUES ('k', 'old'), ('l', 'old')")
    if scd_type == 2:
        spark.sql(f"UPDATE delta.`{table}` SET __START_AT = 0")
    schema = SCHEMA.replace("id INT", "id STRING")
    of_table = applier(table, scd_type=scd_type)
    with settings({setting: value}):
        of_table.apply(batch(spark, ("k", "a", "u", 1), ("l", None, "d", 1), schema=schema), Write("q", 0))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("id", "name")) == [("k  ", "a")]


def test_a_key_that_the_table_has_as_null(spark, table):
    """An empty text in a partition column is null there: no change of the key would find its row."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id STRING, name STRING) USING delta PARTITIONED BY (id)")
    change = batch(spark, ("", "a", "u", 1), schema=SCHEMA.replace("id INT", "id STRING"))
    with pytest.raises(DeltaIllegalStateException, match="id = None, _change = upsert"):
        applier(table).apply(change, Write("q", 0))


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_names_that_the_engine_could_have(spark, table, scd_type):
    of_table = applier(table, scd_type=scd_type)
    schema = "id INT, new STRING, old STRING, target STRING, __target STRUCT<id: INT>, op STRING, at INT"
    of_table.apply(batch(spark, (1, "a", "b", "c", (9,), "u", 1), schema=schema), Write("q", 0))
    of_table.apply(batch(spark, (1, "d", "e", "f", (8,), "u", 2), schema=schema), Write("q", 1))
    found = load(spark, table).where("new = 'd'").select("id", "new", "old", "target", "__target.id")
    assert tuples(found) == [(1, "d", "e", "f", 8)]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_names_of_columns(spark, table, scd_type):
    """Keys and values may have dots in their names, and another case than the keys that are given."""
    of_table = applier(table, scd_type=scd_type)
    object.__setattr__(of_table, "data_columns", DataColumns(["k.EY", "id"], except_columns=("op", "at")))
    schema = "ID INT, `k.ey` STRING, `v.al` STRING, op STRING, at INT"
    of_table.apply(batch(spark, (1, "a", "x", "u", 1), (2, "b", "y", "u", 1), schema=schema), Write("q", 0))
    of_table.apply(batch(spark, schema=schema), Write("q", 1))
    of_table.apply(batch(spark, (1, "a", None, "d", 2), (2, "b", "z", "u", 2), schema=schema), Write("q", 2))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("id", "`k.ey`", "`v.al`")) == [(2, "b", "z")]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_keys_alone(spark, table, scd_type):
    of_table = applier(table, scd_type=scd_type)
    of_table.apply(batch(spark, (1, "u", 1), (2, "u", 1), schema="id INT, op STRING, at INT"), Write("q", 0))
    of_table.apply(batch(spark, (1, "d", 2), (3, "u", 1), schema="id INT, op STRING, at INT"), Write("q", 1))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("id")) == [(2,), (3,)]


def test_a_table_that_was_there_before(spark, table):
    """Its rows are older than every change; they have no place in a history."""
    spark.createDataFrame([(1, "old"), (2, "old"), (3, "old")], "id INT, name STRING").write.format(
        "delta"
    ).save(table)
    with pytest.raises(DeltaIllegalArgumentException, match="no place in a history") as raised:
        applier(table, scd_type=2).apply(batch(spark, (1, "new", "u", 1)), Write("q", 0))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_NO_HISTORY"
    applier(table).apply(batch(spark, (1, "new", "u", 1), (2, None, "d", 1), (4, "d", "u", 1)), Write("q", 0))
    assert current(spark, table) == [(1, "new"), (3, "old"), (4, "d")]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.long
def test_a_row_that_was_there_before_is_deleted_and_made_again(spark, table, batches):
    """The delete ends the columns that changes do not have, also in the batch of the new row."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING, extra STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'old', 'x'), (2, 'old', 'y')")
    changes = [(1, None, "d", 5), (1, "new", "u", 7), (2, "new", "u", 7)]
    for number in range(batches):
        applier(table).apply(batch(spark, *changes[number::batches]), Write("q", number))
    found = load(spark, table).select("id", "name", "extra")
    assert tuples(found) == [(1, "new", None), (2, "new", "y")]


@pytest.mark.long
def test_columns_whose_values_the_table_gives(spark, table):
    """They follow from the others in each row that is written, and a row keeps its number."""
    computed = "long INT GENERATED ALWAYS AS (length(name)), n LONG GENERATED ALWAYS AS IDENTITY"
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, name STRING, {computed}) USING delta")
    engine = applier(table)
    engine.apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    number = load(spark, table).first().n
    assert number is not None
    engine.apply(batch(spark, (1, "abc", "u", 2)), Write("q", 1))
    object.__setattr__(engine, "ignore_null_updates", True)
    engine.apply(batch(spark, (1, "abcd", "u", 4), (1, None, "d", 3), (2, "ab", "u", 1)), Write("q", 2))
    found = load(spark, table).select("id", "name", "long", "n").orderBy("id").collect()
    assert [tuple(row)[:3] for row in found] == [(1, "abcd", 4), (2, "ab", 2)]
    assert found[0].n == number != found[1].n


@pytest.mark.parametrize("ignores_nulls", [False, True])
@pytest.mark.long
def test_columns_with_a_default(spark, table, ignores_nulls):
    """New rows have it where no change tells the column."""
    feature = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    columns = "id INT, name STRING, extra STRING DEFAULT 'none'"
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta {feature}")
    engine = applier(table)
    object.__setattr__(engine, "ignore_null_updates", ignores_nulls)
    engine.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    assert tuples(load(spark, table).select("id", "extra")) == [(1, "none"), (2, "none")]
    told = batch(spark, (1, "a", "u", 2, "x"), (2, "b", "u", 2, "y"), schema=f"{SCHEMA}, extra STRING")
    engine.apply(told, Write("q", 1))
    engine.apply(batch(spark, (1, None, "d", 3), (1, "a", "u", 4), (2, "c", "u", 4)), Write("q", 2))
    assert tuples(load(spark, table).select("id", "extra")) == [(1, "none"), (2, "y")]


@pytest.mark.long
def test_an_equal_sequence_with_a_new_column(spark, table):
    """Of two upserts the one whose columns are greater wins, also by a column that the table lacks yet."""
    of_table = applier(table)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 1)), Write("q", 0))
    told = [(1, "a", "u", 1, "x"), (2, "a", "u", 1, "x")]
    of_table.apply(batch(spark, *told, schema=f"{SCHEMA}, more STRING"), Write("q", 1))
    assert tuples(load(spark, table).select("id", "name", "more")) == [(1, "a", "x"), (2, "b", None)]


@pytest.mark.parametrize("scd_type", ONE_OF_TWO)
@pytest.mark.long
def test_an_equal_sequence_after_the_source_has_changed_the_order_of_its_columns(spark, table, scd_type):
    """The order of the table decides which upsert is greater, so it does not matter which came first."""
    of_table = applier(table, scd_type=scd_type)
    schema = "id INT, name STRING, more STRING, op STRING, at INT"
    of_table.apply(batch(spark, (1, "a", "y", "u", 1), (2, "b", "x", "u", 1), schema=schema), Write("q", 0))
    schema = "id INT, more STRING, name STRING, op STRING, at INT"
    of_table.apply(batch(spark, (1, "x", "b", "u", 1), (2, "y", "a", "u", 1), schema=schema), Write("q", 1))
    assert tuples(load(spark, table).select("id", "name", "more")) == [(1, "b", "x"), (2, "b", "x")]


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.long
def test_an_equal_sequence_with_a_map(spark, table, scd_type):
    """A null is less than a map, as it is less than every other value."""
    of_table = applier(table, scd_type=scd_type)
    told, schema = [{"k": 1}, None], "id INT, m MAP<STRING, INT>, op STRING, at INT"
    batches = [[(1, told[i], "u", 1), (2, told[1 - i], "u", 1)] for i in (0, 1)]
    batches[0] += [(3, m, "u", 1) for m in told]
    for number, rows in enumerate(batches):
        of_table.apply(batch(spark, *rows, schema=schema), Write("q", number))
    assert tuples(load(spark, table).select("id", "m")) == [(i, {"k": 1}) for i in (1, 2, 3)]


@pytest.mark.long
@pytest.mark.parametrize("made_by", ["another writer", "a clone"])
def test_a_history_of_some_columns_keeps_the_rows_that_were_there_before(spark, tmp_path, table, made_by):
    """The whole history beside the target begins with them."""
    before = [(1, "a", 1, 3), (1, "b", 3, None), (2, "c", 2, None), (3, "d", 1, 2)]
    if made_by == "another writer":
        columns = "id INT, name STRING, __START_AT INT, __END_AT INT"
        spark.createDataFrame(before, columns).write.format("delta").save(table)
    else:
        first = str(tmp_path / "first")
        told = [(1, "a", "u", 1), (1, "b", "u", 3), (2, "c", "u", 2), (3, "d", "u", 1), (3, None, "d", 2)]
        applier(first, scd_type=2, track_history=["name"]).apply(batch(spark, *told), Write("q", 0))
        assert intervals(spark, first) == before
        DeltaTable.forPath(spark, first).clone(table)
    of_table = applier(table, scd_type=2, track_history=["name"])
    of_table.apply(batch(spark, (1, "b2", "u", 5), (3, "e", "u", 6)), Write("q", 1))
    of_table.apply(batch(spark, (1, None, "d", 7), (2, "c0", "u", 1)), Write("q", 2))
    after = [(1, "a", 1, 3), (1, "b", 3, 5), (1, "b2", 5, 7)]
    after += [(2, "c", 2, None), (2, "c0", 1, 2), (3, "d", 1, 2), (3, "e", 6, None)]
    assert intervals(spark, table) == sorted(after, key=repr)


@pytest.mark.long
def test_a_history_of_some_columns_whose_column_was_renamed(spark, table):
    """The whole history beside it has the old name: the rows would lose their values."""
    of_table, schema = applier(table, scd_type=2, track_history=["name"]), f"{SCHEMA}, {{}} STRING"
    of_table.apply(batch(spark, (1, "a", "u", 1, "x"), schema=schema.format("more")), Write("q", 0))

    def rename(path):
        mapping = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        for change in (mapping, "RENAME COLUMN more TO other"):
            spark.sql(f"ALTER TABLE delta.`{path}` {change}")

    rename(table)
    renamed = batch(spark, (1, "b", "u", 2, "y"), schema=schema.format("other"))
    with pytest.raises(
        DeltaIllegalStateException, match=r"the columns other, which .*lacks the columns more"
    ) as raised:
        of_table.apply(renamed, Write("q", 1))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_RENAMED"
    rename(f"{table}/_changes/history")
    of_table.apply(renamed, Write("q", 1))
    found = load(spark, table).select("name", "other", "__START_AT", "__END_AT")
    assert tuples(found) == [("a", "x", 1, 2), ("b", "y", 2, None)]


def widen(spark, path, column, data_type):
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {data_type}")


@pytest.mark.parametrize(
    ("beside", "narrow", "wide", "value"),
    [
        ("history", "INT", "DOUBLE", 0.7),
        ("history", "FLOAT", "DOUBLE", 0.1),
        ("history", "DECIMAL(10,1)", "DECIMAL(12,3)", Decimal("1.234")),
        ("late", "FLOAT", "DOUBLE", 0.1),
    ],
)
@pytest.mark.sampled(4)
def test_a_value_that_a_table_beside_a_widened_target_would_round(spark, table, beside, narrow, wide, value):
    """The batch stops before it has changed anything, and goes on when the type is the same in both."""
    now = [10**12]
    options = {"scd_type": 2, "track_history": ["v"]} if beside == "history" else {"horizon_ms": 1_000}
    of_table, schema = applier(table, clock=lambda: now[0], **options), "id INT, v {}, op STRING, at INT"

    def apply(number, *rows, data_type=narrow):
        of_table.apply(batch(spark, *rows, schema=schema.format(data_type)), Write("q", number))
        now[0] += 10_000

    one = Decimal(1) if "DECIMAL" in narrow else 1 if narrow == "INT" else 1.0
    apply(0, (1, one, "u", 1), (2, one, "d", 50))
    apply(1, (3, one, "d", 60))
    apply(2, (4, one, "u", 10))  # The first of the late ones, where deletes are forgotten.
    widen(spark, table, "v", wide)
    path = f"{table}/_changes/{beside}"
    before = {each: versions(each) for each in (table, path)}
    told = (5, value, "u", 11)
    with pytest.raises(
        DeltaIllegalStateException, match=r"column v is .* in the table and .* in the data"
    ) as raised:
        apply(3, told, data_type=wide)
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_TYPE_BESIDE"
    assert f"{path} cannot keep values" in str(raised.value)
    assert {each: versions(each) for each in (table, path)} == before
    widen(spark, path, "v", wide)
    apply(3, told, data_type=wide)
    found = load(spark, table if beside == "history" else path).where("id = 5").select("v")
    assert tuples(found) == [(value,)]


def test_a_key_that_the_remembered_deletes_would_round(spark, table):
    """A delete of 1.25 that is remembered as one of 1 lets the row come back, and another one go."""
    of_table = replace(applier(table), data_columns=DataColumns(["id"], except_columns=("op", "at")))
    schema, one, other = "id {}, name STRING, op STRING, at INT", Decimal("1"), Decimal("1.25")
    told = batch(spark, (one, "a", "u", 1), (Decimal(9), None, "d", 1), schema=schema.format("DECIMAL(10,0)"))
    of_table.apply(told, Write("q", 0))
    widen(spark, table, "id", "DECIMAL(12,2)")
    batches = [
        batch(spark, *rows, schema=schema.format("DECIMAL(12,2)"))
        for rows in ([(other, None, "d", 10)], [(other, "old", "u", 5), (one, "new", "u", 7)])
    ]
    deletes = f"{table}/_changes/deletes"
    with pytest.raises(DeltaIllegalStateException, match="column id is decimal") as raised:
        of_table.apply(batches[0], Write("q", 1))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_TYPE_BESIDE"
    widen(spark, deletes, "id", "DECIMAL(12,2)")
    for number, rows in enumerate(batches, 1):
        of_table.apply(rows, Write("q", number))
    assert current(spark, table) == [(one, "new")]


@pytest.mark.long
def test_a_restored_target_with_a_narrower_type_than_its_history(spark, table):
    """Its rows follow from the history, whose values it would round."""
    of_table, schema = applier(table, scd_type=2, track_history=["v"]), "id INT, v {}, op STRING, at INT"
    of_table.apply(batch(spark, (1, 1, "u", 1), schema=schema.format("INT")), Write("q", 0))
    first = versions(table)[-1]
    for path in (table, f"{table}/_changes/history"):
        widen(spark, path, "v", "DOUBLE")
    of_table.apply(batch(spark, (1, 0.7, "u", 2), schema=schema.format("DOUBLE")), Write("q", 1))
    DeltaTable.forPath(spark, table).restoreToVersion(first)
    with pytest.raises(DeltaIllegalStateException, match="column v is double in the table and int"):
        of_table.apply(batch(spark, (1, 3, "u", 3), schema=schema.format("INT")), Write("q", 2))
    widen(spark, table, "v", "DOUBLE")
    # A type that the target's is wider than fits as it is.
    of_table.apply(batch(spark, (1, 3, "u", 3), schema=schema.format("INT")), Write("q", 2))
    assert tuples(load(spark, table).select("v", "__START_AT")) == [(0.7, 2), (1.0, 1), (3.0, 3)]


@pytest.mark.long
def test_a_target_that_was_replaced(spark, table):
    """What the old table has deleted does not hold for the new one."""
    applier(table).apply(batch(spark, (1, "a", "u", 1), (1, "a", "d", 9)), Write("q", 0))
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{table}` (id INT, name STRING) USING delta")
    fresh = batch(spark, (1, "fresh", "u", 2))
    with pytest.raises(DeltaIllegalStateException, match="Remove that directory") as raised:
        applier(table).apply(fresh, Write("r", 0))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_REPLACED"
    shutil.rmtree(Path(table, "_changes"))
    applier(table).apply(fresh, Write("r", 0))
    applier(table).apply(batch(spark, (2, "b", "u", 1)), Write("r", 1))
    assert current(spark, table) == [(1, "fresh"), (2, "b")]


@pytest.mark.parametrize("change", ["ALTER TABLE {} RENAME TO {}_2", "DROP TABLE {}"])
@pytest.mark.sampled(1)
def test_a_target_that_goes_away_is_not_made_anew_in_the_same_run(spark, tmp_path, change):
    folder, name = tmp_path / "landed", f"gone_{len(change)}"
    land(folder, "1.json", (1, "a", "u", 1))
    source = spark.readStream.schema(SCHEMA).json(str(folder))
    writer = apply_changes(source, name, keys="id", sequence_by="at")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    query.processAllAvailable()
    spark.sql(change.format(name, name))
    land(folder, "2.json", (2, "b", "u", 2))
    with pytest.raises(
        StreamingQueryException, match=rf"The table {name}, which the stream writes, was dropped"
    ):
        query.processAllAvailable()
    assert not spark.catalog.tableExists(name)
    # A start of the query makes it anew, as it does in other streams.
    writer.trigger(availableNow=True).start().awaitTermination()
    assert tuples(spark.table(name).select("id", "name")) == [(2, "b")]
    for table in (name, f"{name}_2"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize("name", ["_change", "_unset", "_recorded_at", "__SEQUENCE", "_CHANGE", "_Sequence"])
@pytest.mark.sampled(3)
def test_reserved_names(spark, table, name):
    rows = batch(spark, (1, "a", "u", 1, "x"), schema=f"{SCHEMA}, {name} STRING")
    with pytest.raises(DeltaIllegalArgumentException, match=name) as raised:
        applier(table).apply(rows, Write("q", 0))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_RESERVED"
    for envelope in (Flat(operation="op", sequence_by="at"), Snapshots(version="at"), ChangeRows()):
        with pytest.raises(DeltaIllegalArgumentException, match=name):
            envelope.changes(rows, Current(None, lambda: None, ["id"]))
    messages = rows.select(F.lit("{}").alias("value"))
    with pytest.raises(DeltaIllegalArgumentException, match=name):
        Debezium(schema=f"id INT, {name} INT").changes(messages, Current(None, lambda: None, ["id"]))


def test_a_change_without_key_or_sequence(spark, table):
    rows = batch(spark, (1, "a", "u", 1), (None, "nobody", "u", 2), (3, "never", "u", None))
    with pytest.raises(DeltaIllegalStateException, match="2 records of batch 0 are no changes") as raised:
        applier(table).apply(rows, Write("q", 0))
    assert raised.value.getCondition() == "DELTA_INVALID_CHANGE"
    assert "id = 3" in str(raised.value)
    assert load(spark, table).count() == 0


@pytest.mark.long
@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize(
    "sequence", ["struct(at, struct(1 AS n) AS one, CAST(NULL AS STRUCT<n: INT>) AS none)", "array(at, 1)"]
)
def test_nested_sequences(spark, table, scd_type, sequence):
    """Truncates and the horizon come back from Python; parts of a sequence may never be null."""
    now = [time.time_ns() // 1_000_000]
    of_table = applier(table, scd_type=scd_type, horizon_ms=DAY_MS, clock=lambda: now[0])
    conditions = ByConditions(F.expr(sequence), F.col("op") == "d", F.col("op") == "t")
    object.__setattr__(of_table, "envelope", conditions)
    of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", 3), (None, None, "t", 2)), Write("q", 0))
    now[0] += 2 * DAY_MS
    of_table.apply(batch(spark, (3, "c", "u", 4)), Write("q", 1))
    of_table.apply(batch(spark, (4, "late", "u", 2)), Write("q", 2))
    found = load(spark, table)
    if scd_type == 2:
        found = found.where("__END_AT IS NULL")
    assert tuples(found.select("id", "name")) == [(2, "b"), (3, "c")]
    assert load(spark, f"{table}/_changes/late").count() == 1


def test_a_sequence_of_nulls_alone(spark, table):
    of_table = applier(table)
    object.__setattr__(of_table, "envelope", ByConditions(F.struct("at", F.struct("at").alias("more"))))
    with pytest.raises(DeltaIllegalStateException, match="1 records of batch 0 are no changes"):
        of_table.apply(batch(spark, (1, "a", "u", 1), (2, "b", "u", None)), Write("q", 0))


def test_a_column_of_history_that_is_not_there(spark, table):
    with pytest.raises(DeltaIllegalArgumentException, match="nam") as raised:
        applier(table, scd_type=2, track_history=["nam"]).apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_COLUMN"


def test_a_type_that_the_table_does_not_take(spark, table):
    applier(table).apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    longer = batch(spark, (2, "b", "u", 2), schema=SCHEMA.replace("id INT", "id BIGINT"))
    with pytest.raises(DeltaAnalysisException, match="column id of the changes is bigint") as raised:
        applier(table).apply(longer, Write("q", 1))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_TYPE"
    # What the error says to do.
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableTypeWidening = true)")
    [remedy] = re.findall("ALTER TABLE … (.*), and start", str(raised.value))
    spark.sql(f"ALTER TABLE delta.`{table}` {remedy}")
    applier(table).apply(longer, Write("q", 1))
    assert tuples(load(spark, table).select("id", "name")) == [(1, "a"), (2, "b")]


def test_another_way_to_apply(spark, table):
    applier(table).apply(batch(spark, (1, "a", "u", 1)), Write("q", 0))
    with pytest.raises(DeltaIllegalArgumentException, match="storedAsScdType 1, now 2") as raised:
        applier(table, scd_type=2).apply(batch(spark, (1, "a", "u", 2)), Write("q", 1))
    assert raised.value.getCondition() == "DELTA_APPLY_CHANGES_MISMATCH"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"keys": []}, "keys names no column"),
        ({"sequence_by": None}, "sequence_by is missing"),
        ({"scd_type": 3}, "scd_type is 3"),
        ({"keys": ["id", "nope"]}, r"no column nope\. Their columns are id, name, op, at\."),
        ({"except_columns": "nope"}, "no column nope"),
        ({"columns": ["a"], "except_columns": ["b"]}, "together with except_columns"),
        ({"track_history_columns": ["a"]}, "of use with scd_type=2 alone"),
        ({"keys": ["id", "ID"]}, "keys names a column twice"),
        ({"delete_horizon": "soon"}, "delete_horizon is 'soon'"),
        ({"delete_horizon": timedelta(days=-1)}, "delete_horizon is -1 day, 0:00:00, which is negative"),
    ],
)
@pytest.mark.sampled(3)
def test_arguments(spark, tmp_path, arguments, problem):
    source = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(DeltaIllegalArgumentException, match=problem):
        apply_changes(source, "/t", **{"keys": ["id"], "sequence_by": "at", **arguments})


@pytest.mark.parametrize("argument", ["sequence_by", "deletes", "truncates"])
def test_an_expression_over_a_column_that_the_source_lacks(spark, tmp_path, argument):
    source = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    arguments = {"keys": "id", "sequence_by": "at", argument: "nope > 1"}
    with pytest.raises(AnalysisException, match=r"UNRESOLVED_COLUMN.*`nope`"):
        apply_changes(source, "/t", **arguments)


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        ({"columns": "name", "track_history_columns": "name"}, ["id", "name"]),
        ({"except_columns": "op", "track_history_except_columns": "at"}, ["id", "name", "at"]),
    ],
)
@pytest.mark.sampled(2)
def test_a_text_is_one_name(spark, table, tmp_path, arguments, columns):
    """It was read letter by letter."""
    folder = tmp_path / "landed"
    land(folder, "1.json", (1, "a", "u", 1), (1, "a", "u", 2))
    source = spark.readStream.schema(SCHEMA).json(str(folder))
    writer = apply_changes(source, table, keys="id", sequence_by="at", scd_type=2, **arguments)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    found = load(spark, table)
    assert found.columns == [*columns, "__START_AT", "__END_AT"]
    assert tuples(found.select("name", "__START_AT", "__END_AT")) == [("a", 1, None)]


def test_how_targets_are_named():
    for given, path, name in (
        ("/tables/a", "/tables/a", None),
        ("delta.`/tables/a`", "/tables/a", None),
        ("DELTA.`/tables/a``b`", "/tables/a`b", None),
        ("shop.people", None, "shop.people"),
    ):
        assert _target(given) == Target(path, name)


def test_a_frame_that_is_no_stream(spark):
    with pytest.raises(DeltaIllegalArgumentException, match="no streaming frame"):
        apply_changes(batch(spark, (1, "a", "u", 1)), "/t", keys="id", sequence_by="at")
