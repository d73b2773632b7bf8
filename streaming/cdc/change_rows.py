"""The change data feed of a Delta table, as changes: for a replica of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from deltaflow.log.files.change_files import CHANGE_COLUMNS, CHANGE_TYPE, COMMIT_VERSION
from deltaflow.streaming.cdc.changes import CHANGE, DELETE, SEQUENCE, UPSERT, Current, check_names
from deltaflow.streaming.cdc.records import record_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GONE = ("delete", "update_preimage")
_NEW = ("insert", "update_postimage")


@dataclass(frozen=True)
class ChangeRows:
    """Reads the change rows of a Delta table, which a stream has with the option readChangeFeed.

    The sequence of a change is `{version, order}`: the version of the commit, and 0 for the rows that it took
    away, deleted ones and those from before an update, or 1 for those that it brought. So it does not matter
    how a commit is cut into micro-batches, and an update may change the key.
    """

    def changes(self, batch: DataFrame, current: Current) -> DataFrame:
        """The changes of the records; see `deltaflow.streaming.cdc.changes`."""
        check_names(batch.columns)
        failure = record_failure(F.to_json(F.struct("*")))
        kind = F.col(CHANGE_TYPE)
        unknown = failure(f"the column {CHANGE_TYPE} has none of {', '.join((*_NEW, *_GONE))}")
        change = F.when(kind.isin(*_NEW), UPSERT).when(kind.isin(*_GONE), DELETE).otherwise(unknown)
        order = F.when(kind.isin(*_NEW), 1).otherwise(0)
        sequence = F.struct(F.col(COMMIT_VERSION).alias("version"), order.alias("order"))
        return batch.withColumns({CHANGE: change, SEQUENCE: sequence}).drop(*CHANGE_COLUMNS.names)
