"""Pipelines that people build with MERGE, each on data of its own."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from tests.tables import actions, load, tuples, versions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


def values(spark, text, *names):
    return spark.sql(f"SELECT * FROM VALUES {text} AS t({', '.join(names)})")


def run(query):
    query.awaitTermination()
    assert query.exception() is None


def test_upsert_in_foreach_batch(spark, table, tmp_path):
    """Every batch once, though the last one is processed again after a crash before Spark noted its end."""
    readings, checkpoint = str(tmp_path / "readings"), tmp_path / "checkpoint"
    values(spark, "('kitchen', 20), ('cellar', 11)", "room", "degrees").write.format("delta").save(table)
    for batch in ["('kitchen', 21), ('attic', 30)", "('attic', 31)", "('kitchen', 22), ('garden', 3)"]:
        values(spark, batch, "room", "degrees").coalesce(1).write.format("delta").mode("append").save(
            readings
        )
    merged = []

    def upsert(batch, number):
        session = batch.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", "rooms")
        session.conf.set("spark.databricks.delta.write.txnVersion", number)
        merge = DeltaTable.forPath(session, table).alias("t").merge(batch.alias("s"), "t.room = s.room")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        merged.append(number)

    def stream():
        source = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(readings)
        writer = source.writeStream.foreachBatch(upsert).option("checkpointLocation", str(checkpoint))
        run(writer.trigger(availableNow=True).start())

    stream()
    expected = [("attic", 31), ("cellar", 11), ("garden", 3), ("kitchen", 22)]
    assert tuples(load(spark, table).select("room", "degrees")) == expected
    before = versions(table)
    for name in (str(max(merged)), f".{max(merged)}.crc"):
        (checkpoint / "commits" / name).unlink()
    stream()
    assert len(merged) == len(set(merged)) + 1
    assert versions(table) == before
    assert tuples(load(spark, table).select("room", "degrees")) == expected


def test_the_latest_change_of_each_key(spark, table):
    """A batch with several changes of a key: the newest of them is the one that counts."""
    values(spark, "(1, 'a', 10), (2, 'b', 10)", "key", "value", "at").write.format("delta").save(table)
    changes = values(
        spark,
        "(1, 'a2', 11), (1, 'a3', 13), (1, 'old', 12), (3, 'c', 11), (3, 'c2', 12)",
        "key",
        "value",
        "at",
    )
    latest = changes.groupBy("key").agg(F.max_by(F.struct("value", "at"), "at").alias("newest"))
    latest = latest.select("key", "newest.*")
    merge = DeltaTable.forPath(spark, table).alias("t").merge(latest.alias("s"), "t.key = s.key")
    merge.whenMatchedUpdateAll("s.at > t.at").whenNotMatchedInsertAll().execute()
    assert tuples(load(spark, table).select("key", "value", "at")) == [
        (1, "a3", 13),
        (2, "b", 10),
        (3, "c2", 12),
    ]


def test_change_data_with_deletes(spark, table):
    values(spark, "(0, 'a'), (1, 'b'), (2, 'c'), (3, 'd')", "key", "value").write.format("delta").save(table)
    changes = values(
        spark,
        "(0, 1, 'new', false), (0, 2, '', true), (1, 3, '', true), (1, 4, 'back', false), "
        "(4, 5, 'gone', false), (4, 6, '', true), (5, 7, 'five', false), (2, 8, 'c2', false)",
        *("key", "time", "new_value", "deleted"),
    )
    latest = changes.groupBy("key").agg(F.max(F.struct("time", "new_value", "deleted")).alias("latest"))
    latest = latest.selectExpr("key", "latest.new_value AS new_value", "latest.deleted AS deleted")
    (
        DeltaTable.forPath(spark, table)
        .alias("t")
        .merge(latest.alias("s"), "s.key = t.key")
        .whenMatchedDelete("s.deleted = true")
        .whenMatchedUpdate(set={"key": "s.key", "value": "s.new_value"})
        .whenNotMatchedInsert("s.deleted = false", {"key": "s.key", "value": "s.new_value"})
        .execute()
    )
    assert tuples(load(spark, table).select("key", "value")) == [
        (1, "back"),
        (2, "c2"),
        (3, "d"),
        (5, "five"),
    ]


@pytest.mark.long
def test_insert_only_deduplication_of_the_last_seven_days(spark, table, tmp_path):
    """Older partitions are not looked into: their files are elsewhere meanwhile, and nobody notices."""
    today = dt.date.today()
    logs = spark.range(0, 30, 1, 3).selectExpr(
        "concat('id', id) AS uniqueId", "date_sub(current_date(), CAST(id AS INT)) AS date"
    )
    logs.write.format("delta").partitionBy("date").save(table)
    away = tmp_path / "away"
    away.mkdir()
    for folder in Path(table).glob("date=*"):
        if dt.date.fromisoformat(folder.name.removeprefix("date=")) < today - dt.timedelta(days=7):
            shutil.move(folder, away)
    assert len(list(away.iterdir())) >= 21
    new = values(spark, "('id0', 0), ('id3', 3), ('new', 1), ('late', 20)", "uniqueId", "days").selectExpr(
        "uniqueId", "date_sub(current_date(), days) AS date"
    )
    (
        DeltaTable.forPath(spark, table)
        .alias("logs")
        .merge(
            new.alias("fresh"),
            "logs.uniqueId = fresh.uniqueId AND logs.date > current_date() - INTERVAL 7 DAYS",
        )
        .whenNotMatchedInsertAll("fresh.date > current_date() - INTERVAL 7 DAYS")
        .execute()
    )
    assert actions(table, "remove") == []
    recent = load(spark, table).where("date > current_date() - INTERVAL 7 DAYS")
    assert sorted(row.uniqueId for row in recent.collect()) == sorted([*(f"id{i}" for i in range(7)), "new"])
    for folder in away.iterdir():
        shutil.move(folder, table)


@pytest.mark.long
def test_slowly_changing_dimension_of_type_2(spark, table):
    """Customers' addresses with their history: one merge closes the old row and inserts the new one."""
    old = values(
        spark,
        "(1, 'old street', true, date'2018-02-01', null), (2, 'side street', true, date'2018-02-01', null)",
        *("customerId", "address", "current", "effectiveDate", "endDate"),
    ).withColumn("endDate", F.col("endDate").cast("date"))
    old.write.format("delta").save(table)
    updates = values(
        spark,
        "(1, 'new street', date'2019-03-03'), (2, 'side street', date'2019-03-03'), "
        "(3, 'lane', date'2019-04-04')",
        *("customerId", "address", "effectiveDate"),
    )
    customers = DeltaTable.forPath(spark, table)
    moved = updates.alias("updates").join(customers.toDF().alias("customers"), "customerId")
    moved = moved.where("customers.current = true AND updates.address <> customers.address")
    staged = moved.selectExpr("NULL AS mergeKey", "updates.*").unionByName(
        updates.selectExpr("customerId AS mergeKey", "*")
    )
    (
        customers.alias("customers")
        .merge(staged.alias("staged"), "customers.customerId = mergeKey")
        .whenMatchedUpdate(
            "customers.current = true AND customers.address <> staged.address",
            {"current": "false", "endDate": "staged.effectiveDate"},
        )
        .whenNotMatchedInsert(
            values={
                "customerId": "staged.customerId",
                "address": "staged.address",
                "current": "true",
                "effectiveDate": "staged.effectiveDate",
                "endDate": "null",
            }
        )
        .execute()
    )
    start, moving, later = dt.date(2018, 2, 1), dt.date(2019, 3, 3), dt.date(2019, 4, 4)
    assert tuples(
        load(spark, table).select("customerId", "address", "current", "effectiveDate", "endDate")
    ) == [
        (1, "new street", True, moving, None),
        (1, "old street", False, start, moving),
        (2, "side street", True, start, None),
        (3, "lane", True, later, None),
    ]


@pytest.mark.long
def test_streaming_aggregates_in_update_mode(spark, table, tmp_path):
    events = str(tmp_path / "events")
    spark.sql("SELECT 'none' AS kind, 0L AS total WHERE false").write.format("delta").save(table)
    for start in (0, 10, 20):
        frame = spark.range(start, start + 10, 1, 1).selectExpr(
            "concat('kind', id % 3) AS kind", "id AS value"
        )
        frame.write.format("delta").mode("append").save(events)

    def upsert(totals, number):
        aggregates = DeltaTable.forPath(totals.sparkSession, table).alias("t")
        merge = aggregates.merge(totals.alias("s"), "s.kind = t.kind")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    source = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(events)
    totals = source.groupBy("kind").agg(F.sum("value").alias("total"))
    writer = totals.writeStream.outputMode("update").foreachBatch(upsert)
    run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    assert len(versions(table)) >= 4
    expected = [(f"kind{k}", sum(i for i in range(30) if i % 3 == k)) for k in range(3)]
    assert tuples(load(spark, table).select("kind", "total")) == expected
