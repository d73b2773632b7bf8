"""File statistics by the footers that Spark writes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.log.files.footer_statistics import HIGHEST, assert_statistics_hold, statistics, statistics_text

LONG_STRINGS = "select repeat('\U0001f600', 5000) a, repeat('b', 5000) b, cast(null as string) c union all "
SPARK_QUERIES = {
    "types": f"""
        select cast(-128 as tinyint) y, cast(-32768 as smallint) h, -2147483648 i,
            -9223372036854775807L - 1 l, cast(0.1 as float) f, -1.5D d, 'é' s,
            date'0001-01-01' day, timestamp'0001-01-01 00:00:00' t, 1.25BD n,
            cast('-99999999999999999999.999999999999999999' as decimal(38,18)) w, true b, X'00' x,
            array(1) a, map('k', 1) m, named_struct('p.q', 1, 'r', named_struct('z', 'in')) st
        union all select 127Y, 32767S, 2147483647, 9223372036854775807L, cast(2.5 as float), 2.5D,
            repeat('\U0001f600', 40), date'9999-12-31', timestamp'2020-01-01 00:00:00.123456', 7.50BD,
            cast('0.000000000000000001' as decimal(38,18)), false, X'FF', array(2), map('l', 2),
            named_struct('p.q', 2, 'r', named_struct('z', '{HIGHEST}'))
        union all select null, null, null, null, null, null, null, null, null, null, null, null, null,
            null, null, null""",
    "floats": """
        select 1.0D some_nan, double('NaN') all_nan, -0.0D zero, float('-Infinity') infinite, 3.0D plain
        union all select double('NaN'), double('NaN'), 0.0D, cast(1 as float), 4.0D""",
    "long_strings": LONG_STRINGS + "select 'z', null, null",
    "truncated": LONG_STRINGS + "select 'z', null, null",
    "empty": "select 1 a, 'x' s where false",
}


@pytest.fixture(scope="module")
def spark_files(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, StructType]]:
    """name of the query -> the file that Spark wrote for it, and its schema."""
    directory = tmp_path_factory.mktemp("spark")
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    files = {}
    for name, query in SPARK_QUERIES.items():
        rows = session.sql(query).coalesce(1)
        options = {"parquet.statistics.truncate.length": "256"} if name == "truncated" else {}
        rows.write.options(**options).parquet(str(directory / name))
        [file] = (directory / name).glob("*.parquet")
        files[name] = file, rows.schema
    return files


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK_QUERIES)
@pytest.mark.sampled(2)
def test_statistics_hold_for_files_of_spark(
    spark_files: dict[str, tuple[Path, StructType]], name: str
) -> None:
    assert_statistics_hold(*spark_files[name])


@pytest.mark.spark
def test_every_type_as_spark_writes_it(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    found = statistics(*spark_files["types"])
    assert found["numRecords"] == 3
    assert float(found["minValues"].pop("f")) == pa.scalar(0.1, pa.float32()).as_py()
    assert found["minValues"] == {
        "y": -128,
        "h": -32768,
        "i": -(2**31),
        "l": -(2**63),
        "d": Decimal("-1.5"),
        "s": "é",
        "day": "0001-01-01",
        "t": "0001-01-01T00:00:00.000Z",
        "n": Decimal("1.25"),
        "w": Decimal("-99999999999999999999.999999999999999999"),
        "st": {"p.q": 1, "r": {"z": "in"}},
    }
    assert found["maxValues"] == {
        "y": 127,
        "h": 32767,
        "i": 2**31 - 1,
        "l": 2**63 - 1,
        "f": Decimal("2.5"),
        "d": Decimal("2.5"),
        "s": "\U0001f600" * 32 + HIGHEST,
        "day": "9999-12-31",
        "t": "2020-01-01T00:00:00.124Z",
        "n": Decimal("7.50"),
        "w": Decimal("0.000000000000000001"),
        "st": {"p.q": 2, "r": {"z": HIGHEST}},
    }
    columns = dict.fromkeys((*"yhilfdstnwbxam", "day"), 1)
    assert found["nullCount"] == {**columns, "st": {"p.q": 1, "r": {"z": 1}}}


@pytest.mark.spark
def test_spark_shows_nan_as_the_maximum(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    text = statistics_text(*spark_files["floats"])
    assert '"minValues":{"some_nan":1.0,"zero":-0.0,"plain":3.0}' in text
    assert '"maxValues":{"zero":0.0,"infinite":1.0,"plain":4.0}' in text


@pytest.mark.spark
def test_footers_without_bounds_of_long_strings(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    found = statistics(*spark_files["long_strings"])
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "c": 2}}


@pytest.mark.spark
def test_footers_that_cut_long_strings(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    assert statistics(*spark_files["truncated"]) == {
        "numRecords": 2,
        "minValues": {"a": "z", "b": "b" * 32},
        "maxValues": {"a": "\U0001f600" * 32 + HIGHEST, "b": "b" * 32 + "\x7f"},
        "nullCount": {"a": 0, "b": 1, "c": 2},
    }


@pytest.mark.spark
def test_a_file_without_rows_of_spark(spark_files: dict[str, tuple[Path, StructType]]) -> None:
    expected = {"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "s": 0}}
    assert statistics(*spark_files["empty"]) == expected
