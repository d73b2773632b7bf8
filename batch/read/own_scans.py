"""What a query scans of the table that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from deltaflow.store import is_same_directory


def scans_of_table(scans: Iterable[str], path: str) -> list[dict[str, Any]]:
    """The descriptions of the scans that read the table at `path`, of all scans in a query's plan."""
    described = map(msgspec.json.decode, scans)
    return [scan for scan in described if is_same_directory(scan["path"], path)]


def reads_newest(scan: Mapping[str, Any]) -> bool:
    """Whether a scan reads what was the newest version when Spark planned it: a later commit is a rival. No
    commit changes a version that the user asked for (time travel)."""
    return not scan.get("timeTravel", True)


def oldest_version(scans: Iterable[Mapping[str, Any]]) -> int | None:
    """The oldest of the versions that these scans of a table took for the newest; None if they took none."""
    return min((scan["version"] for scan in scans if reads_newest(scan)), default=None)
