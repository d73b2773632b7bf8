"""The conflict rules: whether a commit that lost the race for a version may follow the winner.

Each rule is one function. The losing commit may follow if everything that it read, and everything that it
changes, is still as it was: then it would have had the same content after the winner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from deltaflow.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
    SchemaError,
)
from deltaflow.log.commits.head import Head
from deltaflow.log.commits.reads import Reads
from deltaflow.log.files.file_key import file_key
from deltaflow.log.protocol.actions import (
    AddFile,
    AnyAction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaflow.log.protocol.clustering import CLUSTERING_DOMAIN
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import required_features, supported_features
from deltaflow.log.protocol.identity_columns import UPDATE_TAG
from deltaflow.log.protocol.isolation import IsolationLevel
from deltaflow.log.protocol.row_tracking import FEATURE as ROW_TRACKING
from deltaflow.log.protocol.row_tracking import without_row_tracking
from deltaflow.log.protocol.schema import check_partitioning, rules_of_column, schema_from_string
from deltaflow.log.protocol.schema_merging import check_append_schema


@dataclass(frozen=True)
class Loser:
    """A commit that lost the race for a version, and what it read."""

    table: str
    read_version: int
    reads: Reads
    actions: Sequence[AnyAction]
    isolation: IsolationLevel
    changes_metadata: bool
    head: Head | None = None
    """What it would have followed, if no winner had come; None if it is not known, or without a table."""

    @cached_property
    def removes(self) -> Set[str]:
        """The keys of the files that it removes."""
        return {file_key(action, self.table) for action in self.actions if isinstance(action, RemoveFile)}

    @property
    def rewrites(self) -> bool:
        """Whether it removes files, or adds some whose rows are in the table already."""
        return bool(self.removes) or any(
            isinstance(action, AddFile) and not action.data_change for action in self.actions
        )

    @cached_property
    def app_ids(self) -> Set[str]:
        """The applications whose progress it read or sets."""
        return self.reads.app_ids | {
            action.app_id for action in self.actions if isinstance(action, SetTransaction)
        }

    @cached_property
    def domains(self) -> Set[str]:
        """The metadata domains that it sets."""
        return {action.domain for action in self.actions if isinstance(action, DomainMetadata)}


def check_protocol(winner: Commit, loser: Loser) -> None:
    """ProtocolChangedException if the winner changed the protocol.

    One that only adds row tracking is no obstacle: the loser's files get their ids at its next attempt.
    """
    if winner.protocol is not None and not _only_adds_row_tracking(winner.protocol, loser):
        raise _conflict(
            ProtocolChangedException,
            winner,
            loser,
            f"changed the protocol of the table. {_advice_on_protocol(winner)}",
        )


def check_metadata(winner: Commit, loser: Loser) -> None:
    """MetadataChangedException if the winner changed the metadata.

    One that only enables row tracking is no obstacle for a loser that only adds rows: it would give rows that
    are in the table, and are copied or added again, other ids. One that moved high-water marks of identity
    columns alone is an obstacle only to a loser that has metadata of its own, such as marks: it would give
    the same numbers. One that changed the clustering is an obstacle to such a loser, too: it may drop a
    column by which the table is clustered now.
    """
    if winner.metadata is not None and not (
        _only_changes_row_tracking(winner.metadata, loser)
        or (_changes_marks_alone(winner) and not loser.changes_metadata)
    ):
        raise _conflict(
            MetadataChangedException,
            winner,
            loser,
            "changed the metadata of the table (its schema, partitioning or properties). Run the operation "
            "again on the table as it is now.",
        )
    if loser.changes_metadata and any(domain.domain == CLUSTERING_DOMAIN for domain in winner.domains):
        raise _conflict(
            MetadataChangedException,
            winner,
            loser,
            "changed the clustering columns of the table, and this operation changes its metadata. Run the "
            "operation again on the table as it is now.",
        )


def _only_adds_row_tracking(protocol: Protocol, loser: Loser) -> bool:
    if loser.head is None or loser.changes_metadata:
        return False
    before, after = supported_features(loser.head.protocol), supported_features(protocol)
    return before < after and after - before <= {ROW_TRACKING, *required_features(ROW_TRACKING)}


def _only_changes_row_tracking(metadata: Metadata, loser: Loser) -> bool:
    if loser.head is None or loser.changes_metadata or loser.rewrites:
        return False
    before = loser.head.metadata
    return metadata != before and without_row_tracking(metadata) == without_row_tracking(before)


def check_domains(winner: Commit, loser: Loser) -> None:
    """ConcurrentTransactionException if both set one metadata domain."""
    for domain in winner.domains:
        if domain.domain in loser.domains:
            raise _conflict(
                ConcurrentTransactionException,
                winner,
                loser,
                f"set the metadata domain {domain.domain}, which this operation sets. Run the operation "
                "again.",
            )


def check_app_ids(winner: Commit, loser: Loser) -> None:
    """ConcurrentTransactionException if the winner committed for an application that the loser uses."""
    for txn in winner.txns:
        if txn.app_id in loser.app_ids:
            raise _conflict(
                ConcurrentTransactionException,
                winner,
                loser,
                f"is of the same application ({txn.app_id}, its version {txn.version}). Several runs of one "
                "streaming query, with the same checkpoint, write into this table: stop all but one.",
            )


def check_added_files(winner: Commit, loser: Loser) -> None:
    """ConcurrentAppendException if the winner added files that the loser would have read.

    A loser that only rearranges data does not depend on new rows. Under WriteSerializable, blind appends may
    be ordered after the loser, unless it changes the metadata for which they were made.
    """
    if loser.isolation is IsolationLevel.SNAPSHOT_ISOLATION:
        return
    appends_may_follow = loser.isolation is IsolationLevel.WRITE_SERIALIZABLE and not loser.changes_metadata
    if appends_may_follow and _is_blind_append(winner):
        return
    added = loser.reads.first_added(winner.adds)
    if added is not None:
        may_be_blind = not winner.removes and (
            winner.commit_info is None or winner.commit_info.is_blind_append is None
        )
        upgrade = (
            " The commit does not say whether it is a blind append, so it is not taken for one: upgrade all "
            "writers of this table to versions that say it."
            if appends_may_follow and may_be_blind
            else ""
        )
        raise _conflict(
            ConcurrentAppendException,
            winner,
            loser,
            f"added data to {_location(added)}, which this operation has read without it. "
            f"{_advice(loser.reads)}{upgrade}",
        )


def check_removed_reads(winner: Commit, loser: Loser) -> None:
    """ConcurrentDeleteReadException if the winner removed files that the loser read."""
    removed = loser.reads.first_removed(winner.removes)
    if removed is not None:
        raise _conflict(
            ConcurrentDeleteReadException,
            winner,
            loser,
            f"removed data from {_location(removed)}, which this operation has read. {_advice(loser.reads)}",
        )


def check_removed_twice(winner: Commit, loser: Loser) -> None:
    """ConcurrentDeleteDeleteException if both remove one file."""
    if not loser.removes:
        return
    for removed in winner.removes:
        if file_key(removed, loser.table) in loser.removes:
            raise _conflict(
                ConcurrentDeleteDeleteException,
                winner,
                loser,
                f"removed data from {_location(removed)}, which this operation removes, too. Run the "
                "operation again on the table as it is now.",
            )


Rule = Callable[[Commit, Loser], None]
_RULES_OF_CREATION: tuple[Rule, ...] = (check_app_ids, check_domains)
RULES: tuple[Rule, ...] = (
    check_protocol,
    check_metadata,
    check_domains,
    check_app_ids,
    check_added_files,
    check_removed_reads,
    check_removed_twice,
)
"""In the order in which a winner is checked: changes that concern every operation come first."""


def check_winner(winner: Commit, loser: Loser) -> None:
    """Raise the error of the first rule that keeps the loser from following the winner."""
    for rule in RULES:
        rule(winner, loser)


def check_winner_of_creation(winner: Commit, loser: Loser) -> None:
    """As `check_winner`, for a loser that found no table; see `check_created_meanwhile`."""
    for rule in _RULES_OF_CREATION:
        rule(winner, loser)


def check_created_meanwhile(winners: Sequence[Commit], created: Head, wanted: Head, loser: Loser) -> None:
    """ProtocolChangedException unless files written for the table `wanted` may be appended to `created`.

    Rows were checked by the rules of `wanted` alone. So both need the same columns (in any order, by their
    exact names, with the same nullability and metadata), partitioning, properties and protocol, and the
    loser must not depend on there being no table.
    """
    reason = _obstacle_to_appending(created, wanted, loser)
    if reason is not None:
        raise _conflict(
            ProtocolChangedException,
            winners[0],
            loser,
            f"created the table (id {created.metadata.id}) while this operation was creating it. {reason} "
            f"{_advice_on_protocol(winners[0])}",
        )


def _obstacle_to_appending(created: Head, wanted: Head, loser: Loser) -> str | None:
    """Why rows written for `wanted` may not be in `created`; None if they may."""
    if loser.reads.whole_table or loser.reads.no_table:
        return "The operation requires that there is no table."
    there = schema_from_string(created.metadata.schema_string, table=loser.table)
    schema = schema_from_string(wanted.metadata.schema_string, table=loser.table)
    partitioning_there, partitioning = created.metadata.partition_columns, wanted.metadata.partition_columns
    try:
        check_partitioning(partitioning_there, partitioning, table=loser.table)
        check_append_schema(there, schema, table=loser.table)
    except SchemaError as error:
        return error.message
    if set(schema.names) != set(there.names) or partitioning != partitioning_there:
        return f"Its columns {there.names} differ from {schema.names} in case."
    columns = [name for name in schema.names if rules_of_column(there[name]) != rules_of_column(schema[name])]
    if columns:
        return (
            f"Its columns {', '.join(columns)} differ in nullability or metadata from those of this "
            "operation, which has not checked its rows by the rules of the table."
        )
    ours, theirs = wanted.metadata.configuration, created.metadata.configuration
    properties = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if properties:
        return f"Its properties differ from those that this operation gives it: {', '.join(properties)}."
    if created.protocol != wanted.protocol:
        return f"Its protocol is {created.protocol}, and this operation's is {wanted.protocol}."
    return None


def _advice_on_protocol(winner: Commit) -> str:
    """Why the protocol has probably changed, and what to do."""
    operation = (winner.commit_info.operation if winner.commit_info else None) or ""
    if "CREATE" in operation or "REPLACE" in operation:
        return (
            "A concurrent operation created or replaced the table: create it once, before it is written. "
            "Run the operation again."
        )
    if winner.version == 0:
        return (
            "Several writers write to an empty path at once: create the table ahead of time to avoid this "
            "conflict. Run the operation again."
        )
    return (
        "The table was upgraded: run the operation again; if it is refused then, the table needs a newer "
        "version of the software that writes."
    )


def _changes_marks_alone(winner: Commit) -> bool:
    tags = None if winner.commit_info is None else winner.commit_info.tags
    return tags is not None and tags.get(UPDATE_TAG) == "true"


def _is_blind_append(winner: Commit) -> bool:
    return winner.commit_info is not None and winner.commit_info.is_blind_append is True


def _advice(reads: Reads) -> str:
    if reads.whole_table:
        return (
            "It reads the whole table, and a full scan of the table blocks concurrent commits. Run it again "
            "on the table as it is now."
        )
    return (
        "Run it again; operations whose conditions name disjoint partitions do not conflict with each other."
    )


def _location(action: AddFile | RemoveFile) -> str:
    values = action.partition_values
    if not values:
        return f"the file {action.path}"
    partition = ", ".join(f"{name}={'null' if value is None else value}" for name, value in values.items())
    return f"partition [{partition}] (file {action.path})"


def _conflict(
    error_type: type[DeltaConcurrentModificationException], winner: Commit, loser: Loser, what: str
) -> DeltaConcurrentModificationException:
    operation = winner.commit_info.operation if winner.commit_info else None
    read = f"had read version {loser.read_version}" if loser.read_version >= 0 else "had found no table"
    return error_type(
        f"Version {winner.version} of {loser.table} ({operation or 'an unnamed operation'}) {what} "
        f"Nothing was committed; this operation {read}.",
        table=loser.table,
        version=winner.version,
        operation=operation,
    )
