"""CHAR columns: values are stored as in delta-spark, without added blanks, and readers see the blanks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import DeltaLog
from tests.tables import ids, load, tuples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted", "no_open_handles")]

ROW = "SELECT 1 AS id, 'ab' AS c, 'x' AS p"
Door = Callable[[SparkSession, str, Path], Any]


def stored(path: str | Path) -> list[tuple[int, str, str]]:
    """The rows as the files and the log store them: id, c, and the partition value p."""
    files = DeltaLog.for_table(str(path)).snapshot().files
    partitions = pc.map_lookup(files["partition_values"], "p", "first").to_pylist()
    found = []
    for file, partition in zip(files["path"].to_pylist(), partitions, strict=True):
        rows = pq.ParquetFile(Path(path, unquote(file))).read().to_pylist()
        found += [(row["id"], row["c"], partition) for row in rows]
    return sorted(found)


@pytest.fixture
def path(database: Path) -> str:
    return str(database / "chars")


@pytest.fixture
def chars(spark: SparkSession, path: str) -> str:
    """The name of an empty table in the catalog, whose location is `path`."""
    spark.sql("CREATE TABLE chars (id INT, c CHAR(5), p CHAR(3)) USING delta PARTITIONED BY (p)")
    return "chars"


@pytest.fixture
def mixed(spark: SparkSession, chars: str, path: str) -> str:
    """The path of a table that has each row twice: as delta-spark writes it, and filled up with blanks."""
    spark.sql("INSERT INTO chars VALUES (1, 'ab', 'x'), (3, 'cd', 'y')")
    spark.sql("INSERT INTO chars VALUES (2, 'ab   ', 'x  '), (4, 'cd   ', 'y  '), (5, null, null)")
    assert stored(path) == [
        (1, "ab", "x"),
        (2, "ab   ", "x  "),
        (3, "cd", "y"),
        (4, "cd   ", "y  "),
        (5, None, None),
    ]
    return path


def _stream(spark: SparkSession, path: str, folder: Path) -> None:
    spark.sql(ROW).write.parquet(str(folder / "source"))
    source = spark.readStream.schema("id INT, c STRING, p STRING").parquet(str(folder / "source"))
    writer = source.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(path).awaitTermination()


def _merge(spark: SparkSession, clause: str) -> Any:
    return spark.sql(f"MERGE INTO chars t USING ({ROW}) s ON t.id = s.id WHEN {clause}")


STORES: dict[str, Door] = {
    "save": lambda spark, path, _: spark.sql(ROW).write.format("delta").mode("append").save(path),
    "overwrite": lambda spark, path, _: spark.sql(ROW).write.format("delta").mode("overwrite").save(path),
    "replaceWhere": lambda spark, path, _: (
        spark.sql(ROW).write.format("delta").mode("overwrite").option("replaceWhere", "p = 'x'").save(path)
    ),
    "saveAsTable": lambda spark, *_: spark.sql(ROW).write.format("delta").mode("append").saveAsTable("chars"),
    "insertInto": lambda spark, *_: spark.sql(ROW).write.insertInto("chars"),
    "writeTo": lambda spark, *_: spark.sql(ROW).writeTo("chars").append(),
    "INSERT by name": lambda spark, *_: spark.sql(f"INSERT INTO chars {ROW}"),
    "INSERT by path": lambda spark, path, _: spark.sql(f"INSERT INTO delta.`{path}` {ROW}"),
    "INSERT BY NAME": lambda spark, *_: spark.sql(f"INSERT INTO chars BY NAME {ROW}"),
    "INSERT OVERWRITE": lambda spark, *_: spark.sql(
        "INSERT OVERWRITE chars PARTITION (p = 'x') VALUES (1, 'ab')"
    ),
    "MERGE, insert": lambda spark, *_: _merge(spark, "NOT MATCHED THEN INSERT *"),
    "stream": _stream,
}


@pytest.mark.parametrize("door", STORES)
@pytest.mark.sampled(3)
def test_values_are_stored_as_they_are(
    spark: SparkSession, chars: str, path: str, tmp_path: Path, door: str
) -> None:
    STORES[door](spark, path, tmp_path)
    assert stored(path) == [(1, "ab", "x")]
    assert [tuple(row) for row in spark.table(chars).collect()] == [(1, "ab   ", "x  ")]


def test_changed_values_are_stored_as_they_are_and_others_as_they_are_read(
    spark: SparkSession, chars: str, path: str
) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'ab', 'x'), (2, 'ab', 'x') AS t(id, c, p)").coalesce(1)
    rows.write.insertInto("chars")
    spark.sql("UPDATE chars SET c = 'cd' WHERE id = 1")
    assert stored(path) == [(1, "cd", "x  "), (2, "ab   ", "x  ")]
    _merge(spark, "MATCHED THEN UPDATE SET c = s.c, p = s.p")
    assert stored(path) == [(1, "ab", "x"), (2, "ab   ", "x  ")]


READS: dict[str, Callable[[SparkSession, str], Any]] = {
    "by name": lambda spark, _: spark.table("chars"),
    "by path": load,
    "SQL by path": lambda spark, path: spark.sql(f"SELECT * FROM delta.`{path}`"),
    "an older version": lambda spark, path: spark.read.format("delta").option("versionAsOf", 2).load(path),
    "DeltaTable": lambda spark, path: DeltaTable.forPath(spark, path).toDF(),
}


@pytest.mark.parametrize("door", READS)
@pytest.mark.sampled(4)
def test_filters_find_values_with_and_without_blanks(spark: SparkSession, mixed: str, door: str) -> None:
    frame = READS[door](spark, mixed)
    for condition, expected in {
        "c = 'ab'": [1, 2],
        "c = 'ab '": [1, 2],
        "'ab' = c": [1, 2],
        "p = 'x'": [1, 2],
        "c IN ('ab', 'zz') AND p <> 'y'": [1, 2],
        "c > 'ab'": [3, 4],
        "c <=> 'cd' AND p <=> 'y'": [3, 4],
        "c IS NULL AND p IS NULL": [5],
    }.items():
        assert ids(frame.where(condition)) == expected, condition
    found = frame.selectExpr("min(c)", "max(c)", "min(p)", "count(DISTINCT c)", "count(DISTINCT p)").collect()
    assert tuple(found[0]) == ("ab   ", "cd   ", "x  ", 2, 2)


CHANGES: dict[str, Callable[[SparkSession, str, str], Any]] = {
    "DELETE": lambda spark, _, where: spark.sql(f"DELETE FROM chars WHERE {where}"),
    "DeltaTable.delete": lambda spark, path, where: DeltaTable.forPath(spark, path).delete(where),
    "UPDATE": lambda spark, _, where: spark.sql(f"UPDATE chars SET id = id + 10 WHERE {where}"),
    "MERGE": lambda spark, _, where: spark.sql(
        f"MERGE INTO chars t USING (SELECT 1) s ON t.{where} WHEN MATCHED THEN UPDATE SET id = t.id + 10"
    ),
    "MERGE of CHAR": lambda spark, path, where: spark.sql(
        f"MERGE INTO chars t USING (SELECT DISTINCT c, p FROM delta.`{path}` WHERE {where}) s "
        "ON t.c = s.c AND t.p = s.p WHEN MATCHED THEN UPDATE SET id = t.id + 10"
    ),
}


@pytest.mark.parametrize("where", ["c = 'ab'", "p = 'x'"])
@pytest.mark.parametrize("door", CHANGES)
@pytest.mark.sampled(6)
def test_changes_find_values_with_and_without_blanks(
    spark: SparkSession, mixed: str, door: str, where: str
) -> None:
    CHANGES[door](spark, mixed, where)
    assert ids(spark.table("chars")) == ([3, 4, 5] if "DELETE" in door.upper() else [3, 4, 5, 11, 12])


OVERWRITES: dict[str, Door] = {
    "replaceWhere": lambda spark, path, _: (
        spark.sql("SELECT 9 AS id, 'ef' AS c, 'x' AS p")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "p = 'x'")
        .save(path)
    ),
    "replaceWhere of read values": lambda spark, path, _: (
        spark.table("chars")
        .where("id = 1")
        .selectExpr("9 AS id", "c", "p")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", "p = 'x' AND c = 'ab'")
        .save(path)
    ),
    "REPLACE WHERE": lambda spark, *_: spark.sql(
        "INSERT INTO chars REPLACE WHERE c = 'ab' SELECT 9, 'ab', 'x'"
    ),
    "INSERT OVERWRITE PARTITION": lambda spark, *_: spark.sql(
        "INSERT OVERWRITE chars PARTITION (p = 'x') VALUES (9, 'ab')"
    ),
    "dynamic": lambda spark, path, _: (
        spark.sql("SELECT 9 AS id, 'ef' AS c, 'x' AS p")
        .write.format("delta")
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .save(path)
    ),
}


@pytest.mark.parametrize("door", OVERWRITES)
@pytest.mark.sampled(2)
def test_overwrites_replace_values_with_and_without_blanks(
    spark: SparkSession, mixed: str, tmp_path: Path, door: str
) -> None:
    OVERWRITES[door](spark, mixed, tmp_path)
    assert ids(spark.table("chars")) == [3, 4, 5, 9]


def test_a_condition_of_optimize_chooses_partitions_with_and_without_blanks(
    spark: SparkSession, mixed: str
) -> None:
    spark.sql("INSERT INTO chars VALUES (6, 'ab', 'x')")
    spark.sql("INSERT INTO chars VALUES (7, 'ab', 'x  ')")
    before = stored(mixed)
    DeltaTable.forPath(spark, mixed).optimize().where("p = 'x'").executeCompaction()
    files = DeltaLog.for_table(mixed).snapshot().files
    partitions = pc.map_lookup(files["partition_values"], "p", "first").to_pylist()
    assert sorted(partitions, key=str) == [None, "x", "x  ", "y", "y  "]
    assert stored(mixed) == before


def test_a_partition_is_loaded_by_its_path(spark: SparkSession, mixed: str) -> None:
    assert ids(load(spark, f"{mixed}/p=x")) == [1, 2]


@pytest.mark.parametrize("options", [{}, {"sourceFilter": "c = 'ab'"}, {"sourceFilter": "p = 'x'"}], ids=str)
def test_a_stream_finds_values_with_and_without_blanks(
    spark: SparkSession, mixed: str, tmp_path: Path, options: dict[str, str]
) -> None:
    found: list[tuple[Any, ...]] = []
    frame = spark.readStream.format("delta").options(**options).load(mixed).where("c = 'ab' AND p = 'x'")
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    writer.foreachBatch(
        lambda batch, _: found.extend(tuple(row) for row in batch.collect())
    ).start().awaitTermination()
    assert sorted(found) == [(1, "ab   ", "x  "), (2, "ab   ", "x  ")]


def test_a_constraint_compares_as_readers_do(spark: SparkSession, mixed: str) -> None:
    spark.sql("ALTER TABLE chars ADD CONSTRAINT known CHECK (c IN ('ab', 'cd') OR c IS NULL)")
    spark.sql("INSERT INTO chars VALUES (6, 'ab', 'x'), (7, 'cd   ', 'y')")
    spark.sql("UPDATE chars SET id = id + 10")
    assert ids(spark.table("chars")) == [11, 12, 13, 14, 15, 16, 17]
    with pytest.raises(DeltaInvariantViolationException, match="DELTA_VIOLATE_CONSTRAINT"):
        spark.sql("INSERT INTO chars VALUES (8, 'zz', 'x')")
    assert ids(spark.table("chars")) == [11, 12, 13, 14, 15, 16, 17]


@pytest.mark.parametrize("statement", [False, True], ids=["option", "statement"])
@pytest.mark.parametrize("where", ["upper(p) = 'X  '", "c LIKE 'ab   '", "length(c) = 5 AND p = 'x'"])
@pytest.mark.sampled(4)
def test_functions_in_replace_where_see_the_blanks_that_readers_see(
    spark: SparkSession, mixed: str, where: str, statement: bool
) -> None:
    def replace(where: str) -> None:
        if statement:
            spark.sql(f"INSERT INTO chars REPLACE WHERE {where} SELECT 9, 'ab', 'x'")
        else:
            rows = spark.sql("SELECT 9 AS id, 'ab' AS c, 'x' AS p")
            rows.write.format("delta").mode("overwrite").option("replaceWhere", where).save(mixed)

    for _ in range(2):
        replace(where)
        assert ids(spark.table("chars")) == [3, 4, 5, 9]
    # No row of the table would match this one afterwards, so that each repetition would add rows.
    with pytest.raises(DeltaAnalysisException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        replace("upper(c) = 'AB'")
    assert ids(spark.table("chars")) == [3, 4, 5, 9]


def test_generated_columns_and_constraints_see_the_blanks_that_readers_see(
    spark: SparkSession, database: Path
) -> None:
    spark.sql(
        "CREATE TABLE made (id INT, c CHAR(4), n INT GENERATED ALWAYS AS (length(c)), "
        "t STRING GENERATED ALWAYS AS (concat(c, '|'))) USING delta"
    )
    spark.sql("ALTER TABLE made ADD CONSTRAINT four CHECK (length(c) = 4)")
    spark.sql("INSERT INTO made (id, c) VALUES (1, 'ab'), (2, 'ab  ')")
    spark.sql("INSERT INTO made VALUES (3, 'ab', 4, 'ab  |')")
    spark.sql(
        "MERGE INTO made t USING (SELECT 4 AS id, 'ab' AS c) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, c) VALUES (s.id, s.c)"
    )
    spark.sql("UPDATE made SET c = 'ab' WHERE id = 1")
    expected = [(number, "ab  ", 4, "ab  |") for number in range(1, 5)]
    assert tuples(spark.table("made")) == expected
    spark.sql("INSERT OVERWRITE made SELECT * FROM made")
    assert tuples(spark.table("made")) == expected


@pytest.mark.long
def test_a_table_compares_char_as_readers_do_where_the_session_takes_it_for_a_string(
    spark: SparkSession, database: Path, setting: Callable[[str, str], None]
) -> None:
    spark.sql(
        "CREATE TABLE made (id INT, c CHAR(4), is_ab BOOLEAN GENERATED ALWAYS AS (c = 'ab')) USING delta"
    )
    spark.sql("ALTER TABLE made ADD CONSTRAINT known CHECK (c IN ('ab', 'cd'))")
    spark.sql("ALTER TABLE made ADD CONSTRAINT no_ef CHECK (c <> 'ef')")
    setting("spark.sql.legacy.charVarcharAsString", "true")
    spark.sql("INSERT INTO made (id, c) VALUES (1, 'ab'), (2, 'cd'), (3, 'ab  ')")
    spark.sql(
        "MERGE INTO made t USING (SELECT 4 AS id, 'ab' AS c) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, c) VALUES (s.id, s.c)"
    )
    spark.sql("UPDATE made SET c = 'ab' WHERE id = 2")
    for statement in ("INSERT INTO made (id, c) VALUES (5, 'ef')", "UPDATE made SET c = 'ef' WHERE id = 1"):
        with pytest.raises(DeltaInvariantViolationException, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
            spark.sql(statement)
    spark.sql("DELETE FROM made WHERE c = 'ab'")  # those without blanks
    assert 3 in ids(spark.table("made"))
    with pytest.raises(DeltaAnalysisException, match="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"):
        spark.sql("ALTER TABLE made ADD CONSTRAINT no_ab CHECK (c <> 'ab')")
    setting("spark.sql.legacy.charVarcharAsString", "false")
    spark.sql("ALTER TABLE made ADD CONSTRAINT same CHECK (is_ab <=> (c = 'ab'))")


CONDITION = "c = 'ab' AND p = 'x'"
OF_PARTITIONS = "p = 'x'"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM chars WHERE " + CONDITION,
        "UPDATE chars SET id = 9 WHERE " + CONDITION,
        f"MERGE INTO chars t USING ({ROW}) s ON t.c = s.c WHEN MATCHED THEN DELETE",
        f"MERGE INTO chars t USING ({ROW}) s ON t.c = s.c WHEN NOT MATCHED THEN INSERT *",
        f"INSERT INTO chars REPLACE WHERE {CONDITION} {ROW}",
        f"INSERT INTO chars REPLACE WHERE {OF_PARTITIONS} {ROW}",
        "INSERT OVERWRITE chars PARTITION (p = 'x') VALUES (1, 'ab')",
        "ALTER TABLE chars ADD CONSTRAINT no_ab CHECK (c <> 'ab')",
    ],
)
def test_rows_that_spark_would_not_find(
    spark: SparkSession, chars: str, path: str, setting: Callable[[str, str], None], change: str
) -> None:
    """In such a session Spark finds no row of a Parquet file by `c = 'ab'`, either. It appends as ever."""
    spark.sql(f"INSERT INTO chars {ROW}")
    setting("spark.sql.preserveCharVarcharTypeInfo", "true")
    with pytest.raises(DeltaUnsupportedOperationException, match=r"CHAR column `c`.*SET spark.*= false"):
        spark.sql(change)
    spark.sql("INSERT INTO chars VALUES (2, 'cd', 'y')")
    assert stored(path) == [(1, "ab", "x"), (2, "cd", "y")]


@pytest.mark.parametrize("condition", [CONDITION, OF_PARTITIONS])
def test_frames_that_replace_rows_that_spark_would_not_find(
    spark: SparkSession, chars: str, path: str, setting: Callable[[str, str], None], condition: str
) -> None:
    spark.sql(f"INSERT INTO chars {ROW}")
    setting("spark.sql.preserveCharVarcharTypeInfo", "TRUE")
    rows = spark.sql(ROW)
    with pytest.raises(DeltaUnsupportedOperationException, match="CHAR column"):
        rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(path)
    with pytest.raises(DeltaUnsupportedOperationException, match="CHAR column"):
        rows.writeTo("chars").overwrite(F.expr(condition))
    assert stored(path) == [(1, "ab", "x")]


def test_fields_beside_a_char_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """The text that declares CHAR keeps step with the column's type: Spark reads the column by it."""
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(
        f"""CREATE TABLE {name} (id INT, s STRUCT<c: CHAR(2), n: INT>) USING delta TBLPROPERTIES (
            'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"""
    )
    new = spark.sql("SELECT 1 AS id, named_struct('c', 'a', 'n', 2L, 'more', 3) AS s")
    new.write.format("delta").mode("append").option("mergeSchema", "true").save(str(tmp_path / "t"))
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s.c TO d")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN s.n")
    spark.sql(
        f"""MERGE WITH SCHEMA EVOLUTION INTO {name} t
            USING (SELECT 2 AS id, named_struct('d', 'b', 'more', 4, 'last', 5) AS s) u ON t.id = u.id
            WHEN NOT MATCHED THEN INSERT *"""
    )
    rows = spark.table(name).orderBy("id").select("s.*").collect()
    assert [row.asDict() for row in rows] == [
        {"d": "a ", "more": 3, "last": None},
        {"d": "b ", "more": 4, "last": 5},
    ]
    declared = DeltaLog.for_table(str(tmp_path / "t")).snapshot().schema["s"].metadata
    assert declared["__CHAR_VARCHAR_TYPE_STRING"] == "struct<d:char(2),more:int,last:int>"
    with pytest.raises(DeltaInvariantViolationException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        spark.sql(f"INSERT INTO {name} VALUES (3, named_struct('d', 'abc', 'more', 1, 'last', 1))")
