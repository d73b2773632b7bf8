"""count, min, max and LIMIT are answered from the log if statistics are exact, and only then."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from tests.plans import executed_plan, files_read
from tests.tables import actions, load, write_commit

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table_of_numbers(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("statistics") / "table")
    spark.range(0, 90, 1, 1).selectExpr(
        "id",
        "cast(if(id < 30, null, id) as int) as i",
        "cast(id as byte) as b",
        "cast(id as short) as sh",
        "date_add(date'2024-01-01', cast(id as int)) as day",
        "id / 2D as d",
        "cast(id as decimal(10, 2)) as dec",
        "cast(id as string) as s",
        "timestamp_micros(id) as ts",
        "id % 2 = 0 as flag",
        "array(id) as a",
        "named_struct('x', id) as n",
        "cast(id % 3 as int) as p",
        "if(id % 2 = 0, null, concat('k', id % 2)) as k",
        "cast(id % 3 as double) as pd",
    ).repartitionByRange(3, "id").write.format("delta").partitionBy("p", "k", "pd").save(path)
    load(spark, path).createOrReplaceTempView("numbers")
    spark.read.parquet(path).selectExpr("*").createOrReplaceTempView("plain_numbers")
    return path


def run(spark, query):
    """The rows, and whether Spark scanned files."""
    frame = spark.sql(query)
    rows = [tuple(row) for row in frame.collect()]
    return rows, "FileScan" in executed_plan(frame)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {}",
        "SELECT count(1) + 1 AS n, 'x' FROM {}",
        "SELECT min(id), max(id), count(*), max(id) - min(id) FROM {}",
        "SELECT min(i), max(i), min(b), max(b), min(sh), max(sh) FROM {}",
        "SELECT min(day), max(day) FROM {}",
        "SELECT min(p), max(p), min(k), max(k) FROM {}",
        "SELECT count(*), max(id) FROM {} WHERE p = 1",
        "SELECT count(*), min(i) FROM {} WHERE p > 0 AND k IS NULL",
        "SELECT count(*) FROM {} WHERE pd = 2 OR p = 0",
        "SELECT count(*), max(id), min(day), max(k) FROM {} WHERE p = 7",
        "SELECT count(*) FROM (SELECT id, s, p FROM {}) WHERE p IN (0, 2)",
        "SELECT (SELECT max(id) FROM {}) AS m, (SELECT count(*) FROM {} WHERE p = 1) AS n",
    ],
)
@pytest.mark.sampled(3)
def test_answered_without_a_scan(spark, table_of_numbers, query):
    rows, scanned = run(spark, query.replace("{}", "numbers"))
    assert not scanned
    assert rows == run(spark, query.replace("{}", "plain_numbers"))[0]


@pytest.mark.long
def test_the_least_of_partitions_with_a_collation(spark, table):
    """Another order than that of the partitions' bytes."""
    rows = spark.createDataFrame([(1, "a"), (2, "B")], "id long, p string")
    rows.write.format("delta").partitionBy("p").save(table)
    [metadata] = actions(table, "metaData")
    schema = json.loads(metadata["schemaString"])
    schema["fields"][1]["metadata"] = {"__COLLATIONS": {"p": "spark.UTF8_LCASE"}}
    write_commit(table, 1, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})
    assert load(spark, table).schema["p"].dataType.collation == "UTF8_LCASE"
    assert load(spark, table).selectExpr("min(p)", "max(p)", "count(*)").collect() == [("a", "B", 2)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {} WHERE id < 5",
        "SELECT count(*) FROM {} WHERE p = 1 AND id < 5",
        "SELECT count(*) FROM {} WHERE p = 1 OR id < 5",
        "SELECT count(DISTINCT p) FROM {}",
        "SELECT count(i) FROM {}",
        "SELECT count(*) FILTER (WHERE id > 3) FROM {}",
        "SELECT max(s), min(s) FROM {}",
        "SELECT max(ts) FROM {}",
        "SELECT max(d) FROM {}",
        "SELECT max(dec) FROM {}",
        "SELECT max(pd) FROM {}",
        "SELECT max(n.x) FROM {}",
        "SELECT max(id + 1) FROM {}",
        "SELECT count(*), sum(id) FROM {}",
        "SELECT p, count(*) FROM {} GROUP BY p ORDER BY p",
        "SELECT count(*) FROM (SELECT DISTINCT p FROM {})",
        "SELECT count(*) FROM (SELECT explode(a) FROM {})",
        "SELECT count(*) FROM {} WHERE p = (SELECT min(p) FROM {} WHERE id = 4)",
        "SELECT max(flag) FROM {}",
    ],
)
@pytest.mark.sampled(3)
def test_left_to_a_scan(spark, table_of_numbers, query):
    rows, scanned = run(spark, query.replace("{}", "numbers"))
    assert scanned
    assert rows == run(spark, query.replace("{}", "plain_numbers"))[0]


def test_the_setting_that_turns_it_off(spark, table_of_numbers):
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.optimizeMetadataQuery.enabled", "false")
    frame = session.read.format("delta").load(table_of_numbers).groupBy().count()
    assert "FileScan" in executed_plan(frame)
    assert frame.first()["count"] == 90


