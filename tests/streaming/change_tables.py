"""Tables that record their changes, for streams to read: commits by hand, and the rows of another table."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.deletion_vectors import inline
from tests.streaming.source_tables import SourceTable


def change_row(id_: int, v: int, p: str, change: str, version: int) -> tuple[Any, ...]:
    return (id_, v, p, change, version)


OF_VERSIONS = {
    0: [change_row(i, i, "abc"[i // 2], "insert", 0) for i in range(6)],
    1: [change_row(1, 1, "a", "update_preimage", 1), change_row(1, 10, "a", "update_postimage", 1)],
    2: [change_row(2, 2, "b", "delete", 2), change_row(3, 3, "b", "delete", 2)],
    3: [change_row(0, 0, "a", "delete", 3)],
    4: [change_row(9, 9, "d", "insert", 4)],
}
"""The change rows of each version of `feed_table` (tests/feed_tables.py)."""


class ChangeTable(SourceTable):
    """A table of the column `id` whose commits are written by hand, with change files that nobody reads."""

    def __init__(self, path: str, *files: list[int], **metadata: Any) -> None:
        super().__init__(path, *files, **{"delta_enableChangeDataFeed": "true", **metadata})

    def record(self, count: int, *files: list[int], size: int = 100, **other: Any) -> int:
        """Commits a version with cdc actions, beside files that it adds and others that it removes."""
        number = self.next_version
        names = [f"_change_data/c{number}-{i}.parquet" for i in range(count)]
        version = self.commit(*files, **other)
        lines = [
            {"cdc": {"path": name, "partitionValues": {}, "size": size, "dataChange": False}}
            for name in names
        ]
        self._append(version, *lines)
        return version

    def mark(self, *paths: str, before: int = 0, **other: Any) -> int:
        """Commits a version in which each file has one more deleted row than before."""
        version = self.commit(**other)
        for path in paths:
            old = inline(range(before)) if before else None
            file = {"path": path, "partitionValues": {}, "size": 50, "dataChange": True}
            stats = '{"numRecords":9}'
            removed = {**file, "deletionTimestamp": 1, "stats": stats}
            if old is not None:
                removed["deletionVector"] = old
            added = {**file, "modificationTime": 1, "stats": stats}
            added["deletionVector"] = inline(range(before + 1))
            self._append(version, {"remove": removed}, {"add": added})
        return version

    def take(self, *paths: str, **other: Any) -> int:
        """Commits a version that removes files."""
        version = self.commit(**other)
        for path in paths:
            file = {"path": path, "partitionValues": {}, "size": 50, "dataChange": True}
            self._append(version, {"remove": {**file, "deletionTimestamp": 1}})
        return version

    def _append(self, version: int, *lines: dict[str, Any]) -> None:
        file = self.commit_file(version)
        time_ns = file.stat().st_mtime_ns
        with file.open("a") as text:
            text.writelines(json.dumps(line) + "\n" for line in lines)
        os.utime(file, ns=(time_ns, time_ns))
