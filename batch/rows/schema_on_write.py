"""The metadata that a table has after a write, and the table's names for a frame's columns.

Source: delta-spark's ImplicitMetadataOperation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.options import boolean_option, option
from deltaflow.batch.rows.char_varchar import with_char_as_string, with_declarations_of
from deltaflow.batch.rows.column_expressions import is_computed
from deltaflow.batch.rows.row_plan import plain_type
from deltaflow.batch.rows.widened_schema import widened
from deltaflow.errors import DeltaAnalysisException, SchemaError, SchemaMismatchError
from deltaflow.log import (
    Metadata,
    OptimisticTransaction,
    Snapshot,
    as_nullable,
    check_writable_schema,
    merge_schemas,
    schema_to_string,
)
from deltaflow.log.protocol.clustering import clustering_paths
from deltaflow.log.protocol.column_mapping import without_mapping
from deltaflow.log.protocol.configuration import asks_for_mapping, with_session_defaults
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields, with_inner_fields, with_metadata
from deltaflow.log.protocol.features import records_type_changes, widens_types
from deltaflow.log.protocol.properties import SCHEMA_AUTO_MERGE_ENABLED
from deltaflow.log.protocol.schema import CHAR_VARCHAR, check_no_duplicates, check_partition_columns
from deltaflow.log.protocol.schema_merging import (
    Fits,
    can_cast,
    can_grow,
    can_store,
    can_store_or_parse,
    obstacles_to_writing,
    schemas_side_by_side,
)
from deltaflow.log.protocol.type_widening import can_widen


@dataclass(frozen=True)
class SchemaRules:
    """What a write may do to the table's schema, and how the frame's columns are matched to the table's."""

    overwrites: bool = False
    overwrite_schema: bool = False
    merge_schema: bool = False
    data_change: bool = True
    by_position: bool = False
    fields_by_position: bool = True
    """With `by_position`, whether the fields of structs are matched so, too (see `fits_by_names`)."""
    replaces_table: bool = False
    needs_partition_columns: bool = True
    """Whether the frame must have all partition columns. If not, missing ones are null."""
    fits: Fits = can_store
    may_grow: bool = True
    """Whether `merge_schema` lets a column grow among byte, short and integer where types are not widened."""


@dataclass(frozen=True)
class DeclaredTable:
    """What a statement declares of the table that it makes or replaces."""

    schema: T.StructType | None = None
    cluster_by: Sequence[str] = ()
    """The clustering columns, nested ones with their paths."""
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def schema_rules(
    options: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    store_assignment: str = "ANSI",
    overwrites: bool = False,
    by_position: bool = False,
    replaces_table: bool = False,
    needs_partition_columns: bool = True,
    casts_implicitly: bool = False,
) -> SchemaRules:
    """The rules by the options of a writer and Spark's settings.

    `casts_implicitly`: by the policy ANSI strings fit columns of numbers, times, booleans and bytes, too, and
    `mergeSchema` alone changes no type. As in delta-spark that is so for streams and INSERT, not for `save`.
    """
    policy = store_assignment.upper()
    by_ansi = can_store_or_parse if casts_implicitly and policy == "ANSI" else can_store
    merge = SCHEMA_AUTO_MERGE_ENABLED.of(settings)
    if option(options, "mergeSchema") is not None:
        merge = boolean_option(options, "mergeSchema")
    return SchemaRules(
        overwrites=overwrites,
        overwrite_schema=overwrites
        and option(options, "replaceWhere") is None
        and boolean_option(options, "overwriteSchema"),
        merge_schema=merge,
        data_change=option(options, "dataChange") is None or boolean_option(options, "dataChange"),
        by_position=by_position,
        replaces_table=replaces_table,
        needs_partition_columns=needs_partition_columns,
        fits=can_cast if policy == "LEGACY" else by_ansi,
        may_grow=not casts_implicitly,
    )


