"""Every type that deltaflow and deltalake both know, as a column and in partitions, in both directions."""

from __future__ import annotations

import datetime as dt
from datetime import UTC
from decimal import Decimal
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.tables import load, rows, rows_by_deltalake

pytestmark = pytest.mark.spark

# Type by Arrow, values that are hard (a null comes with them), and whether it may partition a table.
TYPES: dict[str, tuple[pa.DataType, list[Any], bool]] = {
    "boolean": (pa.bool_(), [True, False], True),
    "byte": (pa.int8(), [-128, 0, 127], True),
    "short": (pa.int16(), [-(2**15), 2**15 - 1], True),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1], True),
    "long": (pa.int64(), [-(2**63), 2**63 - 1], True),
    "float": (pa.float32(), [0.5, -1.5e30, float("inf")], True),
    "double": (pa.float64(), [5e-30, -1e100, float("inf")], True),
    # Not below zero: deltalake 1.6 cannot read the partition value that it writes for -999.99.
    "decimal(5,2)": (pa.decimal128(5, 2), [Decimal("999.99"), Decimal("0.01")], True),
    "decimal(38,18)": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678")], True),
    "string": (pa.string(), ["a b", "100%", "k=v/..", "'\"\\", "übung 日本 😀", "x" * 100], True),
    "binary": (pa.binary(), [b"\x00\xff", b"plain"], False),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 15), dt.date(9999, 12, 31)], True),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), dt.datetime(2262, 5, 1, 2, 3, 4, 5, UTC)],
        True,
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2024, 3, 10, 2, 30)],
        True,
    ),
    "array": (pa.list_(pa.string()), [[], ["a", None]], False),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]], False),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))]),
        [{"a": None, "b": []}, {"a": 1, "b": [dt.date(2024, 1, 1), None]}],
        False,
    ),
}
CASES = [(name, False) for name in TYPES] + [(name, True) for name in TYPES if TYPES[name][2]]


@pytest.mark.parametrize(("name", "partitioned"), CASES)
@pytest.mark.sampled(10)
def test_both_directions(spark, tmp_path, sound, name, partitioned):
    data_type, values, _ = TYPES[name]
    values = [*values, None]
    data = pa.table({"id": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, data_type)})
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    partition_by = ["v"] if partitioned else []
    deltalake.write_deltalake(theirs, data, partition_by=partition_by)

    read = load(spark, theirs)
    assert rows(read) == rows_by_deltalake(theirs)
    assert [row["id"] for row in rows(read.where("v IS NULL"))] == [len(values) - 1]
    read.write.format("delta").partitionBy(*partition_by).save(ours)
    assert rows_by_deltalake(ours) == rows_by_deltalake(theirs) == rows(load(spark, ours))
    sound(ours)

    # Each goes on with the other's table.
    read.selectExpr("id + 100 AS id", "v").write.format("delta").mode("append").save(theirs)
    deltalake.write_deltalake(ours, data, mode="append")
    for path in (theirs, ours):
        found = rows(load(spark, path))
        assert found == rows_by_deltalake(path)
        assert len(found) == 2 * len(values)
