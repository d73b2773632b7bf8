"""Generated columns, and columns with a default (PROTOCOL.md, "Generated Columns", "Default Columns").

Only columns of the table itself have such an expression, no fields of structs. It is SQL; that of a generated
column names other columns of the row, a default names none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException
from deltaflow.log.protocol.schema import CURRENT_DEFAULT, GENERATION_EXPRESSION
from deltaflow.spark.write.file_write import Check

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def generation_expressions(schema: T.StructType) -> dict[str, str]:
    """The expressions of the generated columns, by the columns' names."""
    return {
        field.name: field.metadata[GENERATION_EXPRESSION]
        for field in schema.fields
        if GENERATION_EXPRESSION in field.metadata
    }


def default_sql(field: T.StructField) -> str | None:
    """The expression of a column's default; None if it has none, and so null."""
    return field.metadata.get(CURRENT_DEFAULT)


def default_value(field: T.StructField) -> Column:
    """The default of a column, null without one."""
    sql = default_sql(field)
    value = F.lit(None) if sql is None else F.expr(sql)
    return value.cast(field.dataType)


def is_computed(field: T.StructField) -> bool:
    """Whether rows may leave the column out and get a value other than null."""
    return GENERATION_EXPRESSION in field.metadata or CURRENT_DEFAULT in field.metadata


def checks_of_generated(schema: T.StructType, given: Collection[str]) -> Iterator[Check]:
    """The checks of the generated columns that rows give themselves."""
    for name, sql in generation_expressions(schema).items():
        if name in given:
            condition = f"{quoted(name)} <=> ({sql})"
            error = DeltaInvariantViolationException(
                error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
                name="Generated Column",
                expression=condition,
            )
            yield Check(condition, str(error), shows_values=True)


def with_generated(
    rows: DataFrame, schema: T.StructType, computed: Mapping[str, Column], others: Iterable[str] = ()
) -> DataFrame:
    """The table's columns of a frame, in which generated columns are computed anew where `computed` is true,
    and `others` as they are.

    The frame has the columns by name, with the values that the others are to have.
    """
    expressions = generation_expressions(schema)
    columns = []
    for field in schema.fields:
        value = F.col(quoted(field.name))
        if field.name in computed:
            new = F.expr(expressions[field.name]).cast(field.dataType)
            value = F.when(computed[field.name], new).otherwise(value)
        columns.append(value.alias(field.name))
    return rows.select(*columns, *map(quoted, others))