def update_metadata(
    transaction: OptimisticTransaction,
    frame_schema: T.StructType,
    partition_by: Sequence[str],
    rules: SchemaRules,
    declared: DeclaredTable,
) -> None:
    """Gives the transaction the table's new metadata, if the write changes it.

    Raises SchemaError or UnsupportedFeatureError if the frame cannot be written.
    """
    snapshot, path = transaction.snapshot, transaction.path
    by_name = frame_schema
    if rules.by_position and snapshot is not None:  # The frame's own names do not matter.
        by_name = named_as_table(frame_schema, snapshot.schema, rules, path)
    check_no_duplicates(by_name, path)
    if snapshot is None or rules.replaces_table or rules.overwrite_schema:
        transaction.clustering.by(declared.cluster_by)
    elif declared.cluster_by:
        _check_clustering(snapshot, declared.cluster_by, path)
    if snapshot is None or rules.replaces_table:
        _create_or_replace(transaction, frame_schema, partition_by, declared, rules)
    elif rules.overwrite_schema:
        _overwrite_schema(transaction, snapshot, as_table_schema(frame_schema), partition_by, declared, rules)
    else:
        _check_and_merge(transaction, snapshot, frame_schema, partition_by, rules)


def _check_clustering(snapshot: Snapshot, names: Sequence[str], path: str) -> None:
    """Raises DELTA_CLUSTERING_COLUMNS_MISMATCH unless the table is clustered by these columns."""
    existing = snapshot.clustering_columns
    if clustering_paths(names, snapshot.schema, path) != existing:
        raise DeltaAnalysisException(
            error_class="DELTA_CLUSTERING_COLUMNS_MISMATCH",
            provided=", ".join(names),
            existing=", ".join(map(".".join, existing)),
            table=path,
        )


def named_as_table(
    frame_schema: T.StructType, table_schema: T.StructType, rules: SchemaRules, path: str
) -> T.StructType:
    """The frame's schema with the table's names for columns and nested fields.

    Columns that the table lacks keep their names, and all columns keep their order.
    """
    named = _named_type(frame_schema, table_schema, rules, path, by_position=rules.by_position)
    assert isinstance(named, T.StructType)
    return named


def fits_by_names(frame_schema: T.StructType, snapshot: Snapshot, rules: SchemaRules) -> bool:
    """Whether the frame has the table's columns, under their names and in their order, with all fields of
    their structs, and of types that need no cast. An insert by position then matches the fields by name, as
    delta-spark's DeltaInsertCastSupport lets it."""
    columns = snapshot.schema.fields
    given = frame_schema.fields[: len(columns)]
    may_widen = rules.merge_schema and widens_types(snapshot.protocol, snapshot.metadata)
    return [f.name for f in given] == snapshot.schema.names and all(
        _needs_no_cast(have.dataType, want.dataType, may_widen=may_widen)
        for have, want in zip(given, columns, strict=True)
    )


def _needs_no_cast(have: T.DataType, want: T.DataType, *, may_widen: bool) -> bool:
    if isinstance(want, T.NullType):
        return True
    if not have_one_shape(have, want):
        plain_have, plain_want = plain_type(have), plain_type(want)
        return plain_have == plain_want or (may_widen and can_widen(plain_want, plain_have))
    given = {field.name: field.dataType for field in inner_fields(have)}
    return all(
        field.name in given and _needs_no_cast(given[field.name], field.dataType, may_widen=may_widen)
        for field in inner_fields(want)
    )


def _create_or_replace(
    transaction: OptimisticTransaction,
    frame_schema: T.StructType,
    partition_by: Sequence[str],
    declared: DeclaredTable,
    rules: SchemaRules,
) -> None:
    snapshot, path = transaction.snapshot, transaction.path
    _refuse_without_data_change(rules, path, "Create a Delta table")
    schema = (
        as_table_schema(frame_schema) if declared.schema is None else with_char_as_string(declared.schema)
    )
    metadata = Metadata(
        id=transaction.log.ids() if snapshot is None else snapshot.metadata.id,
        description=declared.comment,
        schema_string=schema_to_string(schema),
        partition_columns=_check_columns(
            schema,
            partition_by,
            path,
            is_mapped=asks_for_mapping(declared.properties, transaction.session, path),
        ),
        configuration=dict(declared.properties),
        created_time=transaction.log.clock() if snapshot is None else snapshot.metadata.created_time,
    )
    metadata = with_session_defaults(metadata, transaction.session, path)
    if declared.schema is not None:
        differences = obstacles_to_writing(
            schema, named_as_table(frame_schema, schema, rules, path), fits=rules.fits, may_add=False
        )
        if differences:
            raise _mismatch(metadata, schema, frame_schema, differences, None, rules, path)
    if snapshot is None or metadata != snapshot.metadata or declared.cluster_by:
        transaction.update_metadata(metadata, replaces_table=True)


