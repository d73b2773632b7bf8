"""The values that UPDATE and clauses of MERGE assign, as columns of the table's schema: one for each of its
columns.

Structs are matched by their fields' names, in arrays and maps too; what is atomic is cast by the session's
policy of store assignment. Source: delta-spark's UpdateExpressionsSupport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.batch.rows.column_expressions import default_value, null_number
from deltaflow.batch.rows.row_plan import plain_type
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log.protocol.identity_columns import is_identity
from deltaflow.spark.expressions.analysis import Analysed, analysed, analysed_if_resolved, store_assigned
from deltaflow.spark.expressions.expressions import name_parts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Value(NamedTuple):
    """An expression and its type."""

    column: Column
    type: T.DataType

    def field(self, field: T.StructField) -> Value:
        return Value(self.column.getField(field.name), field.dataType)

    def fields(self) -> dict[str, Value]:
        """The fields of a struct by their names in lower case."""
        assert isinstance(self.type, T.StructType)
        return {field.name.lower(): self.field(field) for field in self.type.fields}


@dataclass(frozen=True)
class Assignment:
    """What is assigned to a column, or to a field in it: the names on the way there, and the value."""

    path: Sequence[str]
    value: Value
    keeps_fields: bool = False
    """Fields of the row's own struct that the value's lacks stay as they are; else they become null."""


@dataclass(frozen=True)
class Assigner:
    """Makes rows of the table out of assignments."""

    spark: SparkSession
    table: str
    may_lack_fields: bool = False
    """Whether a value may lack fields of the table's structs (the schema evolves)."""

    def inserted(self, schema: T.StructType, assignments: Sequence[Assignment]) -> list[Column]:
        """The columns of a new row; where nothing is assigned, the default or null."""
        for assignment in assignments:
            if len(assignment.path) > 1:
                raise DeltaAnalysisException(
                    error_class="DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
                    operation="INSERT clause of MERGE operation",
                    field_name=".".join(assignment.path),
                    table=self.table,
                )
        by_name = {assignment.path[0].lower(): assignment for assignment in assignments}
        if len(by_name) < len(assignments):
            raise DeltaAnalysisException(error_class="DELTA_DUPLICATE_COLUMNS_ON_INSERT", table=self.table)
        return [
            self._given(by_name[field.name.lower()].value, field)
            if field.name.lower() in by_name
            else default_value(field, self.table)
            for field in schema.fields
        ]

    def _given(self, value: Value, field: T.StructField) -> Column:
        """The value as one of a new row's column; an error where it is null and has to be a number."""
        column = self._aligned(value, field.dataType, field.name)
        if not is_identity(field):
            return column
        return F.coalesce(column, F.raise_error(F.lit(str(null_number(field.name)))))

    def updated(
        self, schema: T.StructType, assignments: Sequence[Assignment], row: dict[str, Value], prefix: str = ""
    ) -> list[Column]:
        """The columns of a row, or the fields of a struct, of which some get new values; `row` has what is
        there, by names in lower case."""
        names = [field.name.lower() for field in schema.fields]
        for assignment in assignments:
            if assignment.path[0].lower() not in names:
                raise DeltaAnalysisException(
                    error_class="DELTA_MISSING_SET_COLUMN",
                    column_name=prefix + assignment.path[0],
                    column_list=", ".join(prefix + field.name for field in schema.fields),
                    table=self.table,
                )
        return [
            self._updated_field(field, assignments, row.get(field.name.lower()), prefix)
            for field in schema.fields
        ]

    def _updated_field(
        self, field: T.StructField, assignments: Sequence[Assignment], present: Value | None, prefix: str
    ) -> Column:
        path = prefix + field.name
        own = [found for found in assignments if found.path[0].lower() == field.name.lower()]
        if not own:
            if present is None:
                return F.lit(None).cast(field.dataType)
            return replace(self, may_lack_fields=True)._aligned(present, field.dataType, path)
        whole = next((found for found in own if len(found.path) == 1), None)
        if whole is not None:
            if len(own) > 1:
                self._conflict(own, prefix)
            return self._aligned(whole.value, field.dataType, path, present if whole.keeps_fields else None)
        if not isinstance(field.dataType, T.StructType):
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
                target=f"{path} is of type {field.dataType.simpleString()}",
                table=self.table,
            )
        inner = [replace(found, path=found.path[1:]) for found in own]
        fields = self.updated(field.dataType, inner, present.fields() if present else {}, f"{path}.")
        return _struct(field.dataType, fields)

    def _conflict(self, assignments: Sequence[Assignment], prefix: str) -> NoReturn:
        raise DeltaAnalysisException(
            error_class="DELTA_CONFLICT_SET_COLUMN",
            column_list=", ".join(prefix + ".".join(found.path) for found in assignments),
            table=self.table,
        )

    def _aligned(self, value: Value, want: T.DataType, column: str, kept: Value | None = None) -> Column:
        """The value as one of the type `want`; fields that it lacks are those of the struct `kept`."""
        have = value.type
        if plain_type(have) == plain_type(want) and kept is None:
            return value.column
        match have, want:
            case T.NullType(), _:
                return F.lit(None).cast(want)
            case T.StructType(), T.StructType():
                return self._struct_aligned(value, have, want, column, kept)
            case T.ArrayType(), T.ArrayType():
                given, wanted = have.elementType, want.elementType
                return F.transform(
                    value.column, lambda item: self._aligned(Value(item, given), wanted, column)
                )
            case T.MapType(), T.MapType():
                return self._map_aligned(value.column, have, want, column)
        if plain_type(have) == plain_type(want):
            return value.column
        return store_assigned(self.spark, value.column, plain_type(want), column)

    def _struct_aligned(
        self, value: Value, have: T.StructType, want: T.StructType, column: str, kept: Value | None
    ) -> Column:
        given = value.fields()
        names = {field.name.lower() for field in want.fields}
        lacking = names - given.keys()
        is_ambiguous = len(given) < len(have.fields)  # fields whose names differ in case alone
        if is_ambiguous or given.keys() - names or (lacking and not self.may_lack_fields):
            raise DeltaAnalysisException(
                error_class="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
                from_catalog=have.simpleString(),
                to_catalog=want.simpleString(),
                table=self.table,
                column=column,
            )
        present = kept.fields() if kept is not None and isinstance(kept.type, T.StructType) else {}
        fields = []
        for field in want.fields:
            name = field.name.lower()
            own = given.get(name) or present.get(name)
            if own is None:
                fields.append(F.lit(None).cast(field.dataType))
                continue
            inner = present.get(name) if name in given and isinstance(field.dataType, T.StructType) else None
            fields.append(self._aligned(own, field.dataType, f"{column}.{field.name}", inner))
        is_null = value.column.isNull()
        if kept is not None and _has_more_fields(kept.type, value.type):
            is_null = is_null & kept.column.isNull()
        return F.when(~is_null, _struct(want, fields))

    def _map_aligned(self, value: Column, have: T.MapType, want: T.MapType, column: str) -> Column:
        if plain_type(have.valueType) != plain_type(want.valueType):
            value = F.transform_values(
                value, lambda _, item: self._aligned(Value(item, have.valueType), want.valueType, column)
            )
        if plain_type(have.keyType) != plain_type(want.keyType):
            value = F.transform_keys(
                value, lambda key, _: self._aligned(Value(key, have.keyType), want.keyType, column)
            )
        return value


