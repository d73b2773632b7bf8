"""Partition values of every type and string come back, in Spark and in another implementation."""

from __future__ import annotations

import datetime as dt
import shutil
from datetime import UTC
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from deltaflow.errors import DeltaInvariantViolationException, DeltaUnsupportedOperationException
from tests.tables import actions, checkpoint_versions, commit_file, ids, load, rows, rows_by_deltalake

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

ODD_STRINGS = [
    "plain",
    "with space",
    " leading and trailing ",
    "100%",
    "%41 is no A",
    "%2F",
    "a/b\\c",
    "a:b",
    "k=v",
    "'single' and \"double\"",
    "a+b&c?d#e",
    "[x]{y}*",
    "übung ß",
    "日本語",
    "😀 beyond the BMP",
    "tab\there",
    "line\nbreak",
    "__HIVE_DEFAULT_PARTITIONS__",
    "null",
    ".",
    "..",
    "~",
    "\x7f\x01",
    "é (combining)",
]


@pytest.mark.long
def test_strings_of_every_kind_come_back(spark, table):
    data = spark.createDataFrame([(i, text) for i, text in enumerate(ODD_STRINGS)], "id int, p string")
    data.write.format("delta").partitionBy("p").save(table)
    expected = sorted(enumerate(ODD_STRINGS))
    assert sorted((row["id"], row["p"]) for row in rows(load(spark, table))) == expected
    assert sorted((row["id"], row["p"]) for row in rows_by_deltalake(table)) == expected
    assert sorted(add["partitionValues"]["p"] for add in actions(table, "add")) == sorted(ODD_STRINGS)
    read = load(spark, table)
    for text in ODD_STRINGS:
        assert [row["p"] for row in read.where(F.col("p") == text).collect()] == [text]


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
CHANGES = {
    "delete": "DELETE FROM {t} WHERE id = 1",
    "update": "UPDATE {t} SET id = 10 WHERE id = 1",
    "merge": "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 10",
    "replace": "INSERT INTO {t} REPLACE WHERE id = 1 SELECT 1 AS id, 'x' AS p",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("properties", ["", "delta.enableChangeDataFeed", "delta.enableDeletionVectors"])
@pytest.mark.sampled(3)
def test_rows_beside_a_change_keep_a_value_that_spark_writes_as_null(spark, tmp_path, change, properties):
    """Other writers keep the name of Spark's folder for null as a text. Rows of it became null."""
    table = str(tmp_path / "foreign")
    data = pa.table({"id": [1, 2, 3], "p": [NULL_FOLDER] * 3})
    deltalake.write_deltalake(table, data, partition_by=["p"])
    if properties:
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties} = true)")
    text = CHANGES[change].format(t=f"delta.`{table}`")
    left = [{"id": i, "p": NULL_FOLDER} for i in (1, 2, 3)]
    if (change, properties) == ("delete", "delta.enableDeletionVectors"):  # no row is written again
        spark.sql(text)
        left = left[1:]
    else:
        with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_PARTITION_VALUE_OF_NULL_FOLDER"):
            spark.sql(text).collect()
    assert sorted(rows(load(spark, table)), key=lambda row: row["id"]) == left
    # Whole partitions go without being read.
    spark.sql(f"DELETE FROM delta.`{table}` WHERE p = '{NULL_FOLDER}'")
    assert load(spark, table).count() == 0


