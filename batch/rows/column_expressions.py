"""Generated columns, identity columns, and columns with a default.

They are "Generated Columns", "Identity Columns" and "Default Columns" of PROTOCOL.md.

Only columns of the table itself have such an expression, no fields of structs. It is SQL; that of a generated
column names other columns of the row, a default names none. The numbers of an identity column are made by
Spark (identity_numbers).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.rows.char_varchar import declared_type, value_that_fits
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaInvariantViolationException
from deltaflow.log.files.partition_values import NULL_FOLDER
from deltaflow.log.protocol.identity_columns import identity_columns, is_identity
from deltaflow.log.protocol.schema import CURRENT_DEFAULT, GENERATION_EXPRESSION, char_length
from deltaflow.spark.expressions.table_expressions import table_expression
from deltaflow.spark.write.file_write import Check

if TYPE_CHECKING:
    from pyspark.sql import Column


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


def stored_generations(schema: T.StructType, partition_columns: Collection[str]) -> dict[str, str]:
    """The values that the table stores of its generated columns, as SQL, by the columns' names: an empty
    partition value is null, and what is too long for CHAR or VARCHAR is an error. Nothing is cut off, since
    the values have to be those of the expressions."""
    found = {}
    for name, sql in generation_expressions(schema).items():
        declared = declared_type(schema[name])
        if isinstance(declared, T.CharType | T.VarcharType):
            sql = value_that_fits(_in_brackets(sql), declared, name)
        found[name] = (
            stored_partition_value(_in_brackets(sql), schema[name]) if name in partition_columns else sql
        )
    return found


def _in_brackets(sql: str) -> str:
    """The expression of a column, which may end with a comment."""
    return f"({sql}\n)"


def stored_partition_value(sql: str, field: T.StructField) -> str:
    """SQL of a value of a partition column as readers find it: an empty text, no bytes, and Spark's name of
    the folder for null are null."""
    nulls = {
        T.StringType: f"'', '{NULL_FOLDER}'",
        T.BinaryType: f"x'', x'{NULL_FOLDER.encode().hex()}'",
    }.get(type(field.dataType))
    return sql if nulls is None else f"if({sql} in ({nulls}), null, {sql})"


def checks_of_generated(
    schema: T.StructType, partition_columns: Collection[str], given: Collection[str]
) -> Iterator[Check]:
    """The checks of the generated columns that rows give themselves."""
    stored = stored_generations(schema, partition_columns)
    for name, sql in generation_expressions(schema).items():
        if name in given:
            error = DeltaInvariantViolationException(
                error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
                name="Generated Column",
                expression=f"{quoted(name)} <=> ({sql})",
            )
            value, wanted = quoted(name), _in_brackets(stored[name])
            length = char_length(schema[name])
            if length is not None:  # readers fill it up
                value, wanted = (f"rpad({text}, {length}, ' ')" for text in (value, wanted))
            yield Check(f"{value} <=> {wanted}", str(error), shows_values=True)