def values_or_defaults(
    frame: DataFrame,
    values: Sequence[Column],
    paths: Sequence[Sequence[str]],
    schema: T.StructType,
    table: str,
    *,
    at_one_time: bool = True,
) -> list[Analysed]:
    """The values as expressions over the frame; the word DEFAULT stands for the default of the column at its
    path, which is null where the table at the path `table` has no column of that name."""
    found = analysed_if_resolved(frame, values, at_one_time=at_one_time)
    if found is not None:
        return found
    words = [(name_parts(value) or ("",))[-1].upper() == "DEFAULT" for value in values]
    fields = {field.name.lower(): field for field in schema.fields}
    given = [
        _default(fields[path[0].lower()], table)
        if is_word and len(path) == 1 and path[0].lower() in fields
        else F.lit(None)
        if is_word
        else value
        for value, path, is_word in zip(values, paths, words, strict=True)
    ]
    return analysed(frame, given, at_one_time=at_one_time)


def _default(field: T.StructField, table: str) -> Column:
    if is_identity(field):
        raise null_number(field.name)
    return default_value(field, table)


def _struct(data_type: T.StructType, fields: Sequence[Column]) -> Column:
    return F.struct(*[value.alias(field.name) for field, value in zip(data_type.fields, fields, strict=True)])


def _has_more_fields(kept: T.DataType, given: T.DataType) -> bool:
    """Whether a struct has fields, in nested structs too, that the other lacks."""
    if not isinstance(kept, T.StructType) or not isinstance(given, T.StructType):
        return False
    theirs = {field.name.lower(): field.dataType for field in given.fields}
    return any(
        field.name.lower() not in theirs or _has_more_fields(field.dataType, theirs[field.name.lower()])
        for field in kept.fields
    )
