"""What a frame's rows go through on their way into a table: names, casts, missing columns, checks.

All of it is SQL that Spark runs in its own operators. Spark's TableOutputResolver casts the frame's columns,
and the fields within them, to the table's types by name; after it come the columns and fields that the frame
lacks, as nulls, and CHAR and VARCHAR; then the checks that every row has to pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import types as T

from deltaflow.errors import DeltaInvariantViolationException, SchemaError, UnsupportedFeatureError
from deltaflow.log import Metadata
from deltaflow.spark.write import Check, RowPlan

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's name in a column's metadata for the type that the user declared; the column's own is string."""
_INVARIANTS = "delta.invariants"
_CONSTRAINTS = "delta.constraints."


def row_plan(
    frame: T.StructType, table: T.StructType, partition_columns: Sequence[str], checks: Sequence[Check]
) -> RowPlan:
    """How rows of `frame`, whose columns have the table's names, become rows of the table.

    The frame has no columns that the table lacks, and types that fit.
    """
    wanted = [_declared(field) for field in table.fields]
    missing = {field.name for field in table.fields} - set(frame.names)
    needed = [f.name for f in table.fields if not f.nullable and f.name in missing]
    if needed:
        raise SchemaError(error_class="DELTA_MISSING_NOT_NULL_COLUMN_VALUE", column_name=needed[0])
    if not checks and _bare(frame) == _bare(table) and all(map(_is_plain, wanted)):
        return RowPlan(frame=_bare_struct(frame), table=_bare_struct(table))
    cast = _restricted(table, frame)
    columns = [
        _column(field.name, cast[field.name].dataType, kind, is_partition=field.name in partition_columns)
        if field.name not in missing
        else "null"
        for field, kind in zip(table.fields, wanted, strict=True)
    ]
    return RowPlan(_bare_struct(frame), _bare_struct(table), cast, tuple(columns), tuple(checks))


def checks_of_table(metadata: Metadata, schema: T.StructType) -> list[Check]:
    """NOT NULL, the invariants of columns and the CHECK constraints (PROTOCOL.md, "Column Invariants",
    "CHECK Constraints")."""
    return [
        *(_not_null(path, condition) for path, condition in _conditions(schema, (), "")),
        *_invariants(schema),
        *(
            Check(expression, _violated(name[len(_CONSTRAINTS) :], expression), shows_values=True)
            for name, expression in sorted(metadata.configuration.items())
            if name.lower().startswith(_CONSTRAINTS)
        ),
    ]


def quoted(name: str) -> str:
    """A name as SQL."""
    return "`" + name.replace("`", "``") + "`"


def with_char_as_string(kind: T.StructType) -> T.StructType:
    """A schema as the log keeps it: CHAR and VARCHAR are strings whose column remembers what was declared."""
    fields = []
    for field in kind.fields:
        plain = _without_char(field.dataType)
        metadata = dict(field.metadata)
        if plain != field.dataType:
            metadata[CHAR_VARCHAR] = field.dataType.simpleString()
        fields.append(T.StructField(field.name, plain, field.nullable, metadata))
    return T.StructType(fields)


def _not_null(path: Sequence[str], condition: str) -> Check:
    error = DeltaInvariantViolationException(
        error_class="DELTA_NOT_NULL_CONSTRAINT_VIOLATED", column_name=".".join(path)
    )
    return Check(condition, str(error))


def _violated(name: str, expression: str) -> str:
    error = DeltaInvariantViolationException(
        error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", name=name, expression=expression
    )
    return str(error)


class _Expression(msgspec.Struct):
    expression: str


class _Invariant(msgspec.Struct):
    expression: _Expression


def _invariants(struct: T.StructType) -> Iterator[Check]:
    for field in struct.fields:
        if _INVARIANTS in field.metadata and field.nullable:
            try:
                found = msgspec.json.decode(field.metadata[_INVARIANTS], type=_Invariant)
            except msgspec.MsgspecError as error:
                raise UnsupportedFeatureError(
                    f"The invariant of column {field.name} is none that deltaflow knows: "
                    f"{field.metadata[_INVARIANTS]}.",
                    features=["invariants"],
                    column=field.name,
                ) from error
            text = found.expression.expression
            yield Check(text, _violated(f"EXPRESSION({text})", text), shows_values=True)
        if isinstance(field.dataType, T.StructType):
            yield from _invariants(field.dataType)


