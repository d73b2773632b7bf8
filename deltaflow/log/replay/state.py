"""The state of a table after its commits (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltaflow.log.files.file_state import FileState
from deltaflow.log.files.file_totals import FileTotals
from deltaflow.log.protocol.actions import AnyAction, DomainMetadata, Metadata, Protocol, SetTransaction
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.properties import SET_TRANSACTION_RETENTION_MS


@dataclass(frozen=True, slots=True)
class TableState:
    """A table after a version, unchecked; immutable. The default is the state before the first commit."""

    version: int = -1
    timestamp_ms: int = 0
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    """The newest txn action of every application."""
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    """The newest domainMetadata of every domain that was not removed."""
    transactions_expire: bool = False
    """Whether transactions had a retention at some replayed version: other readers may then have fewer."""
    file_state: FileState = field(default_factory=FileState)
    file_totals: FileTotals | None = None
    """None where they have to be counted."""

    def after(self, commits: Iterable[Commit], table_path: str) -> TableState:
        """The state after commits that follow this one, without a gap; they may come lazily."""
        version, timestamp_ms = self.version, self.timestamp_ms
        protocol, metadata = self.protocol, self.metadata
        transactions, domains = dict(self.transactions), dict(self.domains)
        expire, totals = (
            self.transactions_expire or _has_transaction_retention(self.metadata),
            self.file_totals,
        )

        def followed() -> Iterator[AnyAction]:
            nonlocal version, timestamp_ms, protocol, metadata, expire, totals
            for commit in commits:
                version, timestamp_ms = commit.version, commit.timestamp_ms
                protocol = commit.protocol or protocol
                metadata = commit.metadata or metadata
                expire = expire or _has_transaction_retention(commit.metadata)
                transactions.update((txn.app_id, txn) for txn in commit.txns)
                for domain in commit.domains:
                    domains.pop(domain.domain, None)
                    if not domain.removed:
                        domains[domain.domain] = domain
                totals = None if totals is None else totals.after(commit)
                yield from commit.actions

        file_state = self.file_state.after(followed(), table_path)
        return TableState(
            version=version,
            timestamp_ms=timestamp_ms,
            protocol=protocol,
            metadata=metadata,
            transactions=transactions,
            domains=domains,
            transactions_expire=expire,
            file_state=file_state,
            file_totals=totals,
        )


def _has_transaction_retention(metadata: Metadata | None) -> bool:
    return metadata is not None and SET_TRANSACTION_RETENTION_MS.name in metadata.configuration
