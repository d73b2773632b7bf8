"""What the builders of `DeltaTable` collect and check, of which neither needs a JVM.

Each has two subclasses: one runs in a classic session, one writes SQL for a Spark Connect session.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NoReturn, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from deltaflow.arguments import check_assignments, check_condition, check_string, names_of
from deltaflow.errors import DeltaAnalysisException

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


class TableBuilder(ABC):
    """Collects the definition of a table until `execute` makes it.

    TypeError for arguments of a wrong type.
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

    @abstractmethod
    def execute(self) -> Any:
        """Makes the table, in one commit, and returns it; errors are those of the statement in SQL.

        `createIfNotExists` leaves what is there as it is.
        """

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


class When(Enum):
    """The rows that a clause of MERGE is about; the value is how errors call it."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT_MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT_MATCHED_BY_SOURCE"


Action = Literal["update", "delete", "insert"]
Assignments = Mapping[str, str | Column]


class MergeBuilder(ABC):
    """Specifies how to merge a source into a table, clause by clause; made by `DeltaTable.merge`.

    Of the clauses about a row the first applies whose condition is true; only the last of them may be
    without one. Every method returns a builder with one more clause.
    """

    def whenMatchedUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> Self:
        """Update columns of a row that matches; `set` has them with their new values (SQL or Columns)."""
        return self._update(When.MATCHED, condition, check_assignments(set, "'set' in whenMatchedUpdate"))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> Self:
        """Update all columns of a row that matches with those of the source."""
        return self._with(When.MATCHED, "update", condition, None)

    def whenMatchedDelete(self, condition: str | Column | None = None) -> Self:
        """Delete a row that matches."""
        return self._with(When.MATCHED, "delete", condition, {})

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, str | Column] | None = None
    ) -> Self:
        """Insert a row for one of the source that matches none; columns that `values` lacks are null."""
        assignments = check_assignments(values, "'values' in whenNotMatchedInsert")
        return self._with(When.NOT_MATCHED, "insert", condition, assignments)

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> Self:
        """Insert a row of the source that matches none."""
        return self._with(When.NOT_MATCHED, "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002
    ) -> Self:
        """Update columns of a row that no row of the source matches."""
        assignments = check_assignments(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._update(When.NOT_MATCHED_BY_SOURCE, condition, assignments)

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> Self:
        """Delete a row that no row of the source matches."""
        return self._with(When.NOT_MATCHED_BY_SOURCE, "delete", condition, {})

    @abstractmethod
    def withSchemaEvolution(self) -> Self:
        """Let the table take over columns of the source that it lacks and that clauses assign to."""

    @abstractmethod
    def execute(self) -> DataFrame:
        """Merge; one row that tells how many rows were affected, updated, deleted and inserted. No row if the
        table has this merge already (txnVersion)."""

    @abstractmethod
    def _with(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> Self:
        """A builder with one more clause. `assignments`: None for all columns (*), empty for a delete."""

    def _update(self, when: When, condition: str | Column | None, assignments: Assignments) -> Self:
        if not assignments and condition is None:
            return self  # it would say nothing about any row
        return self._with(when, "update", condition, assignments)


def check_merge(source: Any, condition: Any) -> None:
    """ValueError for arguments of a merge that are None, TypeError for those of wrong types."""
    if source is None:
        raise ValueError("'source' in merge cannot be None")
    if not isinstance(source, DataFrame):
        raise TypeError("Type of 'source' in merge must be DataFrame.")
    check_condition(condition)
    if condition is None:
        raise ValueError("'condition' in merge cannot be None")


class OptimizeBuilder(ABC):
    """Builds an OPTIMIZE of a table. See `DeltaTable.optimize`."""

    def __init__(self) -> None:
        self._where: list[str] = []

    def where(self, partitionFilter: str) -> Self:
        """Optimizes only partitions for which this condition, in SQL, and all earlier ones are true."""
        self._where.append(check_string(partitionFilter, "partitionFilter"))
        return self

    def executeCompaction(self) -> DataFrame:
        """Makes larger files of small ones. Returns one row with the path and the metrics."""
        return self._execute([])

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Puts rows that are close in these columns into one file. Returns one row, as executeCompaction."""
        return self._execute(names_of(cols, "Z-order column must be str."))

    @abstractmethod
    def _execute(self, z_order_by: list[str]) -> DataFrame:
        """Optimizes the partitions; with columns, their rows are ordered."""


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
