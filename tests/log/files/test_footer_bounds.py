"""Bounds by footers, type by type: no value of a file lies outside, and what proves nothing gives none."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.log.files.footer_statistics import (
    FIRST_MOMENT_US,
    HIGHEST,
    LAST_MILLISECOND_US,
    MICROSECONDS,
    one_column,
    statistics,
    statistics_text,
    write_parquet,
)


def test_boolean_and_binary_have_counts_only(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([True, None, False]), BooleanType()) == (None, None, 1)
    assert one_column(tmp_path, pa.array([b"a", None, b"b"]), BinaryType()) == (None, None, 1)


def test_a_footer_that_may_hide_nan_gives_no_maximum(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([1.5, math.nan]), DoubleType()) == (Decimal("1.5"), None, 0)
    assert one_column(tmp_path, pa.array([1.5, 2.5]), DoubleType()) == (Decimal("1.5"), None, 0)
    assert one_column(tmp_path, pa.array([math.nan]), DoubleType()) == (None, None, 0)


@pytest.mark.parametrize(
    ("writer", "highest"),
    [
        ("parquet-mr version 1.10.1", 2.5),
        ("parquet-mr version 1.9.0", None),
        ("parquet-mr version 1.8.3", None),
        ("parquet-mr", None),
    ],
)
def test_a_maximum_counts_only_of_a_writer_that_orders_nan(
    tmp_path: Path, writer: str, highest: float | None
) -> None:
    """parquet-mr before 1.10 leaves NaN out of its bounds, as Arrow does, which stands in for it here."""
    schema = StructType().add("c", DoubleType())
    file = write_parquet(tmp_path, {"c": pa.array([1.5, math.nan, 2.5])})
    arrow = pq.read_metadata(file).created_by.encode()
    content = file.read_bytes()
    assert content.count(arrow) == 1
    file.write_bytes(content.replace(arrow, writer.encode().ljust(len(arrow))))
    found = statistics(file, schema)
    assert (found["minValues"], found["maxValues"].get("c")) == ({"c": 1.5}, highest)


def test_floats_that_json_cannot_hold_give_no_bound(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([-math.inf, 1.0]), DoubleType())[0] is None
    assert one_column(tmp_path, pa.array([math.inf, 1.0]), DoubleType())[0] == 1


def test_zero_as_a_minimum_is_negative(tmp_path: Path) -> None:
    schema = StructType().add("c", DoubleType())
    assert '"minValues":{"c":-0.0}' in statistics_text(
        write_parquet(tmp_path, {"c": pa.array([0.0, 1.0])}), schema
    )


def test_a_single_precision_bound_holds_when_read_in_double_precision(tmp_path: Path) -> None:
    low, _, _ = one_column(tmp_path, pa.array([0.3], pa.float32()), FloatType())
    assert float(low) == pa.scalar(0.3, pa.float32()).as_py()


@pytest.mark.parametrize(
    ("longest", "low", "high"),
    [
        ("b" * 32, "b" * 32, "b" * 32),
        ("b" * 33, "b" * 32, "b" * 32 + "\x7f"),
        ("b" * 32 + "\x7f", "b" * 32, "b" * 32 + HIGHEST),
        ("b" * 32 + "é!", "b" * 32, "b" * 32 + HIGHEST),
        ("\U0001f600" * 32, "\U0001f600" * 32, "\U0001f600" * 32),
        ("\U0001f600" * 33, "\U0001f600" * 32, "\U0001f600" * 32 + HIGHEST),
        ("b" * 32 + HIGHEST + "c" * 9, "b" * 32, "b" * 32 + HIGHEST + "\x7f"),
        (HIGHEST * 40, HIGHEST * 32, HIGHEST * 40),
        (HIGHEST * 64, HIGHEST * 32, HIGHEST * 64),
        (HIGHEST * 65, HIGHEST * 32, None),
        ("", "", ""),
    ],
)
def test_strings_are_cut_and_the_maximum_stays_above(
    tmp_path: Path, longest: str, low: str, high: str | None
) -> None:
    assert one_column(tmp_path, pa.array([longest, None]), StringType()) == (low, high, 1)


def test_strings_order_by_code_point(tmp_path: Path) -> None:
    # In UTF-16 the second would be the smaller one.
    values = pa.array(["\uffee", "\U0001f600"])
    assert one_column(tmp_path, values, StringType()) == ("\uffee", "\U0001f600", 0)


def test_strings_that_are_no_text_have_no_bounds(tmp_path: Path) -> None:
    values = pa.array([b"a", b"b\xff"]).cast(pa.string(), safe=False)
    assert one_column(tmp_path, values, StringType()) == ("a", None, 0)


def test_a_collated_string_has_no_bounds(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array(["a", "B"]), StringType("UTF8_LCASE")) == (None, None, 0)


def test_timestamps_are_cut_to_milliseconds_outwards(tmp_path: Path) -> None:
    def bounds(*microseconds: int) -> tuple[Any, Any]:
        low, high, _ = one_column(tmp_path, pa.array(microseconds, MICROSECONDS), TimestampType())
        return low, high

    assert bounds(1_577_836_800_123_000) == ("2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.123Z")
    assert bounds(1_577_836_800_123_456) == ("2020-01-01T00:00:00.123Z", "2020-01-01T00:00:00.124Z")
    assert bounds(-1) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")
    assert bounds(FIRST_MOMENT_US, LAST_MILLISECOND_US + 1) == ("0001-01-01T00:00:00.000Z", None)
    assert bounds(FIRST_MOMENT_US - 1, LAST_MILLISECOND_US) == (None, "9999-12-31T23:59:59.999Z")
    assert bounds(-(2**63), 2**63 - 1) == (None, None)


def test_local_timestamps_have_no_zone(tmp_path: Path) -> None:
    values = pa.array([1_577_836_800_123_456], pa.timestamp("us"))
    low, high, _ = one_column(tmp_path, values, TimestampNTZType())
    assert (low, high) == ("2020-01-01T00:00:00.123", "2020-01-01T00:00:00.124")
    in_utc = values.cast(MICROSECONDS)
    assert one_column(tmp_path, in_utc, TimestampNTZType()) == (None, None, 0)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_every_unit_of_timestamps(tmp_path: Path, unit: str) -> None:
    values = pa.array([1_577_836_800_123], pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    low, high, _ = one_column(tmp_path, values, TimestampType())
    assert low == high == "2020-01-01T00:00:00.123Z"


def test_timestamps_that_are_no_moments_or_of_the_old_encoding_have_no_bounds(tmp_path: Path) -> None:
    assert one_column(tmp_path, pa.array([1], pa.timestamp("us")), TimestampType()) == (None, None, 0)
    values = pa.array([1], MICROSECONDS)
    low, high, _ = one_column(tmp_path, values, TimestampType(), use_deprecated_int96_timestamps=True)
    assert (low, high) == (None, None)


def test_dates(tmp_path: Path) -> None:
    def bounds(*days: int) -> tuple[Any, Any]:
        low, high, _ = one_column(tmp_path, pa.array(days, pa.int32()).cast(pa.date32()), DateType())
        return low, high

    assert bounds(0, 18_262) == ("1970-01-01", "2020-01-01")
    assert bounds(-719_162, 2_932_896) == ("0001-01-01", "9999-12-31")
    assert bounds(-719_163, 2_932_897) == (None, None)


def test_dates_and_timestamps_in_sparks_hybrid_calendar_have_no_bounds(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    table = pa.table({"d": pa.array([1], pa.int32()).cast(pa.date32()), "t": pa.array([1], MICROSECONDS)})
    schema = StructType().add("d", DateType()).add("t", TimestampType())
    pq.write_table(table, file)
    assert set(statistics(file, schema)["minValues"]) == {"d", "t"}
    for key, value in {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "2.4.8"}.items():
        pq.write_table(table.replace_schema_metadata({key: value}), file)
        assert statistics(file, schema)["minValues"] == {}
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.version": "3.5.1"}), file)
    assert set(statistics(file, schema)["minValues"]) == {"d", "t"}


@pytest.mark.parametrize(
    ("precision", "scale", "low", "high"),
    [
        (5, 0, "-99999", "7"),
        (9, 2, "-1234567.89", "0.05"),
        (18, 4, "-0.0001", "99999999999999.9999"),
        (38, 18, "-99999999999999999999.999999999999999999", "0.000000000000000001"),
        (38, 38, "-0.00000000000000000000000000000000000001", "0." + "9" * 38),
    ],
)
@pytest.mark.parametrize("as_integer", [False, True])
def test_decimals_keep_every_digit(
    tmp_path: Path, precision: int, scale: int, low: str, high: str, as_integer: bool
) -> None:
    values = pa.array([Decimal(low), None, Decimal(high)], pa.decimal128(precision, scale))
    file = write_parquet(tmp_path, {"c": values}, store_decimal_as_integer=as_integer)
    text = statistics_text(file, StructType().add("c", DecimalType(precision, scale)))
    assert f'"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}}' in text


def test_a_column_of_another_type_has_no_bounds(tmp_path: Path) -> None:
    unsigned = pa.array([2**32 - 1], pa.uint32())
    assert one_column(tmp_path, unsigned, IntegerType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array(["a"]), IntegerType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array([[1, 2]]), LongType()) == (None, None, 0)
    assert one_column(tmp_path, pa.array([Decimal("1.50")]), DecimalType(3, 1)) == (None, None, 0)
    assert one_column(tmp_path, pa.array([{"x": 1}]), LongType()) == (None, None, None)
    assert one_column(tmp_path, pa.array([1]), StructType().add("x", LongType())) == (None, None, None)
