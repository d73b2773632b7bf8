"""The transaction of a statement that changes a table's metadata."""

from __future__ import annotations

from collections.abc import Mapping

from deltaflow.errors import DeltaTableNotFoundError
from deltaflow.log import DeltaLog, Metadata, Operation, OptimisticTransaction


def begin_change(log: DeltaLog, settings: Mapping[str, str]) -> tuple[OptimisticTransaction, Metadata]:
    """A transaction to change a table's metadata, and the metadata; DeltaTableNotFoundError without a
    table."""
    transaction = log.start_transaction(settings)
    if transaction.snapshot is None:
        raise DeltaTableNotFoundError(
            f"{log.path} is not a Delta table. Check the path, or write a table there first.", table=log.path
        )
    return transaction, transaction.snapshot.metadata


def commit_change(transaction: OptimisticTransaction, metadata: Metadata, operation: Operation) -> int:
    """Commits the metadata, and returns the version."""
    transaction.update_metadata(metadata)
    return transaction.commit([], operation).version