@pytest.mark.parametrize("data_type", ["STRING", "BINARY"])
def test_the_name_of_the_folder_for_null_is_null(spark, table, data_type):
    """In a NOT NULL column it made a table that nobody could read."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id INT, p {data_type} NOT NULL) USING delta PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (0, CAST('x' AS {data_type}))")
    for value in ("", NULL_FOLDER):
        with pytest.raises(DeltaInvariantViolationException, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
            spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, CAST('{value}' AS {data_type}))")
    with pytest.raises(DeltaInvariantViolationException, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        spark.sql(f"UPDATE delta.`{table}` SET p = CAST('{NULL_FOLDER}' AS {data_type})")
    assert ids(load(spark, table)) == [0]


def test_an_empty_string_is_null_as_the_protocol_has_it(spark, table):
    data = spark.createDataFrame([(1, ""), (2, None), (3, "x")], "id int, p string")
    data.write.format("delta").partitionBy("p").save(table)
    read = load(spark, table)
    assert sorted((row["id"], row["p"]) for row in rows(read)) == [(1, None), (2, None), (3, "x")]
    assert read.where("p is null").count() == 2
    assert read.where("p is not null").count() == 1


TYPED = {
    "b": ("byte", [-128, 127, None]),
    "s": ("short", [-32768, 32767, None]),
    "i": ("int", [-(2**31), 2**31 - 1, None]),
    "l": ("bigint", [-(2**63), 2**63 - 1, None]),
    "f": ("float", [0.5, -1.5e30, None]),
    "d": ("double", [1e-300, 1.7976931348623157e308, None]),
    "t": ("boolean", [True, False, None]),
    "dec": ("decimal(38,18)", [Decimal("0E-18"), Decimal("-12345678901234567890.123456789012345678"), None]),
    "small": ("decimal(5,2)", [Decimal("0.00"), Decimal("-999.99"), None]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "ts": (
        "timestamp",
        [
            dt.datetime(1582, 10, 1, tzinfo=UTC),
            dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
            None,
        ],
    ),
}


@pytest.mark.parametrize("ansi", [pytest.param("true", marks=pytest.mark.long), "false"])
def test_values_of_every_type_come_back(spark, tmp_path, sound, ansi, settings):
    with settings({"spark.sql.ansi.enabled": ansi}):
        for name, (type_name, values) in TYPED.items():
            path = str(tmp_path / name)
            data = spark.createDataFrame(list(enumerate(values)), f"id int, p {type_name}")
            data.write.format("delta").partitionBy("p").save(path)
            assert rows(load(spark, path)) == rows(data), name
            assert rows_by_deltalake(path) == rows(data), name
            for value in values[:2]:
                literal = F.lit(str(value)).cast(type_name)
                found = load(spark, path).where(F.col("p") == literal)
                assert found.count() == 1, (name, value)
            sound(path)


def test_doubles_that_are_no_numbers(spark, table):
    values = [float("nan"), float("inf"), float("-inf"), -0.0, 1.0]
    data = spark.createDataFrame(list(enumerate(values)), "id int, p double")
    data.write.format("delta").partitionBy("p").save(table)
    read = load(spark, table)
    assert rows(read) == rows(data)
    assert [row.id for row in read.where("p = double('NaN')").collect()] == [0]
    assert [row.id for row in read.where("p > 100 and not isnan(p)").collect()] == [1]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata"])
def test_timestamps_do_not_depend_on_the_zone_of_the_session(spark, table, zone, settings):
    moments = [
        dt.datetime(2024, 1, 1, 0, 0, tzinfo=UTC),
        dt.datetime(2024, 3, 10, 10, 30, 0, 5, tzinfo=UTC),  # 02:30 in Los Angeles, which that day has not
        dt.datetime(2024, 11, 3, 8, 30, tzinfo=UTC),  # one of two 01:30 in Los Angeles
        dt.datetime(2024, 11, 3, 9, 30, tzinfo=UTC),
    ]
    data = spark.createDataFrame([(m, m) for m in moments], "p timestamp, v timestamp")
    with settings({"spark.sql.session.timeZone": zone}):
        data.write.format("delta").partitionBy("p").save(table)
        read = load(spark, table)
        assert rows(read) == rows(data)
        assert read.where("p = v").count() == 4
        assert read.where(F.col("p") == F.lit(moments[2])).count() == 1
        other = {"America/Los_Angeles": "Asia/Kolkata"}.get(zone, "America/Los_Angeles")
        spark.conf.set("spark.sql.session.timeZone", other)
        assert rows(load(spark, table)) == rows(data)
        assert load(spark, table).where("p = v").count() == 4
    assert sorted(add["partitionValues"]["p"] for add in actions(table, "add")) == [
        "2024-01-01T00:00:00.000000Z",
        "2024-03-10T10:30:00.000005Z",
        "2024-11-03T08:30:00.000000Z",
        "2024-11-03T09:30:00.000000Z",
    ]


def test_partition_values_of_other_writers(spark, tmp_path):
    import deltalake
    import pyarrow as pa

    path = str(tmp_path / "made by deltalake")
    texts = [*ODD_STRINGS, None]
    data = pa.table(
        {
            "id": pa.array(range(len(texts)), pa.int32()),
            "p": pa.array(texts),
            "day": pa.array([dt.date(2024, 1, 1 + i) if i % 3 else None for i in range(len(texts))]),
            "ts": pa.array(
                [dt.datetime(2024, 1, 1, i % 24, 0, 0, i, tzinfo=UTC) for i in range(len(texts))],
                pa.timestamp("us", "UTC"),
            ),
            "yes": pa.array([i % 2 == 0 for i in range(len(texts))]),
            "dec": pa.array([Decimal(i) for i in range(len(texts))], pa.decimal128(10, 2)),
        }
    )
    deltalake.write_deltalake(path, data, partition_by=["p", "day", "ts", "yes", "dec"])
    assert rows(load(spark, path)) == rows_by_deltalake(path)
    for number, text in enumerate(ODD_STRINGS):
        found = load(spark, path).where(F.col("p") == text).collect()
        assert [row.id for row in found] == [number]


def test_partition_values_as_the_protocol_allows_them(spark, tmp_path):
    """Timestamps with and without zone or fraction, empty strings as nulls: read in the session's zone."""
    original = tmp_path / "original"
    spark.range(1).selectExpr("id", "timestamp'2024-01-01 00:00:00Z' ts", "'x' p").write.format(
        "delta"
    ).partitionBy("ts", "p").save(str(original))
    for number, (written, text, expected) in enumerate(
        [
            ("2024-05-06 07:08:09", "", (dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), None)),
            ("2024-05-06 07:08:09.25", "y", (dt.datetime(2024, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC), "y")),
            ("2024-05-06T07:08:09.000001Z", "y", (dt.datetime(2024, 5, 6, 7, 8, 9, 1, tzinfo=UTC), "y")),
            ("", "y", (None, "y")),
        ]
    ):
        path = shutil.copytree(original, tmp_path / str(number))
        commit = commit_file(path, 0)
        lines = commit.read_text().replace('"p":"x"', f'"p":"{text}"')
        lines = lines.replace('"2024-01-01T00:00:00.000000Z"', f'"{written}"')
        commit.write_text(lines)
        found = load(spark, str(path)).toArrow().to_pylist()
        assert [(row["ts"], row["p"]) for row in found] == [expected]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_partition_value_of_no_sense_is_refused_by_name(spark, tmp_path, ansi, setting):
    from deltaflow.errors import CorruptLogError

    path = str(tmp_path / "t")
    data = spark.range(1).selectExpr("id", "date'2024-01-01' day")
    data.write.format("delta").partitionBy("day").save(path)
    commit = commit_file(path, 0)
    broken = commit.read_text().replace('"day":"2024-01-01"', '"day":"someday"')
    commit.unlink()
    commit.write_text(broken)
    setting("spark.sql.ansi.enabled", ansi)
    with pytest.raises(CorruptLogError, match="'someday' of column day is no DATE") as caught:
        load(spark, path).where("day is not null").collect()
    assert "py4j" not in str(caught.value)


