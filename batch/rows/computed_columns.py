"""Columns that changed and inserted rows get anew: generated columns, and the numbers of identity columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.rows.column_expressions import stored_generations
from deltaflow.batch.rows.row_plan import stored_columns, with_char_metadata
from deltaflow.batch.sql_names import quoted
from deltaflow.log.protocol.identity_columns import identity_columns
from deltaflow.log.protocol.schema import char_length
from deltaflow.spark.expressions.expressions import identity_numbers
from deltaflow.spark.expressions.table_expressions import table_expression, table_expression_over

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_computed(
    rows: DataFrame,
    schema: T.StructType,
    partition_columns: Sequence[str],
    computed: Mapping[str, Column],
    others: Iterable[str],
    table: str,
) -> DataFrame:
    """The columns of the table at the path `table` of a frame, in which generated columns are computed anew,
    and identity columns get new numbers, where `computed` is true; and `others` as they are.

    The frame has the columns by name, with the values that the others are to have. Generated columns are
    computed of what the table stores of these, as for rows that are appended.
    """
    numbers = {
        name: identity_numbers(identity.first, identity.step)
        for name, identity in identity_columns(schema).items()
        if name in computed
    }
    if numbers:
        new = {name: F.when(computed[name], n).otherwise(F.col(quoted(name))) for name, n in numbers.items()}
        rows = rows.withColumns(new)
    expressions = stored_generations(schema, partition_columns)
    if not expressions.keys() & computed.keys():
        return rows.select(*map(quoted, [*schema.names, *others]))
    rows = _as_stored(rows, schema, partition_columns, table)
    columns = []
    for field in schema.fields:
        value = F.col(quoted(field.name))
        if field.name in computed and field.name in expressions:
            generated = table_expression_over(rows, expressions[field.name], table).cast(field.dataType)
            value = F.when(computed[field.name], generated).otherwise(value)
        columns.append(value.alias(field.name))
    return rows.select(*columns, *map(quoted, others))


def _as_stored(
    rows: DataFrame, schema: T.StructType, partition_columns: Sequence[str], table: str
) -> DataFrame:
    """The frame with the values that the table stores of its columns. CHAR is filled up, as in rows that are
    read: so Spark compares it."""
    stored = stored_columns(schema, partition_columns)
    columns = []
    for field in with_char_metadata(schema).fields:
        value, sql = F.col(quoted(field.name)), stored[field.name]
        if sql != quoted(field.name):
            value = table_expression(sql, table).cast(field.dataType)
        columns.append(_with_blanks(value, field))
    others = [quoted(name) for name in rows.columns if name not in stored]
    return rows.select(*columns, *others)


def as_read(rows: DataFrame, schema: T.StructType) -> DataFrame:
    """The table's columns of a frame, in which CHAR is filled up, also in a session that reads it without."""
    return rows.select(
        *[_with_blanks(F.col(quoted(field.name)), field) for field in with_char_metadata(schema).fields]
    )


def _with_blanks(value: Column, field: T.StructField) -> Column:
    """The value of a column, with the blanks and the metadata of CHAR; `field`: of with_char_metadata."""
    length = char_length(field)
    value = value if length is None else F.rpad(value, length, " ")
    return value.alias(field.name, metadata=field.metadata)
