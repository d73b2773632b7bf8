"""What a commit that won the race forbids to the one that lost it: one rule, one function."""

from __future__ import annotations

from collections.abc import Set

from deltaflow.errors import (
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    SchemaError,
)
from deltaflow.log.actions import Metadata
from deltaflow.log.commit import Commit
from deltaflow.log.schema import check_append_schema, check_partitioning, schema_from_string
from deltaflow.log.snapshot import Snapshot


def check_app_ids(winner: Commit, app_ids: Set[str], table: str) -> None:
    """ConcurrentTransactionException if the winner committed for an application that the loser uses."""
    for txn in winner.txns:
        if txn.app_id in app_ids:
            raise ConcurrentTransactionException(
                f"{_named(winner, table)} is of the same application ({txn.app_id}, its version "
                f"{txn.version}). Several runs of one streaming query, with the same checkpoint, write into "
                "this table: stop all but one.",
                table=table,
                version=winner.version,
            )


def check_protocol(winner: Commit, table: str) -> None:
    """ProtocolChangedException if the winner changed the protocol."""
    if winner.protocol is not None:
        raise ProtocolChangedException(
            f"{_named(winner, table)} changed the protocol of the table. Run the operation again.",
            table=table,
            version=winner.version,
        )


def check_metadata(winner: Commit, table: str) -> None:
    """MetadataChangedException if the winner changed the metadata."""
    if winner.metadata is not None:
        raise MetadataChangedException(
            f"{_named(winner, table)} changed the metadata of the table. Run the operation again.",
            table=table,
            version=winner.version,
        )


def check_created_meanwhile(created: Snapshot, wanted: Metadata | None) -> None:
    """ProtocolChangedException unless files written for the table `wanted` may be appended to `created`.

    That needs the same columns, by their exact names, and the same partitioning. None: the loser
    needs that there is no table at all.
    """
    if wanted is None:
        reason = "The operation needs that there is no table."
    else:
        schema = schema_from_string(wanted.schema_string, table=created.path)
        try:
            check_partitioning(created.partition_columns, wanted.partition_columns, table=created.path)
            check_append_schema(created.schema, schema, table=created.path)
        except SchemaError as error:
            reason = error.message
        else:
            if set(schema.names) == set(created.schema.names):
                return
            reason = f"Its columns {created.schema.names} differ from {schema.names} in case."
    raise ProtocolChangedException(
        f"A table (id {created.table_id}) was created at {created.path} while this operation was creating "
        f"it. {reason} Run the operation again.",
        table=created.path,
        version=created.version,
    )


def dependent_write(winner: Commit, read_version: int, table: str) -> ConcurrentWriteException:
    """The error of a commit that depends on what it read, and cannot tell whether the winner changed that."""
    return ConcurrentWriteException(
        f"{_named(winner, table)} came after version {read_version}, which this operation read and depends on"
        ". It was not committed. Run it again.",
        table=table,
        version=winner.version,
    )


def _named(commit: Commit, table: str) -> str:
    operation = commit.commit_info and commit.commit_info.operation
    return f"Version {commit.version} of {table} ({operation or 'an unnamed operation'})"
