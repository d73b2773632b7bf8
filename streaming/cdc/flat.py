"""Records that are rows with a column that says what was done, as changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.streaming.cdc.changes import CHANGE, DELETE, SEQUENCE, TRUNCATE, UPSERT, Current, check_names
from deltaflow.streaming.cdc.records import record_failure

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class Flat:
    """Reads records whose columns are the data, but for one, the operation.

    Operations are compared without regard to case. An operation that is in no list is an error.

    Raises:
        DeltaIllegalArgumentException: an operation is in two lists.
    """

    operation: str
    """The column with the operation. It is no data."""
    sequence_by: str | Column
    """An expression over the columns of the record: of two changes of a key the greater value is newer."""
    upserts: Collection[str] = ("c", "r", "u", "i", "create", "read", "insert", "update", "upsert")
    deletes: Collection[str] = ("d", "delete")
    truncates: Collection[str] = ("t", "truncate")
    ignored: Collection[str] = field(default=())
    """Operations of records that change nothing, such as the row before an update."""

    def __post_init__(self) -> None:
        lists = (self.upserts, self.deletes, self.truncates, self.ignored)
        names = [name.lower() for each in lists for name in each]
        for name in sorted(names):
            if names.count(name) > 1:
                raise DeltaIllegalArgumentException(f"The operation '{name}' of Flat is in two lists.")

    def changes(self, batch: DataFrame, current: Current) -> DataFrame:
        """The changes of the records; see `deltaflow.streaming.cdc.changes`."""
        check_names(batch.columns)
        operation = F.lower(F.col(quoted(self.operation)).cast("string"))
        failure = record_failure(F.to_json(F.struct("*")))
        change = F.when(_is_in(operation, self.upserts), UPSERT)
        change = change.when(_is_in(operation, self.deletes), DELETE)
        change = change.when(_is_in(operation, self.truncates), TRUNCATE)
        known = [*self.upserts, *self.deletes, *self.truncates]
        unknown = failure(f"the operation in column {self.operation} is none of {', '.join(sorted(known))}")
        records = batch.where(~F.coalesce(_is_in(operation, self.ignored), F.lit(False)))
        sequence = F.expr(self.sequence_by) if isinstance(self.sequence_by, str) else self.sequence_by
        return records.withColumns({CHANGE: change.otherwise(unknown), SEQUENCE: sequence}).drop(
            self.operation
        )


def _is_in(operation: Column, names: Collection[str]) -> Column:
    return operation.isin(*[name.lower() for name in names])
