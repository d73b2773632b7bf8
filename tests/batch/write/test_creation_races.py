"""A write that found no table, beside an operation that creates the table with rules for its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from deltaflow.log import DeltaLog
from tests.tables import load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles")]

COLUMNS = "n INT, s STRING, st STRUCT<x: INT>"
RULES = {
    "NOT NULL": ["CREATE TABLE {table} (n INT NOT NULL, s STRING, st STRUCT<x: INT>) USING delta"],
    "nested NOT NULL": ["CREATE TABLE {table} (n INT, s STRING, st STRUCT<x: INT NOT NULL>) USING delta"],
    "VARCHAR": ["CREATE TABLE {table} (n INT, s VARCHAR(3), st STRUCT<x: INT>) USING delta"],
    "CHAR": ["CREATE TABLE {table} (n INT, s CHAR(3), st STRUCT<x: INT>) USING delta"],
    "constraint in CREATE": [
        f"CREATE TABLE {{table}} ({COLUMNS}) USING delta TBLPROPERTIES ('delta.constraints.pos' = 'n > 0')"
    ],
    "CREATE, then ADD CONSTRAINT": [
        f"CREATE TABLE {{table}} ({COLUMNS}) USING delta",
        "ALTER TABLE {table} ADD CONSTRAINT pos CHECK (n > 0)",
    ],
    "CREATE, then SET appendOnly": [
        f"CREATE TABLE {{table}} ({COLUMNS}) USING delta",
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    ],
}


def _save(frame: DataFrame, path: Path) -> None:
    frame.write.format("delta").mode("append").save(str(path))


def _save_as_table(frame: DataFrame, path: Path) -> None:
    frame.write.format("delta").mode("append").saveAsTable(path.name)


def _create_as_select(frame: DataFrame, path: Path) -> None:
    frame.createOrReplaceTempView("rows_of_loser")
    frame.sparkSession.sql(f"CREATE TABLE {path.name} USING delta AS SELECT * FROM rows_of_loser")


def _create(frame: DataFrame, path: Path) -> None:
    frame.writeTo(path.name).using("delta").create()


def _first_batch(frame: DataFrame, path: Path) -> None:
    source = path.with_name("source")
    frame.write.format("delta").save(str(source))
    stream = frame.sparkSession.readStream.format("delta").load(str(source))
    writer = stream.writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(path.with_name("checkpoint"))).start(str(path))
    try:
        query.awaitTermination(120)
    finally:
        query.stop()


LOSERS: dict[str, Callable[[DataFrame, Path], None]] = {
    "save": _save,
    "saveAsTable": _save_as_table,
    "CTAS": _create_as_select,
    "writeTo": _create,
    "first batch": _first_batch,
}


def before_commit(at: Any, loser: str, path: Path, statements: Callable[[], object]) -> None:
    """Runs statements that create the table between the loser's files and its commit."""

    def rival() -> None:
        # CREATE TABLE takes no folder with files unless somebody has begun a table there.
        (path / "_delta_log").mkdir()
        statements()

    if loser == "first batch":  # it writes the stream's source first
        at("files written", lambda: at("files written", rival))
    else:
        at("files written", rival)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """Rows that break each of the rules."""
    return spark.createDataFrame(
        [(None, "a long text", None), (-5, None, (None,)), (1, "a", (1,))], COLUMNS
    ).coalesce(1)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("loser", LOSERS)
@pytest.mark.sampled(6)
def test_rows_that_were_not_checked_by_the_rules_of_the_table_are_not_committed(
    spark: SparkSession, frame: DataFrame, database: Path, at: Any, loser: str, rules: str
) -> None:
    path = database / "t"
    table = f"delta.`{path}`" if loser in ("save", "first batch") else "t"

    def create() -> None:
        for statement in RULES[rules]:
            spark.sql(statement.format(table=table))

    before_commit(at, loser, path, create)
    with pytest.raises(PySparkException, match="DELTA_PROTOCOL_CHANGED"):
        LOSERS[loser](frame, path)
    log = DeltaLog.for_table(str(path))
    assert log.latest_version() == len(RULES[rules]) - 1
    assert load(spark, str(path)).count() == 0


OVERWRITES: dict[str, dict[str, str]] = {
    "whole table": {},
    "partitions": {"partitionOverwriteMode": "dynamic"},
    "replaceWhere": {"replaceWhere": "n = 1"},
    "replaceWhere of rows": {"replaceWhere": "n = 1 AND s IS NOT NULL"},
}


@pytest.mark.parametrize("options", OVERWRITES.values(), ids=list(OVERWRITES))
@pytest.mark.sampled(2)
def test_of_two_overwrites_that_find_no_table_one_wins(
    spark: SparkSession, tmp_path: Path, at: Any, options: dict[str, str]
) -> None:
    """Each would have replaced the rows of the other."""
    path = tmp_path / "t"

    def overwrite(text: str) -> None:
        rows = spark.createDataFrame([(1, text)], "n INT, s STRING")
        rows.write.format("delta").mode("overwrite").partitionBy("n").options(**options).save(str(path))

    at("files written", lambda: overwrite("rival"))
    with pytest.raises(PySparkException, match="DELTA_PROTOCOL_CHANGED"):
        overwrite("loser")
    assert load(spark, str(path)).collect() == [(1, "rival")]
    overwrite("again")
    assert load(spark, str(path)).collect() == [(1, "again")]


@pytest.mark.parametrize("loser", ["save", "first batch"])
def test_rows_that_follow_the_same_rules_are_appended(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, at: Any, loser: str
) -> None:
    """A table without other rules takes the rows, whatever the order of its columns and its comments are."""
    path = tmp_path / "t"
    statement = f"CREATE TABLE delta.`{path}` (st STRUCT<x: INT>, s STRING COMMENT 'text', n INT) USING delta"

    def create() -> None:
        spark.sql(statement)

    before_commit(at, loser, path, create)
    LOSERS[loser](frame, path)
    assert DeltaLog.for_table(str(path)).latest_version() == 1
    assert load(spark, str(path)).count() == 3
