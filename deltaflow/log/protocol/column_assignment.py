"""Gives columns of mapped tables their ids and physical names (PROTOCOL.md, "Column Mapping").

Source: delta-spark's DeltaColumnMapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from pyspark.sql import types as T

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log.protocol.actions import Metadata
from deltaflow.log.protocol.column_mapping import (
    ID,
    MAX_ID,
    PHYSICAL_NAME,
    mapping_mode,
    table_schema,
    without_mapping,
)
from deltaflow.log.protocol.data_types import (
    have_one_shape,
    inner_fields,
    types_within,
    with_inner_fields,
    with_type,
)
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MAX_ID
from deltaflow.log.protocol.schema import schema_from_string, schema_to_string


def with_mapped_columns(
    metadata: Metadata,
    before: Metadata | None,
    new_id: Callable[[], str],
    table: str,
    *,
    replaces_table: bool = False,
    keeps_names: bool = False,
) -> Metadata:
    """The metadata, in which the columns of a mapped table have ids and physical names.

    `before` is the table's metadata, None for a new table. A column that lacks them takes over those of the
    table's column of its name and type; any other one gets new ones, from `new_id`. Where the commit begins
    the mapping of a table by name, columns keep their names in files; so do those of a new table of which
    there are files (`keeps_names`). `replaces_table`: no file of the table stays. Raises
    DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE or …_SCHEMA_CHANGE.
    """
    mode = mapping_mode(metadata, table)
    old_mode = "none" if before is None or replaces_table else mapping_mode(before, table)
    begins = before is not None and not replaces_table and mode != old_mode
    if begins and (old_mode, mode) != ("none", "name"):
        raise DeltaUnsupportedOperationException(
            error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
            old_mode=old_mode,
            new_mode=mode,
            table=table,
        )
    if mode == "none":
        return metadata
    schema = schema_from_string(metadata.schema_string, table=table)
    if before is None or replaces_table:
        schema = without_mapping(schema)
    old_schema = T.StructType() if before is None else table_schema(before, table=table)
    given = [metadata] if before is None else [metadata, before]
    highest = max(
        0,
        *(COLUMN_MAPPING_MAX_ID.of(each.configuration, table) for each in given),
        *(field.metadata[ID] for each in (schema, old_schema) for field in _mapped_fields(each)),
    )
    keeps_old_names = begins and bool(old_schema.fields)
    assignment = _Assignment(new_id, highest, table, keeps_names=keeps_names or keeps_old_names)
    assigned = assignment.columns_of(schema, schema if keeps_names else old_schema)
    assert isinstance(assigned, T.StructType)
    return msgspec.structs.replace(
        metadata,
        schema_string=schema_to_string(assigned),
        configuration={**metadata.configuration, MAX_ID: str(assignment.highest)},
    )


def with_highest_id(metadata: Metadata, before: Metadata) -> Metadata:
    """Metadata of an earlier version, for a table that has `before`: the highest id never falls."""
    if MAX_ID not in before.configuration or MAX_ID not in metadata.configuration:
        return metadata
    highest = max(COLUMN_MAPPING_MAX_ID.of(each.configuration) for each in (metadata, before))
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, MAX_ID: str(highest)})


@dataclass
class _Assignment:
    new_id: Callable[[], str]
    highest: int
    """The highest id that a column of the table has or had."""
    table: str
    keeps_names: bool
    """Whether physical names are those that the columns have, since files have them."""

    def columns_of(self, data_type: T.DataType, old: T.DataType | None) -> T.DataType:
        """The type with the columns in it mapped; `old` is the type that the table has at this place."""
        same_shape = old is not None and have_one_shape(data_type, old)
        olds = {field.name.lower(): field for field in inner_fields(old)} if old and same_shape else {}
        fields = []
        for field in inner_fields(data_type):
            known = olds.get(field.name.lower())
            column = self._column(field, known) if isinstance(data_type, T.StructType) else field
            inside = self.columns_of(field.dataType, None if known is None else known.dataType)
            fields.append(with_type(column, inside))
        return with_inner_fields(data_type, fields)

    def _column(self, field: T.StructField, known: T.StructField | None) -> T.StructField:
        if PHYSICAL_NAME in field.metadata and ID in field.metadata:
            return field
        if known is not None and PHYSICAL_NAME in known.metadata and _have_one_type(known, field):
            mapping = {name: known.metadata[name] for name in (ID, PHYSICAL_NAME)}
        else:
            self.highest += 1
            mapping = {ID: self.highest, PHYSICAL_NAME: self._physical_name(field, known)}
        return T.StructField(field.name, field.dataType, field.nullable, {**field.metadata, **mapping})

    def _physical_name(self, field: T.StructField, known: T.StructField | None) -> str:
        if not self.keeps_names:
            return f"col-{self.new_id()}"
        if known is None:
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE",
                column_name=field.name,
                table=self.table,
            )
        return known.name


def _have_one_type(one: T.StructField, other: T.StructField) -> bool:
    return one.dataType.simpleString().lower() == other.dataType.simpleString().lower()


def _mapped_fields(schema: T.StructType) -> Iterator[T.StructField]:
    for _, data_type in types_within(schema):
        if isinstance(data_type, T.StructType):
            yield from (field for field in data_type.fields if ID in field.metadata)
