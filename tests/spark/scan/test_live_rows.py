"""Tables with deletion vectors through Spark: every query sees the rows that are left, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow.errors import CorruptLogError, DeltaIllegalStateException, StoreError
from deltaflow.log import DeltaLog
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan import file_index
from tests.deletion_vectors import mark_deleted, paths
from tests.plans import executed_plan, files_read
from tests.tables import INTERPRETED, load, tuples, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Settings = Callable[[Mapping[str, str]], AbstractContextManager[None]]

COLUMNS = ["id", "id div 100 AS part", "id % 7 AS k", "IF(id % 3 = 0, 0, 1) AS one", "struct(id AS i) AS s"]
DELETED = {0: [*range(0, 1000, 3)], 1: [1, 2, 998]}
"""The positions of deleted rows by the numbers of files of 1,000 rows each; file 2 has none. In the first
file all rows whose column `one` is 0 are deleted."""


@contextmanager
def using(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table with deletion vectors, and one with the same rows that has none."""
    folder = tmp_path_factory.mktemp("tables")
    table, same = str(folder / "table"), str(folder / "same")
    deleted = {}
    for number in range(3):
        before = set(paths(table)) if number else set()
        # Small pages and row groups: the position of a row is not that in its row group or split.
        rows = spark.range(1000 * number, 1000 * number + 1000).selectExpr(*COLUMNS)
        write(rows, table, **{"parquet.block.size": 1024, "parquet.page.size": 512})
        [path] = set(paths(table)) - before
        deleted[path] = DELETED.get(number, [])
    mark_deleted(table, {path: rows for path, rows in deleted.items() if rows})
    gone = [1000 * number + row for number, rows in DELETED.items() for row in rows]
    write(spark.range(3000).selectExpr(*COLUMNS).where(~_in(gone)), same)
    return table, same


def _in(ids: list[int]) -> Any:
    from pyspark.sql import functions as F

    return F.col("id").isin(ids)


QUERIES = {
    "rows": "SELECT * FROM t",
    "count": "SELECT count(*) FROM t",
    "count of a column": "SELECT count(id), count(DISTINCT k) FROM t",
    "bounds": "SELECT min(id), max(id), min(k), max(one) FROM t",
    "bounds and sum": "SELECT min(id), sum(id) FROM t",
    "one column": "SELECT k FROM t",
    "no column": "SELECT 1 FROM t",
    "nested": "SELECT s.i FROM t WHERE s.i < 1500",
    "pushed filter": "SELECT id FROM t WHERE id BETWEEN 990 AND 1010",
    "filter on what is deleted": "SELECT id FROM t WHERE one = 0",
    "null filter": "SELECT id FROM t WHERE id IS NULL OR k = 3",
    "filter that fails for deleted rows": "SELECT id FROM t WHERE id < 1000 AND 1 / one > 0.5",
    "projection that fails for deleted rows": "SELECT 1 / one FROM t WHERE id < 1000",
    "count with a filter": "SELECT count(*) FROM t WHERE id >= 999",
    "groups": "SELECT k, count(*), sum(id) FROM t GROUP BY k",
    "self-join": "SELECT count(*), sum(a.id) FROM t a JOIN t b ON a.id = b.id AND a.k = b.k",
    "broadcast self-join": "SELECT /*+ BROADCAST(b) */ count(*) FROM t a JOIN t b USING (id) WHERE b.k = 2",
    "union": "SELECT count(*) FROM (SELECT id FROM t WHERE k = 1 UNION ALL SELECT id FROM t WHERE id < 20)",
    "scalar subquery": "SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE id < 1000)",
    "in subquery": "SELECT id FROM t WHERE id IN (SELECT id + 1 FROM t WHERE id < 30)",
    "not exists": "SELECT a.id FROM t a WHERE NOT EXISTS (SELECT 1 FROM t b WHERE b.id = a.id + 1)",
    "window": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) FROM t WHERE id < 50",
    "distinct": "SELECT DISTINCT one FROM t WHERE id < 1000",
    "order and limit": "SELECT id FROM t ORDER BY id LIMIT 7",
    "limited count": "SELECT count(*) FROM (SELECT * FROM t LIMIT 2600)",
    "limit with a filter": "SELECT count(*) FROM (SELECT * FROM t WHERE id < 1000 LIMIT 660)",
    "nondeterministic": "SELECT count(*) FROM t WHERE rand() >= 0",
    "sample of all": "SELECT count(*) FROM t TABLESAMPLE (100 PERCENT)",
    "version": "SELECT count(*) FROM t VERSION AS OF 3",
}
SETTINGS: dict[str, dict[str, str]] = {
    "as they are": {},
    "rows": {"spark.sql.parquet.enableVectorizedReader": "false"},
    "splits": {"spark.sql.files.maxPartitionBytes": "2000", "spark.sql.files.openCostInBytes": "1"},
    "no adaptive execution": {"spark.sql.adaptive.enabled": "false"},
    "interpreted": INTERPRETED,
    "no statistics": {"spark.databricks.delta.optimizeMetadataQuery.enabled": "false"},
}


