"""Filters on partition columns, as Spark sends them, against the values of the log."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from deltaflow.batch.overwrites import condition_of
from deltaflow.log.partition_values import typed_values

COLUMNS = {"n": T.StructField("n", T.IntegerType()), "d": T.StructField("d", T.DateType())}
VALUES = {"n": ["1", "2", None, "10"], "d": ["2024-01-01", None, "2024-01-02", "2024-01-03"]}


def compared(op: str, column: str, *values: str) -> dict[str, Any]:
    return {"op": op, "column": column, "values": list(values)}


@pytest.mark.parametrize(
    ("found", "rows"),
    [
        (compared("=", "n", "2"), [1]),
        (compared("<", "n", "10"), [0, 1]),
        (compared(">=", "n", "2"), [1, 3]),
        (compared("in", "n", "1", "10"), [0, 3]),
        (compared(">", "d", "2024-01-01"), [2, 3]),
        (compared("<=", "d", "2024-01-01"), [0]),
        ({"op": "isNull", "column": "n"}, [2]),
        ({"op": "isNotNull", "column": "d"}, [0, 2, 3]),
        ({"op": "and", "left": compared(">", "n", "1"), "right": {"op": "isNull", "column": "d"}}, [1]),
        ({"op": "or", "left": compared("=", "n", "10"), "right": {"op": "isNull", "column": "d"}}, [1, 3]),
    ],
)
def test_rows_of_a_condition(found: dict[str, Any], rows: list[int]) -> None:
    table = pa.table({name: typed_values(pa.array(VALUES[name]), COLUMNS[name].dataType) for name in COLUMNS})
    condition = condition_of(found, COLUMNS)
    assert condition is not None
    assert table.append_column("row", pa.array(range(4))).filter(condition)["row"].to_pylist() == rows


@pytest.mark.parametrize(
    "found",
    [
        compared("=", "other", "1"),
        compared("like", "n", "1"),
        {"op": "and", "left": compared("=", "n", "1"), "right": compared("=", "other", "1")},
        {"op": "or", "left": compared("like", "n", "1"), "right": compared("=", "n", "1")},
    ],
)
def test_what_has_no_form_is_left_to_the_caller(found: dict[str, Any]) -> None:
    assert condition_of(found, COLUMNS) is None
