"""One version of a table as its commit file tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from deltaflow.errors import CorruptLogError
from deltaflow.log.limits import MAX_JSON_FILE_BYTES
from deltaflow.log.protocol.actions import (
    AddCDCFile,
    AddFile,
    AnyAction,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    decode_actions,
)
from deltaflow.store import FileStatus, LogStore

LOG_DIRECTORY = "_delta_log"
_COMMIT_NAME = re.compile(r"(\d{20})\.json")
_ActionT = TypeVar("_ActionT")


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit did; `adds`, `removes` and `cdc` in log order, `actions` all of it in log order."""

    version: int
    timestamp_ms: int
    """In-commit timestamp where the commit has one, else the modification time of its log file."""
    actions: tuple[AnyAction, ...]
    commit_info: CommitInfo | None
    metadata: Metadata | None
    protocol: Protocol | None
    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    cdc: tuple[AddCDCFile, ...]
    txns: tuple[SetTransaction, ...]
    domains: tuple[DomainMetadata, ...]


def commit_name(version: int) -> str:
    """File name of a version's commit."""
    return f"{version:020}.json"


def commit_version(name: str) -> int | None:
    """The version whose commit has this file name; None for other files."""
    match = _COMMIT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def read_commit(store: LogStore, log_path: str, status: FileStatus, version: int) -> Commit:
    """Read the commit (or log compaction) that makes a version; CorruptLogError if it cannot be understood
    or has gone since it was listed.
    """
    return parse_commit(read_whole(store, log_path, status), log_path, status, version)


def read_whole(store: LogStore, log_path: str, status: FileStatus) -> bytes | None:
    """A file of the log in JSON; None if it has gone since it was listed. CorruptLogError if it is too large,
    StoreError if the store does not give all of it.
    """
    check_size(f"{log_path}/{status.name}", status.size)
    [data] = store.read_together(log_path, [status])
    return data


def check_size(path: str, size: int) -> None:
    """CorruptLogError if a file of the log that is read as a whole has more bytes than any may have."""
    if size > MAX_JSON_FILE_BYTES:
        raise CorruptLogError(
            f"{path} has {size} bytes; a file of a log in JSON has at most {MAX_JSON_FILE_BYTES}. No table "
            "needs such a file: look at who wrote it.",
            file=path,
        )


def parse_commit(data: bytes | None, log_path: str, status: FileStatus, version: int) -> Commit:
    """As `read_commit`, from the file's content; None if it has gone."""
    path = f"{log_path}/{status.name}"
    if data is None:
        raise CorruptLogError(
            f"{path} vanished while the log was read. If log cleanup removed it, try again; a table that was "
            "deleted meanwhile is gone.",
            error_class="DELTA_LOG_FILE_NOT_FOUND",
            version=version,
            file=path,
        )
    return to_commit(version, status.modification_time_ms, tuple(decode_actions(data, path)), path)


def to_commit(version: int, modification_time_ms: int, actions: tuple[AnyAction, ...], file: str) -> Commit:
    """The commit of these actions, sorted by their types."""
    info = next(iter(_of_type(actions, CommitInfo)), None)
    in_commit_timestamp = None if info is None else info.in_commit_timestamp
    return Commit(
        version=version,
        timestamp_ms=modification_time_ms if in_commit_timestamp is None else in_commit_timestamp,
        actions=actions,
        commit_info=info,
        metadata=_at_most_one(actions, Metadata, file),
        protocol=_at_most_one(actions, Protocol, file),
        adds=_of_type(actions, AddFile),
        removes=_of_type(actions, RemoveFile),
        cdc=_of_type(actions, AddCDCFile),
        txns=_of_type(actions, SetTransaction),
        domains=_of_type(actions, DomainMetadata),
    )


def _of_type(actions: tuple[AnyAction, ...], action_type: type[_ActionT]) -> tuple[_ActionT, ...]:
    return tuple(action for action in actions if isinstance(action, action_type))


def _at_most_one(actions: tuple[AnyAction, ...], action_type: type[_ActionT], file: str) -> _ActionT | None:
    found = _of_type(actions, action_type)
    if len(found) > 1:
        raise CorruptLogError(
            f"{file} has {len(found)} {action_type.__name__} actions; a commit has at most one. "
            "Restore the file from a copy.",
            file=file,
        )
    return found[0] if found else None
