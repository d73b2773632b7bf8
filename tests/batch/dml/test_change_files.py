"""The files in which commits record their changes, for tables with a change data feed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow import DeltaTable
from deltaflow.batch.files.data_files import DataFiles
from deltaflow.errors import DeltaIllegalStateException
from tests.tables import (
    actions,
    commit_info,
    every_action,
    latest_version,
    load,
    rows,
    rows_by_deltalake,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

BEFORE = ("delete", "update_preimage")
Changes = list[tuple[Any, ...]]


@pytest.fixture(params=["without vectors", "with vectors"])
def vectors(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "with vectors")


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def create(
    spark: SparkSession, table: str, columns: str, *, vectors: bool = False, partition: str = "", **more: Any
) -> str:
    """An empty table with the feed; its name in SQL."""
    properties = {"enableChangeDataFeed": True, "enableDeletionVectors": vectors, **more}
    listed = ", ".join(f"'delta.{key}' = '{str(value).lower()}'" for key, value in properties.items())
    parts = f"PARTITIONED BY ({partition})" if partition else ""
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta {parts} TBLPROPERTIES ({listed})")
    return f"delta.`{table}`"


def changes_by_deltalake(table: str, version: int) -> Changes:
    """The change rows of a version as the independent implementation reads them."""
    found = deltalake.DeltaTable(table).load_cdf(starting_version=version, ending_version=version)
    values = pa.table(found.read_all()).select(["id", "p", "v", "_change_type"])
    return sorted(tuple(row.values()) for row in values.to_pylist())


def check(spark: SparkSession, table: str) -> Changes:
    """The changes of the newest version, values and kind; they have to lead to its rows from those before."""
    newest = latest_version(table)
    feed = load(spark, table, readChangeFeed="true", startingVersion=newest, endingVersion=newest)
    found = [tuple(row)[:-2] for row in feed.collect()]
    left, after = (
        Counter(map(tuple, load(spark, table, versionAsOf=version).select(*feed.columns[:-3]).collect()))
        for version in (newest - 1, newest)
    )
    left.subtract(row[:-1] for row in found if row[-1] in BEFORE)
    assert min(left.values(), default=0) >= 0, found
    left.update(row[:-1] for row in found if row[-1] not in BEFORE)
    assert +left == +after
    kinds = Counter(row[-1] for row in found)
    assert kinds["update_preimage"] == kinds["update_postimage"]
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("mapping", "vectors"),
    [
        ("none", False),
        pytest.param("name", True, marks=pytest.mark.long),
        pytest.param("none", True, marks=pytest.mark.long),
        pytest.param("name", False, marks=pytest.mark.long),
        pytest.param("id", False, marks=pytest.mark.long),
        pytest.param("id", True, marks=pytest.mark.long),
    ],
)
def test_every_row_that_an_operation_changes(
    spark: SparkSession, table: str, mapping: str, *, vectors: bool
) -> None:
    more = {} if mapping == "none" else {"columnMapping.mode": mapping}
    name = create(spark, table, "id BIGINT, p BIGINT, v BIGINT", vectors=vectors, partition="p", **more)
    write(spark.range(12).selectExpr("id", "id % 2 AS p", "id * 10 AS v"), table)
    spark.sql(f"UPDATE {name} SET v = v + 1, p = 5 WHERE id IN (3, 4)")
    updated = [(i, i % 2, 10 * i, "update_preimage") for i in (3, 4)]
    updated += [(i, 5, 10 * i + 1, "update_postimage") for i in (3, 4)]
    assert check(spark, table) == sorted(updated)
    spark.sql(f"DELETE FROM {name} WHERE v = 50 OR v = 60")
    assert check(spark, table) == [(5, 1, 50, "delete"), (6, 0, 60, "delete")]
    assert bool(actions(table, "cdc", latest_version(table))) == (not vectors)
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT * FROM VALUES 1L, 2L, 3L, 100L AS s(id)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -1 "
        "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 0, 7) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 11 THEN UPDATE SET v = 11 "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 10 THEN DELETE"
    )
    assert check(spark, table) == [
        (1, 1, 10, "delete"),
        (10, 0, 100, "delete"),
        (100, 0, 7, "insert"),
        (11, 1, 11, "update_postimage"),
        (11, 1, 110, "update_preimage"),
        (2, 0, -1, "update_postimage"),
        (2, 0, 20, "update_preimage"),
        (3, 5, -1, "update_postimage"),
        (3, 5, 31, "update_preimage"),
    ]
    metrics = commit_info(table)["operationMetrics"]
    assert int(metrics["numTargetChangeFilesAdded"]) == len(actions(table, "cdc", latest_version(table)))
    write(spark.sql("SELECT 200L AS id, 1L AS p, 80L AS v"), table, "overwrite", replaceWhere="v IN (80, -1)")
    assert check(spark, table) == [
        (2, 0, -1, "delete"),
        (200, 1, 80, "insert"),
        (3, 5, -1, "delete"),
        (8, 0, 80, "delete"),
    ]
    metrics = commit_info(table)["operationMetrics"]
    assert int(metrics["numAddedChangeFiles"]) == len(actions(table, "cdc", latest_version(table))) > 0
    spark.sql(f"UPDATE {name} SET v = v + 1")
    assert len(check(spark, table)) == 2 * load(spark, table).count()
    spark.sql(f"UPDATE {name} SET v = 0 WHERE p = 0")
    assert {row[1] for row in check(spark, table)} == {0}
    spark.sql(f"DELETE FROM {name} WHERE id = (SELECT max(id) FROM {name}) OR id = 0")
    assert [row[0] for row in check(spark, table)] == [0, 200]
    spark.sql(f"UPDATE {name} SET v = (SELECT max(v) FROM {name}) WHERE id IN (SELECT min(id) FROM {name})")
    assert len(check(spark, table)) == 2
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    if mapping == "none":  # deltalake reads no feed of mapped tables
        whole = range(1, latest_version(table) + 1)
        recorded = [version for version in whole if actions(table, "cdc", version)]
        for version in recorded:
            feed = load(spark, table, readChangeFeed="true", startingVersion=version, endingVersion=version)
            expected = feed.select("id", "p", "v", "_change_type").collect()
            assert sorted(map(tuple, expected)) == changes_by_deltalake(table, version)


@pytest.mark.long
def test_no_change_files_where_others_say_it_all(spark: SparkSession, table: str) -> None:
    name = create(spark, table, "id BIGINT, p BIGINT", partition="p")
    for part in (1, 2):
        write(spark.range(6).selectExpr("id", f"{part}L AS p"), table)
    for statement, number in (
        (f"DELETE FROM {name} WHERE p = 2 AND id >= 0", 6),
        (f"DELETE FROM {name} WHERE p = 7", 0),
        (f"MERGE INTO {name} t USING (SELECT 9L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, p) "
         "VALUES (s.id, 1)", 1),
        (f"MERGE INTO {name} t USING {name} s ON t.id = s.id AND t.id > 5 WHEN MATCHED THEN DELETE", 1),
        (f"INSERT INTO {name} REPLACE WHERE id >= 0 VALUES (1, 1), (2, 2)", 8),
        (f"OPTIMIZE {name} WHERE p = 1", 0),
    ):  # fmt: skip
        before = latest_version(table)
        spark.sql(statement)
        if latest_version(table) > before:
            assert len(check(spark, table)) == number, statement
    assert not every_action(table, "cdc")
    # One file stays in part, so that the rows of the other, which leaves as a whole, are recorded, too.
    spark.sql(f"INSERT INTO {name} VALUES (3, 1)")
    spark.sql(f"DELETE FROM {name} WHERE id IN (2, 3)")
    write(spark.range(20, 23).selectExpr("id", "1L AS p"), table)
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 21)")
    assert check(spark, table) == [(1, 1, "delete"), (21, 1, "delete")]
    assert actions(table, "cdc", latest_version(table))
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    spark.sql(f"DELETE FROM {name} WHERE id = 22")
    spark.sql(f"UPDATE {name} SET id = 0")
    assert not actions(table, "cdc", latest_version(table)) + actions(table, "cdc", latest_version(table) - 1)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"UPDATE {name} SET id = 1")
    assert check(spark, table) == [(0, 1, "update_preimage"), (1, 1, "update_postimage")]


@pytest.mark.long
def test_values_that_differ_each_time(spark: SparkSession, table: str, *, vectors: bool) -> None:
    """The rows after an update are those that the table has, whatever made them."""
    name = create(
        spark,
        table,
        "id BIGINT, n BIGINT GENERATED BY DEFAULT AS IDENTITY, r DOUBLE, t TIMESTAMP, u STRING, "
        "g BIGINT GENERATED ALWAYS AS (id * 2)",
        vectors=vectors,
        enableRowTracking=True,
    )
    write(spark.range(20).selectExpr("id", "rand() AS r", "now() AS t", "uuid() AS u"), table)
    spark.sql(f"UPDATE {name} SET r = rand(), t = now(), u = uuid() WHERE id % 5 = 1")
    assert len(check(spark, table)) == 8
    spark.sql(f"UPDATE {name} SET id = id + 100, u = uuid()")
    assert len(check(spark, table)) == 40
    for word in ("", "WHEN MATCHED THEN UPDATE SET r = rand(), u = uuid(), id = t.id + 1"):
        spark.sql(
            f"MERGE INTO {name} t USING (SELECT id + 118 AS id, uuid() AS u FROM range(6)) s ON t.id = s.id "
            f"{word} WHEN NOT MATCHED THEN INSERT (id, r, t, u) VALUES (s.id, rand(), now(), s.u)"
        )
        check(spark, table)
    assert load(spark, table).where("NOT g <=> id * 2 OR n IS NULL").isEmpty()
    assert load(spark, table).select("n").distinct().count() == load(spark, table).count()
    ids = load(spark, table).select("_metadata.row_id").collect()
    assert len({row[0] for row in ids}) == len(ids)
    columns = {"id", "n", "r", "t", "u", "g", "_change_type"}
    for file in Path(table, "_change_data").iterdir():
        assert file.suffix != ".parquet" or set(pq.read_schema(file).names) == columns


def test_a_condition_that_is_true_of_nan(spark: SparkSession, table: str, *, vectors: bool) -> None:
    name = create(spark, table, "id BIGINT, x DOUBLE, v BIGINT", vectors=vectors)
    x = "if(id = 7, double('NaN'), 1D) AS x"
    write(spark.range(50).selectExpr("id", x, "0L AS v").coalesce(1), table)
    merge = "WHEN MATCHED THEN UPDATE SET v = 1"
    spark.sql(f"MERGE INTO {name} t USING (SELECT 7 AS id) s ON t.id = s.id AND t.x > 5 {merge}")
    feed = load(spark, table, readChangeFeed="true", startingVersion=latest_version(table))
    changes = sorted(tuple(row) for row in feed.select("id", "v", "_change_type").collect())
    assert changes == [(7, 0, "update_preimage"), (7, 1, "update_postimage")]


@pytest.mark.long
def test_schemas_that_grow(spark: SparkSession, table: str, *, vectors: bool) -> None:
    create(spark, table, "id BIGINT, v INT", vectors=vectors, enableTypeWidening=True)
    write(spark.range(6).selectExpr("id", "CAST(id AS INT) AS v"), table)
    source = spark.sql("SELECT id, 5000000000L AS v, 'new' AS w FROM VALUES 1L, 9L AS s(id)")
    merge = DeltaTable.forPath(spark, table).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete(
        "t.id = 3"
    ).withSchemaEvolution().execute()
    newest = latest_version(table)
    feed = load(spark, table, readChangeFeed="true", startingVersion=newest)
    assert sorted((tuple(row)[:-2] for row in feed.collect()), key=repr) == [
        (1, 1, None, "update_preimage"),
        (1, 5000000000, "new", "update_postimage"),
        (3, 3, None, "delete"),
        (9, 5000000000, "new", "insert"),
    ]
    row = spark.sql("SELECT 4L AS id, 44L AS v, 'x' AS w, 1.5D AS more")
    write(row, table, "overwrite", replaceWhere="id = 4", mergeSchema="true")
    feed = load(spark, table, readChangeFeed="true", startingVersion=newest + 1)
    assert sorted((tuple(row)[:-2] for row in feed.collect()), key=repr) == [
        (4, 4, None, None, "delete"),
        (4, 44, "x", 1.5, "insert"),
    ]


@pytest.mark.sampled(2)
def test_rows_that_are_missing_in_change_files_stop_the_commit(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, *, vectors: bool
) -> None:
    name = create(spark, table, "id BIGINT, v BIGINT", vectors=vectors)
    write(spark.range(10).selectExpr("id", "id AS v"), table)
    before = sorted(Path(table).rglob("*.parquet"))
    change_actions = DataFiles.change_actions

    def short(self: DataFiles, files: Any) -> Any:
        found, number = change_actions(self, files)
        return found, number - 1

    monkeypatch.setattr(DataFiles, "change_actions", short)
    merge = f"MERGE INTO {name} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 2"
    statements = [f"UPDATE {name} SET v = 1 WHERE id = 1", f"UPDATE {name} SET v = 1", merge]
    statements.append(f"INSERT INTO {name} REPLACE WHERE id = 1 VALUES (1, 1)")
    if not vectors:
        statements.append(f"DELETE FROM {name} WHERE id = 1")
    for statement in statements:
        with pytest.raises(DeltaIllegalStateException, match="DELTA_NUM_RECORDS_MISMATCH"):
            spark.sql(statement)
    assert latest_version(table) == 1
    assert sorted(Path(table).rglob("*.parquet")) == before


def test_vacuum_keeps_them_by_retention(spark: SparkSession, table: str, settings: Any) -> None:
    name = create(spark, table, "id BIGINT, v BIGINT")
    write(spark.range(10).selectExpr("id", "id AS v"), table)
    spark.sql(f"UPDATE {name} SET v = 1 WHERE id = 3")
    spark.sql(f"DELETE FROM {name} WHERE id = 4")
    spark.sql(f"VACUUM {name}")
    feed = load(spark, table, readChangeFeed="true", startingVersion=2, endingVersion=3)
    assert len(feed.collect()) == 3
    recorded = {file["path"] for file in every_action(table, "cdc")}
    [of_table] = [path for path in recorded if not path.startswith("_change_data/")]
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    assert {path for path in recorded if Path(table, path).exists()} == {of_table}
    assert load(spark, table).count() == 9
    with pytest.raises(Exception, match="DELTA_FILE_NOT_FOUND_DETAILED"):
        load(spark, table, readChangeFeed="true", startingVersion=2, endingVersion=2).collect()


KILLED = """
import os, signal, sys
import deltaflow
from deltaflow.log.observer import set_observer

