"""Whether rows are broadcast: a hint says so where they are small.

Spark joins a table with few bytes of other rows without shuffling it. Of rows that are materialised or
filtered, its own estimate is that of all that they were made of. So they are measured: Spark obeys a hint
whatever the size, and many long texts in a broadcast exhaust the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.log.protocol.properties import size_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_OF_ANY_SIZE = (T.StringType, T.BinaryType, T.VariantType, T.StructType, T.ArrayType, T.MapType)
_FIXED = 8
"""The bytes of a value with a fixed size, about, and what a row or a nested value takes beside its own."""
_OF_FIXED = f"{_FIXED}L"


def row_bytes(columns: Iterable[tuple[str, T.DataType]], depth: int = 0) -> str:
    """SQL for about as many bytes as a row takes; `columns`: each as SQL, and its type. `depth`: in how many
    lambdas the SQL is.

    It needs only the columns whose values have no fixed size.
    """
    sizes = [_bytes(value, data_type, depth) for value, data_type in columns]
    varying = [size for size in sizes if size != _OF_FIXED]
    return _sum([f"{_FIXED * (1 + len(sizes) - len(varying))}L", *varying])


def _sum(terms: Sequence[str]) -> str:
    """As a tree of few levels: Spark's parser goes as deep as the expression is."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({_sum(terms[:middle])} + {_sum(terms[middle:])})"


def bytes_of(rows: DataFrame, number: int) -> int:
    """Of these rows, which are so many; one job if some of their values may have no fixed size."""
    types = [field.dataType for field in rows.schema.fields]
    if not any(isinstance(data_type, _OF_ANY_SIZE) for data_type in types):
        return number * _FIXED * (1 + len(types))
    names = [f"c{i}" for i in range(len(types))]
    size = row_bytes(zip(names, types, strict=True))
    [found] = rows.toDF(*names).agg(F.sum(F.expr(size))).collect()
    return found[0] or 0


def with_broadcast_hint(rows: DataFrame, size: int | None) -> DataFrame:
    """The rows, with a hint to broadcast them if these bytes are few; None: Spark's own estimate decides."""
    limit = rows.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold", "10MB")
    assert limit is not None
    with suppress(ValueError):  # -1 and 0 are no sizes: nothing is broadcast
        if size is not None and size <= size_bytes(limit):
            return rows.hint("broadcast")
    return rows


def _bytes(value: str, data_type: T.DataType, depth: int) -> str:
    match data_type:
        case T.StringType() | T.BinaryType():
            return f"coalesce(octet_length({value}), 0)"
        case T.VariantType():
            return f"coalesce(octet_length(CAST({value} AS STRING)), 0)"
        case T.StructType():
            fields = ((f"{value}.{quoted(field.name)}", field.dataType) for field in data_type.fields)
            return row_bytes(fields, depth)
        case T.ArrayType():
            element = f"x{depth}"
            each = _bytes(element, data_type.elementType, depth + 1)
            total = f"aggregate({value}, {_OF_FIXED}, (n{depth}, {element}) -> n{depth} + {each})"
            return f"coalesce({total}, {_OF_FIXED})"
        case T.MapType():
            keys = _bytes(f"map_keys({value})", T.ArrayType(data_type.keyType), depth)
            return f"{keys} + {_bytes(f'map_values({value})', T.ArrayType(data_type.valueType), depth)}"
    return _OF_FIXED
