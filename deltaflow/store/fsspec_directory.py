"""The directory of a table's data on one of fsspec's file systems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deltaflow.errors import StoreError
from deltaflow.store.data_directory import DataDirectory, Entry, EntryType, place_below
from deltaflow.store.fsspec_files import as_store_errors, file_status, forget_listing


class FsspecDataDirectory(DataDirectory):
    def __init__(self, file_system: Any, path: str) -> None:
        super().__init__(path)
        self._fs = file_system

    def real_place(self, path: str) -> str | None:
        return place_below(self.path, path)

    def entries(self, directory: str, *, follow_links: bool = False) -> Iterator[Entry]:
        path = self._inside(directory)
        found: list[dict[str, Any]] = []
        with as_store_errors("list", path):
            forget_listing(self._fs, path)
            try:
                found = self._fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return
        own = self._fs._strip_protocol(path).rstrip("/")
        entry_types = {"file": EntryType.FILE, "directory": EntryType.DIRECTORY}
        for item in found:
            # An object store may list an object that has the directory's own name.
            if item["name"].rstrip("/") == own:
                continue
            entry_type = entry_types.get(item["type"], EntryType.OTHER)
            status = file_status(item)
            size = status.size if entry_type is EntryType.FILE else 0
            yield Entry(status.name, entry_type, size, status.modification_time_ms)

    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        deleted, failures = 0, []
        for name in names:
            try:
                with as_store_errors("delete", self._inside(directory, name)):
                    self._fs.rm_file(self._inside(directory, name))
                deleted += 1
            except FileNotFoundError:
                continue
            except StoreError as error:
                failures.append(error)
        return deleted, failures

    def delete_if_empty(self, directory: str) -> bool:
        # On most of these storages a directory exists only as long as something is in it.
        return False

    def _inside(self, *places: str) -> str:
        return "/".join([self.path.rstrip("/"), *(place for place in places if place)])
