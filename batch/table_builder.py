"""`DeltaTableBuilder`: CREATE TABLE and REPLACE TABLE for Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec
from pyspark.sql.types import DataType, StructField, StructType

from deltaflow.batch.named_table import table_at_path, table_of_name
from deltaflow.errors import DeltaAnalysisException, UnsupportedFeatureError
from deltaflow.spark.sql.catalog_tables import create_table
from deltaflow.spark.sql.sql_text import type_json
from deltaflow.spark.sql.statements import NamedTable
from deltaflow.store import given_path, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaflow.batch.delta_table import DeltaTable

Operation = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
_PATH_AS_NAME = re.compile(r"\s*delta\s*\.\s*`((?:[^`]|``)*)`\s*", re.IGNORECASE)


@dataclass
class IdentityGenerator:
    """The numbers of an identity column. Such columns are refused: deltaflow lacks the feature."""

    start: int = 1
    step: int = 1


class DeltaTableBuilder:
    """Collects the definition of a table until `execute` makes it. `DeltaTable.create` and others return one.

    TypeError for arguments of a wrong type, UnsupportedFeatureError for what needs a table feature that
    deltaflow lacks.
    """

    def __init__(
        self, spark: SparkSession, operation: Operation, opened: Callable[[NamedTable], DeltaTable]
    ) -> None:
        self._spark = spark
        self._operation = operation
        self._opened = opened
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[dict[str, Any]] = []
        self._partition_columns: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """The table's name, `[database.]table`, or delta.`path`."""
        _check(str, "Identifier must be str.", identifier)
        self._name = identifier
        return self

    def location(self, location: str) -> DeltaTableBuilder:
        """The table's directory, which names the table if it has no other name."""
        _check(str, "Location must be str.", location)
        self._location = location
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """The table's description."""
        _check(str, "Table comment must be str.", comment)
        self._comment = comment
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """A column; its type is a type of SQL or a DataType. Generated columns are refused."""
        _check(str, "Column name must be str.", colName)
        if not isinstance(dataType, str | DataType):
            _raise_type_error("Column data type must be str or DataType.", dataType)
        _check(bool, "Column nullable must be bool.", nullable)
        _check_generation(colName, generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            _check(str, "Column comment must be str.", comment)
        data_type = type_json(self._spark, dataType) if isinstance(dataType, str) else dataType.jsonValue()
        metadata = {} if comment is None else {"comment": comment}
        self._columns.append({"name": colName, "type": data_type, "nullable": nullable, "metadata": metadata})
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder:
        """The columns of a schema."""
        if isinstance(cols, list):
            for column in cols:
                _check(StructField, "Column in existing schema must be StructField.", column)
        else:
            _check(StructType, "Schema must be StructType or a list of StructField.", cols)
        self._columns += [column.jsonValue() for column in cols]
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> DeltaTableBuilder:
        """The partition columns, in their order."""
        self._partition_columns = _names(cols, "Partitioning column must be str.")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> DeltaTableBuilder:
        """Refused: clustered tables need the feature clustering."""
        names = _names(cols, "Clustering column must be str.")
        raise _lacks("clustering", f"The table is to be clustered by {', '.join(names)}", "Partition it")

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """A table property."""
        if type(key) is not str or type(value) is not str:
            _raise_type_error("Key and value of property must be string.", key, value)
        self._properties[key] = value
        return self

    def execute(self) -> DeltaTable:
        """Makes the table, in one commit, and returns it; errors are those of the statement in SQL.

        `createIfNotExists` leaves what is there as it is.
        """
        self._check_name_and_location()
        statement = {
            "name": self._name,
            "location": self._location,
            "replaces": self._operation in ("replace", "createOrReplace"),
            "isLenient": self._operation in ("createIfNotExists", "createOrReplace"),
            "schema": msgspec.json.encode({"type": "struct", "fields": self._columns}).decode(),
            "partitionedBy": self._partition_columns,
            "properties": self._properties,
            "comment": self._comment,
        }
        create_table(self._spark, statement)
        return self._opened(self._table())

    def _table(self) -> NamedTable:
        if self._name is not None:
            return table_of_name(self._spark, self._name)
        assert self._location is not None
        return table_at_path(self._location)

    def _check_name_and_location(self) -> None:
        """Raises if the table has no path or name, or two paths. Makes a path without a name absolute."""
        if self._name is None:
            if self._location is None:
                raise DeltaAnalysisException(error_class="DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION")
            self._location = given_path(table_path(self._location))
            return
        named = _PATH_AS_NAME.fullmatch(self._name)
        if named is not None and self._location not in (None, named[1].replace("``", "`")):
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
                identifier=self._name,
                location=self._location,
            )


def _names(given: Sequence[str | Sequence[str]], message: str) -> list[str]:
    """Names that are given one by one or as one list."""
    names = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    for name in names:
        _check(str, message, name)
    return [str(name) for name in names]


def _check_generation(column: str, always: object, by_default: object) -> None:
    """Raises if a column is to be generated."""
    if always is not None and by_default is not None:
        raise ValueError(
            "generatedByDefaultAs and generatedAlwaysAs cannot both be set.", [by_default, always]
        )
    if type(always) is str:
        raise _lacks("generatedColumns", f"Column {column} is to be generated as {always}", "Compute it")
    if always is not None and not isinstance(always, IdentityGenerator):
        _raise_type_error("Generated always as expression must be str or IdentityGenerator.", always)
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        _raise_type_error("Generated by default expression must be IdentityGenerator.", by_default)
    for identity in (always, by_default):
        if isinstance(identity, IdentityGenerator):
            if identity.step == 0:
                raise ValueError("Column identity generation requires step to be non-zero.")
            raise _lacks("identityColumns", f"Column {column} is to be an identity", "Number the rows")


def _lacks(feature: str, what: str, instead: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{what}, which needs the table feature {feature}, and deltaflow lacks that. {instead} instead.",
        features=[feature],
        error_class="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
    )


def _check(expected: type, message: str, value: object) -> None:
    if type(value) is not expected:
        _raise_type_error(message, value)


def _raise_type_error(message: str, *values: object) -> NoReturn:
    raise TypeError(message + "".join(f" Found {value} with type {type(value)}" for value in values))
