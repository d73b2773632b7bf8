"""Tables in directories whose files and commits are as old as a test says, for tests of vacuums."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deltaflow.log import DeltaLog
from deltaflow.log.maintenance.vacuum_candidates import Find, in_directory
from deltaflow.store import LocalLogStore
from tests.log.hand_written import HandWrittenTable, meta_data, protocol

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS


def hours_ago(hours: float) -> int:
    return int(NOW_MS - hours * HOUR_MS)


class Aged:
    """A table in a directory, whose files and commits are as old as a test says."""

    def __init__(self, path: Path) -> None:
        self.written = HandWrittenTable(path)
        self.path = path
        self.version = -1

    def commit(self, *actions: dict[str, Any], age: float) -> int:
        """The next version, of so many hours ago."""
        self.version += 1
        set_age(self.written.commit(self.version, *actions), age)
        return self.version

    def create(self, *actions: dict[str, Any], age: float, **metadata: Any) -> int:
        return self.commit(protocol(), meta_data(**metadata), *actions, age=age)

    def file(self, place: str, age: float = 1_000, size: int = 10) -> Path:
        file = self.path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
        set_age(file, age)
        return file

    def directory(self, place: str, age: float = 1_000) -> Path:
        directory = self.path / place
        directory.mkdir(parents=True)
        set_age(directory, age)
        return directory

    def log(self) -> DeltaLog:
        return DeltaLog(LocalLogStore(), str(self.path), clock=lambda: NOW_MS)

    def doomed(self, retention_ms: int = WEEK_MS, find: Find = in_directory) -> set[str]:
        """The files that a vacuum may delete."""
        plan = self.log().plan_vacuum(retention_ms, find)
        paths = plan.files["path"].to_pylist()
        assert len(set(paths)) == len(paths)
        assert plan.size_in_bytes == sum((self.path / path).stat().st_size for path in paths)
        return set(paths)


def set_age(path: Path, hours: float) -> None:
    seconds = hours_ago(hours) / 1_000
    os.utime(path, (seconds, seconds))
