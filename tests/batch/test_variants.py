"""Columns of type variant: written and read by every door, plainly or shredded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from deltaflow.errors import DeltaAnalysisException, SchemaError
from deltaflow.log.protocol.schema import READS_SHREDDED_VARIANTS
from deltaflow.tables import DeltaTable
from tests.goldens import FEATURES, GOLDENS, needed
from tests.tables import actions, load, tuples, versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

VALUE = """parse_json(concat('{"a":', id, ',"b":"x', id, '","c":[1,2.5,null]}'))"""
ROWS = f"""
    SELECT id, if(id = 2, NULL, {VALUE}) AS v, named_struct('f', {VALUE}, 'n', id) AS s, array({VALUE}) AS l,
    map('k', {VALUE}) AS m, id % 2 AS p FROM range"""


def rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.sql(f"{ROWS}({first}, {end})").coalesce(1)


def texts(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows, with the JSON of variants."""
    values = ["to_json(v) v", "to_json(s) s", "to_json(l) l", "to_json(m) m", "p"]
    return tuples(frame.selectExpr("id", *values))


@pytest.fixture(params=["none", "id"])
def path(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A partitioned table with the rows 0 to 3, in one version after its creation."""
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, v VARIANT, s STRUCT<f: VARIANT, n: BIGINT>, "
        "l ARRAY<VARIANT>, m MAP<STRING, VARIANT>, p BIGINT) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{request.param}')"
    )
    rows(spark, 0, 4).write.format("delta").mode("append").save(path)
    return path


def is_shredded(path: str) -> bool:
    found = [
        str(pq.read_schema(file)) for file in Path(path).rglob("*.parquet") if "_delta_log" not in str(file)
    ]
    return any("typed_value" in schema for schema in found)


@pytest.mark.sampled(2)
def test_reads(spark: SparkSession, path: str, settings: Any) -> None:
    [protocol] = actions(path, "protocol", 0)
    assert {*protocol["readerFeatures"]} - {"columnMapping"} == {"variantType"}
    wanted = texts(rows(spark, 0, 4))
    for vectorized in ("true", "false"):
        with settings({"spark.sql.parquet.enableVectorizedReader": vectorized}):
            found = load(spark, path)
            assert texts(found) == wanted
            assert texts(found.where("variant_get(v, '$.a', 'int') >= 1 AND p = 1")) == [
                row for row in wanted if row[0] in (1, 3)
            ]
            assert sorted(
                row.b for row in found.selectExpr("variant_get(s.f, '$.b', 'string') b").collect()
            ) == [
                "x0",
                "x1",
                "x2",
                "x3",
            ]
            assert [row.id for row in found.where("v IS NULL").collect()] == [2]
            assert found.where("id = 3 AND v IS NOT NULL").count() == 1
    assert found.count() == 4
    assert found.selectExpr("max(id)").first() == (3,)
    # Statistics count nulls, and have no bounds. Without the wish of the table no file is shredded.
    stats = [json.loads(add["stats"]) for add in actions(path, "add")]
    names = [
        {
            field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]): field["name"]
            for field in json.loads(actions(path, "metaData", 0)[0]["schemaString"])["fields"]
        }
    ] * len(stats)
    nulls = [
        {name[key]: n for key, n in each["nullCount"].items()}["v"]
        for each, name in zip(stats, names, strict=True)
    ]
    assert sorted(nulls) == [0, 1]
    assert all(len(each["minValues"]) == len(each["maxValues"]) == 2 for each in stats)
    assert not is_shredded(path)


def doors(spark: SparkSession, path: str, folder: Path) -> Iterator[tuple[str, Callable[[], Any], set[int]]]:
    """What writes, and the ids whose `v` becomes {"new":1}, in order."""
    table = f"delta.`{path}`"
    new = """parse_json('{"new":1}')"""
    yield "update", lambda: spark.sql(f"UPDATE {table} SET v = {new} WHERE id = 1"), {1}
    yield (
        "update by a condition on it",
        lambda: spark.sql(f"UPDATE {table} SET v = {new} WHERE variant_get(v, '$.a', 'int') = 0"),
        {0},
    )
    source = f"(SELECT 3L AS id, {new} AS v)"
    yield (
        "merge",
        lambda: spark.sql(
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
        ),
        {3},
    )
    yield (
        "merge of an insert",
        lambda: spark.sql(
            f"MERGE INTO {table} t USING (SELECT 4L AS id, 0L AS p, {new} AS v) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, s.p, s.v)"
        ),
        {4},
    )
    yield "delete", lambda: spark.sql(f"DELETE FROM {table} WHERE id = 2 AND v IS NULL"), set()
    yield "optimize", lambda: spark.sql(f"OPTIMIZE {table}"), set()


@pytest.mark.sampled(2)
def test_writes(spark: SparkSession, path: str, tmp_path: Path) -> None:
    wanted = {row[0]: row for row in texts(rows(spark, 0, 4))}
    wanted[4] = (4, None, None, None, None, 0)
    for door, call, changed in doors(spark, path, tmp_path):
        call()
        for i in changed:
            wanted[i] = (i, '{"new":1}', *wanted[i][2:])
        found = {row[0]: row for row in texts(load(spark, path))}
        left = {i: row for i, row in wanted.items() if i in found}
        assert found == left, door
    assert sorted(found) == [0, 1, 3, 4]
    # Streams out of the table and into another one; CTAS and clones of it.
    copy, table = str(tmp_path / "copy"), f"delta.`{path}`"
    stream = spark.readStream.format("delta").load(path).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.start(copy).awaitTermination()
    assert texts(load(spark, copy)) == sorted(found.values(), key=repr)
    assert actions(copy, "protocol", 0)[0]["readerFeatures"] == ["variantType"]
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/ctas` USING delta AS SELECT * FROM {table}")
    DeltaTable.forPath(spark, path).clone(str(tmp_path / "clone"), isShallow=True)
    for other in ("ctas", "clone"):
        assert texts(load(spark, tmp_path / other)) == sorted(found.values(), key=repr)
    DeltaTable.forPath(spark, path).restoreToVersion(1)
    assert texts(load(spark, path)) == texts(rows(spark, 0, 4))


def test_a_table_gets_the_feature_with_its_first_variant(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(2).write.format("delta").save(path)
    frame = spark.sql("SELECT 2L AS id, parse_json('[1]') AS v")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert actions(path, "protocol")[0]["readerFeatures"] == ["variantType"]
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN w VARIANT")
    spark.sql(
        f"ALTER TABLE delta.`{path}` ADD CONSTRAINT c CHECK (v IS NULL OR variant_get(v, '$[0]', 'int') > 0)"
    )
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, parse_json('[0]'), NULL)")
    rows = load(spark, path).selectExpr("id", "to_json(v)", "to_json(w)")
    assert tuples(rows) == [(0, None, None), (1, None, None), (2, "[1]", None)]
    before = versions(path)
    partitioned = frame.write.format("delta").partitionBy("v")
    for error_type, call in (
        (SchemaError, lambda: partitioned.save(str(tmp_path / "p"))),
        (DeltaAnalysisException, lambda: spark.sql(f"OPTIMIZE delta.`{path}` ZORDER BY (v)")),
        (AnalysisException, lambda: spark.sql(f"INSERT INTO delta.`{path}` VALUES (3, 'text', 1)")),
        (
            DeltaAnalysisException,
            lambda: spark.sql(
                f"CREATE TABLE delta.`{tmp_path}/g` (s STRING, "
                "g VARIANT GENERATED ALWAYS AS (parse_json(s))) USING delta"
            ),
        ),
    ):
        with pytest.raises(error_type):
            call()
    assert versions(path) == before


def newly_shredded(path: str) -> list[bool]:
    """Whether the files that the newest commit has added have columns for the fields of variants."""
    files = [Path(path, unquote(add["path"])) for add in actions(path, "add")]
    return ["typed_value" in str(pq.ParquetFile(file).schema) for file in files]


@pytest.mark.skipif(not READS_SHREDDED_VARIANTS, reason="this Spark reads no shredded variants")
@pytest.mark.sampled(2)
def test_shredded_files_where_the_table_asks_for_them(spark: SparkSession, path: str) -> None:
    wanted = texts(rows(spark, 0, 4))
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableVariantShredding' = 'true')")
    [protocol] = actions(path, "protocol")
    assert {*protocol["readerFeatures"]} - {"columnMapping"} == {"variantType", "variantShredding"}
    spark.sql(f"UPDATE delta.`{path}` SET p = p WHERE id < 2")
    assert any(newly_shredded(path))
    rows(spark, 4, 6).write.format("delta").mode("append").save(path)
    assert all(newly_shredded(path))
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableVariantShredding' = 'false')")
    spark.sql(f"UPDATE delta.`{path}` SET p = p WHERE id = 5")
    assert not any(newly_shredded(path))
    wanted += texts(rows(spark, 4, 6))
    assert texts(load(spark, path)) == wanted
    assert [row.id for row in load(spark, path).where("variant_get(v, '$.a', 'int') = 5").collect()] == [5]
    assert [row.id for row in load(spark, path).where("v IS NULL").collect()] == [2]


@needed
@pytest.mark.skipif(not READS_SHREDDED_VARIANTS, reason="this Spark reads no shredded variants")
def test_variants_of_the_other_implementation(spark: SparkSession) -> None:
    folder = GOLDENS / FEATURES
    for name, listed in {"variant": [1, 2, 3], "variant-shredded": [1]}.items():
        for version in [None, *listed]:
            file = folder / "expected" / f"{name}{'' if version is None else f'.v{version}'}.parquet"
            wanted = sorted(pq.read_table(file).to_pylist(), key=repr)
            options = {} if version is None else {"versionAsOf": version}
            found = load(spark, folder / "tables" / name, **options).selectExpr("id", "to_json(v) v")
            assert sorted((row.asDict() for row in found.collect()), key=repr) == wanted, (name, version)
