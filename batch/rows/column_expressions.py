"""Generated columns, identity columns, and columns with a default.

They are "Generated Columns", "Identity Columns" and "Default Columns" of PROTOCOL.md.

Only columns of the table itself have such an expression, no fields of structs. It is SQL; that of a generated
column names other columns of the row, a default names none. The numbers of an identity column are made by
Spark (identity_numbers).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaInvariantViolationException
from deltaflow.log.protocol.identity_columns import identity_columns, is_identity
from deltaflow.log.protocol.schema import CURRENT_DEFAULT, GENERATION_EXPRESSION
from deltaflow.spark.expressions.expressions import identity_numbers
from deltaflow.spark.expressions.table_expressions import table_expression
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


def default_value(field: T.StructField, table: str) -> Column:
    """The default of a column of the table at this path, null without one."""
    sql = default_sql(field)
    value = F.lit(None) if sql is None else table_expression(sql, table)
    return value.cast(field.dataType)


def is_computed(field: T.StructField) -> bool:
    """Whether rows may leave the column out and get a value other than null."""
    return any(key in field.metadata for key in (GENERATION_EXPRESSION, CURRENT_DEFAULT)) or is_identity(
        field
    )


def check_no_numbers_given(schema: T.StructType, given: Iterable[str], table: str) -> None:
    """DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED if new rows give values to a column that is
    GENERATED ALWAYS AS IDENTITY."""
    names = {name.lower() for name in given}
    for name, identity in identity_columns(schema).items():
        if not identity.allows_explicit and name.lower() in names:
            raise _refused("DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED", name, table)


def check_no_numbers_set(schema: T.StructType, assigned: Iterable[Sequence[str]], table: str) -> None:
    """DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED if an update sets an identity column, by the paths that it
    sets."""
    names = {path[0].lower() for path in assigned}
    for field in schema.fields:
        if is_identity(field) and field.name.lower() in names:
            raise _refused("DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED", field.name, table)


def _refused(error_class: str, column: str, table: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(error_class=error_class, column_name=column, table=table, column=column)


def null_number(name: str) -> DeltaInvariantViolationException:
    """The error for an identity column that a new row gives null. Spark makes null of the word DEFAULT."""
    return DeltaInvariantViolationException(
        error_class="DELTA_IDENTITY_COLUMNS_NULL_NOT_SUPPORTED", column_name=name, column=name
    )


def checks_of_numbers(schema: T.StructType, given: Collection[str]) -> Iterator[Check]:
    """The checks of the identity columns that new rows give themselves."""
    for name in identity_columns(schema):
        if name in given:
            yield Check(f"{quoted(name)} IS NOT NULL", str(null_number(name)))


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
    rows: DataFrame,
    schema: T.StructType,
    computed: Mapping[str, Column],
    others: Iterable[str],
    table: str,
) -> DataFrame:
    """The columns of the table at the path `table` of a frame, in which generated columns are computed anew,
    and identity columns get new numbers, where `computed` is true; and `others` as they are.

    The frame has the columns by name, with the values that the others are to have.
    """
    numbers = {
        name: identity_numbers(identity.first, identity.step)
        for name, identity in identity_columns(schema).items()
        if name in computed
    }
    if numbers:
        new = {name: F.when(computed[name], n).otherwise(F.col(quoted(name))) for name, n in numbers.items()}
        rows = rows.withColumns(new)
    expressions = generation_expressions(schema)
    columns = []
    for field in schema.fields:
        value = F.col(quoted(field.name))
        if field.name in computed and field.name in expressions:
            generated = table_expression(expressions[field.name], table).cast(field.dataType)
            value = F.when(computed[field.name], generated).otherwise(value)
        columns.append(value.alias(field.name))
    return rows.select(*columns, *map(quoted, others))
