"""The table that a stream writes is not there any more."""

from __future__ import annotations

from deltaflow.errors import DeltaIllegalStateException


def table_is_gone(table: str, batch_id: int) -> DeltaIllegalStateException:
    """The error of a batch before which the stream's table, of this path or name, was there in this run."""
    return DeltaIllegalStateException(
        f"The table {table}, which the stream writes, was dropped, moved or renamed while the stream ran, so "
        f"batch {batch_id} was not written. Start the query again with the table's new name or path. At the "
        "old one a restart makes a new table, which begins with this batch.",
        table=table,
    )
