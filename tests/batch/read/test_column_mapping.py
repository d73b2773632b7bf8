"""Tables with column mapping, through every door that reads with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.errors import CorruptLogError, UnsupportedFeatureError
from deltaflow.tables import DeltaTable
from tests.log.hand_written import protocol
from tests.mapped_tables import NAMES, SCHEMA, MappedTable, mapped, row
from tests.plans import executed_plan, file_scans, files_read
from tests.tables import load, tuples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = [row(i, None if 5 <= i < 10 else "u") for i in range(15)]
PARTITION = "`größe.``1```"


@pytest.fixture(params=["name", "id"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> MappedTable:
    return MappedTable(tmp_path / "table", request.param)


@pytest.mark.sampled(2)
def test_all_ways_to_read(spark: SparkSession, table: MappedTable, settings: Any, tmp_path: Path) -> None:
    frame = load(spark, table.path)
    assert frame.columns == NAMES
    assert not any("columnMapping" in part.json() for part in frame.schema.fields)
    assert tuples(frame) == sorted(ROWS, key=repr)
    assert tuples(load(spark, table.path, versionAsOf=0)) == sorted(ROWS[:10], key=repr)
    assert tuples(spark.sql(f"SELECT * FROM delta.`{table.path}`")) == sorted(ROWS, key=repr)
    assert tuples(DeltaTable.forPath(spark, table.path).toDF()) == sorted(ROWS, key=repr)
    spark.sql(f"CREATE TABLE mapped_by_name USING delta LOCATION '{table.path}'")
    try:
        assert tuples(spark.table("mapped_by_name")) == sorted(ROWS, key=repr)
        assert spark.table("mapped_by_name").columns == NAMES
    finally:
        spark.sql("DROP TABLE mapped_by_name")
    # Without Spark's vectorised reader, too; nested fields alone, and none at all.
    for vectorized in ("true", "false"):
        with settings({"spark.sql.parquet.enableVectorizedReader": vectorized}):
            assert tuples(load(spark, table.path)) == sorted(ROWS, key=repr)
            nested = load(spark, table.path).selectExpr("`s p`.`x.y`", "l.e", "m['k'].v", "id")
            assert tuples(nested) == sorted(((i * 10, [i], i, i) for i in range(15)), key=repr)
            assert tuples(load(spark, table.path).select()) == [()] * 15
    # A plan with a copy of the rows in a plain format keeps the names.
    frame.select("id", "s p").write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).columns == ["id", "s p"]


def test_files_are_left_out_by_partitions_and_statistics(spark: SparkSession, table: MappedTable) -> None:
    for condition, ids, files in [
        (f"{PARTITION} = 'u'", [*range(5), *range(10, 15)], 2),
        (f"{PARTITION} is null", range(5, 10), 1),
        ("id >= 12", [12, 13, 14], 1),
        ("`a,b` = 107", [7], 1),
        ("`s p`.`x.y` = 120", [12], 1),
        ("`s p`.z = 'z3' or id = 4", [3, 4], 1),
        ("id in (1, 2) and `a,b` < 105", [1, 2], 1),
        ("not (id < 14) and `a,b` <=> 114", [14], 1),
        ("`a,b` is null", [], 0),
        ("l[0].e = 3", [3], 3),
    ]:
        frame = load(spark, table.path).where(condition)
        assert sorted(found.id for found in frame.collect()) == list(ids), condition
        assert files_read(frame) == files if files else not file_scans(frame) or files_read(frame) == 0


def test_row_groups_are_chosen_by_physical_names(spark: SparkSession, tmp_path: Path) -> None:
    table = MappedTable(tmp_path / "table", "name")
    frame = load(spark, table.path).where("id = 3 and `s p`.`x.y` = 30")
    # The plan has the table's own names; without them at the reader, no row group could be left out.
    assert "PushedFilters: [IsNotNull(id), " in executed_plan(frame)
    assert [found.id for found in frame.collect()] == [3]
    # No statistics of files, so that only the footers tell that there is no such row.
    table.commit(2, *({"add": {**found["add"], "stats": None}} for found in [table.file(range(5), "u")]))
    frame = load(spark, table.path, versionAsOf=2).where("id = 77 and `a,b` > 0")
    assert frame.collect() == []
    [scan] = file_scans(frame)
    assert int(scan.metrics().apply("numOutputRows").value()) == 0


def test_answers_by_statistics(spark: SparkSession, table: MappedTable) -> None:
    load(spark, table.path).createOrReplaceTempView("mapped")
    frame = spark.sql(f"SELECT count(*), min(id), max(id), max({PARTITION}) FROM mapped")
    assert not file_scans(frame)
    assert tuples(frame) == [(15, 0, 14, "u")]
    frame = spark.sql(f"SELECT count(*), max(id) FROM mapped WHERE {PARTITION} = 'u'")
    assert not file_scans(frame)
    assert tuples(frame) == [(10, 14)]
    limited = load(spark, table.path).limit(2)
    assert limited.count() == 2
    assert tuples(load(spark, table.path).selectExpr("_metadata.row_index", "id").where("id = 7")) == [(2, 7)]


def test_partitions_are_pruned_by_a_join(spark: SparkSession, table: MappedTable) -> None:
    spark.createDataFrame([("u",)], "k string").createOrReplaceTempView("keys")
    load(spark, table.path).createOrReplaceTempView("mapped")
    joined = spark.sql(f"SELECT m.id FROM mapped m JOIN keys ON m.{PARTITION} = keys.k WHERE keys.k > 'a'")
    assert sorted(found.id for found in joined.collect()) == [*range(5), *range(10, 15)]
    twice = spark.sql("SELECT a.id FROM mapped a JOIN mapped b ON a.id = b.`s p`.`x.y`")
    assert sorted(found.id for found in twice.collect()) == [0, 10]
    assert [found.partition for found in spark.sql(f"SHOW PARTITIONS delta.`{table.path}`").collect()] == [
        "größe.`1`=__HIVE_DEFAULT_PARTITION__",
        "größe.`1`=u",
    ]


def test_a_frame_made_before_columns_changed_their_names(spark: SparkSession, table: MappedTable) -> None:
    """It reads the newest version by the names that it was made with."""
    frame = load(spark, table.path).select("id", "a,b")
    first = SCHEMA.fields
    renamed = StructType([mapped("new", LongType(), 1), *first[1:5], mapped("id", LongType(), 11), first[5]])
    table.commit(2, table.meta_data(renamed))
    assert tuples(frame) == sorted(((None, i + 100) for i in range(15)), key=repr)
    assert tuples(load(spark, table.path).select("new")) == sorted(((i,) for i in range(15)), key=repr)
    assert tuples(load(spark, table.path, versionAsOf=1).select("id")) == sorted(
        ((i,) for i in range(15)), key=repr
    )


def test_a_mapping_that_cannot_be_right_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    for number, (wrong, message) in enumerate(
        [
            ([mapped("id", LongType(), 1), mapped("x", LongType(), 1)], "one physical name, c-1"),
            ([SCHEMA["id"], StructField("x", LongType())], "Column x of the table's schema lacks"),
        ]
    ):
        table = MappedTable(tmp_path / str(number), "id")
        table.commit(2, table.meta_data(StructType([*wrong, SCHEMA.fields[-1]])))
        with pytest.raises(CorruptLogError, match=message):
            load(spark, table.path)
    unsupported = MappedTable(tmp_path / "unsupported", "name")
    unsupported.commit(2, protocol(1, 2))
    with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
        load(spark, unsupported.path)


def test_names_of_columns_that_are_not_mapped_any_more_have_no_meaning(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = MappedTable(tmp_path / "table", "name")
    table.commit(2, table.meta_data(SCHEMA, **{"delta.columnMapping.mode": "none"}))
    assert tuples(load(spark, table.path).select("id")) == [(None,)] * 15
