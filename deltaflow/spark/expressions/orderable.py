"""Values in a form that has an order, and equals that of another value only if both are the same.

Spark compares no maps and no variants, and takes texts of a collation for others of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.definition_text import quoted
from deltaflow.log.protocol.data_types import EXACT_JSON, types_within

if TYPE_CHECKING:
    from pyspark.sql import Column

_BINARY: Final = T.StringType().collation
_Value = TypeVar("_Value")


def orderable(value: Column, data_type: T.DataType) -> Column:
    """The form of a value of this type. A null is less than every value."""
    return _Columns().form(value, data_type)


def orderable_sql(value: str, data_type: T.DataType) -> str:
    """The same for SQL: `value` is an expression."""
    return _Texts().form(value, data_type)


def is_collated(data_type: T.DataType) -> bool:
    """Whether it is a string whose comparison is not that of its bytes."""
    return isinstance(data_type, T.StringType) and data_type.collation != _BINARY


class _Expressions(ABC, Generic[_Value]):
    """Makes the form, of Columns or as SQL; `depth` tells the variables of lambdas within each other."""

    def form(self, value: _Value, data_type: T.DataType, depth: int = 0) -> _Value:
        if not any(_has_form(found) for _, found in types_within(data_type)):
            return value
        match data_type:
            case T.MapType():
                entry = T.StructType().add("key", data_type.keyType).add("value", data_type.valueType)
                entries = self.call("map_entries", value)
                return self.call("array_sort", self.form(entries, T.ArrayType(entry), depth))
            case T.ArrayType():
                return self.each(value, depth, lambda item: self.form(item, data_type.elementType, depth + 1))
            case T.StructType():
                fields = [self.form(self.field(value, f.name), f.dataType, depth) for f in data_type.fields]
                return self.call("struct", self.call("isnotnull", value), *fields)
            case T.StringType():
                return self.binary(value)
            case T.NullType():
                return self.call("isnotnull", value)
        # Of two variants with the same JSON one may have a date, and the other one its text.
        is_there = self.call("isnotnull", value)
        return self.call("struct", is_there, self.json(value), self.call("schema_of_variant", value))

    @abstractmethod
    def call(self, function: str, *values: _Value) -> _Value: ...

    @abstractmethod
    def field(self, value: _Value, name: str) -> _Value: ...

    @abstractmethod
    def each(self, value: _Value, depth: int, body: Callable[[_Value], _Value]) -> _Value: ...

    @abstractmethod
    def binary(self, value: _Value) -> _Value: ...

    @abstractmethod
    def json(self, value: _Value) -> _Value: ...


def _has_form(data_type: T.DataType) -> bool:
    return (
        isinstance(data_type, T.MapType | T.NullType)
        or data_type.typeName() == "variant"
        or is_collated(data_type)
    )


class _Columns(_Expressions["Column"]):
    def call(self, function: str, *values: Column) -> Column:
        return F.call_function(function, *values)

    def field(self, value: Column, name: str) -> Column:
        return value.getField(name)

    def each(self, value: Column, depth: int, body: Callable[[Column], Column]) -> Column:
        return F.transform(value, body)

    def binary(self, value: Column) -> Column:
        return F.collate(value, _BINARY)

    def json(self, value: Column) -> Column:
        return F.to_json(F.struct(value.alias("_")), EXACT_JSON)


class _Texts(_Expressions[str]):
    def call(self, function: str, *values: str) -> str:
        return f"{function}({', '.join(values)})"

    def field(self, value: str, name: str) -> str:
        return f"{value}.{quoted(name)}"

    def each(self, value: str, depth: int, body: Callable[[str], str]) -> str:
        return f"transform({value}, _{depth} -> {body(f'_{depth}')})"

    def binary(self, value: str) -> str:
        return f"collate({value}, '{_BINARY}')"

    def json(self, value: str) -> str:
        options = ", ".join(f"'{name}', '{text}'" for name, text in EXACT_JSON.items())
        return f"to_json(struct({value} AS _), map({options}))"
