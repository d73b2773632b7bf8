"""Isolation levels: which concurrent commits a commit tolerates."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from deltaflow.log.protocol.actions import AddFile, AnyAction, Metadata, RemoveFile
from deltaflow.log.protocol.properties import ISOLATION_LEVEL


class IsolationLevel(StrEnum):
    """From strict to lax, by their names in commitInfo."""

    SERIALIZABLE = "Serializable"
    """As if all commits were made one after the other, in the order of their versions."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """As if all commits were made one after the other; blind appends may stand later in that order."""
    SNAPSHOT_ISOLATION = "SnapshotIsolation"
    """Every commit reads one version; two that change the same files exclude each other."""


def isolation_of_table(metadata: Metadata, table: str) -> IsolationLevel:
    """The level that the table's property delta.isolationLevel asks for, Serializable without one.

    DeltaIllegalArgumentException for another value than Serializable or WriteSerializable. A writer calls
    this before it writes files, since its commit would be refused.
    """
    wanted = ISOLATION_LEVEL.of(metadata.configuration, table)
    return next(level for level in IsolationLevel if level.lower() == wanted)


def isolation_of_commit(
    actions: Sequence[AnyAction], of_table: IsolationLevel, *, changes_metadata: bool
) -> IsolationLevel:
    """The table's level; snapshot isolation for a commit that only rearranges data, since its order among
    the others makes no difference to any row.
    """
    rearranges = bool(actions) and all(
        isinstance(action, AddFile | RemoveFile) and not action.data_change for action in actions
    )
    if rearranges and not changes_metadata:
        return IsolationLevel.SNAPSHOT_ISOLATION
    return of_table
