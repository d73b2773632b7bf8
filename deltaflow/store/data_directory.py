"""The directory of a table's data: its entries, and the deletion of files that are certainly inside it."""

from __future__ import annotations

import enum
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from deltaflow.errors import StoreError
from deltaflow.store.base import LogStore
from deltaflow.store.fsspec_store import FsspecLogStore, as_store_errors, file_status
from deltaflow.store.local import LocalLogStore, hadoop_checksum


class EntryType(enum.Enum):
    """What is under a name of a directory."""

    FILE = enum.auto()
    DIRECTORY = enum.auto()
    LINK = enum.auto()
    OTHER = enum.auto()


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory; `size` in bytes, 0 for all but files; `target` is where a link leads."""

    name: str
    type: EntryType
    size: int
    modification_time_ms: int
    target: str | None = None


class DataDirectory(ABC):
    """A directory and everything below it. Places in it are relative to it, with `/`, and "" for itself.

    No link is ever followed on the way from the directory to a place. Failures are StoreErrors.
    """

    @abstractmethod
    def entries(self, directory: str) -> Iterator[Entry]:
        """The entries of a directory, in no order; none if the directory is not there (any more)."""

    @abstractmethod
    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        """Delete files of a directory; how many were deleted, and the failures for others."""

    @abstractmethod
    def delete_if_empty(self, directory: str) -> bool:
        """Delete a directory if it is there and empty; whether it was deleted."""

    def real_place(self, path: str) -> str | None:
        """The place of a file by its absolute path, links on the way included; None if it is outside."""
        inner = path.removeprefix(self.path.rstrip("/") + "/")
        return None if inner == path else inner

    @property
    @abstractmethod
    def path(self) -> str:
        """The directory, as its store knows it."""


def data_directory(store: LogStore, path: str) -> DataDirectory:
    """The directory at a path of the storage of a log."""
    if isinstance(store, FsspecLogStore):
        return _FsspecDataDirectory(store, path)
    if isinstance(store, LocalLogStore):
        return _LocalDataDirectory(path)
    raise StoreError(
        f"The files of {path} cannot be listed yet: deltaflow deletes files of tables on local disks alone.",
        error_class="DELTA_UNSUPPORTED_STORE",
        file=path,
    )


class _LocalDataDirectory(DataDirectory):
    def __init__(self, path: str) -> None:
        self._path = path
        self._real_path = os.path.realpath(path)

    @property
    def path(self) -> str:
        return self._path

    def entries(self, directory: str) -> Iterator[Entry]:
        try:
            with self._opened("list", directory) as descriptor, os.scandir(descriptor) as found:
                for entry in found:
                    try:
                        yield self._entry(directory, entry)
                    except FileNotFoundError:
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return

    def _entry(self, directory: str, entry: os.DirEntry[str]) -> Entry:
        if entry.is_symlink():
            target = os.path.realpath(os.path.join(self._path, directory, entry.name))
            return Entry(entry.name, EntryType.LINK, 0, 0, target)
        status = entry.stat(follow_symlinks=False)
        modified_ms = status.st_mtime_ns // 1_000_000
        if stat.S_ISREG(status.st_mode):
            return Entry(entry.name, EntryType.FILE, status.st_size, modified_ms)
        is_directory = stat.S_ISDIR(status.st_mode)
        return Entry(entry.name, EntryType.DIRECTORY if is_directory else EntryType.OTHER, 0, modified_ms)

    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        deleted, failures = 0, []
        try:
            with self._opened("delete files of", directory) as descriptor:
                for name in names:
                    try:
                        deleted += self._unlink(descriptor, name)
                    except OSError as error:
                        failures.append(self._failure("delete", os.path.join(directory, name), error))
        except (FileNotFoundError, NotADirectoryError):
            pass
        except StoreError as error:
            failures.append(error)
        return deleted, failures

    def _unlink(self, descriptor: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return False
        with suppress(FileNotFoundError):
            os.unlink(hadoop_checksum(name), dir_fd=descriptor)
        return True

    def delete_if_empty(self, directory: str) -> bool:
        parent, name = os.path.split(directory)
        try:
            with self._opened("delete directories of", parent) as descriptor:
                try:
                    os.rmdir(name, dir_fd=descriptor)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def real_place(self, path: str) -> str | None:
        directory, name = os.path.split(path)
        real = os.path.join(os.path.realpath(directory), name)
        inner = real.removeprefix(self._real_path.rstrip("/") + "/")
        return None if inner == real else inner

    @contextmanager
    def _opened(self, verb: str, directory: str) -> Iterator[int]:
        """A descriptor of a directory that is reached from this one without a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        descriptor = -1
        try:
            descriptor = os.open(self._path, flags)
            for part in directory.split("/") if directory else ():
                outer, descriptor = descriptor, os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(outer)
            yield descriptor
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise self._failure(verb, directory, error) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _failure(self, verb: str, place: str, error: OSError) -> StoreError:
        path = os.path.join(self._path, place)
        return StoreError(f"Cannot {verb} {path}: {error}. Check the permissions and the disk.", file=path)


class _FsspecDataDirectory(DataDirectory):
    def __init__(self, store: FsspecLogStore, path: str) -> None:
        self._store = store
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def entries(self, directory: str) -> Iterator[Entry]:
        path = self._inside(directory)
        found: list[dict[str, Any]] = []
        with as_store_errors("list", path):
            self._store.file_system.invalidate_cache(path)
            try:
                found = self._store.file_system.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return
        own = self._store.file_system._strip_protocol(path).rstrip("/")
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
                    self._store.file_system.rm_file(self._inside(directory, name))
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
        return "/".join([self._path.rstrip("/"), *(place for place in places if place)])
