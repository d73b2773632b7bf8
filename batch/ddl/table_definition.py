"""The definition of a table in a statement that creates or replaces it, and its checks."""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql.types import StructField, StructType, VariantType

from deltaflow.batch.named_table import names_at
from deltaflow.batch.options import required_path
from deltaflow.batch.rows.char_varchar import with_char_as_string
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log import (
    LOG_DIRECTORY,
    DeltaLog,
    Metadata,
    OptimisticTransaction,
    Snapshot,
    check_partitioning,
    check_writable_schema,
    schema_to_string,
)
from deltaflow.log.protocol.clustering import clustering_paths
from deltaflow.log.protocol.column_mapping import MAX_ID
from deltaflow.log.protocol.configuration import (
    asks_for_mapping,
    canonical_name,
    checked_name,
    with_session_defaults,
)
from deltaflow.log.protocol.data_types import types_within, with_metadata
from deltaflow.log.protocol.identity_columns import START, check_identities
from deltaflow.log.protocol.protocols import is_of_protocol
from deltaflow.log.protocol.schema import GENERATION_EXPRESSION, nullable_type
from deltaflow.spark.bridge.messages import Message
from deltaflow.spark.expressions.analysis import Facts
from deltaflow.spark.expressions.table_expressions import table_expression
from deltaflow.store import qualified_path, store_for, table_path

# What TableCatalog passes as properties, though it is none of the table.
_NOT_PROPERTIES = {
    "location",
    "provider",
    "comment",
    "owner",
    "external",
    "is_managed_location",
    "table_type",
}
_OPTION = "option."
_CLUSTER_BY = "cluster_by"
"""The name of the transform into which Spark makes CLUSTER BY."""
_NAMES = {"create": "CREATE TABLE", "replace": "REPLACE TABLE", "createOrReplace": "CREATE OR REPLACE TABLE"}
_GENERATION_EXPRESSIONS = ("GENERATION_EXPRESSION", "generationExpression")
"""Spark's and older names for what the log calls delta.generationExpression."""
_OF_SPARK = (*_GENERATION_EXPRESSIONS, "EXISTS_DEFAULT")
"""What the log leaves out of the metadata of columns: in files that lack a column it is null."""
_WITH_EXPRESSION = {
    "CURRENT_DEFAULT": "a default value",
    "EXISTS_DEFAULT": "a default value",
    "delta.generationExpression": "a generation expression",
    "generationExpression": "a generation expression",
    "GENERATION_EXPRESSION": "a generation expression",
    "identity.start": "an identity",
    START: "an identity",
}


class GeneratedColumn(Message, frozen=True):
    """What Spark knows of the expression of a generated column; see GenerationExpressions.java."""

    column: str
    expression: str
    has_subquery: bool
    missing: str | None
    """The name that is none of a column that is not generated."""
    facts: str | None

    def check(self, field: StructField, path: str) -> None:
        """Raises DELTA_…_GENERATED_COLUMN unless each row's value follows from its other columns."""
        if self.has_subquery:
            raise self._error("DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN", path)
        if self.missing is not None:
            raise self._error("DELTA_INVALID_GENERATED_COLUMN_REFERENCES", path, missing=self.missing)
        [found] = msgspec.json.decode(self.facts or "[]", type=list[Facts])
        for expr, error_class in (
            (found.function, "DELTA_UDF_IN_GENERATED_COLUMN"),
            (found.nondeterministic, "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN"),
            (found.aggregate, "DELTA_AGGREGATE_IN_GENERATED_COLUMN"),
            (None if found.of_row else self.expression, "DELTA_AGGREGATE_IN_GENERATED_COLUMN"),
        ):
            if expr is not None:
                raise self._error(error_class, path, expr=expr)
        table_expression(self.expression, path)
        if any(isinstance(within, VariantType) for _, within in types_within(found.data_type)):
            raise self._error("DELTA_UNSUPPORTED_DATA_TYPE_IN_GENERATED_COLUMN", path, data_type="variant")
        if nullable_type(found.data_type) != nullable_type(field.dataType):
            raise self._error(
                "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
                path,
                expression_type=found.data_type.simpleString(),
                column_type=field.dataType.simpleString(),
            )

    def _error(self, error_class: str, path: str, **details: Any) -> DeltaAnalysisException:
        shown: dict[str, Any] = {"expr": self.expression, **details}
        return DeltaAnalysisException(
            error_class=error_class, column_name=self.column, table=path, column=self.column, **shown
        )


class Transform(Message, frozen=True):
    """PARTITIONED BY or CLUSTER BY: a function, "identity" for a column alone, and its columns: of CLUSTER BY
    their paths, of others the names along these."""

    transform: str
    columns: list[str]


