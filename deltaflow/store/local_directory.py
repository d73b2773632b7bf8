"""The directory of a table's data on a local (POSIX) file system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from deltaflow.errors import StoreError
from deltaflow.store.data_directory import DataDirectory, Entry, EntryType


def hadoop_checksum(path: str) -> str:
    """The path of the checksum that Hadoop's local file system writes for a file. It refuses to read a file
    that does not match.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.crc")


class LocalDataDirectory(DataDirectory):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._real_path = os.path.realpath(path)

    def entries(self, directory: str, *, follow_links: bool = False) -> Iterator[Entry]:
        try:
            opened = self._opened("list", directory, follow_links=follow_links)
            with opened as descriptor, os.scandir(descriptor) as found:
                for entry in found:
                    try:
                        yield self._entry(directory, entry, follow_links=follow_links)
                    except FileNotFoundError:
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return

    def _entry(self, directory: str, entry: os.DirEntry[str], *, follow_links: bool) -> Entry:
        target = None
        if entry.is_symlink():
            target = os.path.realpath(os.path.join(self.path, directory, entry.name))
            if not follow_links:
                return Entry(entry.name, EntryType.LINK, 0, 0, target)
        status = entry.stat(follow_symlinks=follow_links)
        modified_ms = status.st_mtime_ns // 1_000_000
        if stat.S_ISREG(status.st_mode):
            return Entry(entry.name, EntryType.FILE, status.st_size, modified_ms, target)
        is_directory = stat.S_ISDIR(status.st_mode)
        entry_type = EntryType.DIRECTORY if is_directory else EntryType.OTHER
        return Entry(entry.name, entry_type, 0, modified_ms, target)

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

    def link_target(self, place: str) -> str | None:
        path = os.path.join(self.path, place)
        return os.path.realpath(path) if os.path.islink(path) else None

    def real_place(self, path: str) -> str | None:
        directory, name = os.path.split(path)
        real = os.path.join(os.path.realpath(directory), name)
        inner = real.removeprefix(self._real_path.rstrip("/") + "/")
        return None if inner == real else inner

    @contextmanager
    def _opened(self, verb: str, directory: str, *, follow_links: bool = False) -> Iterator[int]:
        """A descriptor of a directory that is reached from this one; no link is followed unless it may be."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        flags_of_parts = flags if follow_links else flags | os.O_NOFOLLOW
        descriptor = -1
        try:
            descriptor = os.open(self.path, flags)
            for part in directory.split("/") if directory else ():
                outer, descriptor = descriptor, os.open(part, flags_of_parts, dir_fd=descriptor)
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
        path = os.path.join(self.path, place)
        return StoreError(f"Cannot {verb} {path}: {error}. Check the permissions and the disk.", file=path)
