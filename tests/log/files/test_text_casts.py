"""Texts as values: dates and timestamps as Spark's CAST reads them, here and in Spark itself."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.files.text_casts import cast, cast_or_null, dates, instants, local_times

LOS_ANGELES, KOLKATA = "America/Los_Angeles", "Asia/Kolkata"
HOUR = 3_600_000_000
NEW_YEAR = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z"""


def one(values: pa.Array) -> int | None:
    [value] = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64()).to_pylist()
    return value


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2024-01-01 00:00:00", "UTC", NEW_YEAR),
        ("2024-01-01 00:00:00", LOS_ANGELES, NEW_YEAR + 8 * HOUR),
        ("2024-01-01 00:00:00", KOLKATA, NEW_YEAR - 5 * HOUR - HOUR // 2),
        ("2024-01-01 00:00:00.25", "+05:30", NEW_YEAR - 5 * HOUR - HOUR // 2 + 250_000),
        ("2024-01-01T00:00:00.000001Z", LOS_ANGELES, NEW_YEAR + 1),
        ("2024-01-01 00:00:00+0000", LOS_ANGELES, NEW_YEAR),
        ("2024-01-01 00:00:00 -08:00", KOLKATA, NEW_YEAR + 8 * HOUR),
        ("2024-01-01 00:00:00 America/Los_Angeles", KOLKATA, NEW_YEAR + 8 * HOUR),
        ("2024-01-01 00:00:00.1234567", "UTC", NEW_YEAR + 123_456),
        ("2024-01-01", LOS_ANGELES, NEW_YEAR + 8 * HOUR),
        ("2024", "UTC", NEW_YEAR),
        ("2024-03-10 02:30:00", LOS_ANGELES, 1_710_066_600_000_000),  # skipped: 03:30 of summer time
        ("2024-11-03 01:30:00", LOS_ANGELES, 1_730_622_600_000_000),  # there twice: the first
        ("0001-01-01 00:00:00", LOS_ANGELES, -62_135_568_422_000_000),  # local mean time, -07:52:58
        ("-0044-03-15 00:00:00", "UTC", -63_549_360_000_000_000),
        ("10000-01-01 00:00:00", LOS_ANGELES, 253_402_329_600_000_000),
        ("+10000-07-01 00:00:00", LOS_ANGELES, 253_418_050_800_000_000),
        ("294247-01-10 04:00:54.775807Z", "UTC", 2**63 - 1),
        ("294247-01-10 04:00:54.775808Z", "UTC", None),
        ("2024-02-30 00:00:00", "UTC", None),
        ("2024-01-01 24:00:00", "UTC", None),
        ("2024-01-01 00:00:00 Nowhere/Land", "UTC", None),
        ("someday", "UTC", None),
    ],
)
def test_instants(text: str, zone: str, expected: int | None) -> None:
    assert one(instants(pa.array([text]), zone)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01", 19_723),
        ("2024-1-1", 19_723),
        ("10000-01-01", 2_932_897),
        ("+10000-01-01", 2_932_897),
        ("-0001-12-31", -719_529),
        ("2024-01-01 of no matter", 19_723),
        ("2023-02-29", None),
        ("9999999-01-01", None),
        ("x", None),
    ],
)
def test_dates(text: str, expected: int | None) -> None:
    assert one(dates(pa.array([text]))) == expected


def test_local_times_are_of_no_zone() -> None:
    texts = ["2024-01-01 00:00:00", "2024-01-01T00:00:00Z", "10000-01-01 00:00:00", None, "x"]
    found = local_times(pa.array(texts)).cast(pa.int64()).to_pylist()
    assert found == [NEW_YEAR, NEW_YEAR, 253_402_300_800_000_000, None, None]


def test_a_zone_that_is_not_known_matters_to_texts_without_one_alone() -> None:
    assert one(instants(pa.array(["2024-01-01 00:00:00.1234567Z"]), "Nowhere/Land")) == NEW_YEAR + 123_456
    with pytest.raises(DeltaIllegalArgumentException, match=r"'Nowhere/Land'.*spark\.sql\.session\.timeZone"):
        instants(pa.array(["2024-01-01 00:00:00"]), "Nowhere/Land")


