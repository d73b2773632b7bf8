"""The rows of tables, read by the log core and pyarrow alone, in the versions that a table has had."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from deltaflow.errors import DeltaTableNotFoundError, StoreError
from deltaflow.log import LOG_DIRECTORY, DeltaLog, Snapshot
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.files.deletion_vectors import read_deletion_vectors
from deltaflow.log.files.partition_values import typed_values
from deltaflow.log.protocol.column_mapping import physical_name, physical_names
from deltaflow.store import EntryType, store_for

Rows = Counter[str]
"""A multiset of rows, each as the text of its columns in the order of their names."""


def tables_below(folder: str) -> list[str]:
    """The places below a folder of the tables that are there, `""` for the folder itself."""
    store, root = store_for(folder)
    directory, found, todo = store.data_directory(root), [], [""]
    while todo:
        place = todo.pop()
        for entry in directory.entries(place):
            inner = f"{place}/{entry.name}".strip("/")
            if entry.name == LOG_DIRECTORY:
                found.append(place)
            elif entry.type is EntryType.DIRECTORY:
                todo.append(inner)
    return sorted(found)


@dataclass(frozen=True)
class TableState:
    """What a version of a table has."""

    version: int
    rows: Rows

    @property
    def digest(self) -> str:
        """A text that is equal for equal multisets of rows."""
        content = msgspec.json.encode(sorted(self.rows.items()))
        return f"{self.rows.total()} rows, {hashlib.sha256(content).hexdigest()[:16]}"


class Reader:
    """Reads a table anew each time, beside whoever writes it. `ignored` are columns that differ by nature."""

    def __init__(self, path: str, ignored: frozenset[str]) -> None:
        self._store, root = store_for(path)
        self._log = DeltaLog(self._store, root)
        self._ignored = ignored
        self._rows_of_file: dict[tuple[str, int], pa.Table] = {}

    def newest_version(self) -> int:
        """The newest version; -1 without a table."""
        try:
            return self._log.latest_version()
        except DeltaTableNotFoundError:
            return -1

    def state(self, version: int | None = None) -> TableState | None:
        """A version, by default the newest one; None without a table.

        Raises DeltaError or OSError where a file that the version names is not there or not whole.
        """
        if version is not None:
            return self._state(self._log.snapshot_at(version))
        while True:
            snapshot = self._log.snapshot_if_exists()
            try:
                return None if snapshot is None else self._state(snapshot)
            except FileNotFoundError:
                # A vacuum may have deleted the files of a version that is not the newest any more.
                if snapshot is not None and self._log.latest_version() == snapshot.version:
                    raise

    def readable_versions(self) -> list[int]:
        """The versions that the log can give."""
        return self._log.available_versions()

    def _state(self, snapshot: Snapshot) -> TableState:
        rows: Rows = Counter()
        files = snapshot.files
        partitions = {
            name: typed_values(
                pa.array([_value(values, physical) for values in files["partition_values"].to_pylist()]),
                snapshot.schema[name].dataType,
            ).to_pylist()
            for name, physical in physical_names(snapshot.schema, snapshot.partition_columns).items()
            if files.num_rows
        }
        fields = [f for f in snapshot.schema.fields if f.name not in snapshot.partition_columns]
        try:
            vectors = read_deletion_vectors(files, snapshot.path, snapshot.version)
        except StoreError as error:
            cause: BaseException | None = error
            while isinstance(cause, StoreError):
                cause = cause.__cause__
            if isinstance(cause, FileNotFoundError):
                raise cause from error
            raise
        paths = store_paths(snapshot.path, files["path"]).to_pylist()
        for number, (path, size) in enumerate(zip(paths, files["size"].to_pylist(), strict=True)):
            content, vector = self._content(path, size), vectors[number]
            own = {name: values[number] for name, values in partitions.items()}
            deleted = () if vector is None else vector.rows
            for position, row in enumerate(content.to_pylist()):
                if position not in deleted:
                    whole = {f.name: _named(row.get(physical_name(f)), f.dataType) for f in fields} | own
                    rows[_text({n: v for n, v in whole.items() if n not in self._ignored})] += 1
        return TableState(snapshot.version, rows)

    def _content(self, path: str, size: int) -> pa.Table:
        """The rows of a file, whose content never changes."""
        actual = self._store.status(path).size
        if actual != size:
            raise StoreError(f"{path} has {actual} bytes; the log says {size}.", file=path)
        if (path, size) not in self._rows_of_file:
            with self._store.open(path) as file:
                self._rows_of_file[path, size] = pq.read_table(file)
        return self._rows_of_file[path, size]


def _named(value: Any, data_type: T.DataType) -> Any:
    """A value of a file with the names that the schema has for the fields in it."""
    match data_type:
        case T.StructType(fields=fields) if isinstance(value, dict):
            return {f.name: _named(value.get(physical_name(f)), f.dataType) for f in fields}
        case T.ArrayType(elementType=element) if value is not None:
            return [_named(item, element) for item in value]
        case T.MapType(keyType=key, valueType=inner) if value is not None:
            return [(_named(name, key), _named(item, inner)) for name, item in value]
    return value


def _value(values: list[tuple[str, str | None]], name: str) -> str | None:
    return dict(values)[name]


def _text(row: Mapping[str, object]) -> str:
    return repr(sorted(row.items()))