def answers(spark: SparkSession, path: str) -> dict[str, Any]:
    found = {}
    for name, query in QUERIES.items():
        of_version = "VERSION AS OF" in query and "same" in path
        text = query.replace(" VERSION AS OF 3", "") if of_version else query
        found[name] = tuples(spark.sql(re.sub(r"(FROM|JOIN) t\b", rf"\1 delta.`{path}`", text)))
    return found


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tables: tuple[str, str]) -> dict[str, Any]:
    """What the queries find in the table without vectors."""
    return answers(spark, tables[1])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.sampled(9)
def test_queries_see_the_rows_that_are_left(
    spark: SparkSession, tables: tuple[str, str], expected: dict[str, Any], name: str
) -> None:
    with using(spark, SETTINGS[name]):
        found = answers(spark, tables[0])
    assert {query: found[query] for query in found if found[query] != expected[query]} == {}
    assert found["count"] == [(3000 - 334 - 3,)]


@pytest.mark.long
def test_a_session_of_its_own(spark: SparkSession, tables: tuple[str, str]) -> None:
    table, same = tables
    assert answers(spark.newSession(), table) == answers(spark, same)


def test_metadata_columns_stay_right(spark: SparkSession, tables: tuple[str, str]) -> None:
    rows = load(spark, tables[0])
    for frame in (
        rows.select("id", "_metadata.row_index", "_metadata.file_path"),
        rows.selectExpr("id", "_metadata AS m").selectExpr("id", "m.row_index", "m.file_path"),
        rows.where("_metadata.row_index >= 0").select("id", "_metadata.row_index", "_metadata.file_path"),
    ):
        found = frame.collect()
        assert len(found) == 3000 - 334 - 3
        for id_, position, file in found:
            assert (position, id_ // 1000) == (id_ % 1000, _number_of(file))
    only_path = rows.groupBy("_metadata.file_name").count().collect()
    assert sorted(row["count"] for row in only_path) == [666, 997, 1000]
    assert rows.where("_metadata.row_index = 0").count() == 2
    with using(spark, {"spark.sql.optimizer.nestedSchemaPruning.enabled": "false"}):
        assert sum(row["count"] for row in rows.groupBy("_metadata.file_name").count().collect()) == 2663


@cache
def _number_of(uri: str) -> int:
    first: int = pq.read_table(unquote(urlparse(uri).path), columns=["id"])["id"][0].as_py()
    return first // 1000


def test_cached_rows_and_views(spark: SparkSession, tables: tuple[str, str]) -> None:
    rows = load(spark, tables[0])
    cached = rows.where("k < 3").cache()
    try:
        assert cached.count() == load(spark, tables[1]).where("k < 3").count()
        assert cached.where("one = 0").count() == load(spark, tables[1]).where("k < 3 AND one = 0").count()
    finally:
        cached.unpersist()
    assert len(rows.inputFiles()) == 3
    assert rows.rdd.getNumPartitions() > 0
    assert sum(1 for _ in rows.select("id").toLocalIterator()) == 2663


def test_files_without_vectors_are_scanned_as_ever(spark: SparkSession, tables: tuple[str, str]) -> None:
    plan = executed_plan(load(spark, tables[1]).where("id > 5").select("id"))
    before = executed_plan(load(spark, tables[0], versionAsOf=2).where("id > 5").select("id"))
    for text in ("RoaringBitmap", "row_index"):
        assert text not in plan
        assert text not in before


def test_the_plan_is_a_filter_over_one_scan_that_shows_no_vector(
    spark: SparkSession, tables: tuple[str, str]
) -> None:
    frame = load(spark, tables[0]).where("id < 1500").select("k")
    assert frame.count() == 1500 - 334 - 2
    plan = executed_plan(frame)
    assert plan.count("FileScan parquet") == 1
    assert "PushedFilters: [IsNotNull(id), LessThan(id,1500)]" in plan
    assert len(plan) < 5_000
    assert "Broadcast(" not in plan
    assert "struct<id:bigint,k:bigint,_tmp_metadata_row_index:bigint>" in plan
    assert "GreaterThan(id,2900)" in executed_plan(load(spark, tables[0]).where("id > 2900"))
    # Data skipping and limits leave out files as without vectors.
    for query, number in (("id > 2900", 1), ("id < 900", 1), ("id >= 0", 3)):
        assert files_read_by(load(spark, tables[0]).where(query)) == number
    # The file without deleted rows is the first, as the commit adds the others anew.
    for limit, number in ((1000, 1), (1001, 2), (2600, 3)):
        assert files_read_by(load(spark, tables[0]).limit(limit)) == number


def files_read_by(frame: DataFrame) -> int:
    frame.collect()
    return files_read(frame)


def test_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    rows = spark.range(40).selectExpr("id", "id % 4 AS p", "IF(id % 4 < 3, id % 4, NULL) AS q")
    write(rows, table, partition_by=["p", "q"])
    assert len(paths(table)) == 4
    marked = [path for path in paths(table) if "p=3" not in path]
    mark_deleted(table, {path: [0, number] for number, path in enumerate(marked, 1)})
    rows = load(spark, table)
    expected = sorted((row.id, row.p, row.q) for row in rows.collect())
    assert len(expected) == 34
    for condition in ("p = 0", "p = 3", "p IN (1, 3)", "q IS NULL", "p > 0 AND id > 10", "q = 2 OR id = 3"):
        with using(spark, {"spark.databricks.delta.optimizeMetadataQuery.enabled": "false"}):
            by_scan = rows.where(condition).count()
        assert rows.where(condition).count() == by_scan == len(rows.where(condition).collect()), condition
    assert tuples(rows.groupBy("p").count()) == [(0, 8), (1, 8), (2, 8), (3, 10)]
    small = spark.sql("SELECT 1L AS p UNION SELECT 3L")
    joined = rows.join(small.hint("broadcast"), "p").where("p < 3")
    assert joined.count() == 8
    assert rows.selectExpr("min(p)", "max(p)", "min(q)").collect() == [(0, 3, 0)]


def test_vectors_come_by_parts_and_those_of_the_listed_files_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path / "table")
    write(spark.range(60).selectExpr("id", "id % 6 AS p"), table, partition_by=["p"])
    mark_deleted(table, {path: range(number) for number, path in enumerate(paths(table), 1)})
    parts: list[int] = []
    answered = dispatcher._handlers["scan.bitmaps"]

    def spy(request: Any) -> Any:
        answer = answered(request)
        with pa.ipc.open_stream(answer) as stream:
            parts.append(stream.read_all().num_rows)
        return answer

    monkeypatch.setitem(dispatcher._handlers, "scan.bitmaps", spy)
    monkeypatch.setattr(file_index, "_BYTES_OF_BITMAPS", 60)
    rows = load(spark, table)
    assert len(rows.collect()) == 60 - 21
    assert sum(parts) == 6
    assert len(parts) > 2
    assert rows.join(rows.where("p < 4"), "id").count() == len(rows.where("p < 4").collect())
    parts.clear()
    one = rows.where("p = 2")
    assert one.where("id >= 0").collect() == one.collect()
    assert sum(parts) == 2  # one each time
    rows.cache()
    try:
        assert rows.count() == 39
        parts.clear()
        assert len(rows.where("id > -1").collect()) == 39
        assert parts == []
    finally:
        rows.unpersist()


