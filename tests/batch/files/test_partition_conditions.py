"""Spark's filters on partition columns, evaluated on the values of the log."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from deltaflow.batch.files.partition_conditions import (
    equivalent_condition,
    implied_condition,
    in_any_partition,
)
from deltaflow.log.files.partition_values import typed_values

COLUMNS = {
    name: T.StructField(name, data_type)
    for name, data_type in {
        "n": T.IntegerType(),
        "d": T.DateType(),
        "c": T.DecimalType(5, 2),
        "s": T.StringType(),
        "x": T.DoubleType(),
        "ts": T.TimestampType(),
    }.items()
}
VALUES = {
    "n": ["1", "2", None, "10"],
    "d": ["2024-01-01", None, "2024-01-02", "2024-01-03"],
    "c": ["1.50", "-2.00", None, "10.00"],
    "s": ["a", "", "b", "c"],
    "x": ["1.0", "NaN", None, "2.0"],
    "ts": ["2024-01-01T00:00:00.000000Z", None, "2024-01-01 00:00:00", "2024-01-02T00:00:00.000000Z"],
}


def compared(op: str, column: str, value: Any, type_name: str | None = None) -> dict[str, Any]:
    return {
        "op": op,
        "column": [column],
        "value": value,
        "type": type_name or COLUMNS[column].dataType.simpleString(),
    }


def listed(column: str, *values: Any) -> dict[str, Any]:
    return {
        "op": "in",
        "column": [column],
        "values": list(values),
        "type": COLUMNS[column].dataType.simpleString(),
    }


def both(op: str, *args: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "args": list(args)}


IS_NULL = {"op": "isNull", "column": ["d"]}
UNKNOWN = {"op": "unknown"}


def rows_of(condition: Any) -> list[int]:
    table = pa.table({name: typed_values(pa.array(VALUES[name]), COLUMNS[name].dataType) for name in COLUMNS})
    found: list[int] = table.append_column("row", pa.array(range(4))).filter(condition)["row"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (compared("=", "n", 2), [1]),
        (compared("<", "n", 10), [0, 1]),
        (compared(">=", "n", 2), [1, 3]),
        (listed("n", 1, 10, None), [0, 3]),
        (compared(">", "d", 19723), [2, 3]),
        (compared("<=", "d", 19723), [0]),
        (compared("=", "c", "-2.00"), [1]),
        (compared("=", "ts", 1_704_067_200_000_000), [0, 2]),
        (compared(">", "ts", 1_704_067_200_000_000), [3]),
        (compared(">", "s", "a"), [2, 3]),
        ({"op": "isNull", "column": ["n"]}, [2]),
        ({"op": "isNull", "column": ["s"]}, [1]),
        ({"op": "isNotNull", "column": ["x"]}, [0, 1, 3]),
        (both("and", compared(">", "n", 1), IS_NULL), [1]),
        (both("or", compared("=", "n", 10), IS_NULL), [1, 3]),
    ],
)
def test_rows_of_a_condition(predicate: dict[str, Any], rows: list[int]) -> None:
    condition = equivalent_condition(predicate, COLUMNS)
    assert condition is not None
    assert rows_of(condition) == rows


@pytest.mark.parametrize(
    "predicate",
    [
        UNKNOWN,
        {**compared("=", "n", 1), "column": ["other"]},
        {**compared("=", "n", 1), "op": "startsWith"},
        compared("=", "n", None),
        compared("=", "n", 1, "bigint"),
        compared(">", "x", "1.0"),
        both("not", compared("=", "n", 1)),
        both("and", compared("=", "n", 1), UNKNOWN),
        both("or", UNKNOWN, compared("=", "n", 1)),
    ],
)
def test_what_has_no_form_is_left_to_the_caller(predicate: dict[str, Any]) -> None:
    assert equivalent_condition(predicate, COLUMNS) is None


def test_conjuncts_without_a_form_widen_the_condition() -> None:
    condition = implied_condition(both("and", compared(">", "n", 1), UNKNOWN), COLUMNS)
    assert rows_of(condition) == [1, 3]
    assert implied_condition(UNKNOWN, COLUMNS) is None
    assert implied_condition(None, COLUMNS) is None


@pytest.mark.parametrize(
    ("columns", "partitions", "rows"),
    [
        (["x"], [("NaN",), (None,)], [1, 2]),
        (["x", "s"], [("NaN", None), ("1.0", "a")], [0, 1]),
        (["n", "d"], [(None, "2024-01-02"), ("1", None)], [2]),
    ],
)
def test_the_partitions_of_a_write(columns: list[str], partitions: list[Any], rows: list[int]) -> None:
    assert rows_of(in_any_partition([COLUMNS[name] for name in columns], partitions)) == rows


def test_minus_zero_is_in_the_partition_of_zero() -> None:
    """As in a comparison of Spark, whether there are other columns or not."""
    table = pa.table({"x": [0.0, -0.0, 1.0], "n": [1, 1, 1]})
    columns = [COLUMNS["x"], COLUMNS["n"]]
    for partitions in ([("0.0", "1")], [("-0.0", "1")]):
        alone = in_any_partition(columns[:1], [values[:1] for values in partitions])
        assert table.filter(alone) == table.filter(in_any_partition(columns, partitions)) == table.slice(0, 2)