@pytest.mark.parametrize("type_name", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.long
def test_partitions_beyond_the_years_of_python(spark, tmp_path, type_name):
    path = str(tmp_path / "far")
    days = ["2024-01-01", "10000-01-01", "-0044-03-15"]
    values = ", ".join(f"({i}, CAST('{day}' AS {type_name}))" for i, day in enumerate(days))
    data = spark.sql(f"SELECT * FROM VALUES {values} AS t(id, p)")
    data.write.format("delta").partitionBy("p").option("delta.checkpointInterval", "2").save(path)

    new = spark.sql(f"SELECT 9 AS id, CAST('{days[1]}' AS {type_name}) AS p")
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    assert ids(load(spark, path).select("id")) == [0, 2, 9]
    newest = load(spark, path).selectExpr("max(p) p")
    assert newest.where(f"p = CAST('{days[1]}' AS {type_name})").count() == 1
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = CAST('{days[2]}' AS {type_name})")
    assert ids(load(spark, path).select("id")) == [0, 9]
    assert checkpoint_versions(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p > CAST('9999-12-31' AS {type_name})")
    assert ids(load(spark, path).select("id")) == [0]
    assert len(spark.sql(f"SHOW PARTITIONS delta.`{path}`").collect()) == 1


def test_files_whose_folders_are_encoded_twice_are_removed_whole(spark, tmp_path):
    """A file whose name, decoded, has a percent sign in it, as deltalake's do."""
    import deltalake
    import pyarrow as pa

    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "p": ["a b", "c:d"]}), partition_by=["p"])
    assert list(Path(path).glob("*%*"))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE p = 'a b' AND id > 0")
    assert [row.id for row in load(spark, path).collect()] == [2]
