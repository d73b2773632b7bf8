"""The log store on a local (POSIX) file system."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

from deltaflow.errors import StoreError
from deltaflow.store.base import FileStatus, LogStore
from deltaflow.store.data_directory import DataDirectory
from deltaflow.store.local_directory import LocalDataDirectory, hadoop_checksum

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NEVER_THERE = {errno.ENAMETOOLONG, errno.ELOOP}
_THREADS = 8
_LOOKS_OF_A_TASK = 1_000


class LocalLogStore(LogStore):
    """Puts by hard link: the whole file appears under its name at once, or the name is taken.

    A crash in the middle of a put leaves at most a hidden temporary file (`.<name>.<id>.tmp`).
    """

    failed_put_never_lands = True
    lists_whole_directories = True

    def __init__(self, *, single_writer: bool = False) -> None:
        self._single_writer = single_writer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalLogStore) and other._single_writer == self._single_writer

    def __hash__(self) -> int:
        return hash((LocalLogStore, self._single_writer))

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        with _as_store_errors("list", directory), os.scandir(directory) as entries:
            later = [
                entry
                for entry in entries
                if entry.name >= name and not entry.name.startswith(".") and entry.is_file()
            ]
        statuses = []
        for entry in sorted(later, key=lambda entry: entry.name):
            try:
                statuses.append(_file_status(entry.name, entry.stat()))
            except FileNotFoundError:
                continue
        return statuses

    def status(self, path: str) -> FileStatus:
        with _as_store_errors("look at", path):
            found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "Not a file", path)
        return _file_status(os.path.basename(path), found)

    def directory_state(self, directory: str) -> str | None:
        try:
            return f"{os.stat(directory).st_mtime_ns:x}"
        except OSError:
            return None

    def read(self, path: str) -> bytes:
        with _as_store_errors("read", path), open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        with _as_store_errors("read", path):
            return open(path, "rb")

    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        if len(files) == 1:  # that of a micro-batch, say
            return [_tail(files[0], size)]
        with ThreadPoolExecutor(_THREADS, "deltaflow-tails") as pool:
            return list(pool.map(lambda file: _tail(file, size), files))

    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        if len(pieces) == 1:
            return [_slice(*pieces[0])]
        with ThreadPoolExecutor(_THREADS, "deltaflow-slices") as pool:
            return list(pool.map(lambda piece: _slice(*piece), pieces))

    def absent(self, paths: Sequence[str]) -> list[str]:
        parts = [paths[start : start + _LOOKS_OF_A_TASK] for start in range(0, len(paths), _LOOKS_OF_A_TASK)]
        if len(parts) == 1:
            return _absent(parts[0])
        with ThreadPoolExecutor(_THREADS, "deltaflow-looks") as pool:
            return [path for part in pool.map(_absent, parts) for path in part]

    def data_directory(self, path: str) -> DataDirectory:
        return LocalDataDirectory(path)

    def make_directory(self, directory: str) -> None:
        with _as_store_errors("make", directory):
            _make_directory(directory)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with _as_store_errors("write", path), _temporary_beside(path) as (temporary, file):
            file.write(data)
            _sync_file(file)
            self._link(temporary, path)

    def put_auxiliary_if_absent(self, path: str, data: bytes) -> None:
        temporary = _temporary_name(path)
        with _as_store_errors("write", path):
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                self._link(temporary, path)
            finally:
                _remove_if_present(temporary)

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        with _as_store_errors("write", path):
            _make_directory(os.path.dirname(path))
            with _temporary_beside(path) as (temporary, file):
                yield file
                _sync_file(file)
                _remove_if_present(hadoop_checksum(path))
                os.replace(temporary, path)

    def delete(self, path: str) -> None:
        with _as_store_errors("delete", path):
            _remove_if_present(path)
            _remove_if_present(hadoop_checksum(path))

    def _link(self, temporary: str, path: str) -> None:
        # It may be that of a file which somebody has deleted.
        _remove_if_present(hadoop_checksum(path))
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if not self._single_writer:
                raise StoreError(
                    f"The file system of {path} has no hard links, so two writers could both commit one "
                    "version. Put the table on a local POSIX file system, or, if this is the only writer of "
                    "the table, say so: single_writer=True.",
                    file=path,
                ) from error
            try:
                os.lstat(path)
            except FileNotFoundError:
                os.rename(temporary, path)
            else:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None


def _tail(file: tuple[str, int], size: int) -> bytes:
    path, expected = file
    try:
        with open(path, "rb") as opened:
            actual = os.fstat(opened.fileno()).st_size
            if actual == expected:
                return os.pread(opened.fileno(), size, max(actual - size, 0))
    except OSError as error:
        raise StoreError(f"Cannot read data file {path}: {error}", file=path) from error
    raise StoreError(
        f"Data file {path} has {actual} bytes, but its writer reported {expected}: it is not the file that "
        "was written.",
        file=path,
    )


def _slice(path: str, start: int, length: int) -> bytes:
    try:
        with open(path, "rb") as opened:
            return os.pread(opened.fileno(), length, start)
    except OSError as error:
        raise StoreError(f"Cannot read data file {path}: {error}", file=path) from error


def _absent(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not _exists(path)]


def _exists(path: str) -> bool:
    """Unlike os.path.exists it does not say so of what nobody may look at, or where the disk fails."""
    try:
        with _as_store_errors("look at", path):
            os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no path has a null character
        return False
    except StoreError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NEVER_THERE:
            return False
        raise
    return True


def _file_status(name: str, found: os.stat_result) -> FileStatus:
    return FileStatus(
        name,
        found.st_size,
        found.st_mtime_ns // 1_000_000,
        f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}",
    )


@contextmanager
def _as_store_errors(verb: str, path: str) -> Iterator[None]:
    """Raise failures as StoreError, except those that the contract of a LogStore names."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreError(
            f"Cannot {verb} {path}: {error}. Check the permissions and the disk.", file=path
        ) from error


@contextmanager
def _temporary_beside(path: str) -> Iterator[tuple[str, BinaryIO]]:
    """A hidden new file in the directory of `path`; afterwards it is gone, or renamed durably."""
    temporary = _temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            yield temporary, file
    finally:
        _remove_if_present(temporary)
    _sync_directory(os.path.dirname(path))


def _temporary_name(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{uuid.uuid4().hex}.tmp")


def _sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _make_directory(directory: str) -> None:
    """Make a directory and its parents durably; NotADirectoryError where a file is in the way."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        _make_directory(parent)
    try:
        os.mkdir(directory)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory) from None
        return
    _sync_directory(parent)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_if_present(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