spark = deltaflow.session("killed", master="local[1]", config={"spark.ui.enabled": "false"})

def kill(point, facts):
    if point == "files written":
        os.killpg(0, signal.SIGKILL)

set_observer(kill)
spark.sql(f"UPDATE delta.`{sys.argv[1]}` SET v = -1 WHERE id = 3")
"""


@pytest.mark.long
def test_a_process_that_is_killed_before_its_commit(spark: SparkSession, table: str, settings: Any) -> None:
    name = create(spark, table, "id BIGINT, v BIGINT")
    write(spark.range(10).selectExpr("id", "id AS v"), table)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", KILLED, table]
    killed = subprocess.run(command, check=False, start_new_session=True, env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert latest_version(table) == 1
    left = list(Path(table, "_change_data").glob("*.parquet"))
    assert len(left) == 1
    spark.sql(f"UPDATE {name} SET v = 7 WHERE id = 3")
    assert check(spark, table) == [(3, 3, "update_preimage"), (3, 7, "update_postimage")]
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    assert not left[0].exists()


@pytest.mark.parametrize("partition", ["", "PARTITIONED BY (_change_type)"])
@pytest.mark.long
def test_a_table_without_the_feed_has_a_column_of_its_name(
    spark: SparkSession, table: str, partition: str
) -> None:
    name = f"delta.`{table}`"
    spark.sql(f"CREATE TABLE {name} (id INT, _change_type STRING) USING delta {partition}")
    spark.sql(f"INSERT INTO {name} SELECT id, 'foo' FROM range(0, 5, 1, 1)")
    spark.sql(f"UPDATE {name} SET _change_type = 'bar' WHERE id = 1")
    spark.sql(f"DELETE FROM {name} WHERE id = 2")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT id, 'new' AS _change_type FROM range(3, 6, 2)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    kinds = [row["_change_type"] for row in load(spark, table).orderBy("id").collect()]
    assert kinds == ["foo", "bar", "new", "foo", "new"]
    assert not every_action(table, "cdc")
