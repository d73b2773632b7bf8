"""Type widening: columns whose type has grown, and whose older files have the narrow one (PROTOCOL.md, "Type
Widening")."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T

_INTEGERS: Final[tuple[type[T.DataType], ...]] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def can_widen(narrow: T.DataType, wide: T.DataType) -> bool:
    """Whether a column may get the type `wide` in place of `narrow`; neither is nested.

    The types of a change differ, so equal types are none.
    """
    if narrow == wide:
        return False
    is_small = isinstance(narrow, T.ByteType | T.ShortType | T.IntegerType)
    match narrow, wide:
        case T.FloatType(), T.DoubleType():
            return True
        case T.DateType(), T.TimestampNTZType():
            return True
        case _, T.DoubleType():
            return is_small
        case T.DecimalType(), T.DecimalType():
            return _holds(wide, narrow.precision, narrow.scale)
        case _, T.DecimalType():
            return (is_small and _holds(wide, 10, 0)) or (
                isinstance(narrow, T.LongType) and _holds(wide, 20, 0)
            )
    if type(narrow) in _INTEGERS and type(wide) in _INTEGERS:
        return _INTEGERS.index(type(narrow)) < _INTEGERS.index(type(wide))
    return False


def _holds(decimal: T.DecimalType, precision: int, scale: int) -> bool:
    """Whether the decimal has room for all values with so many digits."""
    return decimal.scale >= scale and decimal.precision - decimal.scale >= precision - scale


def fits_widened(data: T.DataType, column: T.DataType) -> bool:
    """Whether files of the first type are read as the second: it is the same, or was widened to it."""
    return data == column or can_widen(data, column)
