"""DELETE, UPDATE and MERGE with subqueries: the rows are those that a SELECT finds, by every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from deltaflow.errors import ConcurrentAppendException, DeltaAnalysisException
from deltaflow.log.observer import set_observer
from deltaflow.tables import DeltaTable
from tests.batch.rows.doors import sql as run
from tests.tables import load, rows_by_deltalake, tuples, versions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture(autouse=True)
def no_observer() -> Iterator[None]:
    yield
    set_observer(None)


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Ids 0 to 9 and null in several files, with v = 10 * id; and the view `other` of a second table."""
    path, other = str(tmp_path / "t"), str(tmp_path / "other")
    rows = spark.sql(
        "SELECT id, id * 10 AS v, id % 2 AS p FROM range(0, 10, 1, 4) UNION ALL SELECT null, -1, 0"
    )
    rows.write.format("delta").save(path)
    values = "SELECT * FROM VALUES (1L, 'a'), (3L, 'b'), (3L, 'c'), (7L, null), (99L, 'd') AS o(k, s)"
    spark.sql(values).coalesce(1).write.format("delta").save(other)
    load(spark, other).createOrReplaceTempView("other")
    return path


CONDITIONS = {
    "IN": "id IN (SELECT k FROM other)",
    "NOT IN": "id NOT IN (SELECT k FROM other)",
    "NOT IN with nulls": "id NOT IN (SELECT if(k = 99, null, k) FROM other)",
    "IN of two columns": "(id, v) IN (SELECT k, k * 10 FROM other WHERE k < 5)",
    "IN beside a partition": "p = 1 AND (id IN (SELECT k FROM other WHERE k > 1) OR v = 50)",
    "not IN inside": "NOT (v > 20 AND id IN (SELECT k FROM other))",
    "EXISTS": "EXISTS (SELECT 1 FROM other WHERE s = 'a')",
    "correlated EXISTS": "EXISTS (SELECT 1 FROM other o WHERE o.k = t.id AND o.s IS NOT NULL)",
    "correlated NOT EXISTS": "NOT EXISTS (SELECT 1 FROM other WHERE k = id)",
    "scalar": "id > (SELECT max(k) - 95 FROM other)",
    "correlated scalar": "v < 80 AND (SELECT count(*) FROM other o WHERE o.k = t.id) > 1",
    "the table itself": "v > (SELECT avg(v) FROM @T)",
    "the table itself, correlated": "EXISTS (SELECT 1 FROM @T u WHERE u.id = t.id + 1 AND u.p = 0)",
    "nested": "id IN (SELECT k FROM other WHERE k IN (SELECT id FROM @T WHERE p = 1))",
    "none": "id IN (SELECT k FROM other WHERE k > 1000)",
    "no Delta table": "id IN (SELECT * FROM VALUES (1L), (2L))",
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.sampled(24)
def test_the_rows_are_those_of_a_select(spark: SparkSession, path: str, condition: str) -> None:
    where = CONDITIONS[condition].replace("@T", f"delta.`{path}`")
    before = tuples(load(spark, path))
    found = tuples(spark.sql(f"SELECT * FROM delta.`{path}` t WHERE {where}"))
    [[changed]] = spark.sql(f"UPDATE delta.`{path}` t SET v = v + 1000 WHERE {where}").collect()
    assert changed == len(found)
    assert sorted(map(str, tuples(load(spark, path)))) == sorted(
        str((row[0], row[1] + 1000, row[2]) if row in found else row) for row in before
    )
    table = DeltaTable.forPath(spark, path)
    table.restoreToVersion(0)
    [[deleted]] = spark.sql(f"DELETE FROM delta.`{path}` t WHERE {where}").collect()
    assert deleted == len(found)
    left = sorted(str(row) for row in before if row not in found)
    assert sorted(map(str, tuples(load(spark, path)))) == left
    assert len(rows_by_deltalake(path)) == len(left)
    table.restoreToVersion(0)
    table.alias("t").delete(where)
    assert sorted(map(str, tuples(load(spark, path)))) == left


@pytest.mark.long
def test_values_of_columns(spark: SparkSession, path: str) -> None:
    """Subqueries in SET, of which the condition has none or others; a value is of the row before."""
    name = f"delta.`{path}`"
    before = tuples(load(spark, path))
    run(spark, path, "UPDATE @T t SET v = (SELECT max(k) FROM other), p = v WHERE id = 2", load(spark, path))
    run(
        spark,
        path,
        "UPDATE @T t SET v = (SELECT count(s) FROM other WHERE k = t.id) WHERE p = 1",
        load(spark, path),
    )
    changed = {row.id: (row.v, row.p) for row in load(spark, path).collect()}
    assert {i: changed[i] for i in (1, 2, 3, 5, 7)} == {
        1: (1, 1),
        2: (99, 20),
        3: (2, 1),
        5: (0, 1),
        7: (0, 1),
    }
    table = DeltaTable.forPath(spark, path)
    table.restoreToVersion(0)
    table.update("id IN (SELECT k FROM other)", {"v": f"(SELECT sum(v) FROM {name})"})
    total = sum(row[1] for row in before)
    assert {row.v for row in load(spark, path).where("id IN (1, 3, 7)").collect()} == {total}
    table.restoreToVersion(0)
    table.update(set={"v": "CASE WHEN id IN (SELECT k FROM other) THEN 1 ELSE v END"})
    assert [row.id for row in load(spark, path).where("v = 1").orderBy("id").collect()] == [1, 3, 7]


COLUMNS: dict[str, Callable[[SparkSession], Column]] = {
    "exists": lambda spark: spark.table("other").where(F.col("k") == F.col("id").outer()).exists(),
    "scalar": lambda spark: F.col("id") == spark.table("other").agg(F.min("k")).scalar(),
    "isin": lambda spark: F.col("id").isin(spark.table("other").select("k")),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.long
def test_columns_with_subqueries(spark: SparkSession, path: str, kind: str) -> None:
    """Spark's own API for subqueries, of the releases that have it."""
    try:
        condition = COLUMNS[kind](spark)
    except Exception as error:
        pytest.skip(f"this PySpark has no such subquery: {error}")
    DeltaTable.forPath(spark, path).delete(condition)
    left = {row.id for row in load(spark, path).collect()}
    assert left == set(range(10)) - ({1} if kind == "scalar" else {1, 3, 7}) | {None}


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.columnMapping.mode' = 'name'",
        "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'id'",
    ],
)
@pytest.mark.sampled(2)
def test_tables_of_other_kinds(spark: SparkSession, path: str, tmp_path: Path, properties: str) -> None:
    """Mapped and partitioned, with deletion vectors, generated columns and CHAR."""
    other = f"delta.`{tmp_path / 'kind'}`"
    spark.sql(
        f"""CREATE TABLE {other} (
            `a b` BIGINT, c CHAR(3), twice BIGINT GENERATED ALWAYS AS (`a b` * 2), p INT)
        USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})"""
    )
    rows = spark.range(0, 10, 1, 2).selectExpr("id AS `a b`", "'x' AS c", "CAST(id % 3 AS INT) AS p")
    rows.write.format("delta").mode("append").save(str(tmp_path / "kind"))
    spark.sql(f"DELETE FROM {other} WHERE `a b` IN (SELECT k FROM other) AND c = 'x'")
    spark.sql(
        f"UPDATE {other} SET `a b` = (SELECT max(k) FROM other), p = 7 "
        f"WHERE `a b` > (SELECT avg(twice) FROM {other})"
    )
    found = tuples(spark.table(other))
    average = sum(2 * i for i in (0, 2, 4, 5, 6, 8, 9)) / 7
    assert sorted(found) == sorted(
        (99, "x  ", 198, 7) if i > average else (i, "x  ", 2 * i, i % 3) for i in (0, 2, 4, 5, 6, 8, 9)
    )