def _conditions(
    struct: T.StructType, path: tuple[str, ...], prefix: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """(column, condition) for everything in the struct that may not be null. Where a field of a struct may
    not be, the struct may not be either, as with delta-spark."""
    for field in struct.fields:
        sql, name = prefix + quoted(field.name), (*path, field.name)
        if not field.nullable:
            yield name, f"{sql} is not null"
        if isinstance(field.dataType, T.StructType):
            yield from _conditions(field.dataType, name, f"{sql}.")
        else:
            inside = _inside(sql, field.dataType, 0)
            if inside is not None:
                yield name, inside


def _inside(sql: str, kind: T.DataType, depth: int) -> str | None:
    """The condition that nothing within an array or map is null that may not be; None without any."""
    element = f"e{depth}"
    match kind:
        case T.StructType():
            parts = []
            for field in kind.fields:
                inner = f"{sql}.{quoted(field.name)}"
                parts += [] if field.nullable else [f"{inner} is not null"]
                inside = _inside(inner, field.dataType, depth)
                parts += [] if inside is None else [inside]
            return " and ".join(parts) or None
        case T.ArrayType():
            collections = [(sql, kind.elementType, kind.containsNull)]
        case T.MapType():
            collections = [
                (f"map_keys({sql})", kind.keyType, True),
                (f"map_values({sql})", kind.valueType, kind.valueContainsNull),
            ]
        case _:
            return None
    conditions = []
    for values, of, may_be_null in collections:
        inside = _inside(element, of, depth + 1)
        parts = [] if may_be_null else [f"{element} is not null"]
        parts += [] if inside is None else [inside]
        if parts:
            conditions.append(f"coalesce(forall({values}, {element} -> {' and '.join(parts)}), true)")
    return " and ".join(conditions) or None


def _column(name: str, have: T.DataType, want: T.DataType, *, is_partition: bool) -> str:
    value = _value(quoted(name), have, want, name, 0)
    # Among partition values the empty string is null, which the checks are to see.
    is_text = is_partition and isinstance(have, T.StringType)
    return f"if({quoted(name)} = '', null, {value})" if is_text else value


def _value(sql: str, have: T.DataType, want: T.DataType, column: str, depth: int) -> str:
    """SQL for the value of type `want` that `sql`, of type `have`, becomes.

    They differ in fields that `have` lacks, and in CHAR and VARCHAR, which `have` has as strings. Fields
    get names that say nothing: the value is cast to the table's type afterwards, by position.
    """
    if have == _bare(want) and _is_plain(want):
        return sql
    element = f"e{depth}"
    match have, want:
        case _, T.CharType() | T.VarcharType():
            return _of_length(sql, want, column)
        case T.StructType(), T.StructType():
            found = set(have.names)
            fields = [
                f"'f{i}', "
                + (
                    _value(f"{sql}.{quoted(f.name)}", have[f.name].dataType, f.dataType, column, depth)
                    if f.name in found
                    else "null"
                )
                for i, f in enumerate(want.fields)
            ]
            return f"if({sql} is null, null, named_struct({', '.join(fields)}))"
        case T.ArrayType(), T.ArrayType():
            inner = _value(element, have.elementType, want.elementType, column, depth + 1)
            return f"transform({sql}, {element} -> {inner})"
        case T.MapType(), T.MapType():
            keys = _value(element, have.keyType, want.keyType, column, depth + 1)
            values = _value(element, have.valueType, want.valueType, column, depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({sql}), {element} -> {keys}), "
                f"transform(map_values({sql}), {element} -> {values}))"
            )
    raise AssertionError(f"{have.simpleString()} is not the shape of {want.simpleString()}")


def _of_length(sql: str, kind: T.CharType | T.VarcharType, column: str) -> str:
    """Blanks at the end do not count (as in Spark's CharVarcharCodegenUtils); CHAR is filled up with them."""
    error = DeltaInvariantViolationException(
        error_class="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
        value="\0",
        expression=f"(length({column}) <= {kind.length})",
    )
    before, after = str(error).split("\0")
    message = f"concat({_literal(before)}, {sql}, {_literal(after)})"
    fitted = (
        f"rpad({sql}, {kind.length})"
        if isinstance(kind, T.CharType)
        else f"substring({sql}, 1, {kind.length})"
    )
    return f"if(char_length(rtrim({sql})) > {kind.length}, raise_error({message}), {fitted})"


