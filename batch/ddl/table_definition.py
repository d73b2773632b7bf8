"""What a statement that creates or replaces a table says, and whether that can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql.types import StructField, StructType

from deltaflow.batch.ddl.messages import DefinitionRequest, Transform
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
from deltaflow.log.protocol.configuration import canonical_name, checked_name
from deltaflow.log.protocol.protocols import is_of_protocol
from deltaflow.store import table_path

# TableCatalog's names for what is not a property of the table.
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
_NAMES = {"create": "CREATE TABLE", "replace": "REPLACE TABLE", "createOrReplace": "CREATE OR REPLACE TABLE"}
_UNSUPPORTED_IN_COLUMNS = {
    "CURRENT_DEFAULT": "a default value",
    "EXISTS_DEFAULT": "a default value",
    "delta.generationExpression": "a generation expression",
    "generationExpression": "a generation expression",
    "GENERATION_EXPRESSION": "a generation expression",
    "identity.start": "an identity",
    "delta.identity.start": "an identity",
}


@dataclass(frozen=True)
class TableDefinition:
    """One CREATE TABLE, REPLACE TABLE or CREATE OR REPLACE TABLE, from whatever API."""

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
    """In mode overwrite it overwrites rows, as save(path) does; the table stays what it is."""
    schema: StructType
    """Without columns where the statement names none."""
    transforms: Sequence[Transform]
    properties: Mapping[str, str]
    comment: str | None
    settings: Mapping[str, str]

    @classmethod
    def of(cls, request: DefinitionRequest) -> TableDefinition:
        """The definition in a request of the JVM."""
        return cls(
            operation=request.operation,
            name=request.name,
            path=required_path(request.path),
            location=request.location,
            is_path=request.is_path,
            is_in_catalog=request.is_in_catalog,
            is_managed=request.is_managed,
            is_save_as_table=request.is_save_as_table,
            schema=with_char_as_string(StructType.fromJson(msgspec.json.decode(request.defined_schema))),
            transforms=request.partitioning,
            properties=_properties(request.properties),
            comment=request.properties.get("comment"),
            settings=request.settings,
        )

    @property
    def partition_columns(self) -> list[str]:
        """The columns of PARTITIONED BY; DELTA_UNSUPPORTED_... for anything but columns."""
        for transform in self.transforms:
            if transform.transform != "identity" or "." in transform.columns[0]:
                raise DeltaUnsupportedOperationException(
                    f"The table {self.name} is to be laid out by {transform.transform}"
                    f"({', '.join(transform.columns)}). Delta tables are partitioned by columns: "
                    "PARTITIONED BY (column, …).",
                    error_class="DELTA_OPERATION_NOT_ALLOWED",
                    table=self.path,
                )
        return [transform.columns[0] for transform in self.transforms]

    def check(self) -> None:
        """Raises for what no table could be, before a query runs or a file is written."""
        partition_columns = self.partition_columns
        if self.location is not None:
            self._check_location(self.location)
        for name, value in self.properties.items():
            checked_name(name, value, self.settings, self.path)
        if self.schema.fields:
            check_columns(self.schema, self.path)
            check_writable_schema(self.schema, partition_columns, table=self.path)
        elif partition_columns:
            raise self.without_schema(self.path)

    def check_same_as(self, snapshot: Snapshot) -> None:
        """Raises unless the table that is there is the one that is defined, as far as it is."""
        if self.schema.fields:
            if _plain(self.schema) != _plain(snapshot.schema):
                raise DeltaAnalysisException(
                    error_class="DELTA_CREATE_TABLE_SCHEME_MISMATCH",
                    specified=self.schema.simpleString(),
                    existing=snapshot.schema.simpleString(),
                    table=self.path,
                )
            check_partitioning(list(snapshot.partition_columns), self.partition_columns, table=self.path)
        own = {
            canonical_name(name): value for name, value in self.properties.items() if not is_of_protocol(name)
        }
        if self.properties and own != snapshot.metadata.configuration:
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY",
                specified=own,
                existing=snapshot.metadata.configuration,
                table=self.path,
            )

    def check_location(self, *, exists: bool, as_select: bool) -> None:
        """Raises where the table cannot come, or a query's rows: `exists` a Delta table there already."""
        if not exists and self.is_in_catalog:
            raise DeltaAnalysisException(
                error_class="DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE",
                table_name=self.name,
                table=self.path,
            )
        if as_select and self.operation == "create":
            self._check_empty()

    def _check_empty(self) -> None:
        """Nothing may be there, except what a failed attempt left."""
        folder = Path(table_path(self.path))
        has_log = (folder / LOG_DIRECTORY).exists() and not DeltaLog.for_table(self.path).exists()
        if folder.exists() and not has_log and any(folder.iterdir()):
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
                table_name=self.name,
                table=self.path,
            )

    def without_schema(self, path: str) -> DeltaAnalysisException:
        """The error of a definition that needs columns and has none."""
        if self.operation != "create":
            return DeltaAnalysisException(error_class="DELTA_SCHEMA_NOT_PROVIDED", table=path)
        if self.is_managed:
            error_class = "DELTA_INVALID_MANAGED_TABLE_SYNTAX_NO_SCHEMA"
        elif Path(path).exists() and any(Path(path).iterdir()):
            error_class = "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG"
        else:
            error_class = "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_SCHEMA"
        return DeltaAnalysisException(error_class=error_class, table_name=self.name, table=path)

    def metadata(self, schema: StructType, transaction: OptimisticTransaction) -> Metadata:
        """What the commit gives the table; one that is replaced keeps its id."""
        partition_columns = check_writable_schema(schema, self.partition_columns, table=self.path)
        before = None if transaction.snapshot is None else transaction.snapshot.metadata
        return Metadata(
            id=transaction.log.ids() if before is None else before.id,
            name=None if before is None else before.name,
            description=self.comment,
            schema_string=schema_to_string(schema),
            partition_columns=partition_columns,
            configuration=dict(self.properties),
            created_time=transaction.log.clock() if before is None else before.created_time,
        )

    def operation_name(self, *, as_select: bool) -> str:
        """As the history names it."""
        return _NAMES[self.operation] + (" AS SELECT" if as_select else "")

    def parameters(self, metadata: Metadata) -> dict[str, str | None]:
        """The operation's parameters in the history; `metadata` is what the commit leaves."""
        return {
            "isManaged": "true" if self.is_managed else "false",
            "description": metadata.description,
            "partitionBy": _json(metadata.partition_columns),
            "clusterBy": "[]",
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


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """The table's properties: Spark has names of its own among them, and options twice."""
    options = {name.removeprefix(_OPTION) for name in given if name.startswith(_OPTION)}
    return {
        name: value
        for name, value in given.items()
        if name not in _NOT_PROPERTIES
        and not name.startswith(_OPTION)
        and (name not in options or name.lower().startswith("delta."))
    }


def check_columns(schema: StructType, table: str) -> None:
    for column in schema.fields:
        for key, what in _UNSUPPORTED_IN_COLUMNS.items():
            if key in column.metadata:
                raise DeltaUnsupportedOperationException(
                    f"Column {column.name} has {what}, which deltaflow does not support yet. Leave it out.",
                    error_class="DELTA_UNSUPPORTED_COLUMN",
                    table=table,
                    column=column.name,
                )


def _plain(schema: StructType) -> StructType:
    """A schema to compare by: comments included, and no other metadata."""
    fields = []
    for column in schema.fields:
        comment = {key: value for key, value in column.metadata.items() if key == "comment"}
        fields.append(StructField(column.name, column.dataType, column.nullable, comment))
    return StructType(fields)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
