"""Turns Spark's filters on partition columns into Arrow conditions, which a transaction records as read."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DecimalType, DoubleType, FloatType, StructField

from deltaflow.log import PartitionPredicate
from deltaflow.log.files.data_skipping import Predicate
from deltaflow.log.files.partition_values import typed_values, without_char_padding
from deltaflow.log.files.text_casts import cast

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Arrow and Spark order NaN differently, and the JVM does not send bytes.
_NOT_COMPARED = (BinaryType, DoubleType, FloatType)


def implied_condition(
    predicate: Predicate | None, columns: Mapping[str, StructField]
) -> PartitionPredicate | None:
    """A condition on partitions that is true wherever the predicate is; None if there is none.

    It is made of the conjuncts that `equivalent_condition` can express. `predicate` is of
    deltaflow.log.files.data_skipping, `columns` are the partition columns by name.
    """
    if predicate is None:
        return None
    conjuncts = predicate["args"] if predicate["op"] == "and" else [predicate]
    found = [equivalent_condition(conjunct, columns) for conjunct in conjuncts]
    known = [condition for condition in found if condition is not None]
    return functools.reduce(operator.and_, known) if known else None


def equivalent_condition(
    predicate: Predicate, columns: Mapping[str, StructField]
) -> PartitionPredicate | None:
    """The predicate as a condition on partitions; None if it cannot be expressed."""
    op = predicate["op"]
    if op in ("and", "or"):
        parts = [equivalent_condition(argument, columns) for argument in predicate["args"]]
        known = [part for part in parts if part is not None]
        combine = operator.and_ if op == "and" else operator.or_
        return functools.reduce(combine, known) if len(known) == len(parts) else None
    name = ".".join(predicate.get("column", ()))
    if name not in columns:
        return None
    column, data_type = pc.field(name), columns[name].dataType
    if op in ("isNull", "isNotNull"):
        return column.is_null() if op == "isNull" else column.is_valid()
    if isinstance(data_type, _NOT_COMPARED) or predicate.get("type") != data_type.simpleString():
        return None
    if op == "in":
        return column.isin(_values(predicate["values"], columns[name]).drop_null())
    value = _values([predicate.get("value")], columns[name])[0]
    if op in _COMPARISONS and value.is_valid:
        compared: PartitionPredicate = _COMPARISONS[op](column, value)
        return compared
    return None


def in_any_partition(
    columns: Sequence[StructField], partitions: Sequence[tuple[str | None, ...]]
) -> PartitionPredicate:
    """The condition that a file is in one of the partitions, given by the log's values of the columns.

    As for a reader, blanks at the end of CHAR values do not count.
    """
    typed = [
        without_char_padding(
            typed_values(pa.array([values[i] for values in partitions], pa.string()), c.dataType), c
        )
        for i, c in enumerate(columns)
    ]
    if len(columns) == 1 and not pa.types.is_floating(typed[0].type):  # isin tells -0.0 from 0.0
        column = without_char_padding(pc.field(columns[0].name), columns[0])
        return (column.isin(typed[0].drop_null()) if len(typed[0].drop_null()) else pc.scalar(False)) | (
            column.is_null() if typed[0].null_count else pc.scalar(False)
        )
    conditions = [
        functools.reduce(
            operator.and_,
            (_equals(column, values[row]) for column, values in zip(columns, typed, strict=True)),
        )
        for row in range(len(partitions))
    ]
    while len(conditions) > 1:  # a balanced tree, because Arrow walks expressions by recursion
        conditions = [
            functools.reduce(operator.or_, conditions[i : i + 2]) for i in range(0, len(conditions), 2)
        ]
    return conditions[0]


def _equals(field: StructField, value: pa.Scalar) -> PartitionPredicate:
    column = without_char_padding(pc.field(field.name), field)
    if not value.is_valid:
        return column.is_null()
    if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
        return column.is_nan()
    return column == value


def _values(values: Sequence[Any], column: StructField) -> pa.Array:
    """Literals as Spark sends them (days, microseconds, decimals as text) in the column's Arrow type."""
    arrow_type = typed_values(pa.array([], pa.string()), column.dataType).type
    if isinstance(column.dataType, DecimalType):
        return cast(pa.array(values, pa.string()), arrow_type)
    if pa.types.is_temporal(arrow_type):
        return pa.array(values, pa.int32() if pa.types.is_date32(arrow_type) else pa.int64()).cast(arrow_type)
    return pa.array(values, arrow_type)
