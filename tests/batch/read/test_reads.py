"""Batch reads: Spark's own Parquet scan of the files that the log and the filters choose."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from tests.plans import executed_plan, file_scans
from tests.tables import load

pytestmark = pytest.mark.spark


def read_files(frame):
    """Rows of the frame, and the number of files and of partitions that its only table scan read."""
    rows = frame.collect()
    [scan] = [node for node in file_scans(frame) if node.metrics().contains("numPartitions")]
    return len(rows), scan.metrics().apply("numFiles").value(), scan.metrics().apply("numPartitions").value()


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    """One row and one file a day of January and February 2024, partitioned by day and kind; columns mixed."""
    path = str(tmp_path_factory.mktemp("reads") / "events")
    days = spark.range(0, 60, 1, 1).selectExpr(
        "id",
        "date_add(date'2024-01-01', cast(id as int)) as day",
        "id * 1.5D as price",
        "case when id % 4 = 0 then null else concat('kind ', id % 4) end as kind",
        "named_struct('x', id, 'y', cast(id as string)) as point",
    )
    days.write.format("delta").partitionBy("kind", "day").save(path)
    return path


def test_the_plan_is_a_parquet_scan_of_what_is_needed(spark, events):
    frame = load(spark, events).where("price > 30 and day >= '2024-02-01'").select("id")
    text = executed_plan(frame)
    assert "FileScan parquet" in text
    assert re.search(r"ReadSchema: struct<id:bigint,price:double>", text)
    assert re.search(r"PushedFilters: \[[^]]*GreaterThan\(price,30\.0\)", text)
    assert re.search(r"PartitionFilters: \[[^]]*day#\d+ >= 2024-02-01", text)
    assert "ReadSchema: struct<point:struct<y:string>>" in executed_plan(
        load(spark, events).select("point.y")
    )


def test_columns_stay_where_the_table_has_them(spark, events):
    read = load(spark, events)
    assert read.columns == ["id", "day", "price", "kind", "point"]
    row = read.where("id = 5").first()
    assert (row.id, str(row.day), row.price, row.kind, row.point.y) == (5, "2024-01-06", 7.5, "kind 1", "5")
    assert list(row.asDict()) == read.columns


@pytest.mark.parametrize(
    ("condition", "rows", "files"),
    [
        ("day = '2024-01-06'", 1, 1),
        ("DAY = date'2024-01-06'", 1, 1),
        ("day in ('2024-01-06', '2024-02-01', '2030-01-01')", 2, 2),
        ("day between '2024-01-30' and '2024-02-02'", 4, 4),
        ("kind is null", 15, 15),
        ("kind is not null and day < '2024-01-09'", 6, 6),
        ("kind <=> null and day < '2024-01-09'", 2, 2),
        ("not (kind = 'kind 1')", 30, 30),
        ("month(day) = 2", 29, 29),
        ("year(day) = 2023", 0, 0),
        ("substring(kind, 6, 1) = '3'", 15, 15),
        ("kind like '%2'", 15, 15),
        ("cast(day as string) = '2024-01-06'", 1, 1),
        ("day = '2024-01-06' or day = '2024-01-07'", 2, 2),
        ("day = '2024-01-06' or id = 3", 2, 60),
        ("day > '2024-01-10' and id < 20", 10, 10),
        ("date_format(day, 'E') = 'Mon' and kind = 'kind 3'", 2, 2),
        ("day = (select max(day) from values (date'2024-01-06') as t(day))", 1, 1),
        ("coalesce(kind, 'none') = 'none'", 15, 15),
        ("id = 7", 1, 1),
    ],
)
@pytest.mark.sampled(3)
def test_partitions_are_pruned(spark, events, condition, rows, files):
    frame = load(spark, events).where(condition)
    assert read_files(frame)[:2] == (rows, files)
    assert len(frame.select("day").collect()) == rows


def test_pruning_by_a_join(spark, events):
    dimension = spark.range(3).selectExpr("date_add(date'2024-01-10', cast(id as int)) as day", "id as name")
    kept = dimension.where("name > 0")
    frame = load(spark, events).join(F.broadcast(kept), "day")
    assert "dynamicpruning" in executed_plan(frame).lower()
    assert read_files(frame)[:2] == (2, 2)
    dimension.createOrReplaceTempView("dimension")
    load(spark, events).createOrReplaceTempView("events")
    frame = spark.sql("select * from events where Day in (select day from dimension where name = 2)")
    assert len(frame.collect()) == 1


@pytest.mark.parametrize("aqe", ["true", "false"])
@pytest.mark.sampled(2)
def test_two_scans_of_one_plan(spark, events, aqe, settings):
    with settings({"spark.sql.adaptive.enabled": aqe}):
        read = load(spark, events)
        left, right = read.where("month(day) = 1").alias("l"), read.where("month(day) = 2").alias("r")
        joined = left.join(right, F.expr("l.id + 31 = r.id")).selectExpr(
            "l.id as a", "r.id as b", "l.day", "r.day"
        )
        assert joined.count() == 29
        assert read.join(read, "id").count() == 60
        assert left.unionAll(right).count() == 60
        assert read.groupBy("kind").agg(F.count("*").alias("c")).where("c = 15").count() == 4


def test_what_spark_knows_of_the_files(spark, events):
    read = load(spark, events)
    assert len(read.inputFiles()) == 60
    one = read.where("id = 5").select("_metadata.file_path", F.input_file_name().alias("name")).first()
    assert one.file_path in read.inputFiles()
    assert "/kind=kind%201/day=2024-01-06/part-" in one.name
    assert read.select("kind").distinct().count() == 4
    assert read.count() == 60


def test_counting_reads_no_columns(spark, events):
    frame = load(spark, events).groupBy("kind").count()
    assert "ReadSchema: struct<>" in executed_plan(frame)


def test_schema_of_ones_own_is_refused(spark, events):
    with pytest.raises(Exception, match=r"(?i)user-specified schema") as caught:
        spark.read.schema("id long").format("delta").load(events)
    assert "\tat org.apache" not in str(caught.value)
