"""CHAR and VARCHAR: they are strings in the log, and the column's metadata says what was declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import (
    CorruptLogError,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log.protocol.data_types import (
    have_one_shape,
    inner_fields,
    is_nested,
    transformed,
    with_inner_fields,
    with_type,
)
from deltaflow.log.protocol.schema import CHAR_VARCHAR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaflow.log import Snapshot

_PRESERVES_CHAR = "spark.sql.preserveCharVarcharTypeInfo"


def check_finds_char(spark: SparkSession, snapshot: Snapshot) -> None:
    """Raises DeltaUnsupportedOperationException in a session in which Spark does not find rows by CHAR
    columns, if the table has some. No crossing without such columns."""
    declared = {field.name: field.metadata.get(CHAR_VARCHAR, "") for field in snapshot.schema.fields}
    chars = [name for name, text in declared.items() if re.search(r"\bchar\(", text)]
    if chars and (spark.conf.get(_PRESERVES_CHAR, None) or "").lower() == "true":
        raise DeltaUnsupportedOperationException(
            f"With {_PRESERVES_CHAR} = true, Spark does not find the rows that have a value in the "
            f"CHAR column {quoted(chars[0])}: rows could stay that are to be changed or replaced, "
            "come twice, or break a constraint. "
            f"SET {_PRESERVES_CHAR} = false, and run it again.",
            table=snapshot.path,
            column=chars[0],
        )


def with_char_as_string(schema: T.StructType) -> T.StructType:
    """The schema as the log keeps it: CHAR and VARCHAR are strings, and metadata say what was declared."""
    fields = []
    for field in schema.fields:
        plain = _with_strings(field.dataType)
        metadata = dict(field.metadata)
        if plain != field.dataType:
            metadata[CHAR_VARCHAR] = _catalog_string(field.dataType)
        fields.append(T.StructField(field.name, plain, field.nullable, metadata))
    return T.StructType(fields)


def _catalog_string(data_type: T.DataType) -> str:
    """The type's `catalogString`, with quotes around names of fields that need them."""
    match data_type:
        case T.StructType():
            fields = (f"{_field_name(f.name)}:{_catalog_string(f.dataType)}" for f in data_type.fields)
            return f"struct<{','.join(fields)}>"
        case T.ArrayType():
            return f"array<{_catalog_string(data_type.elementType)}>"
        case T.MapType():
            return f"map<{_catalog_string(data_type.keyType)},{_catalog_string(data_type.valueType)}>"
    return data_type.simpleString()


def _field_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)


def with_declared_types(schema: T.StructType) -> T.StructType:
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


def with_declarations_of(schema: T.StructType, before: T.StructType) -> T.StructType:
    """The schema that columns of `before` have become: CHAR and VARCHAR are declared as there, in the types
    that the columns have now, with more or with wider fields."""
    olds = {field.name.lower(): field for field in before.fields if CHAR_VARCHAR in field.metadata}
    fields = []
    for field in schema.fields:
        old = olds.get(field.name.lower())
        if old is not None and old.dataType != field.dataType:
            field = with_type(field, _declared_as(field.dataType, declared_type(old)))
        fields.append(field)
    return with_char_as_string(T.StructType(fields))


def _declared_as(new: T.DataType, old: T.DataType) -> T.DataType:
    """The new type with CHAR and VARCHAR where the old one has it."""
    if not have_one_shape(new, old):
        return old if new == char_as_string(old) else new
    olds = {inner.name.lower(): inner.dataType for inner in inner_fields(old)}
    return with_inner_fields(
        new,
        [
            with_type(inner, _declared_as(inner.dataType, olds.get(inner.name.lower(), inner.dataType)))
            for inner in inner_fields(new)
        ],
    )


def stored_value(sql: str, data_type: T.CharType | T.VarcharType, column: str) -> str:
    """SQL for the value as it is stored: blanks beyond the length are cut off, other characters are an error.

    As in delta-spark, CHAR is not filled up with blanks; Spark does that when it reads.
    """
    cut = f"substring({sql}, 1, {data_type.length})"
    return _or_error(f"char_length(rtrim({sql})) > {data_type.length}", sql, cut, data_type, column)


def value_that_fits(sql: str, data_type: T.CharType | T.VarcharType, column: str) -> str:
    """SQL for the value; an error if it is too long, by blanks too."""
    return _or_error(f"char_length({sql}) > {data_type.length}", sql, sql, data_type, column)


def _or_error(
    is_wrong: str, sql: str, otherwise: str, data_type: T.CharType | T.VarcharType, column: str
) -> str:
    error = DeltaInvariantViolationException(
        error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        value="\0",
        expression=f"(length({column}) <= {data_type.length})",
    )
    before, after = str(error).split("\0")
    message = f"concat({_literal(before)}, {sql}, {_literal(after)})"
    return f"if({is_wrong}, raise_error({message}), {otherwise})"


def _literal(text: str) -> str:
    """A string literal that does not depend on the session's rules of quoting."""
    return f"cast(x'{text.encode().hex()}' as string)"


def _with_strings(data_type: T.DataType) -> T.DataType:
    return transformed(data_type, atomic=char_as_string)


def char_as_string(data_type: T.DataType) -> T.DataType:
    """STRING for CHAR and VARCHAR, and any other type as it is."""
    return T.StringType() if isinstance(data_type, T.CharType | T.VarcharType) else data_type


def has_no_char(data_type: T.DataType) -> bool:
    """Whether the type holds no CHAR and no VARCHAR."""
    return data_type == _with_strings(data_type)


def declared_type(field: T.StructField) -> T.DataType:
    """The column's type with CHAR and VARCHAR as declared; CorruptLogError where that is another type."""
    text = field.metadata.get(CHAR_VARCHAR)
    if text is None:
        return field.dataType
    try:
        return _with_char(field.dataType, text)
    except ValueError as error:  # not as many types within
        raise CorruptLogError(
            f"Column {field.name} is {field.dataType.simpleString()}, and was declared as {text!r}.",
            column=field.name,
        ) from error


def _with_char(data_type: T.DataType, text: str) -> T.DataType:
    """The type with the CHAR and VARCHAR that `text`, a `catalogString` of Spark, declares."""
    length = re.fullmatch(r"(char|varchar)\(([0-9]{1,9})\)", text)
    if length is not None:
        return (T.CharType if length[1] == "char" else T.VarcharType)(int(length[2]))
    if not is_nested(data_type):
        return data_type
    parts = _split_at_commas(text[text.find("<") + 1 : -1])
    if isinstance(data_type, T.StructType):
        parts = [part[_name_end(part) + 1 :].strip() for part in parts]
    return with_inner_fields(
        data_type,
        [
            with_type(inner, _with_char(inner.dataType, part))
            for inner, part in zip(inner_fields(data_type), parts, strict=True)
        ],
    )


def _split_at_commas(text: str) -> list[str]:
    """The parts of the text between commas outside of brackets and quotes."""
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
    """The position of the colon between the name and the type of a struct's field."""
    in_quotes = re.match(r"(?:`[^`]*`)+", part)
    if in_quotes is not None:
        return in_quotes.end()
    brackets = part.find("<")
    return part.rfind(":", 0, brackets if brackets >= 0 else len(part))