MERGE = """
    MERGE INTO @T t USING (SELECT explode(array(0L, 1L, 3L, 7L, 8L, 9L, 99L, 100L)) AS k) s
    ON t.id = s.k AND (t.id IN (SELECT k FROM other) OR t.id > (SELECT min(id) + 7 FROM @T))
    WHEN MATCHED AND v IN (SELECT k * 10 FROM other WHERE k > 3) THEN DELETE
    WHEN MATCHED AND EXISTS (SELECT 1 FROM other WHERE s = 'a') AND t.id <> 3
        THEN UPDATE SET v = (SELECT max(v) FROM @T) + t.id
    WHEN NOT MATCHED
        AND s.k NOT IN (SELECT id FROM @T WHERE id IS NOT NULL AND id > (SELECT min(k) - 2 FROM other))
        THEN INSERT (id, v) VALUES (s.k, (SELECT count(*) FROM other))
    WHEN NOT MATCHED BY SOURCE AND t.id = (SELECT max(k) - 94 FROM other) THEN DELETE
    WHEN NOT MATCHED BY SOURCE AND t.id IN (SELECT k * 2 FROM other) THEN UPDATE SET p = (SELECT 42)
"""


@pytest.mark.parametrize("with_vectors", [False, True])
@pytest.mark.sampled(2)
def test_merge(spark: SparkSession, path: str, *, with_vectors: bool) -> None:
    """Rows 1, 8 and 9 are updated, 7 is deleted, and 3 stays; 99 and 100 are new, as 0 is there."""
    if with_vectors:
        run(
            spark,
            path,
            "ALTER TABLE @T SET TBLPROPERTIES (delta.enableDeletionVectors = true)",
            load(spark, path),
        )
    expected = {i: (10 * i, i % 2) for i in range(10)} | {None: (-1, 0)}
    del expected[7], expected[5]
    expected |= {i: (90 + i, i % 2) for i in (1, 8, 9)} | {99: (5, None), 100: (5, None)}
    expected |= {2: (20, 42), 6: (60, 42)}
    set_observer(_rival_once(spark, path))
    with pytest.raises(ConcurrentAppendException):
        run(spark, path, MERGE, load(spark, path))
    DeltaTable.forPath(spark, path).restoreToVersion(0)
    if with_vectors:
        run(
            spark,
            path,
            "ALTER TABLE @T SET TBLPROPERTIES (delta.enableDeletionVectors = true)",
            load(spark, path),
        )
    run(spark, path, MERGE, load(spark, path))
    assert {row.id: (row.v, row.p) for row in load(spark, path).collect()} == expected