def test_other_types_as_arrow_casts_them() -> None:
    assert cast_or_null(pa.array(["1", "x", None, "300"]), pa.int8()).to_pylist() == [1, None, None, None]


def random_texts(rng: random.Random, count: int) -> list[str]:
    """Texts that are timestamps, and some that are hardly any."""
    years = ["2024", "1900", "1582", "0001", "0000", "-0044", "10000", "+12345", "294247", "1970", "2100"]
    zones = [
        "",
        "",
        "Z",
        "+0000",
        "+00:00",
        " +5:30",
        "-08:00",
        "UTC",
        "GMT+1",
        " Europe/Berlin",
        "+19:00",
        "x",
    ]
    texts = []
    for _ in range(count):
        text = rng.choice(years)
        if rng.random() < 0.95:
            text += "-" + rng.choice(["1", "02", "03", "11", "12", "13"])
            text += "-" + rng.choice(["1", "10", "29", "30", "3"])
        if rng.random() < 0.8:
            time = rng.choice(
                ["0:0:0", "02:30:00", "01:30:59", "23:59:59", "24:00:00", "12:30", "7", "3:4:5"]
            )
            text += rng.choice([" ", "T"]) + time
            if time.count(":") == 2:
                text += rng.choice(["", "", ".5", ".123456", ".1234567", "."]) + rng.choice(zones)
        texts.append(rng.choice(["", "", "", " "]) + text + rng.choice(["", "", "", " "]))
    return texts


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", LOS_ANGELES, KOLKATA, "+05:30"])
def test_spark_reads_the_same(spark, zone, settings) -> None:  # type: ignore[no-untyped-def]
    texts = pa.array(random_texts(random.Random(zone), 3_000))
    with settings({"spark.sql.session.timeZone": zone}):
        of_spark = spark.createDataFrame(pa.table({"text": texts})).selectExpr(
            "unix_micros(try_cast(text as timestamp)) instant",
            "unix_date(try_cast(text as date)) day",
            "datediff(microsecond, timestamp_ntz'1970-01-01', try_cast(text as timestamp_ntz)) local_time"
            if zone == "UTC"
            else "0 local_time",
        )
        found = of_spark.toArrow()
    ours = {"instant": instants(texts, zone).cast(pa.int64()), "day": dates(texts).cast(pa.int32())}
    if zone == "UTC":
        ours["local_time"] = local_times(texts).cast(pa.int64())
    for name, values in ours.items():
        pairs = zip(texts.to_pylist(), values.to_pylist(), found[name].to_pylist(), strict=True)
        assert [pair for pair in pairs if pair[1] != pair[2]] == [], name


@pytest.mark.parametrize(
    "text",
    [
        "0e-2147483640",
        "-62e-620202",
        "1e-60",
        f"0.{'0' * 60}1",
        f"1.{'5' * 35}e-9",
        "1E-0000100",
        "1e0xC0000000",
        "1E+0XC0000000",
        "80000001e+-80000001",
    ],
)
def test_a_number_finer_than_any_decimal_is_none(text: str) -> None:
    """Arrow would read beyond its table of powers."""
    decimal = pa.decimal128(38, 10)
    with pytest.raises(pa.ArrowInvalid, match="is no decimal"):
        cast(pa.array(["1.5", text]), decimal)
    assert cast_or_null(pa.array(["1.5", text, None]), decimal).to_pylist() == [Decimal("1.5"), None, None]


def test_decimals_as_java_writes_them_are_cast() -> None:
    texts = ["0E-10", "1E-7", "-12.5", "1E+3", "1.23E-8", None]
    found = cast(pa.array(texts), pa.decimal128(38, 10)).to_pylist()
    assert found == [None if text is None else Decimal(text) for text in texts]
    assert cast(pa.array(["1E-38"]), pa.decimal128(38, 38)).to_pylist() == [Decimal("1E-38")]