def test_show_and_an_empty_table(spark, table, capsys):
    spark.range(0).write.format("delta").save(table)
    frame = load(spark, table)
    assert frame.groupBy().agg({"*": "count", "id": "max"}).first() == (0, None)
    frame.groupBy().count().show()
    assert "|    0|" in capsys.readouterr().out


def change_stats(table, change):
    """Another version of the table whose files have other statistics."""
    adds = actions(table, "add", 0)
    for add in adds:
        stats = json.loads(add["stats"])
        change(stats)
        add["stats"] = json.dumps(stats)
    write_commit(table, 1, *({"add": add} for add in adds))


@pytest.mark.parametrize(
    ("change", "count_scans", "max_scans"),
    [
        (lambda stats: stats.update(tightBounds=False), False, True),
        (lambda stats: stats.update(tightBounds=True), False, False),
        (lambda stats: stats["maxValues"].clear(), False, True),
        (lambda stats: stats.pop("minValues"), False, False),
        (lambda stats: stats.pop("numRecords"), True, True),
        (lambda stats: stats["maxValues"].update(id="4"), False, True),
    ],
    ids=["wide", "tight", "no max", "no min", "no rows", "text"],
)
@pytest.mark.sampled(3)
def test_statistics_that_are_not_exact(spark, tmp_path, change, count_scans, max_scans):
    table = str(tmp_path / "t")
    spark.range(5).coalesce(1).write.format("delta").save(table)
    change_stats(table, change)
    load(spark, table).createOrReplaceTempView("changed")
    assert run(spark, "SELECT count(*) FROM changed") == ([(5,)], count_scans)
    assert run(spark, "SELECT max(id) FROM changed") == ([(4,)], max_scans)


def test_old_days_are_scanned_for(spark, table):
    frame = spark.sql("SELECT date'1500-03-01' AS day UNION ALL SELECT date'2024-01-01'").coalesce(1)
    frame.write.format("delta").save(table)
    load(spark, table).createOrReplaceTempView("days")
    rows, scanned = run(spark, "SELECT min(day) FROM days")
    assert (rows, scanned) == ([(dt.date(1500, 3, 1),)], True)
    assert run(spark, "SELECT max(day) FROM days") == ([(dt.date(2024, 1, 1),)], False)


@pytest.mark.parametrize(
    ("query", "rows", "files"),
    [
        ("SELECT * FROM numbers LIMIT 3", 3, 1),
        ("SELECT id + 1 FROM numbers LIMIT 12", 12, 3),
        ("SELECT id FROM numbers WHERE p = 1 LIMIT 6", 6, 2),
        ("SELECT id FROM numbers LIMIT 1000", 90, 18),
        ("SELECT id FROM numbers WHERE id > 60 LIMIT 3", 3, 6),
        ("SELECT id FROM numbers ORDER BY id DESC LIMIT 3", 3, 18),
        ("SELECT id FROM numbers WHERE p = 1 AND hash(id) <> 0 LIMIT 3", 3, 6),
    ],
)
@pytest.mark.sampled(3)
def test_a_limit_reads_as_many_files_as_it_needs(spark, table_of_numbers, query, rows, files):
    frame = spark.sql(query)
    assert len(frame.inputFiles()) <= 18
    assert len(frame.collect()) == rows
    assert files_read(frame) == files


@pytest.mark.long
def test_functions_of_python_over_partitions(spark, table_of_numbers):
    """No partition is chosen by them, since they run above the scan."""
    spark.udf.register("is_last", lambda p: p == 2, "boolean")
    assert run(spark, "SELECT max(id) FROM numbers WHERE is_last(p) AND p > 0") == ([(89,)], True)
    assert len(run(spark, "SELECT id FROM numbers WHERE is_last(p) LIMIT 25")[0]) == 25


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM (SELECT id, id + 100 AS p FROM numbers) WHERE p >= 185 LIMIT 2", 2),
        ("SELECT * FROM (SELECT id + 100 AS x, p FROM numbers) WHERE p = 2 LIMIT 2", 2),
        ("SELECT count(*) FROM (SELECT id AS p FROM numbers) WHERE p >= 85", 1),
    ],
)
def test_a_filter_that_spark_leaves_above_a_projection(spark, table_of_numbers, setting, query, rows):
    of_spark = "org.apache.spark.sql.catalyst.optimizer."
    rules = f"{of_spark}PushDownPredicates,{of_spark}PushPredicateThroughNonJoin"
    setting("spark.sql.optimizer.excludedRules", rules)
    found, _ = run(spark, query)
    assert len(found) == rows
    if "count" in query:
        assert found == [(5,)]


def test_limits_of_one_frame_are_apart(spark, table_of_numbers):
    frame = load(spark, table_of_numbers)
    assert frame.limit(2).union(frame.limit(50)).union(frame).count() == 142
    assert frame.join(frame.limit(4).select("id"), "id").count() == 4
    assert frame.first() is not None
    assert len(frame.take(7)) == 7
    assert frame.offset(80).limit(20).count() == 10


def test_a_limit_over_files_of_unknown_size(spark, tmp_path):
    table = str(tmp_path / "t")
    spark.range(0, 9, 1, 3).write.format("delta").save(table)
    change_stats(table, lambda stats: stats.pop("numRecords"))
    assert load(spark, table).limit(7).count() == 7
