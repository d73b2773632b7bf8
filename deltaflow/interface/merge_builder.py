"""`DeltaMergeBuilder`: the clauses of a MERGE."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, Literal, Self

from pyspark.sql import Column, DataFrame

from deltaflow.interface.arguments import check_assignments, check_condition


class When(Enum):
    """The rows that a clause of MERGE is about; the value is how errors call it."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT_MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT_MATCHED_BY_SOURCE"


Action = Literal["update", "delete", "insert"]
Assignments = Mapping[str, str | Column]


class DeltaMergeBuilder(ABC):
    """Specifies how to merge a source into a table, clause by clause; made by `DeltaTable.merge`.

    Of the clauses about a row the first applies whose condition is true; only the last of them may be
    without one. Every method returns a builder with one more clause.
    """

    def __init__(self) -> None:
        self._clauses: Sequence[Any] = ()
        """As `_execute` takes them."""
        self._evolves = False

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

    def withSchemaEvolution(self) -> Self:
        """Let the table take over columns of the source that it lacks and that clauses assign to."""
        evolving = copy(self)
        evolving._evolves = True
        return evolving

    def execute(self) -> DataFrame:
        """Merge; one row that tells how many rows were affected, updated, deleted and inserted. No row if the
        table has this merge already (txnVersion)."""
        return self._execute()

    @abstractmethod
    def _clause(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> Any:
        """A clause as `_execute` takes it. `assignments`: None for all columns (*), empty for a delete."""

    @abstractmethod
    def _execute(self) -> DataFrame: ...

    def _with(
        self, when: When, action: Action, condition: str | Column | None, assignments: Assignments | None
    ) -> Self:
        check_condition(condition)
        longer = copy(self)
        longer._clauses = [*self._clauses, self._clause(when, action, condition, assignments)]
        return longer

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