def _overwrite_schema(
    transaction: OptimisticTransaction,
    snapshot: Snapshot,
    schema: T.StructType,
    partition_by: Sequence[str],
    declared: DeclaredTable,
    rules: SchemaRules,
) -> None:
    """Replaces schema and partitioning. As in delta-spark, no `partition_by` means no partitions."""
    path = transaction.path
    is_mapped = snapshot.mapping_mode != "none"
    partition_columns = _check_columns(schema, partition_by, path, is_mapped=is_mapped)
    is_same = schema == without_mapping(snapshot.schema) and not declared.cluster_by
    if is_same and partition_columns == list(snapshot.partition_columns):
        return
    _refuse_without_data_change(
        rules, path, "Overwrite the Delta table schema or change the partition schema"
    )
    transaction.update_metadata(
        msgspec.structs.replace(
            snapshot.metadata, schema_string=schema_to_string(schema), partition_columns=partition_columns
        )
    )


def _check_and_merge(
    transaction: OptimisticTransaction,
    snapshot: Snapshot,
    frame_schema: T.StructType,
    partition_by: Sequence[str],
    rules: SchemaRules,
) -> None:
    path, table_schema = transaction.path, snapshot.schema
    data = named_as_table(frame_schema, table_schema, rules, path)
    computed = [field for field in table_schema.fields if is_computed(field) and field.name not in data.names]
    given = check_partition_columns(T.StructType([*data.fields, *computed]), partition_by, path)
    other_partitioning = given if given and given != list(snapshot.partition_columns) else None
    may_grow = rules.merge_schema and rules.may_grow and not records_type_changes(snapshot.protocol)
    may_widen = rules.merge_schema and widens_types(snapshot.protocol, snapshot.metadata)

    def fits(given: T.DataType, column: T.DataType) -> bool:
        grows = (may_grow and can_grow(given, column)) or (may_widen and can_widen(column, given))
        return grows or rules.fits(given, column)

    differences = obstacles_to_writing(table_schema, data, fits=fits, may_add=rules.merge_schema)
    if differences or other_partitioning is not None:
        raise _mismatch(
            snapshot.metadata, table_schema, frame_schema, differences, other_partitioning, rules, path
        )
    if rules.needs_partition_columns:
        required = [name for name in snapshot.partition_columns if not is_computed(table_schema[name])]
        _require_partition_columns(required, data, path)
    merged = table_schema
    if rules.merge_schema:
        # Where changes of types have to be recorded, and the table allows none, values are cast instead.
        merged = merge_schemas(
            table_schema,
            as_table_schema(data),
            table=path,
            fits=rules.fits,
            may_grow=may_grow,
            may_widen=may_widen,
        )
        merged = widened(snapshot, with_declarations_of(merged, table_schema))
    is_mapped = snapshot.mapping_mode != "none"
    _check_columns(merged, snapshot.partition_columns, path, is_mapped=is_mapped)
    if merged != table_schema:
        _refuse_without_data_change(rules, path, "Change the Delta table schema")
        transaction.update_metadata(
            msgspec.structs.replace(snapshot.metadata, schema_string=schema_to_string(merged))
        )


def _check_columns(
    schema: T.StructType, partition_by: Sequence[str], path: str, *, is_mapped: bool
) -> list[str]:
    """As `check_writable_schema`; DELTA_EMPTY_DATA without columns, which no row could be written to."""
    if not schema.fields:
        raise SchemaError(error_class="DELTA_EMPTY_DATA", table=path)
    return check_writable_schema(schema, partition_by, table=path, is_mapped=is_mapped)


