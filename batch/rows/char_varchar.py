"""CHAR and VARCHAR: strings in the log, whose column remembers what was declared."""

from __future__ import annotations

import re

from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaInvariantViolationException
from deltaflow.log.protocol.data_types import (
    inner_fields,
    is_nested,
    transformed,
    with_inner_fields,
    with_type,
)
from deltaflow.log.protocol.schema import CHAR_VARCHAR


def with_char_as_string(schema: T.StructType) -> T.StructType:
    """A schema as the log keeps it: CHAR and VARCHAR are strings whose column remembers what was declared."""
    fields = []
    for field in schema.fields:
        plain = _without_char(field.dataType)
        metadata = dict(field.metadata)
        if plain != field.dataType:
            metadata[CHAR_VARCHAR] = _text(field.dataType)
        fields.append(T.StructField(field.name, plain, field.nullable, metadata))
    return T.StructType(fields)


def _text(data_type: T.DataType) -> str:
    """The type as Spark reads it: `catalogString`, with names of fields in quotes that need them."""
    match data_type:
        case T.StructType():
            return f"struct<{','.join(f'{_name(f.name)}:{_text(f.dataType)}' for f in data_type.fields)}>"
        case T.ArrayType():
            return f"array<{_text(data_type.elementType)}>"
        case T.MapType():
            return f"map<{_text(data_type.keyType)},{_text(data_type.valueType)}>"
    return data_type.simpleString()


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)


def as_declared(schema: T.StructType) -> T.StructType:
    """The inverse of `with_char_as_string`."""
    return T.StructType(
        [
            T.StructField(
                field.name,
                declared_type(field),
                field.nullable,
                {name: value for name, value in field.metadata.items() if name != CHAR_VARCHAR},
            )
            for field in schema.fields
        ]
    )


def of_length(sql: str, data_type: T.CharType | T.VarcharType, column: str) -> str:
    """A value as it is stored: blanks beyond the length are cut off, any other character there is an error.

    CHAR is not filled up with blanks, as in delta-spark: Spark does so for whoever reads.
    """
    error = DeltaInvariantViolationException(
        error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        value="\0",
        expression=f"(length({column}) <= {data_type.length})",
    )
    before, after = str(error).split("\0")
    message = f"concat({_literal(before)}, {sql}, {_literal(after)})"
    too_long = f"char_length(rtrim({sql})) > {data_type.length}"
    return f"if({too_long}, raise_error({message}), substring({sql}, 1, {data_type.length}))"


def _literal(text: str) -> str:
    """A string as SQL, whatever the session's rules of quoting are."""
    return f"cast(x'{text.encode().hex()}' as string)"


def _without_char(data_type: T.DataType) -> T.DataType:
    return transformed(data_type, atomic=char_as_string)


def char_as_string(data_type: T.DataType) -> T.DataType:
    """STRING for CHAR and VARCHAR, any other type as it is."""
    return T.StringType() if isinstance(data_type, T.CharType | T.VarcharType) else data_type


def is_plain(data_type: T.DataType) -> bool:
    """Whether there is no CHAR or VARCHAR in the type."""
    return data_type == _without_char(data_type)


def declared_type(field: T.StructField) -> T.DataType:
    """The column's type with CHAR and VARCHAR as declared."""
    text = field.metadata.get(CHAR_VARCHAR)
    return field.dataType if text is None else _with_char(field.dataType, text)


def _with_char(data_type: T.DataType, text: str) -> T.DataType:
    """The type with the CHAR and VARCHAR of its text, which is that of Spark's `catalogString`."""
    length = re.fullmatch(r"(char|varchar)\((\d+)\)", text)
    if length is not None:
        return (T.CharType if length[1] == "char" else T.VarcharType)(int(length[2]))
    if not is_nested(data_type):
        return data_type
    parts = _parts(text[text.find("<") + 1 : -1])
    if isinstance(data_type, T.StructType):
        parts = [part[_name_end(part) + 1 :].strip() for part in parts]
    return with_inner_fields(
        data_type,
        [
            with_type(inner, _with_char(inner.dataType, part))
            for inner, part in zip(inner_fields(data_type), parts, strict=True)
        ],
    )


def _parts(text: str) -> list[str]:
    """What commas separate that are not within brackets or quotes."""
    parts, depth, is_quoted = [""], 0, False
    for character in text:
        is_quoted ^= character == "`"
        depth += 0 if is_quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _name_end(part: str) -> int:
    """Where the name of a struct's field ends and its type begins."""
    in_quotes = re.match(r"(?:`[^`]*`)+", part)
    if in_quotes is not None:
        return in_quotes.end()
    brackets = part.find("<")
    return part.rfind(":", 0, brackets if brackets >= 0 else len(part))