class TableDefinition(Message, frozen=True):
    """catalog.check, catalog.commit: one CREATE, REPLACE or CREATE OR REPLACE TABLE of any API."""

    operation: str
    """create, replace or createOrReplace."""
    name: str
    path: str
    location: str | None
    """What LOCATION says."""
    is_path: bool
    """The table is named by its path."""
    is_in_catalog: bool
    is_managed: bool
    is_save_as_table: bool
    """saveAsTable in mode overwrite: it replaces the rows as save(path) does, and keeps the table."""
    defined_schema: str
    """JSON, without columns if the statement names none."""
    generated: list[GeneratedColumn]
    partitioning: list[Transform]
    properties: dict[str, str]
    """Those of Spark's TableCatalog: the table's own, and others such as the comment."""
    settings: dict[str, str]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "path", qualified_path(self.path))

    @property
    def schema(self) -> StructType:
        """The defined schema as the log stores it."""
        return _as_stored(StructType.fromJson(msgspec.json.decode(self.defined_schema)))

    @property
    def comment(self) -> str | None:
        """The table's description."""
        return self.properties.get("comment")

    @property
    def table_properties(self) -> dict[str, str]:
        """The table's own properties, without Spark's other ones and its second copy of options."""
        options = {name.removeprefix(_OPTION) for name in self.properties if name.startswith(_OPTION)}
        return {
            name: value
            for name, value in self.properties.items()
            if name not in _NOT_PROPERTIES
            and not name.startswith(_OPTION)
            and (name not in options or name.lower().startswith("delta."))
        }

    @property
    def partition_columns(self) -> list[str]:
        """The columns of PARTITIONED BY. Raises DELTA_OPERATION_NOT_ALLOWED for any other expression."""
        transforms = [transform for transform in self.partitioning if transform.transform != _CLUSTER_BY]
        for transform in transforms:
            if transform.transform != "identity" or len(transform.columns) != 1:  # a path into a struct
                joined = ("." if transform.transform == "identity" else ", ").join(transform.columns)
                raise DeltaUnsupportedOperationException(
                    f"The table {self.name} is to be laid out by {transform.transform}({joined}). "
                    "Delta tables are partitioned by columns: PARTITIONED BY (column, …).",
                    error_class="DELTA_OPERATION_NOT_ALLOWED",
                    table=self.path,
                )
        return [transform.columns[0] for transform in transforms]

    @property
    def clustering_columns(self) -> list[str]:
        """The columns of CLUSTER BY, nested ones with their paths."""
        return [
            name
            for transform in self.partitioning
            if transform.transform == _CLUSTER_BY
            for name in transform.columns
        ]

    def check(self) -> None:
        """Raises for a definition that no table could have, before a query runs or a file is written."""
        required_path(self.path)
        partition_columns, schema = self.partition_columns, self.schema
        if self.location is not None:
            self._check_location(self.location)
        for name, value in self.table_properties.items():
            checked_name(name, value, self.settings, self.path)
        if schema.fields:
            check_identities(schema, partition_columns, self.path)
            # saveAsTable keeps a table that exists, which may be mapped. Its write checks the names.
            any_names = self.is_save_as_table or self._is_mapped
            check_writable_schema(schema, partition_columns, table=self.path, is_mapped=any_names)
            for column in self.generated:
                column.check(schema[column.column], self.path)

    @property
    def _is_mapped(self) -> bool:
        return asks_for_mapping(self.table_properties, self.settings, self.path)

    def check_same_as(self, snapshot: Snapshot) -> None:
        """Raises if the existing table differs from the definition in what the definition says."""
        schema, properties = self.schema, self.table_properties
        if schema.fields:
            if _plain(schema) != _plain(snapshot.schema):
                raise DeltaAnalysisException(
                    error_class="DELTA_CREATE_TABLE_SCHEME_MISMATCH",
                    specified=schema.simpleString(),
                    existing=snapshot.schema.simpleString(),
                    table=self.path,
                )
            check_partitioning(list(snapshot.partition_columns), self.partition_columns, table=self.path)
            self._check_same_clustering(snapshot)
        own = {canonical_name(name): value for name, value in properties.items() if not is_of_protocol(name)}
        existing = {name: value for name, value in snapshot.metadata.configuration.items() if name != MAX_ID}
        if properties and own != existing:
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY",
                specified=own,
                existing=existing,
                table=self.path,
            )

    def _check_same_clustering(self, snapshot: Snapshot) -> None:
        existing = snapshot.clustering_columns
        if clustering_paths(self.clustering_columns, snapshot.schema, self.path) != existing:
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING",
                specified=", ".join(self.clustering_columns),
                existing=", ".join(map(".".join, existing)),
                table=self.path,
            )

    def check_location(self, *, exists: bool, as_select: bool) -> None:
        """Raises if the table cannot be made at its path. `exists`: there is a Delta table already.
        `as_select`: the statement has a query."""
        if not exists and self.is_in_catalog:
            raise DeltaAnalysisException(
                error_class="DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE",
                table_name=self.name,
                table=self.path,
            )
        # Where the table has no rows, a vacuum deletes the files of others.
        if (self.operation == "create" or not (exists or as_select)) and not self._is_at_free_place():
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
                table_name=self.name,
                table=self.path,
            )

    def _is_at_free_place(self) -> bool:
        """Whether there is nothing but what a failed attempt has left."""
        return not any(names_at(self.path)) or (
            self._has_log() and not DeltaLog.for_table(self.path).exists()
        )

    def _has_log(self) -> bool:
        store, root = store_for(self.path)
        return store.exists(f"{root}/{LOG_DIRECTORY}")

    def check_without_columns(self) -> None:
        """Raises if there can be no table without columns. One that CREATE TABLE makes gets them from the
        first rows that are written with mergeSchema, or by ADD COLUMNS."""
        if self.operation != "create":
            raise DeltaAnalysisException(error_class="DELTA_SCHEMA_NOT_PROVIDED", table=self.path)
        if not self.is_managed and not self._is_at_free_place():
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG",
                table_name=self.name,
                table=self.path,
            )

    def metadata(self, schema: StructType, transaction: OptimisticTransaction) -> Metadata:
        """The metadata that the commit gives the table; a replaced table keeps its id."""
        partition_columns = check_writable_schema(
            schema, self.partition_columns, table=self.path, is_mapped=self._is_mapped
        )
        before = None if transaction.snapshot is None else transaction.snapshot.metadata
        metadata = Metadata(
            id=transaction.log.ids() if before is None else before.id,
            name=None if before is None else before.name,
            description=self.comment,
            schema_string=schema_to_string(schema),
            partition_columns=partition_columns,
            configuration=self.table_properties,
            created_time=transaction.log.clock() if before is None else before.created_time,
        )
        return with_session_defaults(metadata, self.settings, self.path)

    def operation_name(self, *, as_select: bool) -> str:
        """The operation's name in the history."""
        return _NAMES[self.operation] + (" AS SELECT" if as_select else "")

    def parameters(self, metadata: Metadata) -> dict[str, str | None]:
        """The operation's parameters in the history; `metadata` is what the commit leaves."""
        return {
            "isManaged": "true" if self.is_managed else "false",
            "description": metadata.description,
            "partitionBy": _json(metadata.partition_columns),
            "clusterBy": _json(self.clustering_columns),
            "properties": _json(metadata.configuration),
        }

    def _check_location(self, location: str) -> None:
        if table_path(location) == table_path(self.path):
            return
        if self.is_path:
            raise DeltaAnalysisException(
                error_class="DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE",
                identifier=self.path,
                location=location,
            )
        raise DeltaAnalysisException(
            error_class="DELTA_TABLE_LOCATION_MISMATCH",
            table_name=self.name,
            existing=self.path,
            specified=location,
        )


def check_columns(schema: StructType, path: str) -> None:
    """Raises DELTA_UNSUPPORTED_COLUMN for a column with a default, a generation expression or an identity."""
    for column in schema.fields:
        for key, what in _WITH_EXPRESSION.items():
            if key in column.metadata:
                raise DeltaUnsupportedOperationException(
                    f"Column {column.name} has {what}, which deltaflow does not support yet. Leave it out.",
                    error_class="DELTA_UNSUPPORTED_COLUMN",
                    table=path,
                    column=column.name,
                )


def _as_stored(schema: StructType) -> StructType:
    """The schema with the log's names for what Spark's metadata of columns say."""
    fields = []
    for column in with_char_as_string(schema).fields:
        metadata = {key: value for key, value in column.metadata.items() if key not in _OF_SPARK}
        for key in _GENERATION_EXPRESSIONS:
            if key in column.metadata:
                metadata[GENERATION_EXPRESSION] = column.metadata[key]
        fields.append(StructField(column.name, column.dataType, column.nullable, metadata))
    return StructType(fields)


def _plain(schema: StructType) -> StructType:
    """The schema with comments and no other metadata, for comparisons."""
    return with_metadata(schema, lambda name: name == "comment")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