def _literal(text: str) -> str:
    """A string as SQL, whatever the session's rules of quoting are."""
    return f"cast(x'{text.encode().hex()}' as string)"


def _restricted(table: T.StructType, frame: T.StructType) -> T.StructType:
    """The table's schema as far as the frame has it: same types and order, nothing that the frame lacks."""
    restricted = _restricted_type(table, frame)
    assert isinstance(restricted, T.StructType)
    return restricted


def _restricted_type(table: T.DataType, frame: T.DataType) -> T.DataType:
    match table, frame:
        case T.StructType(), T.StructType():
            theirs = {field.name: field.dataType for field in frame.fields}
            return T.StructType(
                [
                    T.StructField(field.name, _restricted_type(field.dataType, theirs[field.name]))
                    for field in table.fields
                    if field.name in theirs
                ]
            )
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_restricted_type(table.elementType, frame.elementType))
        case T.MapType(), T.MapType():
            return T.MapType(
                _restricted_type(table.keyType, frame.keyType),
                _restricted_type(table.valueType, frame.valueType),
            )
    return _bare(table)


def _bare(kind: T.DataType) -> T.DataType:
    """The type alone: nullable throughout, no metadata, CHAR and VARCHAR as strings."""
    match kind:
        case T.StructType():
            return T.StructType([T.StructField(f.name, _bare(f.dataType)) for f in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_bare(kind.elementType))
        case T.MapType():
            return T.MapType(_bare(kind.keyType), _bare(kind.valueType))
        case T.CharType() | T.VarcharType():
            return T.StringType()
    return kind


def _bare_struct(kind: T.StructType) -> T.StructType:
    bare = _bare(kind)
    assert isinstance(bare, T.StructType)
    return bare


def _without_char(kind: T.DataType) -> T.DataType:
    match kind:
        case T.StructType():
            return T.StructType(
                [
                    T.StructField(f.name, _without_char(f.dataType), f.nullable, f.metadata)
                    for f in kind.fields
                ]
            )
        case T.ArrayType():
            return T.ArrayType(_without_char(kind.elementType), kind.containsNull)
        case T.MapType():
            return T.MapType(
                _without_char(kind.keyType), _without_char(kind.valueType), kind.valueContainsNull
            )
        case T.CharType() | T.VarcharType():
            return T.StringType()
    return kind


def _is_plain(kind: T.DataType) -> bool:
    """Whether there is no CHAR or VARCHAR in the type."""
    return kind == _without_char(kind)


def _declared(field: T.StructField) -> T.DataType:
    """The column's type with CHAR and VARCHAR as declared."""
    text = field.metadata.get(CHAR_VARCHAR)
    return field.dataType if text is None else _with_char(field.dataType, text)


def _with_char(kind: T.DataType, text: str) -> T.DataType:
    """The type with the CHAR and VARCHAR of its text, which is that of Spark's `catalogString`."""
    length = re.fullmatch(r"(char|varchar)\((\d+)\)", text)
    if length is not None:
        return (T.CharType if length[1] == "char" else T.VarcharType)(int(length[2]))
    parts = _parts(text[text.find("<") + 1 : -1])
    match kind:
        case T.StructType():
            return T.StructType(
                [
                    T.StructField(f.name, _with_char(f.dataType, part[_name_end(part) + 1 :].strip()))
                    for f, part in zip(kind.fields, parts, strict=True)
                ]
            )
        case T.ArrayType():
            return T.ArrayType(_with_char(kind.elementType, parts[0]))
        case T.MapType():
            return T.MapType(_with_char(kind.keyType, parts[0]), _with_char(kind.valueType, parts[1]))
    return kind


def _parts(text: str) -> list[str]:
    """What commas separate that are not within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _name_end(part: str) -> int:
    """Where the name of a struct's field ends and its type begins."""
    brackets = part.find("<")
    return part.rfind(":", 0, brackets if brackets >= 0 else len(part))
