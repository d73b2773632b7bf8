"""The public names of the log core."""

from deltaflow.log.commits.outcomes import Committed, Conflict, Operation, Outcome, Unknown
from deltaflow.log.commits.reads import PartitionPredicate
from deltaflow.log.commits.transaction import OptimisticTransaction
from deltaflow.log.delta_log import DeltaLog
from deltaflow.log.files.file_rows import (
    FILES_SCHEMA,
    TOMBSTONES_SCHEMA,
    add_files,
    remove_files,
    tombstone_actions,
)
from deltaflow.log.observer import Observer, observe, set_observer
from deltaflow.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    UnknownAction,
    decode_actions,
    encode_actions,
)
from deltaflow.log.protocol.commit import LOG_DIRECTORY, Commit, commit_name
from deltaflow.log.protocol.isolation import IsolationLevel
from deltaflow.log.protocol.schema import (
    as_nullable,
    check_partitioning,
    check_writable_schema,
    schema_from_string,
    schema_to_string,
)
from deltaflow.log.protocol.schema_merging import check_append_schema, merge_schemas
from deltaflow.log.replay.snapshot import Snapshot

__all__ = [
    "FILES_SCHEMA",
    "LOG_DIRECTORY",
    "TOMBSTONES_SCHEMA",
    "Action",
    "AddCDCFile",
    "AddFile",
    "CheckpointMetadata",
    "Commit",
    "CommitInfo",
    "Committed",
    "Conflict",
    "DeletionVectorDescriptor",
    "DeltaLog",
    "DomainMetadata",
    "Format",
    "IsolationLevel",
    "Metadata",
    "Observer",
    "Operation",
    "OptimisticTransaction",
    "Outcome",
    "PartitionPredicate",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "Sidecar",
    "Snapshot",
    "Unknown",
    "UnknownAction",
    "add_files",
    "as_nullable",
    "check_append_schema",
    "check_partitioning",
    "check_writable_schema",
    "commit_name",
    "decode_actions",
    "encode_actions",
    "merge_schemas",
    "observe",
    "remove_files",
    "schema_from_string",
    "schema_to_string",
    "set_observer",
    "tombstone_actions",
]
