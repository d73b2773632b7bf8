"""Metadata-only answers: aggregates by exact statistics, and the files that suffice for a LIMIT.

Only bounds of integers and dates are exact. Those of strings and timestamps may be truncated, those of
floating-point numbers leave out NaN and do not distinguish -0.0, and those of decimals may be rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.partition_values import typed_values

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_EXACT_BOUNDS = (*_INTEGERS, T.DateType)
_EXACT_PARTITION_VALUES = (*_INTEGERS, T.DateType, T.StringType)


def aggregates(
    functions: Sequence[Mapping[str, Any]],
    statistics: FileStatistics,
    partition_values: Mapping[str, pa.ChunkedArray],
) -> list[Any] | None:
    """The values of count(*), min and max over the rows of all files.

    None where the statistics do not determine one of them. `partition_values` are the log's strings, row by
    row. A date is its days since the epoch; min and max of no values are null.
    """
    rows = statistics.num_rows
    if rows.null_count:
        return None
    values: list[Any] = []
    for function in functions:
        if function["function"] == "count":
            values.append(pc.sum(rows, min_count=0).as_py())
            continue
        bounds = _bounds(function, statistics, partition_values, pc.greater(rows, 0))
        if bounds is None:
            return None
        values.append(pc.min_max(bounds).as_py()[function["function"]])
    return values


def _bounds(
    function: Mapping[str, Any],
    statistics: FileStatistics,
    partition_values: Mapping[str, pa.ChunkedArray],
    has_rows: pa.Array,
) -> pa.Array | None:
    """The function's value for each file that has one; None where one of them is not exactly known."""
    name = function["column"]
    data_type = statistics.data_type((name,))
    if data_type is None or data_type.simpleString() != function["type"]:
        return None
    if name in partition_values:
        if not isinstance(data_type, _EXACT_PARTITION_VALUES) or _has_collation(data_type):
            return None
        try:
            values = typed_values(_array(partition_values[name]).filter(has_rows), data_type)
        except pa.ArrowInvalid:
            return None  # the scan raises the error, which names the value
        return values.cast(pa.int32()) if isinstance(data_type, T.DateType) else values
    if not isinstance(data_type, _EXACT_BOUNDS) or not statistics.has_tight_bounds:
        return None
    column = statistics.column((name,))
    assert column is not None
    bounds = column.low if function["function"] == "min" else column.high
    bounds = bounds.filter(has_rows)
    without_values = pc.equal(column.null_count, column.num_records).filter(has_rows)
    is_known = pc.or_(bounds.is_valid(), pc.fill_null(without_values, False))
    return bounds if pc.all(is_known, min_count=0).as_py() else None


def _has_collation(data_type: T.DataType) -> bool:
    """Whether it is text of another order than that of its bytes."""
    return isinstance(data_type, T.StringType) and data_type != T.StringType()


def fewest_files_with(num_rows: pa.Array, candidates: Any, limit: int) -> pa.Array:
    """True for the first of the candidates (a mask; None: all files) that together have `limit` rows.

    A file whose number of rows is unknown counts as empty.
    """
    rows = pc.fill_null(num_rows, 0)
    if candidates is not None:
        rows = pc.if_else(_array(candidates), rows, 0)
    before = pc.subtract(pc.cumulative_sum(rows), rows)
    return pc.less(before, max(limit, 1))


def _array(values: Any) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