def _rival_once(spark: SparkSession, path: str) -> Callable[[str, dict[str, Any]], None]:
    def rival(point: str, facts: dict[str, Any]) -> None:
        if point == "files written":
            set_observer(None)
            spark.sql(f"INSERT INTO delta.`{path}` VALUES (500, 5000, 0)")

    return rival


def test_one_version_of_every_table(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """What others commit while the statement runs does not count, in any of its passes."""
    other = str(tmp_path / "other")

    def rival(point: str, facts: dict[str, Any]) -> None:
        if point == "commit put" or point == "files written":
            set_observer(None)
            spark.sql(f"INSERT INTO delta.`{other}` VALUES (5, 'z')")

    set_observer(rival)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (SELECT k FROM delta.`{other}`)")
    assert {row.id for row in load(spark, path).collect()} == {None, 0, 2, 4, 5, 6, 8, 9}
    assert versions(other) == [0, 1]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM @T WHERE id = 1 AND v < (SELECT max(v) FROM @T)",
        "UPDATE @T SET v = (SELECT max(v) FROM @T) WHERE id = 1",
        "MERGE INTO @T t USING other o ON t.id = o.k AND t.id = 1 AND v < (SELECT max(v) FROM @T) "
        "WHEN MATCHED THEN UPDATE SET v = 5",
    ],
)
@pytest.mark.long
def test_what_a_subquery_reads_of_the_table_may_not_change(
    spark: SparkSession, path: str, statement: str
) -> None:
    set_observer(_rival_once(spark, path))
    with pytest.raises(ConcurrentAppendException):
        run(spark, path, statement, load(spark, path))
    run(spark, path, statement, load(spark, path))


def test_what_is_refused(spark: SparkSession, path: str) -> None:
    before = versions(path)
    for statement in (
        "DELETE FROM @T WHERE id IN (SELECT k FROM other WHERE rand() > 0.5)",
        "UPDATE @T SET v = 1 WHERE id > (SELECT max(k) * rand() FROM other)",
        "MERGE INTO @T t USING other o ON EXISTS (SELECT 1 FROM other WHERE k = t.id AND o.k = k) "
        "WHEN MATCHED THEN DELETE",
        "MERGE INTO @T t USING other o ON t.id = o.k "
        "WHEN MATCHED AND v > (SELECT max(k) FROM other WHERE k < t.id) THEN DELETE",
        "MERGE INTO @T t USING other o ON t.id = o.k "
        "WHEN MATCHED THEN UPDATE SET v = (SELECT count(*) FROM other WHERE k = t.id)",
    ):
        with pytest.raises(DeltaAnalysisException, match=r"NON_DETERMINISTIC|DELTA_UNSUPPORTED_SUBQUERY"):
            run(spark, path, statement, load(spark, path))
    assert versions(path) == before
