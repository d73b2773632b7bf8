"""Names, values and Columns as SQL.

A Column of a client is a message of Spark Connect (spark/connect/expressions.proto). What SQL has no words
for is refused by name.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from deltaflow.definition_text import has_variables, not_in_sql, quoted, string, type_text
from deltaflow.store import is_absolute_path

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

# As Spark's UnresolvedAttribute.parseAttributeName, to which blanks are a part of the name.
_PART_OF_NAME = re.compile(r"(?:`((?:[^`]|``)*)`|([^.`]+))(?:\.(?!\Z)|\Z)")
_FUNCTION = re.compile(r"\w+(\.\w+)*", re.ASCII)
_OPERATORS = ("==", "<=>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or", "&", "|", "^")
# Two signs in a row would begin a comment.
_PREFIXES = {"not": "NOT ", "negative": "- ", "positive": "+ ", "~": "~"}
_INTEGER_SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L"}


def column_name(name: str) -> str:
    """A name as `F.col` takes it, whose parts dots separate: each part in backticks."""
    parts = []
    at = 0
    while at < len(name):
        found = _PART_OF_NAME.match(name, at)
        if found is None:
            raise ValueError(f"{name!r} is no name of a column: put names with odd characters in backticks.")
        parts.append(_in_backticks(found[2] if found[1] is None else found[1].replace("``", "`")))
        at = found.end()
    return ".".join(parts)


def name_of_path(path: str) -> str:
    """The name of the table at an absolute path."""
    if path and not is_absolute_path(path):
        # Spark would take it for the name of a table in the schema delta.
        raise not_in_sql(f"The relative path {path}", "Give an absolute path of the server.")
    return f"delta.{_in_backticks(path)}"


def _in_backticks(name: str) -> str:
    if has_variables(name):
        # Backticks have no escapes, and a wrong path could be that of another table.
        raise not_in_sql(f"The name {name}", "There, ${…} is the value of a variable. Use a classic session.")
    return quoted(name)


def expression(spark: SparkSession, given: str | Column) -> str:
    """A condition or a value, in SQL or a Column, as SQL in brackets."""
    if isinstance(given, str):
        # A line of its own, since the text may end with a comment.
        return f"({given}\n)"
    return _text(given.to_plan(spark.client))  # type: ignore[operator]


def _text(message: Any) -> str:
    kind = message.WhichOneof("expr_type")
    match kind:
        case "literal":
            return _literal(message.literal)
        case "unresolved_attribute":
            attribute = message.unresolved_attribute
            if attribute.HasField("plan_id"):
                name = attribute.unparsed_identifier
                raise not_in_sql(
                    f"{name} as a column of one DataFrame",
                    f"Name it by the alias of its table, as in col('source.{name}').",
                )
            return column_name(attribute.unparsed_identifier)
        case "expression_string":
            return f"({message.expression_string.expression}\n)"
        case "alias":
            return _text(message.alias.expr)
        case "cast":
            return _cast(message.cast)
        case "unresolved_extract_value":
            value = message.unresolved_extract_value
            return f"{_text(value.child)}{_extraction(value.extraction)}"
        case "unresolved_function":
            function = message.unresolved_function
            # A struct alone has names for its values; elsewhere an alias has no meaning.
            text = _field if function.function_name == "struct" else _text
            return _call(function.function_name, list(map(text, function.arguments)), function.is_distinct)
        case "call_function":
            function = message.call_function
            return _call(function.function_name, list(map(_text, function.arguments)))
        case "common_inline_user_defined_function":
            name = message.common_inline_user_defined_function.function_name
            raise not_in_sql(
                f"The function {name}",
                f"Register it, spark.udf.register('{name}', …), and write a string of SQL.",
            )
    raise not_in_sql(f"A Column of the kind {kind}", "Write it as a string in SQL.")


def _field(message: Any) -> str:
    """A value of a struct, with the name of its field if it has one."""
    match message.WhichOneof("expr_type"):
        case "alias" if len(message.alias.name) == 1:
            return f"{_text(message.alias.expr)} AS {quoted(message.alias.name[0])}"
        case "expression_string":
            # Without brackets, since the text may end with a name.
            return f"{message.expression_string.expression}\n"
    return _text(message)


def _call(name: str, arguments: list[str], is_distinct: bool = False) -> str:
    match name, arguments:
        case _, [left, right] if name in _OPERATORS:
            return f"({left} {name.upper()} {right})"
        case _, [value] if name in _PREFIXES:
            return f"({_PREFIXES[name]}{value})"
        case "in", [_]:
            return "FALSE"
        case "in", [value, *others]:
            return f"({value} IN ({', '.join(others)}))"
        case "timestampadd" | "timestampdiff", [unit, *others] if unit[1:-1].isalpha():
            return f"{name}({unit[1:-1]}, {', '.join(others)})"
        case "when", _:
            pairs = zip(arguments[::2], arguments[1::2], strict=False)
            cases = "".join(f" WHEN {condition} THEN {value}" for condition, value in pairs)
            return f"(CASE{cases}{f' ELSE {arguments[-1]}' if len(arguments) % 2 else ''} END)"
    if not _FUNCTION.fullmatch(name):
        raise not_in_sql(f"The function {name}", "Write the expression as a string in SQL.")
    return f"{name}({'DISTINCT ' if is_distinct else ''}{', '.join(arguments)})"


def _extraction(key: Any) -> str:
    text = key.literal.string
    # A struct's field is no expression, and a dot takes a map's key as well.
    is_name = _has_escapes(text) and not has_variables(text)
    return f".{quoted(text)}" if is_name else f"[{_text(key)}]"


def _cast(cast: Any) -> str:
    from pyspark.sql.connect.proto import Expression
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

    is_text = cast.WhichOneof("cast_to_type") == "type_str"
    wanted = cast.type_str if is_text else type_text(proto_schema_to_pyspark_data_type(cast.type))
    mode = getattr(cast, "eval_mode", 0)
    if mode == Expression.Cast.EVAL_MODE_TRY:
        return f"TRY_CAST({_text(cast.expr)} AS {wanted})"
    return f"CAST({_text(cast.expr)} AS {wanted})"


def _literal(literal: Any) -> str:
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

    kind = literal.WhichOneof("literal_type")
    value: Any = None if kind is None else getattr(literal, kind)
    match kind:
        case "null":
            null_type = proto_schema_to_pyspark_data_type(value)
            return "NULL" if null_type.typeName() == "void" else f"CAST(NULL AS {type_text(null_type)})"
        case "boolean":
            return str(value).upper()
        case "byte" | "short" | "integer" | "long":
            return f"{value}{_INTEGER_SUFFIXES[kind]}"
        case "float" | "double":
            return f"CAST({string(_number(value))} AS {kind.upper()})"
        case "decimal":
            return f"{value.value}BD"
        case "string":
            # Under spark.sql.parser.escapedStringLiterals the server's parser reads no escapes, and it puts
            # the values of variables in the place of ${…}.
            return f"CAST(X'{value.encode().hex()}' AS STRING)" if _has_escapes(value) else string(value)
        case "binary":
            return f"X'{value.hex()}'"
        case "date":
            return f"DATE'{date(1970, 1, 1) + timedelta(days=value)}'"
        case "timestamp":
            return f"timestamp_micros({value}L)"
        case "timestamp_ntz":
            return f"TIMESTAMP_NTZ'{datetime(1970, 1, 1) + timedelta(microseconds=value)}'"
        case "day_time_interval":
            return f"({value}L * INTERVAL '0.000001' SECOND)"
        case "array":
            return f"array({', '.join(map(_literal, value.elements))})"
    raise not_in_sql(f"A value of the kind {kind}", "Write it as a string in SQL.")


def _has_escapes(text: str) -> bool:
    return "\\" in text or "'" in text or has_variables(text)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
