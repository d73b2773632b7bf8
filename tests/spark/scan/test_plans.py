"""Plans over scans of ours: joins, caching, equality, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.plans import executed_plan
from tests.tables import load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]


@pytest.fixture(scope="module")
def adaptive(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    return session


@pytest.fixture(scope="module")
def facts(adaptive: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("facts") / "table")
    frame = adaptive.range(0, 60, 1, 3).selectExpr("id", "id % 4 AS k", "id % 3 AS p")
    frame.write.format("delta").partitionBy("p").save(path)
    return path


@pytest.fixture(scope="module")
def names(adaptive: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("names") / "table")
    adaptive.range(4).selectExpr("id AS k", "CONCAT('n', id) AS name").write.format("delta").save(path)
    return path


def test_broadcast_join_of_two_tables(adaptive: SparkSession, facts: str, names: str) -> None:
    joined = (
        load(adaptive, facts)
        .where("p = 1")
        .join(F.broadcast(load(adaptive, names)), "k")
        .groupBy("name")
        .count()
    )
    found = sorted(map(tuple, joined.collect()))
    assert found == [(f"n{k}", 5) for k in range(4)]
    plan = executed_plan(joined)
    assert "AdaptiveSparkPlan isFinalPlan=true" in plan
    assert "BroadcastHashJoin" in plan
    assert plan.count("FileScan parquet") >= 2


def test_shuffled_join_of_two_tables(adaptive: SparkSession, facts: str, names: str) -> None:
    joined = load(adaptive, facts).hint("merge").join(load(adaptive, names), "k")
    assert joined.count() == 60
    assert "SortMergeJoin" in executed_plan(joined)


def test_self_joins(adaptive: SparkSession, facts: str) -> None:
    table = load(adaptive, facts)
    assert table.alias("a").join(table.alias("b"), F.expr("a.id = b.id AND a.p = b.p")).count() == 60
    assert table.alias("a").join(load(adaptive, facts).alias("b"), F.expr("a.k = b.id")).count() == 60
    other_partition = (
        table.where("p = 1").alias("a").join(table.where("p = 2").alias("b"), F.expr("a.k = b.k"))
    )
    assert other_partition.count() == 100
    assert table.union(table).where("p = 0").count() == 40


def test_subqueries(adaptive: SparkSession, facts: str, names: str) -> None:
    load(adaptive, facts).createOrReplaceTempView("facts")
    load(adaptive, names).createOrReplaceTempView("names")

    def count(where: str) -> int:
        return int(adaptive.sql(f"SELECT count(*) AS n FROM facts WHERE {where}").collect()[0].n)

    assert count("k IN (SELECT k FROM names WHERE name > 'n1')") == 30
    assert count("p = (SELECT max(p) FROM facts)") == 20
    assert count("EXISTS (SELECT 1 FROM names WHERE names.k = facts.id)") == 4
    assert count("id NOT IN (SELECT k FROM names)") == 56


def test_two_loads_of_one_table_are_one_plan(adaptive: SparkSession, facts: str, table: str) -> None:
    adaptive.range(5).write.format("delta").save(table)
    first, second = load(adaptive, table), load(adaptive, table)
    assert first.sameSemantics(second)
    assert first.semanticHash() == second.semanticHash()
    assert not first.sameSemantics(load(adaptive, facts))
    first.cache()
    assert first.count() == 5
    assert "InMemoryTableScan" in executed_plan(second)
    adaptive.range(5, 7).write.format("delta").mode("append").save(table)
    newer = load(adaptive, table)
    assert newer.sameSemantics(first)
    assert "InMemoryTableScan" in executed_plan(newer)
    assert (newer.count(), first.count(), second.count()) == (7, 7, 7)
    first.unpersist()
    old = adaptive.read.format("delta").option("versionAsOf", 0).load(table)
    assert not old.sameSemantics(first)
    assert old.sameSemantics(adaptive.read.format("delta").load(table + "@v0"))


def test_filters_are_pruned_each_for_itself(adaptive: SparkSession, facts: str) -> None:
    """One load used with several filters: what one keeps is not what the other gets."""
    table = load(adaptive, facts)
    for p in (0, 1, 2, 0):
        assert {row.p for row in table.where(f"p = {p}").select("p").distinct().collect()} == {p}
    both = table.where("p = 0").agg(F.count("*").alias("n")).union(table.where("p > 0").agg(F.count("*")))
    assert sorted(row.n for row in both.collect()) == [20, 40]


@pytest.mark.long
def test_a_plan_outlives_the_memory_of_listings(adaptive: SparkSession, facts: str, tmp_path: Path) -> None:
    """Python forgets old listings and works them out again."""
    table = load(adaptive, facts).where("p = 1")
    assert table.count() == 20
    for i in range(20):
        path = str(tmp_path / str(i))
        adaptive.range(i).write.format("delta").save(path)
        assert load(adaptive, path).count() == i
    assert table.count() == 20
    assert table.where("k = 0").count() == 5


@pytest.fixture(autouse=True)
def no_cached_tables(adaptive: SparkSession) -> Iterator[None]:
    yield
    adaptive.catalog.clearCache()
