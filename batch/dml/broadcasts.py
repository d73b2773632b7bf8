"""Whether rows are broadcast: a hint says so where they are small.

Spark joins a table with few bytes of other rows without shuffling it. Of rows that are materialised or
filtered, its own estimate is that of all that they were made of. So they are measured: Spark obeys a hint
whatever the size, and many long texts in a broadcast exhaust the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def row_bytes(columns: Iterable[tuple[str, T.DataType]]) -> str:
    """SQL for about as many bytes as a row takes; `columns`: each as SQL, and its type.

    It needs only the columns whose values have no fixed size.
    """
    return " + ".join(["8L", *(_bytes(value, data_type) for value, data_type in columns)])


def bytes_of(rows: DataFrame) -> int:
    """Of all rows; one job."""
    names = [f"c{i}" for i in range(len(rows.columns))]
    columns = zip(names, (field.dataType for field in rows.schema.fields), strict=True)
    [found] = rows.toDF(*names).agg(F.sum(F.expr(row_bytes(columns)))).collect()
    return found[0] or 0


def with_broadcast_hint(rows: DataFrame, size: int | None) -> DataFrame:
    """The rows, with a hint to broadcast them if these bytes are few; None: Spark's own estimate decides."""
    limit = rows.sparkSession.conf.get("spark.sql.autoBroadcastJoinThreshold", "10485760")
    assert limit is not None
    fits = size is not None and limit.removesuffix("b").isdigit() and size <= int(limit.removesuffix("b"))
    return rows.hint("broadcast") if fits else rows


def _bytes(value: str, data_type: T.DataType, depth: int = 0) -> str:
    match data_type:
        case T.StringType() | T.BinaryType():
            return f"coalesce(octet_length({value}), 0)"
        case T.VariantType():
            return f"coalesce(octet_length(CAST({value} AS STRING)), 0)"
        case T.StructType():
            fields = [(f"{value}.{quoted(field.name)}", field.dataType) for field in data_type.fields]
            return " + ".join(["8L", *(_bytes(inner, inner_type, depth) for inner, inner_type in fields)])
        case T.ArrayType():
            element = f"x{depth}"
            each = _bytes(element, data_type.elementType, depth + 1)
            return f"coalesce(aggregate({value}, 8L, (n{depth}, {element}) -> n{depth} + {each}), 8L)"
        case T.MapType():
            keys = _bytes(f"map_keys({value})", T.ArrayType(data_type.keyType), depth)
            return f"{keys} + {_bytes(f'map_values({value})', T.ArrayType(data_type.valueType), depth)}"
    return "8L"
