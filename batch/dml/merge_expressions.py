"""Expressions of which a MERGE makes its conditions and values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.log.protocol.data_types import types_within
from deltaflow.spark.expressions.orderable import is_collated, orderable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOT_COMPARED: Final = {"variant", "interval", "geometry", "geography"}
"""The names of types of which Spark compares no values."""


def numbered(conditions: Sequence[Column]) -> Column:
    """The number, from 1, of the first condition that is true; 0 if none is."""
    number = F.lit(0)
    for i, condition in reversed(list(enumerate(conditions, 1))):
        number = F.when(condition, F.lit(i)).otherwise(number)
    return number


def all_of(conditions: Sequence[Column]) -> Column | None:
    return functools.reduce(operator.and_, conditions) if conditions else None


def any_of(conditions: Sequence[Column | None]) -> Column | None:
    """None if one of them is: nothing is known then."""
    known = [condition for condition in conditions if condition is not None]
    return functools.reduce(operator.or_, known) if known and len(known) == len(conditions) else None


def is_comparable(data_type: T.DataType) -> bool:
    """Whether values of the type have a form by `comparable`."""
    return not any(inner.typeName() in _NOT_COMPARED for _, inner in types_within(data_type))


def comparable(value: Column, data_type: T.DataType) -> Column:
    """The value in a form that equals another one only if both are the same: Spark compares no maps, and
    takes -0.0 for 0.0, and texts of a collation for others of it."""
    match data_type:
        case T.FloatType() | T.DoubleType():
            return value.cast("string")
        case T.StringType():
            return orderable(value, data_type)
        case T.MapType():
            entry = T.StructType().add("key", data_type.keyType).add("value", data_type.valueType)
            return comparable(F.map_entries(value), T.ArrayType(entry))
        case T.ArrayType() if _needs_form(data_type):
            return F.transform(value, lambda item: comparable(item, data_type.elementType))
        case T.StructType() if _needs_form(data_type):
            fields = [comparable(value.getField(f.name), f.dataType) for f in data_type.fields]
            return F.struct(value.isNull(), *fields)
    return value


def _needs_form(data_type: T.DataType) -> bool:
    return any(
        isinstance(found, T.MapType | T.FloatType | T.DoubleType) or is_collated(found)
        for _, found in types_within(data_type)
    )


def union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for frame in others:
        first = first.union(frame)
    return first
