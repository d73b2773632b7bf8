"""The versions of a table, replayed from its commits and data files by nothing of deltaflow's.

Each version is read as soon as it is there: a vacuum may delete its files later.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from tests.batch.random_operations import BEFORE, Row
from tests.deletion_vectors import marked_rows
from tests.races.operations import PROPERTIES, VECTORS, Contents

Action = dict[str, Any]
_Values = dict[str, Any]
"""A row of a file, by physical names; those of its partition too."""
_COLUMNS = ("id", "p", "v", "x", "y")
_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Version:
    """A version, and the commit that made it."""

    number: int
    contents: Contents
    info: Action
    """Its commitInfo."""
    adds: int
    removes: int
    changes_metadata: bool

    @property
    def id(self) -> str | None:
        """That of the operation."""
        return self.info.get("userMetadata")

    @property
    def only_adds(self) -> bool:
        return self.adds > 0 and not self.removes and not self.changes_metadata


class History:
    """All versions of a table; `read` has its files by their paths in it, and raises FileNotFoundError."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.versions: list[Version] = []
        self.problems: list[tuple[int, str]] = []
        """By version: files that a commit removes though they are not there, or adds though they are,
        what the table's type of v or its properties do not allow, and change files of other rows."""
        self._read = read
        self._files: dict[str, list[_Values]] = {}
        """The rows of all files that were ever the table's, those that vectors mark too."""
        self._live: dict[tuple[str, str], list[_Values]] = {}
        """The rows of the newest version, by path and deletion vector."""
        self._names: dict[str, str] = {}
        """The physical names of the columns."""
        self._is_v_long = False
        self._properties: tuple[tuple[str, str], ...] = ()

    def follow(self) -> None:
        """Reads all versions that have come meanwhile."""
        while True:
            number = len(self.versions)
            try:
                commit = self._read(f"_delta_log/{number:020}.json")
            except FileNotFoundError:
                return
            self.versions.append(self._version(number, [json.loads(line) for line in commit.splitlines()]))

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def _version(self, number: int, actions: list[Action]) -> Version:
        of: dict[str, list[Action]] = {}
        for action in actions:
            [(name, fields)] = action.items()
            of.setdefault(name, []).append(fields)
        before = Counter(self._rows(self._live.values())) if "cdc" in of else Counter()
        for metadata in of.get("metaData", ()):
            self._take(metadata)
        [info] = of["commitInfo"]
        for remove in of.get("remove", ()):
            if self._live.pop(_key(remove), None) is None:
                self.problems.append((number, f"removes what is not there: {remove}, {info}"))
        for add in of.get("add", ()):
            if _key(add) in self._live:
                self.problems.append((number, f"adds what is there: {add}, {info}"))
            self._live[_key(add)] = self._live_rows(add)
        contents = Contents(
            rows=Counter(self._rows(self._live.values())),
            has_x="x" in self._names,
            has_y="y" in self._names,
            is_v_long=self._is_v_long,
            properties=self._properties,
        )
        self.check_settings(contents, number, of.get("add", ()), info)
        if "cdc" in of:
            self._check_changes(number, of["cdc"], before, contents.rows, info)
        adds, removes = len(of.get("add", ())), len(of.get("remove", ()))
        return Version(number, contents, info, adds, removes, "metaData" in of or "protocol" in of)

    def _take(self, metadata: Action) -> None:
        fields = json.loads(metadata["schemaString"])["fields"]
        mapped = metadata["configuration"].get("delta.columnMapping.mode", "none") != "none"
        self._names = {
            field["name"]: field["metadata"]["delta.columnMapping.physicalName"] if mapped else field["name"]
            for field in fields
        }
        assert set(self._names) <= {*_COLUMNS, "g"}
        self._is_v_long = {field["name"]: field["type"] for field in fields}["v"] == "long"
        own = metadata["configuration"]
        self._properties = tuple((name, own[name]) for name in sorted(PROPERTIES) if name in own)

    def check_settings(self, contents: Contents, number: int, adds: Any, info: Action) -> None:
        """Adds to `problems` what the columns and properties of a version do not allow."""
        if not contents.is_v_long and any((row[2] or 0) > _INT_MAX for row in contents.rows):
            self.problems.append((number, f"has values of v that are no INT: {info}"))
        has_new_vectors = any("deletionVector" in add for add in adds) and info["operation"] != "RESTORE"
        if has_new_vectors and dict(contents.properties).get(VECTORS) != "true":
            self.problems.append((number, f"has new deletion vectors, which are off: {info}"))

    def _live_rows(self, add: Action) -> list[_Values]:
        path = unquote(add["path"])
        if path not in self._files:
            self._files[path] = self._file_rows(add)
        rows = self._files[path]
        if add.get("stats"):
            assert json.loads(add["stats"])["numRecords"] == len(rows), add
        vector = add.get("deletionVector")
        marked = set() if vector is None else marked_rows(vector, self._read)
        return [row for number, row in enumerate(rows) if number not in marked]

    def _file_rows(self, file: Action) -> list[_Values]:
        content = self._read(unquote(file["path"]))
        assert len(content) == file["size"], file
        rows = pq.ParquetFile(io.BytesIO(content)).read().to_pylist()
        partition = {name: value or None for name, value in file["partitionValues"].items()}
        return [{**row, **partition} for row in rows]

    def _rows(self, files: Any) -> list[Row]:
        found = []
        for rows in files:
            for row in rows:
                own = tuple(row.get(self._names.get(name, "")) for name in _COLUMNS)
                if "g" in self._names:
                    assert row[self._names["g"]] == own[0] * 2 + (own[2] or 0), row
                found.append(own)
        return found

    def _check_changes(self, number: int, files: list[Action], before: Any, after: Any, info: Action) -> None:
        """Adds to `problems` if the change files of a commit do not lead to it from the version before."""
        changes = [row for file in files for row in self._file_rows(file)]
        gone = [row for row in changes if row["_change_type"] in BEFORE]
        new = [row for row in changes if row["_change_type"] not in BEFORE]
        left = Counter(before)
        left.subtract(self._rows([gone]))
        if min(left.values(), default=0) < 0:
            self.problems.append((number, f"has changes of rows that are not there: {changes}, {info}"))
        elif left + Counter(self._rows([new])) != after:
            lost, more = after - left - Counter(self._rows([new])), left + Counter(self._rows([new])) - after
            self.problems.append((number, f"has other changes than its rows: {lost}, {more}, {info}"))


def _key(file: Action) -> tuple[str, str]:
    vector = file.get("deletionVector") or {}
    return unquote(file["path"]), f"{vector.get('pathOrInlineDv')} {vector.get('offset')}"
