"""The definition of a table as SQL: names, values, types and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.interface.table_builder import (
    GENERATION_EXPRESSION,
    IDENTITY_ALLOWS_EXPLICIT,
    IDENTITY_START,
    IDENTITY_STEP,
)

CURRENT_DEFAULT = "CURRENT_DEFAULT"
"""In a column's metadata: the SQL of the value that the column has in new rows that give none."""
_IN_SQL = ("comment", GENERATION_EXPRESSION, CURRENT_DEFAULT)


def not_in_sql(what: str, instead: str) -> DeltaUnsupportedOperationException:
    """The error for what a client of Spark Connect cannot ask for."""
    return DeltaUnsupportedOperationException(
        f"{what} has no form in SQL, by which deltaflow.connect talks to the server. {instead}",
        error_class="DELTA_OPERATION_NOT_ALLOWED_DETAIL",
    )


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def quoted_list(names: Iterable[str]) -> str:
    """Names in backticks, in brackets."""
    return f"({', '.join(map(quoted, names))})"


def string(value: str) -> str:
    """A string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("${", "\\u0024{") + "'"


def has_variables(text: str) -> bool:
    """Whether Spark may put the value of a variable, such as ${env:HOME}, in the place of a part of the text
    when it is in a statement."""
    return "${" in text


def properties(values: Mapping[str, str]) -> str:
    """A list of properties, in brackets."""
    return f"({', '.join(f'{string(key)} = {string(value)}' for key, value in values.items())})"


def type_text(data_type: DataType) -> str:
    """A data type as CREATE TABLE takes it."""
    match data_type:
        case ArrayType(elementType=element, containsNull=True):
            return f"ARRAY<{type_text(element)}>"
        case MapType(keyType=key, valueType=value, valueContainsNull=True):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case ArrayType() | MapType():
            raise not_in_sql(f"{data_type.simpleString()} without nulls inside", "Let it contain nulls.")
        case StructType(fields=fields):
            inner = (
                column_text(field.name, type_text(field.dataType), field.nullable, field.metadata, ": ")
                for field in fields
            )
            return f"STRUCT<{', '.join(inner)}>"
        case TimestampType():
            return "timestamp_ltz"  # which type `timestamp` is, spark.sql.timestampType says
    return data_type.simpleString()


def column_text(
    name: str, data_type: str, nullable: bool, metadata: Mapping[str, Any], separator: str = " "
) -> str:
    """The definition of a column, or of a field of a struct."""
    identity = {IDENTITY_START, IDENTITY_STEP, IDENTITY_ALLOWS_EXPLICIT}
    is_identity = identity <= metadata.keys()
    others = metadata.keys() - {*_IN_SQL, *(identity if is_identity else ())}
    if others:
        raise not_in_sql(f"Metadata {', '.join(sorted(others))} of {name}", "Leave it out.")
    not_null = "" if nullable else " NOT NULL"
    comment = f" COMMENT {string(metadata['comment'])}" if "comment" in metadata else ""
    generated = metadata.get(GENERATION_EXPRESSION)
    # A line of its own, since the text may end with a comment.
    always = "" if generated is None else f" GENERATED ALWAYS AS ({generated}\n)"
    if is_identity:
        when = "BY DEFAULT" if metadata[IDENTITY_ALLOWS_EXPLICIT] else "ALWAYS"
        numbers = f"START WITH {metadata[IDENTITY_START]} INCREMENT BY {metadata[IDENTITY_STEP]}"
        always += f" GENERATED {when} AS IDENTITY ({numbers})"
    if CURRENT_DEFAULT in metadata:
        always += f" DEFAULT {metadata[CURRENT_DEFAULT]}"
    return f"{quoted(name)}{separator}{data_type}{not_null}{always}{comment}"
