"""`DeltaTableBuilder`: the definition of a table to be made."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar

from pyspark.sql.types import DataType, StructField, StructType

from deltaflow.errors import DeltaAnalysisException
from deltaflow.interface.arguments import names_of

Operation = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
_PATH_AS_NAME = re.compile(r"\s*delta\s*\.\s*`((?:[^`]|``)*)`\s*", re.IGNORECASE)

GENERATION_EXPRESSION = "delta.generationExpression"
"""In a column's metadata: the SQL by which its values are made of the row's other columns."""
IDENTITY_START = "delta.identity.start"
IDENTITY_STEP = "delta.identity.step"
IDENTITY_ALLOWS_EXPLICIT = "delta.identity.allowExplicitInsert"
"""In a column's metadata: the numbers that the table gives it, and whether rows may give others."""


@dataclass
class IdentityGenerator:
    """The numbers of an identity column: the first one, and the step to the next, which may be negative."""

    start: int = 1
    step: int = 1


Table = TypeVar("Table")


class DeltaTableBuilder(ABC, Generic[Table]):
    """Collects the definition of a table until `execute` makes it. `DeltaTable.create` and others return one.

    TypeError for arguments of a wrong type, UnsupportedFeatureError for what needs a table feature that
    deltaflow lacks.
    """

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._name: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[dict[str, Any]] = []
        """As the fields of a schema in JSON, with types by `_type_of`."""
        self._partition_columns: list[str] = []
        self._clustering_columns: list[str] = []
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:
        """The table's name, `[database.]table`, or delta.`path`."""
        _check(str, "Identifier must be str.", identifier)
        self._name = identifier
        return self

    def location(self, location: str) -> Self:
        """The table's directory, which names the table if it has no other name."""
        _check(str, "Location must be str.", location)
        self._location = location
        return self

    def comment(self, comment: str) -> Self:
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
    ) -> Self:
        """A column; its type is a type of SQL or a DataType. The values of a generated one are made of other
        columns of the row, by SQL, or are numbers that the table gives; with `generatedByDefaultAs` rows may
        give numbers of their own."""
        _check(str, "Column name must be str.", colName)
        if not isinstance(dataType, str | DataType):
            _raise_type_error("Column data type must be str or DataType.", dataType)
        _check(bool, "Column nullable must be bool.", nullable)
        _check_generation(generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            _check(str, "Column comment must be str.", comment)
        metadata: dict[str, Any] = {} if comment is None else {"comment": comment}
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATION_EXPRESSION] = generatedAlwaysAs
        identity = generatedByDefaultAs or generatedAlwaysAs
        if isinstance(identity, IdentityGenerator):
            metadata[IDENTITY_START], metadata[IDENTITY_STEP] = identity.start, identity.step
            metadata[IDENTITY_ALLOWS_EXPLICIT] = generatedByDefaultAs is not None
        self._add(colName, dataType, nullable, metadata)
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> Self:
        """The columns of a schema."""
        if isinstance(cols, list):
            for column in cols:
                _check(StructField, "Column in existing schema must be StructField.", column)
        else:
            _check(StructType, "Schema must be StructType or a list of StructField.", cols)
        for column in cols:
            self._add(column.name, column.dataType, column.nullable, column.metadata or {})
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> Self:
        """The partition columns, in their order."""
        self._partition_columns = names_of(cols, "Partitioning column must be str.")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> Self:
        """The clustering columns, by which OPTIMIZE clusters the files. A partitioned table has none."""
        self._clustering_columns = names_of(cols, "Clustering column must be str.")
        return self

    def property(self, key: str, value: str) -> Self:
        """A table property."""
        if type(key) is not str or type(value) is not str:
            _raise_type_error("Key and value of property must be string.", key, value)
        self._properties[key] = value
        return self

    def execute(self) -> Table:
        """Makes the table, in one commit, and returns it; errors are those of the statement in SQL.

        `createIfNotExists` leaves what is there as it is.
        """
        self._check_name_and_location()
        return self._execute()

    @abstractmethod
    def _execute(self) -> Table: ...

    @abstractmethod
    def _type_of(self, data_type: str | DataType) -> Any:
        """A type of SQL or a DataType as `_columns` has it."""

    def _add(self, name: str, data_type: str | DataType, nullable: bool, metadata: Mapping[str, Any]) -> None:
        found = self._type_of(data_type)
        self._columns.append({"name": name, "type": found, "nullable": nullable, "metadata": metadata})

    def _check_name_and_location(self) -> None:
        """Raises if the table has no path or name, or two paths."""
        if self._name is None:
            if self._location is None:
                raise DeltaAnalysisException(error_class="DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION")
            return
        named = _PATH_AS_NAME.fullmatch(self._name)
        if named is not None and self._location not in (None, named[1].replace("``", "`")):
            raise DeltaAnalysisException(
                error_class="DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
                identifier=self._name,
                location=self._location,
            )


def _check_generation(always: object, by_default: object) -> None:
    """Raises for what is no expression and no generator of numbers, and for a step of 0."""
    if always is not None and by_default is not None:
        raise ValueError(
            "generatedByDefaultAs and generatedAlwaysAs cannot both be set.", [by_default, always]
        )
    if always is not None and not isinstance(always, str | IdentityGenerator):
        _raise_type_error("Generated always as expression must be str or IdentityGenerator.", always)
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        _raise_type_error("Generated by default expression must be IdentityGenerator.", by_default)
    for identity in (always, by_default):
        if isinstance(identity, IdentityGenerator) and identity.step == 0:
            raise ValueError("Column identity generation requires step to be non-zero.")


def _check(expected: type, message: str, value: object) -> None:
    if type(value) is not expected:
        _raise_type_error(message, value)


def _raise_type_error(message: str, *values: object) -> NoReturn:
    raise TypeError(message + "".join(f" Found {value} with type {type(value)}" for value in values))
