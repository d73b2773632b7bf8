"""The state of a table at one version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from deltaflow.errors import CorruptLogError
from deltaflow.log.actions import Metadata, Protocol, SetTransaction
from deltaflow.log.commit import Commit
from deltaflow.log.features import check_readable
from deltaflow.log.files import FILES_SCHEMA, FileState
from deltaflow.log.schema import schema_from_string

__all__ = ["FILES_SCHEMA", "Snapshot", "replay"]


class Snapshot:
    """A table at one version; immutable. UnsupportedFeatureError if it cannot be read."""

    def __init__(
        self,
        path: str,
        version: int,
        timestamp_ms: int,
        protocol: Protocol,
        metadata: Metadata,
        transactions: Mapping[str, SetTransaction],
        file_state: FileState,
    ) -> None:
        check_readable(protocol, metadata, path, version)
        self.path = path
        self.version = version
        self.timestamp_ms = timestamp_ms
        """When the version was committed: in-commit timestamp, else modification time of its log file."""
        self.protocol = protocol
        self.metadata = metadata
        self.transactions = transactions
        """The newest txn action of every application."""
        self._file_state = file_state

    @property
    def table_id(self) -> str:
        """The metaData's id: another id is another table."""
        return self.metadata.id

    @property
    def partition_columns(self) -> list[str]:
        """Names in partition order."""
        return list(self.metadata.partition_columns)

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, partition columns included."""
        return schema_from_string(self.metadata.schema_string, table=self.path)

    @cached_property
    def files(self) -> pa.Table:
        """The active files, one row each, by FILES_SCHEMA."""
        return self._file_state.files

    @property
    def num_files(self) -> int:
        """Number of active files."""
        return int(self.files.num_rows)

    @cached_property
    def size_in_bytes(self) -> int:
        """Sum of the sizes of the active files."""
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def txn_version(self, app_id: str) -> int | None:
        """The newest version that an application committed; None if it never did."""
        transaction = self.transactions.get(app_id)
        return None if transaction is None else transaction.version

    def after(self, commits: Iterable[Commit]) -> Snapshot:
        """The table after the commits that follow this version."""
        return replay(self.path, commits, self)

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r}, version={self.version})"


def replay(path: str, commits: Iterable[Commit], previous: Snapshot | None = None) -> Snapshot:
    """The table after `commits`, which follow `previous` (or are all from version 0), without a gap."""
    version = -1 if previous is None else previous.version
    timestamp_ms = 0 if previous is None else previous.timestamp_ms
    protocol = None if previous is None else previous.protocol
    metadata = None if previous is None else previous.metadata
    transactions = {} if previous is None else dict(previous.transactions)

    def followed() -> Iterable[Commit]:
        nonlocal version, timestamp_ms, protocol, metadata
        for commit in commits:
            version, timestamp_ms = commit.version, commit.timestamp_ms
            protocol = commit.protocol or protocol
            metadata = commit.metadata or metadata
            transactions.update((txn.app_id, txn) for txn in commit.txns)
            yield commit

    state = (FileState() if previous is None else previous._file_state).after(followed(), path)
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise CorruptLogError(
            f"The log of {path} has no {missing} action up to version {version}. Restore the first commits "
            "from a copy.",
            error_class="DELTA_STATE_RECOVER_ERROR",
            table=path,
            version=version,
        )
    return Snapshot(path, version, timestamp_ms, protocol, metadata, transactions, state)