def _require_partition_columns(partition_columns: Sequence[str], data: T.StructType, path: str) -> None:
    for name in partition_columns:
        if name not in data.names:
            raise SchemaError(
                error_class="DELTA_PARTITION_COLUMN_NOT_FOUND",
                name=name,
                columns=", ".join(data.names),
                table=path,
                column=name,
            )


def _mismatch(
    metadata: Metadata,
    table_schema: T.StructType,
    frame_schema: T.StructType,
    differences: Sequence[str],
    other_partitioning: Sequence[str] | None,
    rules: SchemaRules,
    path: str,
) -> SchemaMismatchError:
    """One error for everything that does not fit, like that of delta-spark's MetadataMismatchErrorBuilder.

    As there, its condition is DELTA_FAILED_TO_MERGE_FIELDS if the type of a column does not fit.
    """
    types_differ = bool(
        obstacles_to_writing(
            table_schema,
            named_as_table(frame_schema, table_schema, rules, path),
            fits=rules.fits,
            may_add=True,
        )
    )
    lines = ["A metadata mismatch was detected when writing to the Delta table."]
    if differences:
        lines.append(f"The schema of the data does not match that of the table (Table ID: {metadata.id}).")
        lines.append(schemas_side_by_side(table_schema, frame_schema))
        lines += ["Differences:", *(f"- {difference}" for difference in differences)]
        if not rules.merge_schema and not types_differ:
            lines.append(
                "To add the new columns to the table, set the option mergeSchema to true, or the setting "
                f"{SCHEMA_AUTO_MERGE_ENABLED.name}. Otherwise select the table's columns alone."
            )
        else:
            lines.append("Cast the data's columns to the table's types, or write them under other names.")
    if other_partitioning is not None:
        lines.append("Partition columns do not match the partition columns of the table.")
        lines.append(f"Given: {list(other_partitioning)}")
        lines.append(f"Table: {list(metadata.partition_columns)}")
        lines.append("Leave partitionBy out, or give the table's own columns.")
    if rules.overwrites:
        lines.append(
            "To overwrite the table's schema or partitioning, set the option overwriteSchema to true "
            "(not with replaceWhere)."
        )
    return SchemaMismatchError(
        "\n".join(lines), error_class="DELTA_FAILED_TO_MERGE_FIELDS" if types_differ else None, table=path
    )


def _refuse_without_data_change(rules: SchemaRules, path: str, operation: str) -> None:
    if not rules.data_change:
        raise DeltaAnalysisException(error_class="DELTA_DATA_CHANGE_FALSE", operation=operation, table=path)


def as_table_schema(frame_schema: T.StructType) -> T.StructType:
    """The schema of a table with the frame's columns: all are nullable, and metadata are comments, CHAR and
    VARCHAR alone.

    Other metadata are Spark's own (watermarks), or belong to the table that the frame was read from.
    """
    nullable = as_nullable(frame_schema)
    assert isinstance(nullable, T.StructType)
    return with_metadata(nullable, {"comment", CHAR_VARCHAR}.__contains__)


def _named_type(
    data_type: T.DataType, table_type: T.DataType, rules: SchemaRules, path: str, *, by_position: bool
) -> T.DataType:
    if not have_one_shape(data_type, table_type):
        return data_type
    given, ours = inner_fields(data_type), inner_fields(table_type)
    if by_position and len(given) < len(ours):
        raise SchemaError(
            error_class="DELTA_INSERT_COLUMN_ARITY_MISMATCH",
            table_name=path,
            table_columns=", ".join(field.name for field in ours),
            data_columns=", ".join(field.name for field in given),
            table=path,
        )
    by_name = {f.name.lower(): f for f in ours}
    fields = []
    for i, f in enumerate(given):
        target = (ours[i] if i < len(ours) else None) if by_position else by_name.get(f.name.lower())
        if target is None:
            fields.append(f)
        else:
            inner_by_position = by_position and rules.fields_by_position
            named = _named_type(f.dataType, target.dataType, rules, path, by_position=inner_by_position)
            fields.append(T.StructField(target.name, named, f.nullable, f.metadata))
    return with_inner_fields(data_type, fields)
