"""Data skipping: which files may hold rows for which a predicate is true, by their statistics.

A predicate is a JSON object, which the JVM makes from Spark's expressions:

    {"op": "and" | "or", "args": [predicate, …]}, {"op": "not", "args": [predicate]}
    {"op": "=" | "<=>" | "<" | "<=" | ">" | ">=", "column": [name, …], "type": …, "value": …}
    {"op": "in", "column": …, "type": …, "values": […]}, {"op": "startsWith", "column": …, "value": text}
    {"op": "isNull" | "isNotNull", "column": …}; any other op may be true for any row

`type` is Spark's name of the literal's type, which must be the column's. Dates are days, timestamps are
microseconds, decimals and numbers that JSON lacks are texts; all other values are JSON's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.log.files.file_statistics import ColumnPath, ColumnStatistics, FileStatistics, bound_type

Predicate = dict[str, Any]
# Of a longer list only the smallest and the largest value are compared.
_LONGEST_LIST = 500
_UNKNOWN = pa.scalar(None, pa.bool_())
_MIRRORED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def may_match(predicate: Predicate, statistics: FileStatistics) -> pa.BooleanArray:
    """One boolean a file: false only where the predicate is true for none of its rows."""
    statistics.load(columns(predicate))
    mask = _Evaluation(statistics).may_be(True, predicate)
    if isinstance(mask, pa.Scalar):
        return pa.repeat(pa.scalar(mask.as_py() is not False), len(statistics))
    return pc.fill_null(mask, True)


def columns(predicate: Predicate) -> Iterator[ColumnPath]:
    """The columns whose statistics a predicate is about."""
    for argument in predicate.get("args", ()):
        yield from columns(argument)
    if predicate["op"] in _TESTS:
        yield tuple(predicate["column"])


class _Evaluation:
    """An answer is one boolean per file: false if it has no such row, true or null if it may have one."""

    def __init__(self, statistics: FileStatistics) -> None:
        self._statistics = statistics

    def may_be(self, outcome: bool, predicate: Predicate) -> Any:
        """Whether the predicate may be true (or false, by `outcome`) for some row of a file.

        Each outcome is asked for separately: a row for which the predicate is null has neither.
        """
        op = predicate["op"]
        if op == "not":
            return self.may_be(not outcome, predicate["args"][0])
        if op in ("and", "or"):
            combine = pc.and_kleene if (op == "and") is outcome else pc.or_kleene
            answers = [self.may_be(outcome, argument) for argument in predicate["args"]]
            combined = answers[0]
            for answer in answers[1:]:
                combined = combine(combined, answer)
            return combined
        test = _TESTS.get(op)
        column = None if test is None else self._statistics.skipping_column(tuple(predicate["column"]))
        if test is None or column is None:
            return _UNKNOWN
        data_type = self._statistics.data_type(tuple(predicate["column"]))
        assert data_type is not None
        return test(outcome, predicate, column, data_type)


def _is_null(outcome: bool, predicate: Predicate, column: ColumnStatistics, data_type: T.DataType) -> Any:
    wants_nulls = (predicate["op"] == "isNull") is outcome
    return pc.greater(column.null_count, 0) if wants_nulls else _has_values(column)


def _has_values(column: ColumnStatistics) -> Any:
    return pc.less(column.null_count, column.num_records)


def _compare(outcome: bool, predicate: Predicate, column: ColumnStatistics, data_type: T.DataType) -> Any:
    op = predicate["op"]
    if op == "<=>" and predicate["value"] is None:
        return pc.greater(column.null_count, 0) if outcome else _has_values(column)
    if predicate["value"] is None:
        return pa.scalar(False)  # null for every row
    value = _literal(predicate["value"], predicate, data_type)
    if value is None:
        return _UNKNOWN if op == "<=>" else _has_values(column)
    if op in _MIRRORED:
        matching = _within(_MIRRORED[op] if not outcome else op, column, value)
    elif outcome:
        matching = _within("=", column, value)
    else:
        matching = pc.or_kleene(pc.less(column.low, value), pc.greater(column.high, value))
    if op == "<=>" and not outcome:
        return pc.or_kleene(matching, pc.greater(column.null_count, 0))
    return pc.and_kleene(matching, _has_values(column))


def _within(op: str, column: ColumnStatistics, value: pa.Scalar) -> Any:
    """Whether some value between the bounds may stand in this relation to `value`."""
    match op:
        case "<":
            return pc.less(column.low, value)
        case "<=":
            return pc.less_equal(column.low, value)
        case ">":
            return pc.greater(column.high, value)
        case ">=":
            return pc.greater_equal(column.high, value)
        case _:
            return pc.and_kleene(pc.less_equal(column.low, value), pc.greater_equal(column.high, value))


def _in(outcome: bool, predicate: Predicate, column: ColumnStatistics, data_type: T.DataType) -> Any:
    given = [value for value in predicate["values"] if value is not None]
    if not outcome and len(given) < len(predicate["values"]):
        return pa.scalar(False)  # never false: null where no value is equal
    if not given:  # true for no row; of an empty list false for all
        return pa.scalar(not outcome)
    values = [
        value for value in (_literal(value, predicate, data_type) for value in given) if value is not None
    ]
    if len(values) < len(given):
        return _has_values(column)
    if not outcome:
        listed = pc.is_in(column.low, pa.array([value.as_py() for value in values], column.low.type))
        matching = pc.or_kleene(pc.not_equal(column.low, column.high), pc.invert(listed))
        return pc.and_kleene(matching, _has_values(column))
    if len(values) > _LONGEST_LIST:
        ordered = pc.sort_indices(pa.array([value.as_py() for value in values], values[0].type))
        least, largest = values[ordered[0].as_py()], values[ordered[-1].as_py()]
        matching = pc.and_kleene(_within(">=", column, least), _within("<=", column, largest))
    else:
        matching = _within("=", column, values[0])
        for value in values[1:]:
            matching = pc.or_kleene(matching, _within("=", column, value))
    return pc.and_kleene(matching, _has_values(column))


def _starts_with(outcome: bool, predicate: Predicate, column: ColumnStatistics, data_type: T.DataType) -> Any:
    if not isinstance(data_type, T.StringType):
        return _UNKNOWN
    prefix = predicate["value"]
    low = pc.utf8_slice_codeunits(column.low, 0, len(prefix))
    high = pc.utf8_slice_codeunits(column.high, 0, len(prefix))
    if outcome:
        matching = pc.and_kleene(pc.less_equal(low, prefix), pc.greater_equal(high, prefix))
    else:
        matching = pc.or_kleene(pc.not_equal(low, prefix), pc.not_equal(high, prefix))
    return pc.and_kleene(matching, _has_values(column))


def _literal(value: Any, predicate: Predicate, data_type: T.DataType) -> pa.Scalar | None:
    """The literal in the type of the column's bounds; None where the two cannot be compared."""
    arrow_type = bound_type(data_type)
    if arrow_type is None or predicate["type"] != data_type.simpleString():
        return None
    if pa.types.is_floating(arrow_type):
        number = float(value)
        return None if math.isnan(number) else pa.scalar(number, arrow_type)
    return pa.scalar(value, arrow_type)


_Test = Callable[[bool, Predicate, ColumnStatistics, T.DataType], Any]
_TESTS: dict[str, _Test] = {
    **dict.fromkeys(("=", "<=>", "<", "<=", ">", ">="), _compare),
    **dict.fromkeys(("isNull", "isNotNull"), _is_null),
    "in": _in,
    "startsWith": _starts_with,
}
