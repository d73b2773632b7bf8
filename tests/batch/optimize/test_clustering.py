"""Clustered tables: every way to make one, and what OPTIMIZE clusters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests.goldens import GOLDENS, needed
from tests.tables import actions, commit_info, ids, latest_version, load, rows, rows_by_deltalake, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

_COLUMNS = ["id", "id % 10 AS a", "named_struct('b', id % 7) AS s"]


def _frame(spark: SparkSession, first: int = 0, count: int = 100) -> DataFrame:
    return spark.range(first, first + count, 1, 1).selectExpr(*_COLUMNS)


def _columns(table: str) -> list[list[str]] | None:
    """The clustering columns in the log."""
    domain = DeltaLog.for_table(table).snapshot().domains.get("delta.clustering")
    if domain is None:
        return None
    found: list[list[str]] = json.loads(domain.configuration)["clusteringColumns"]
    return found


def _cubes(table: str) -> list[str | None]:
    """The ZCube of each file."""
    files = DeltaLog.for_table(table).snapshot().files.to_pylist()
    for file in files:
        is_clustered = file["extra"] is not None and "liquid" in file["extra"]
        assert is_clustered == (file["tags"] is not None)
    return [None if file["tags"] is None else dict(file["tags"])["ZCUBE_ID"] for file in files]


def _clustered(spark: SparkSession, table: str, **options: str) -> None:
    _frame(spark).write.format("delta").clusterBy("a", "s.b").options(**options).save(table)


DOORS: dict[str, Callable[[SparkSession, str], Any]] = {
    "create": lambda spark, path: spark.sql(
        f"CREATE TABLE named (id BIGINT, a BIGINT, s STRUCT<b: BIGINT>) USING delta LOCATION '{path}' "
        "CLUSTER BY (A, s.b)"
    ),
    "create as select": lambda spark, path: spark.sql(
        f"CREATE TABLE named USING delta LOCATION '{path}' CLUSTER BY (a, s.b) AS SELECT * FROM frame"
    ),
    "replace": lambda spark, path: spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{path}` USING delta CLUSTER BY (a, s.b) AS SELECT * FROM frame"
    ),
    "save": lambda spark, path: _clustered(spark, path),
    "saveAsTable": lambda spark, path: (
        _frame(spark).write.format("delta").option("path", path).clusterBy("a", "s.b").saveAsTable("named")
    ),
    "writeTo": lambda spark, path: (
        _frame(spark).writeTo(f"delta.`{path}`").using("delta").clusterBy("a", "s.b").create()
    ),
    "builder": lambda spark, path: (
        DeltaTable.create(spark)
        .location(path)
        .addColumns(_frame(spark).schema)
        .clusterBy("a", "s.b")
        .execute()
    ),
    "alter": lambda spark, path: (
        write(_frame(spark), path),
        spark.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (a, s.b)"),
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.sampled(3)
def test_every_door(spark: SparkSession, tmp_path: Path, database: Path, door: str) -> None:
    table = str(tmp_path / "table")
    _frame(spark).createOrReplaceTempView("frame")
    DOORS[door](spark, table)
    assert _columns(table) == [["a"], ["s", "b"]]
    protocol = DeltaLog.for_table(table).snapshot().protocol
    assert protocol.min_reader_version == 1
    assert {"clustering", "domainMetadata"} <= set(protocol.writer_features or ())
    assert not DeltaLog.for_table(table).snapshot().metadata.configuration
    [detail] = DeltaTable.forPath(spark, table).detail().collect()
    assert detail.clusteringColumns == ["a", "s.b"]
    write(_frame(spark, 100), table)
    assert _columns(table) == [["a"], ["s", "b"]]
    expected = rows(load(spark, table))
    spark.sql(f"OPTIMIZE delta.`{table}`")
    [cube] = set(_cubes(table))
    assert cube is not None
    assert rows(load(spark, table)) == expected == rows_by_deltalake(table)


def test_optimize_clusters_what_is_not_clustered_yet(
    spark: SparkSession, tmp_path: Path, settings: Any
) -> None:
    table, prefix = str(tmp_path / "table"), "spark.databricks.delta.optimize."
    optimize = f"OPTIMIZE delta.`{table}`"
    _clustered(spark, table)
    [row] = spark.sql(optimize).collect()
    assert row.metrics.zOrderStats is None
    assert row.metrics.clusteringStats.inputOtherFiles.numFiles == 1
    assert row.metrics.clusteringStats.numOutputZCubes == 1
    assert commit_info(table)["operationParameters"] == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": '["a","s.b"]',
        "auto": False,
        "isFull": False,
    }
    [first] = set(_cubes(table))
    assert json.loads(dict(actions(table, "add")[0]["tags"])["ZCUBE_ZORDER_BY"]) == ["a", "s.b"]
    version = latest_version(table)
    spark.sql(optimize)
    assert latest_version(table) == version  # all files are in one ZCube
    write(_frame(spark, 100), table)
    assert _cubes(table).count(None) == 1
    with settings({f"{prefix}clustering.mergeStrategy.minCubeSize.threshold": "1"}):
        spark.sql(optimize)  # a large ZCube stays as it is
        assert first in _cubes(table)
        assert len(set(_cubes(table))) == 2
    with settings({f"{prefix}maxFileSize": "700"}):
        spark.sql(optimize)
    assert len(set(_cubes(table))) == 1
    assert len(_cubes(table)) > 2
    assert load(spark, table).where("a = 3").count() == 20
    before = ids(load(spark, table))
    spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (id)")
    assert commit_info(table)["operationParameters"] == {
        "oldClusteringColumns": "a,s.b",
        "newClusteringColumns": "id",
    }
    version = latest_version(table)
    spark.sql(optimize)
    assert latest_version(table) == version  # files of other columns are for OPTIMIZE FULL
    spark.sql(optimize + " FULL")
    assert {dict(file["tags"])["ZCUBE_ZORDER_BY"] for file in actions(table, "add")} == {'["id"]'}
    spark.sql(f"UPDATE delta.`{table}` SET a = 5 WHERE id = 3")
    assert None in _cubes(table)
    spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY NONE")
    assert _columns(table) == []
    assert ids(load(spark, table)) == before
    for wrong, text in {
        optimize + " FULL": "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED",
        optimize + " WHERE a = 1": "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
        optimize + " ZORDER BY (id)": "DELTA_CLUSTERING_WITH_ZORDER_BY",
    }.items():
        with pytest.raises(AnalysisException, match=text):
            spark.sql(wrong)


def test_columns_that_are_renamed_dropped_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    _clustered(spark, table, **{"delta.columnMapping.mode": "name"})
    physical = _columns(table)
    assert physical is not None
    assert physical[0][0].startswith("col-")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN a TO named")
    [detail] = DeltaTable.forPath(spark, table).detail().collect()
    assert detail.clusteringColumns == ["named", "s.b"]
    for column in ("named", "s"):
        with pytest.raises(AnalysisException, match="DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"):
            spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN {column}")
    with pytest.raises(AnalysisException, match="DELTA_CLUSTERING_COLUMN_MISSING_STATS"):
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id')")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    assert _columns(table) == [["named"], ["s", "b"]]
    version = latest_version(table)
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, table).clone(clone, isShallow=True)
    assert _columns(clone) == [["named"], ["s", "b"]]
    write(_frame(spark), table, "overwrite", overwriteSchema=True)
    assert _columns(table) == []
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {version}")
    assert _columns(table) == [["named"], ["s", "b"]]
    with pytest.raises(AnalysisException, match="DELTA_FEATURE_DROP_DEPENDENT_FEATURE"):
        spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE domainMetadata")
    spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE clustering")
    assert _columns(table) is None
    assert "clustering" not in (DeltaLog.for_table(table).snapshot().protocol.writer_features or ())
    write(_frame(spark), table, "overwrite", overwriteSchema=True)
    assert _columns(table) is None


@pytest.mark.long
def test_small_cubes_are_merged_only_into_fewer(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    """A second OPTIMIZE has nothing to do, also where the ZCubes that come out are small ones."""
    table, prefix = str(tmp_path / "table"), "spark.databricks.delta.optimize.clustering.mergeStrategy."
    for number in range(4):
        frame = spark.range(number * 100, number * 100 + 100, 1, 1)
        write(frame.selectExpr("id", "repeat(uuid(), 30) AS x"), table)
    spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (id)")
    size = DeltaLog.for_table(table).snapshot().size_in_bytes // 4
    small = {
        f"{prefix}minCubeSize.threshold": str(int(size * 1.2)),
        f"{prefix}minCubeSize.targetCubeSize": str(int(size * 1.5)),
    }
    with settings(small):
        spark.sql(f"OPTIMIZE delta.`{table}`")
        assert len(set(_cubes(table))) == 4
        version = latest_version(table)
        spark.sql(f"OPTIMIZE delta.`{table}`")
        assert latest_version(table) == version
    spark.sql(f"OPTIMIZE delta.`{table}`")
    assert len(set(_cubes(table))) == 1
    assert load(spark, table).agg({"id": "sum"}).collect()[0][0] == sum(range(400))


TYPES = {
    "tinyint": "CAST(id AS TINYINT)",
    "float": "IF(id % 5 = 0, float('NaN'), IF(id % 7 = 0, NULL, IF(id % 3 = 0, -0.0F, float(id))))",
    "double": "IF(id % 5 = 0, double('-Infinity'), -double(id) / 3)",
    "decimal(38,10)": "IF(id % 3 = 0, NULL, CAST(id AS DECIMAL(38,10)) * 1.1)",
    "date": "IF(id % 9 = 0, NULL, date_add(DATE'1500-01-01', CAST(id * 4000 AS INT)))",
    "timestamp": "timestamp_micros(id * 123456789012 - 1)",
    "timestamp_ntz": "CAST(timestamp_micros(id * 1234567890) AS TIMESTAMP_NTZ)",
    "string": "concat(repeat('x', 200), id)",
    "varchar(20)": r"IF(id % 4 = 0, '', concat('ü\'\"\\\\', id))",
    "char(5)": "IF(id % 2 = 0, NULL, CAST(id AS STRING))",
}


@pytest.mark.long
def test_every_type_in_one_table(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    """Rows, nulls, special values and row ids stay, of a table with deletion vectors and mapped columns."""
    table = str(tmp_path / "table")
    names = {data_type: f"c{number}" for number, data_type in enumerate(TYPES)}
    columns = ", ".join(f"{name} {data_type}" for data_type, name in names.items())
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, {columns}, s STRUCT<`a.b`: STRUCT<u: INT>>) USING delta "
        "CLUSTER BY (s.`a.b`.u) TBLPROPERTIES ('delta.columnMapping.mode' = 'id', "
        "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true')"
    )
    values = ", ".join(TYPES.values())
    spark.sql(
        f"INSERT INTO delta.`{table}` SELECT id, {values}, named_struct('a', named_struct('u', INT(id % 9))) "
        "FROM range(0, 100, 1, 2)"
    )
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 10 = 1")

    def found() -> list[str]:
        texts = [f"CAST({name} AS STRING)" for name in names.values()]
        frame = load(spark, table).selectExpr("id", *texts, "to_json(s)", "_metadata.row_id")
        return sorted(map(str, frame.collect()))

    before = found()
    assert len(before) == 90
    spark.sql(f"OPTIMIZE delta.`{table}`")
    assert found() == before
    assert DeltaLog.for_table(table).snapshot().num_deletion_vectors == 0
    names_of = list(names.values())
    with settings({"spark.databricks.delta.optimize.maxFileSize": "4000"}):
        for first in range(0, len(names_of), 4):
            spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY ({', '.join(names_of[first : first + 4])})")
            spark.sql(f"OPTIMIZE delta.`{table}` FULL")
            version = latest_version(table)
            spark.sql(f"OPTIMIZE delta.`{table}` FULL")
            assert latest_version(table) == version
            assert found() == before
            assert len(_cubes(table)) > 1
    # Names with dots, by every door that writes them down.
    spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (s.`a.b`.u, id)")
    physical = _columns(table)
    assert physical is not None
    assert [len(path) for path in physical] == [3, 1]
    [[shown]] = spark.sql(f"SHOW CREATE TABLE delta.`{table}`").collect()
    assert "CLUSTER BY (`s`.`a.b`.`u`, `id`)" in shown
    like = str(tmp_path / "like")
    spark.sql(f"CREATE TABLE delta.`{like}` LIKE delta.`{table}`")
    found_paths = _columns(like)
    assert found_paths is not None
    assert [len(path) for path in found_paths] == [3, 1]


def test_what_cannot_be_clustered(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    frame = _frame(spark).selectExpr("*", "array(id) AS l", "id AS e")
    for columns, text in {
        ("l",): "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        ("s",): "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        ("nothing",): "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA|UNRESOLVED_COLUMN|nothing",
    }.items():
        with pytest.raises(AnalysisException, match=text):
            frame.write.format("delta").clusterBy(*columns).save(table)
    with pytest.raises(AnalysisException, match="DELTA_CLUSTERING_COLUMN_MISSING_STATS"):
        _clustered(spark, table, **{"delta.dataSkippingNumIndexedCols": "1"})
    assert not DeltaTable.isDeltaTable(spark, table)
    for statement in (
        f"CREATE TABLE delta.`{table}` (a INT) USING delta "
        "TBLPROPERTIES ('delta.feature.clustering' = 'supported')",
    ):
        with pytest.raises(AnalysisException, match="SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED"):
            spark.sql(statement)
    write(frame, table, partition_by=["a"])
    with pytest.raises(AnalysisException, match="ON_PARTITIONED_TABLE_NOT_ALLOWED"):
        spark.sql(f"ALTER TABLE delta.`{table}` CLUSTER BY (id)")
    with pytest.raises(AnalysisException, match="SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED"):
        DeltaTable.forPath(spark, table).addFeatureSupport("clustering")
    with pytest.raises(AnalysisException, match="DELTA_CLUSTERING_COLUMNS_MISMATCH"):
        frame.write.format("delta").mode("append").clusterBy("id").save(table)
    assert latest_version(table) == 0


@needed
def test_the_table_of_another_writer(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    shutil.copytree(GOLDENS / "features/tables/clustered", table)
    before, columns = load(spark, table).collect(), _columns(table)
    load(spark, table).limit(3).write.format("delta").mode("append").save(table)
    spark.sql(f"OPTIMIZE delta.`{table}` FULL")
    assert len(set(_cubes(table))) == 1
    assert load(spark, table).count() == len(before) + 3
    assert _columns(table) == columns