def test_every_row_of_a_file_is_deleted(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(10), table)
    mark_deleted(table, range(10), is_inline=True)
    rows = load(spark, table)
    assert (rows.count(), rows.collect(), rows.limit(1).collect()) == (0, [], [])
    assert rows.selectExpr("min(id)", "max(id)").collect() == [(None, None)]
    assert rows.selectExpr("max(id)").where("1 = 1").collect() == [(None,)]


def test_vectors_that_change_are_one_version_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(10), table)
    rows = load(spark, table)
    assert rows.count() == 10
    for number in range(1, 4):
        mark_deleted(table, range(number), is_inline=number % 2 == 0)
        assert rows.count() == 10 - number
        assert [row.id for row in rows.orderBy("id").collect()] == list(range(number, 10))
        assert load(spark, table, versionAsOf=number - 1).count() == 11 - number
    both = rows.join(load(spark, table, versionAsOf=1), "id")
    assert both.count() == 7


def test_without_the_rule_nothing_is_read(spark: SparkSession, tables: tuple[str, str]) -> None:
    rule = "io.deltaflow.spark.scan.LiveRows"
    with (
        using(spark, {"spark.sql.optimizer.excludedRules": rule}),
        pytest.raises(DeltaIllegalStateException, match="has left out deltaflow's rule"),
    ):
        load(spark, tables[0]).where("id > 1").collect()
    with using(spark, {"spark.sql.optimizer.excludedRules": rule}):
        assert load(spark, tables[0]).where("id >= 2000").count() == 1000


def test_a_broken_vector_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    write(spark.range(10), table)
    mark_deleted(table, [3])
    [file] = Path(table).glob("deletion_vector_*.bin")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptLogError, match=f"CHECKSUM_MISMATCH.*{table}.*version 1"):
        load(spark, table).collect()
    file.unlink()
    with pytest.raises(StoreError, match=f"{table}.*version 1"):
        load(spark, table).where("id > 1").collect()
    assert DeltaLog.for_table(table).snapshot().version == 1
    assert load(spark, table).count() == 9  # by statistics
