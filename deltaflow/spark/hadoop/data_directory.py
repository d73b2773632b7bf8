"""The directory of a table's data on one of Hadoop's file systems."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from deltaflow.errors import StoreError
from deltaflow.spark.hadoop.java_files import JavaFiles
from deltaflow.store import DataDirectory, Entry, EntryType, place_below, scheme_part

_TYPES = {"f": EntryType.FILE, "d": EntryType.DIRECTORY, "o": EntryType.OTHER}


class HadoopDataDirectory(DataDirectory):
    """A listing of a directory is one call into the JVM, and so is the deletion of many files of one.

    Links of HDFS count as other entries: nothing looks behind them.
    """

    def __init__(self, files: JavaFiles, path: str) -> None:
        super().__init__(path)
        self._files = files

    def entries(self, directory: str, *, follow_links: bool = False) -> Iterator[Entry]:
        try:
            found = self._files.entries(self._inside(directory))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, letter, size, modified in zip(*(found[n::4] for n in range(4)), strict=True):
            # Hadoop's Path resolves steps such as `.` in an object's key: nothing of this directory is there.
            if not name:
                continue
            is_file = letter == "f"
            yield Entry(name, _TYPES[letter], int(size) if is_file else 0, int(modified))

    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        path, all_names = self._inside(directory), list(names)
        if not all_names:
            return 0, []
        try:
            failures = self._files.delete_all(path, all_names)
        except FileNotFoundError:
            return 0, []
        except StoreError as error:
            return 0, [error]
        errors = []
        for name, why in failures.items():
            file = self._inside(posixpath.join(directory, name))
            errors.append(StoreError(f"Cannot delete {file}: {why}.", file=file))
        return len(all_names) - len(errors), errors

    def delete_if_empty(self, directory: str) -> bool:
        try:
            return self._files.delete_if_empty(self._inside(directory))
        except NotADirectoryError:
            return False

    def real_place(self, path: str) -> str | None:
        place = place_below(self.path, path)
        if place is None:
            if scheme_part(path) == "viewfs":
                directory, name = posixpath.split(path)
                path = f"{self._files.resolve(directory)}/{name}"
            place = place_below(self._resolved, path)
        return place

    @cached_property
    def _resolved(self) -> str:
        return self._files.resolve(self.path)

    def _inside(self, place: str) -> str:
        # Hadoop knows the root of a file system by its slash alone.
        return f"{self.path}/{place}"
