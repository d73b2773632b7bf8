"""Conditions on a column leave out the partitions that are generated from it, and drop no row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltaflow.tables import DeltaTable
from tests.plans import files_read
from tests.tables import ids, load, operations, read_commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

ZONE = "spark.sql.session.timeZone"
DAY = "day DATE GENERATED ALWAYS AS (CAST(at AS DATE))"
MONTHS = """y INT GENERATED ALWAYS AS (YEAR(at)), m INT GENERATED ALWAYS AS (MONTH(at)),
    f STRING GENERATED ALWAYS AS (date_format(at, 'yyyy-MM'))"""
OTHERS = "p STRING GENERATED ALWAYS AS (SUBSTRING(s, 0, 1)), q DATE GENERATED ALWAYS AS (TRUNC(d, 'MONTH'))"
CONDITIONS = [
    "at = TIMESTAMP'2024-04-01 12:00:00Z'",
    "at >= TIMESTAMP'2024-09-01 12:00:00Z'",
    "at < TIMESTAMP'2024-03-01 12:00:00Z'",
    "d BETWEEN DATE'2024-03-02' AND DATE'2024-05-01'",
    "d IN (DATE'2024-02-01', DATE'2024-07-01')",
    "d > DATE'2024-06-15' OR id = 1",
    "s LIKE 'dx%' OR s >= 'ix'",
    "at IS NULL",
    "NOT (at < TIMESTAMP'2024-09-01 12:00:00Z')",
]


def made(spark: SparkSession, path: str, generated: str) -> str:
    """Rows of the first days of ten months, and one of nulls, in files without statistics."""
    names = re.findall(r"(\w+) \w+ GENERATED", generated)
    spark.sql(
        f"""CREATE TABLE delta.`{path}` (id BIGINT, at TIMESTAMP, d DATE, s STRING, {generated}) USING delta
        PARTITIONED BY ({", ".join(names)}) TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')"""
    )
    rows = spark.range(0, 11, 1, 1).selectExpr(
        "id",
        "if(id = 10, null, make_timestamp(2024, CAST(id + 1 AS INT), 1, 12, 0, 0, 'UTC')) AS at",
        "if(id = 10, null, make_date(2024, CAST(id + 1 AS INT), 1)) AS d",
        "if(id = 10, null, concat(chr(97 + id), 'xyz')) AS s",
    )
    rows.write.format("delta").mode("append").save(path)
    return path


def test_no_row_is_dropped_and_files_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever zone the writer had, and the reader has."""
    paths = []
    for writer, generated in (("UTC", DAY), ("Pacific/Kiritimati", MONTHS), ("-18:00", OTHERS)):
        spark.conf.set(ZONE, writer)
        try:
            paths.append(made(spark, str(tmp_path / f"t{len(paths)}"), generated))
        finally:
            spark.conf.set(ZONE, "UTC")
    rows = spark.createDataFrame(load(spark, paths[0]).collect())
    for reader in ("UTC", "America/Los_Angeles"):
        spark.conf.set(ZONE, reader)
        try:
            for condition in CONDITIONS:
                wanted = ids(rows.where(condition))
                for path in paths:
                    assert ids(load(spark, path).where(condition)) == wanted, condition
        finally:
            spark.conf.set(ZONE, "UTC")
    day, months, others = paths
    assert [files_of(load(spark, day).where(c)) for c in CONDITIONS[:3]] == [2, 3, 4]
    assert files_of(load(spark, months).where(CONDITIONS[0])) < 4
    assert [files_of(load(spark, others).where(c)) for c in (CONDITIONS[3], CONDITIONS[6])] == [5, 4]


def files_of(frame: DataFrame) -> int:
    frame.collect()
    return files_read(frame)


def test_operations(spark: SparkSession, tmp_path: Path) -> None:
    path = made(spark, str(tmp_path / "t"), DAY)
    table = DeltaTable.forPath(spark, path)
    table.update("at >= TIMESTAMP'2024-10-01 00:00:00Z'", {"s": "'u'"})
    table.delete("at = TIMESTAMP'2024-02-01 12:00:00Z'")
    source = spark.sql("SELECT TIMESTAMP'2024-03-01 12:00:00Z' AS at, 'm' AS s")
    table.alias("t").merge(source.alias("s"), "t.at = s.at").whenMatchedUpdate(set={"s": "s.s"}).execute()
    assert operations(path)[-3:] == ["UPDATE", "DELETE", "MERGE"]
    removed = [sum("remove" in action for action in read_commit(path, version)) for version in (2, 3, 4)]
    assert removed == [1, 1, 1]
    changed = load(spark, path).where("length(s) = 1").orderBy("id").collect()
    assert [(row.id, row.s) for row in changed] == [(2, "m"), (9, "u")]


def test_texts_that_are_no_utf_8(spark: SparkSession, tmp_path: Path, settings: Callable[..., Any]) -> None:
    """Their partition values are other texts."""
    name = f"delta.`{tmp_path}/table`"
    spark.sql(
        f"CREATE TABLE {name} (id INT, v STRING, p STRING GENERATED ALWAYS AS (SUBSTRING(v, 1, 1))) "
        "USING delta PARTITIONED BY (p)"
    )
    spark.sql(f"INSERT INTO {name} (id, v) VALUES (0, STRING(X'ff41')), (1, STRING(X'eda08041')), (2, 'b')")
    # Spark's own filter of Parquet files does not find such texts either.
    with settings({"spark.sql.parquet.filterPushdown": "false"}):
        assert ids(spark.sql(f"SELECT id FROM {name} WHERE v > '\U0001f600'")) == [0]
        assert ids(spark.sql(f"SELECT id FROM {name} WHERE v < '\N{REPLACEMENT CHARACTER}'")) == [1, 2]
