"""ALTER TABLE … RENAME COLUMN and DROP COLUMN: one commit that changes a mapped table's schema, and no file.

Files have columns by their physical names or ids, which stay. Columns are found as in
deltaflow.batch.ddl.columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.ddl.changes import begin_change, commit_change
from deltaflow.batch.ddl.columns import edited, position_of
from deltaflow.batch.rows.char_varchar import with_char_as_string, with_declared_types
from deltaflow.batch.rows.column_expressions import generation_expressions
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException, SchemaError
from deltaflow.log import DeltaLog, Metadata, Operation, Snapshot, schema_to_string
from deltaflow.log.protocol.column_mapping import without_mapping
from deltaflow.log.protocol.properties import DATA_SKIPPING_STATS_COLUMNS, check_constraints
from deltaflow.log.protocol.schema_reading import Path, dotted
from deltaflow.spark.expressions.analysis import analysed_if_resolved
from deltaflow.spark.expressions.table_expressions import table_expression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOT_FOUND = "DELTA_COLUMN_NOT_FOUND"


def rename_column(
    spark: SparkSession, log: DeltaLog, path: Path, new_name: str, settings: Mapping[str, str]
) -> int:
    """Gives a column, or a nested field, another name. Returns the commit's version.

    Raises DELTA_UNSUPPORTED_RENAME_COLUMN for a table that is not mapped, FIELD_ALREADY_EXISTS, and
    DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE or DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE for a column
    that a CHECK constraint or a generated column names.
    """
    transaction, metadata = begin_change(log, settings)
    snapshot = transaction.snapshot
    assert snapshot is not None
    _check_mapped(snapshot, "DELTA_UNSUPPORTED_RENAME_COLUMN")
    found: list[str] = []

    def rename(data_type: T.DataType) -> T.DataType:
        fields = _fields(data_type, path, log.path)
        at = position_of(fields, path[-1], log.path)
        found.append(fields[at].name)
        others = [field.name.lower() for field in fields if field is not fields[at]]
        if new_name.lower() in others:
            raise SchemaError(
                error_class="FIELD_ALREADY_EXISTS",
                column_name=dotted((*path[:-1], new_name)),
                struct=data_type.simpleString(),
                table=log.path,
            )
        old = fields[at]
        new = T.StructField(new_name, old.dataType, old.nullable, old.metadata)
        return T.StructType([*fields[:at], new, *fields[at + 1 :]])

    schema = edited(with_declared_types(snapshot.schema), path[:-1], rename, log.path)
    schema = with_char_as_string(schema)
    _check_constraints(spark, snapshot, schema, [path])
    renamed = (*path[:-1], new_name)
    partition_columns = [
        new_name if len(path) == 1 and name == found[0] else name for name in metadata.partition_columns
    ]
    metadata = msgspec.structs.replace(
        metadata, schema_string=schema_to_string(schema), partition_columns=partition_columns
    )
    metadata = _with_statistics_columns(metadata, log.path, path, lambda inside: [(*renamed, *inside)])
    parameters: dict[str, Any] = {"oldColumnPath": dotted(path), "newColumnPath": dotted(renamed)}
    return commit_change(transaction, metadata, Operation("RENAME COLUMN", parameters))


def drop_columns(
    spark: SparkSession, log: DeltaLog, paths: Sequence[Path], if_exists: bool, settings: Mapping[str, str]
) -> int | None:
    """Drops columns and nested fields; their values stay in the files. Returns the commit's version, None if
    there is nothing to drop.

    Raises DELTA_UNSUPPORTED_DROP_COLUMN for a table that is not mapped, DELTA_COLUMN_NOT_FOUND unless
    `if_exists`, DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN, DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA, and
    DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE or DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE for a column
    that a CHECK constraint or a generated column names.
    """
    transaction, metadata = begin_change(log, settings)
    snapshot = transaction.snapshot
    assert snapshot is not None
    _check_mapped(snapshot, "DELTA_UNSUPPORTED_DROP_COLUMN")
    partition_columns = [name.lower() for name in metadata.partition_columns]
    schema, dropped = with_declared_types(snapshot.schema), []
    for path in paths:
        if len(path) == 1 and path[0].lower() in partition_columns:
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", columns=path[0], table=log.path
            )
        try:
            schema = edited(schema, path[:-1], _dropping(path, log.path), log.path)
        except SchemaError as error:
            if error.error_class == _NOT_FOUND and if_exists:
                continue
            raise
        dropped.append(path)
    if not dropped:
        return None
    _check_not_clustering(snapshot, dropped)
    schema = with_char_as_string(schema)
    _check_constraints(spark, snapshot, schema, dropped)
    metadata = msgspec.structs.replace(metadata, schema_string=schema_to_string(schema))
    for path in dropped:
        metadata = _with_statistics_columns(metadata, log.path, path, lambda inside: [])
    columns = msgspec.json.encode([dotted(path) for path in dropped]).decode()
    return commit_change(transaction, metadata, Operation("DROP COLUMNS", {"columns": columns}))


def _check_not_clustering(snapshot: Snapshot, dropped: Sequence[Path]) -> None:
    """Raises DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN for clustering columns, and what they are in."""
    found = []
    for column in snapshot.clustering_columns:
        folded = [name.lower() for name in column]
        if any([name.lower() for name in path] == folded[: len(path)] for path in dropped):
            found.append(".".join(column))
    if found:
        raise DeltaAnalysisException(
            error_class="DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
            columns=", ".join(found),
            table=snapshot.path,
        )


def _dropping(path: Path, table: str) -> Callable[[T.DataType], T.DataType]:
    def drop(data_type: T.DataType) -> T.DataType:
        fields = _fields(data_type, path, table)
        at = position_of(fields, path[-1], table)
        if len(fields) == 1:
            raise DeltaAnalysisException(
                error_class="DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA",
                column_name=dotted(path),
                schema=data_type.simpleString(),
                table=table,
            )
        return T.StructType([*fields[:at], *fields[at + 1 :]])

    return drop


def _fields(data_type: T.DataType, path: Path, table: str) -> list[T.StructField]:
    if isinstance(data_type, T.StructType):
        return list(data_type.fields)
    raise DeltaAnalysisException(
        error_class="DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE",
        column_name=dotted(path),
        struct=data_type.simpleString(),
        table=table,
    )


def _check_mapped(snapshot: Snapshot, error_class: str) -> None:
    if snapshot.mapping_mode == "none":
        raise DeltaUnsupportedOperationException(error_class=error_class, table=snapshot.path)


def _check_constraints(
    spark: SparkSession, snapshot: Snapshot, schema: T.StructType, paths: Sequence[Path]
) -> None:
    """Raises for constraints and generated columns that name one of the columns: without it they cannot be
    analysed any more, or mean something else, as `user` is a function where it is no column."""
    before, after = (
        spark.createDataFrame([], without_mapping(columns)) for columns in (snapshot.schema, schema)
    )
    changed = ", ".join(map(dotted, paths))
    constraints = check_constraints(snapshot.metadata.configuration)
    if broken := _broken(before, after, constraints, snapshot.path):
        raise DeltaAnalysisException(
            error_class="DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE",
            column_name=changed,
            constraints=broken,
            table=snapshot.path,
        )
    if broken := _broken(before, after, generation_expressions(schema), snapshot.path):
        raise DeltaAnalysisException(
            error_class="DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE",
            column_name=changed,
            generated_columns=broken,
            table=snapshot.path,
        )


def _broken(before: DataFrame, after: DataFrame, expressions: Mapping[str, str], table: str) -> str:
    """The table's expressions that are not the same over both frames, a line for each; empty if all are."""
    lines = []
    for name, sql in expressions.items():
        column = table_expression(sql, table)
        old, new = (analysed_if_resolved(rows, [column], at_one_time=False) for rows in (before, after))
        if old is None or new is None or old[0].sql != new[0].sql:
            lines.append(f"{name} -> {sql}")
    return "\n".join(lines)


def _with_statistics_columns(
    metadata: Metadata, table: str, path: Path, changed: Callable[[Path], list[Path]]
) -> Metadata:
    """The metadata, in which the columns of delta.dataSkippingStatsColumns at and inside `path` are
    `changed`, a function of the rest of their paths."""
    named = DATA_SKIPPING_STATS_COLUMNS.of(metadata.configuration, table)
    if named is None:
        return metadata
    folded = [name.lower() for name in path]
    columns: list[Path] = []
    for column in named:
        is_inside = [name.lower() for name in column[: len(path)]] == folded
        columns += changed(column[len(path) :]) if is_inside else [column]
    name = DATA_SKIPPING_STATS_COLUMNS.name
    configuration = {key: value for key, value in metadata.configuration.items() if key != name}
    if columns:
        configuration[name] = ",".join(".".join(map(quoted, column)) for column in columns)
    return msgspec.structs.replace(metadata, configuration=configuration)
