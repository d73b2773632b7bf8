"""What the checksum files of a table must say, by a replay of its commits without any cleverness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore

RETENTION = "delta.setTransactionRetentionDuration"


def check_checksums(path: str) -> set[int]:
    """The versions that have a checksum file; each says what the commits until then come to."""
    log_directory = Path(path, "_delta_log")
    files: dict[str, int] = {}
    transactions: dict[str, Any] = {}
    domains: dict[str, Any] = {}
    newest: dict[str, Any] = {}
    checked: set[int] = set()
    for commit in sorted(log_directory.glob("0*.json")):
        if len(commit.stem) != 20:
            continue
        for line in commit.read_text().splitlines():
            ((name, action),) = json.loads(line).items()
            match name:
                case "add":
                    files[action["path"]] = action["size"]
                case "remove":
                    files.pop(action["path"], None)
                case "txn":
                    known = {name: value for name, value in action.items() if value is not None}
                    transactions[action["appId"]] = known
                case "domainMetadata":
                    domains[action["domain"]] = action
                case _:
                    newest[name] = action
        checksum = commit.with_suffix(".crc")
        if checksum.exists():
            said = json.loads(checksum.read_text())
            version = int(commit.stem)
            _check(said, newest, list(files.values()))
            if "setTransactions" in said:
                assert RETENTION not in newest["metaData"]["configuration"]
                assert by_key(said["setTransactions"], "appId") == transactions, version
            kept = {name: domain for name, domain in domains.items() if not domain["removed"]}
            assert by_key(said["domainMetadata"], "domain") == kept, version
            log = DeltaLog(LocalLogStore(), path)
            assert log.checksum_differences(log.snapshot_at(version)) == {}
            checked.add(version)
    return checked


def _check(said: dict[str, Any], newest: dict[str, Any], sizes: list[int]) -> None:
    assert (said["numFiles"], said["tableSizeBytes"]) == (len(sizes), sum(sizes))
    assert (said["numMetadata"], said["numProtocol"]) == (1, 1)
    metadata = {name: value for name, value in newest["metaData"].items() if value is not None}
    assert (said["metadata"], said["protocol"]) == (metadata, newest["protocol"])
    info = newest["commitInfo"]
    assert said["txnId"] == info["txnId"]
    assert said.get("inCommitTimestampOpt") == info.get("inCommitTimestamp")
    histogram = said["fileSizeHistogram"]
    bins = list(zip(*histogram.values(), strict=True))
    ends = [*(start for start, _, _ in bins[1:]), 1 << 62]
    for (start, count, total), end in zip(bins, ends, strict=True):
        here = [size for size in sizes if start <= size < end]
        assert (count, total) == (len(here), sum(here)), start


def by_key(actions: list[dict[str, Any]], key: str) -> dict[str, Any]:
    found = {action[key]: action for action in actions}
    assert len(found) == len(actions)
    return found
