"""Version checksum files (PROTOCOL.md, "Version Checksum File"): the totals of a version by its writer.

The log alone is the truth. Where a checksum differs from it, one of the two is wrong, and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deltaflow.errors import StoreError, traceback_text
from deltaflow.log.files.file_totals import SIZE_BINS
from deltaflow.log.protocol.actions import encode_body
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.protocol.properties import WRITE_CHECKSUM_ENABLED
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot, replay_for_totals
from deltaflow.log.untrusted_json import decode_json

_LOG = logging.getLogger(__name__)
# delta-spark's bounds (setTransactionsInCrc.maxAllowed, domainMetadatasInCrc.maxAllowed).
_MOST_TRANSACTIONS = 100
_MOST_DOMAINS = 10


def write_checksum(
    log: LogFiles, read: Snapshot | None, commits: Sequence[Commit], session: Mapping[str, str]
) -> None:
    """Write the checksum of the version that the last of `commits` has just made.

    `commits` are all since the version that was `read`, None without a table. The commit is in the log, so a
    failure is only a warning in this module's log. Reads nothing.
    """
    own = commits[-1]
    path = _path(log, own.version)
    try:
        if not WRITE_CHECKSUM_ENABLED.of(session, log.path):
            return
        content = _content(replay_for_totals(log.path, commits, read))
        if own.commit_info is not None:
            content["txnId"] = own.commit_info.txn_id
        _put(log, path, msgspec.json.encode(content) + b"\n")
    except FileExistsError:
        _LOG.warning(
            "%s is of another commit of that version, which is no longer in the log: delete the file", path
        )
    # No error here may look like a failure of the commit.
    except Exception as error:
        _LOG.warning(
            "Version %d of %s is committed, but its checksum was not written\n%s",
            own.version,
            log.path,
            traceback_text(error),
        )


def _put(log: LogFiles, path: str, data: bytes) -> None:
    try:
        log.store.put_auxiliary_if_absent(path, data)
    except FileExistsError:
        # It is this one, if the answer to its put was lost and a client tried again.
        if log.store.read(path) != data:
            raise


def checksum_differences(log: LogFiles, snapshot: Snapshot) -> dict[str, tuple[Any, Any]] | None:
    """The fields that a version's checksum has otherwise: name -> (value of the log, value of the checksum).

    None without a checksum, or with one that cannot be read. Reads one file.
    """
    path = _path(log, snapshot.version)
    try:
        said = decode_json(log.store.read(path), as_type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (StoreError, OSError, msgspec.DecodeError) as error:
        _LOG.warning("The checksum %s cannot be read: %s", path, error)
        return None
    expected = msgspec.json.decode(msgspec.json.encode(_content(snapshot)))
    differences: dict[str, tuple[Any, Any]] = {}
    for name, value in expected.items():
        own = said.get(name, value)
        if isinstance(value, Mapping):
            if isinstance(own, Mapping):
                for field in (field for field in value if field in own):
                    if _sorted(own[field], name) != _sorted(value[field], name):
                        differences[f"{name}.{field}"] = value[field], own[field]
        elif _sorted(own, name) != _sorted(value, name):
            differences[name] = value, own
    return differences


def warn_of_differences(log: LogFiles, snapshot: Snapshot) -> None:
    """Warn in this module's log if the checksum of a snapshot's version differs from the log."""
    differences = checksum_differences(log, snapshot)
    if differences:
        said = [f"{name} is {of_log!r}, there {own!r}" for name, (of_log, own) in differences.items()]
        _LOG.warning(
            "Version %s of %s is not what its checksum file says. By the log, which counts: %s",
            snapshot.version,
            log.path,
            "; ".join(said),
        )


def _path(log: LogFiles, version: int) -> str:
    return f"{log.directory}/{version:020}.crc"


def _content(snapshot: Snapshot) -> dict[str, Any]:
    """The checksum of a snapshot's version, without the id of its transaction."""
    totals = snapshot.file_totals
    content: dict[str, Any] = {
        "tableSizeBytes": totals.size_in_bytes,
        "numFiles": totals.num_files,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": encode_body(snapshot.metadata),
        "protocol": encode_body(snapshot.protocol),
    }
    if has_in_commit_timestamps(snapshot.protocol, snapshot.metadata):
        content["inCommitTimestampOpt"] = snapshot.timestamp_ms
    if len(snapshot.transactions) <= _MOST_TRANSACTIONS and not snapshot.transactions_expire:
        content["setTransactions"] = [encode_body(action) for action in snapshot.transactions.values()]
    if len(snapshot.domains) <= _MOST_DOMAINS:
        content["domainMetadata"] = [encode_body(action) for action in snapshot.domains.values()]
    if totals.histogram is not None:
        content["fileSizeHistogram"] = {
            "sortedBinBoundaries": SIZE_BINS,
            "fileCounts": totals.histogram.file_counts,
            "totalBytes": totals.histogram.total_bytes,
        }
    return content


def _sorted(value: Any, name: str) -> Any:
    """The value; sorted if its order has no meaning."""
    if name in ("setTransactions", "domainMetadata", "protocol") and isinstance(value, list):
        return sorted(msgspec.json.encode(item, order="sorted") for item in value)
    return value
