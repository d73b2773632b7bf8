"""The log store on a local (POSIX) file system."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from deltaflow.errors import StoreError
from deltaflow.store.base import FileStatus, LogStore

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalLogStore(LogStore):
    """Puts by hard link: the whole file appears under its name at once, or the name is taken.

    A crash in the middle of a put leaves at most a hidden temporary file (`.<name>.<id>.tmp`).
    """

    failed_put_never_lands = True

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        with _as_store_errors("list", directory), os.scandir(directory) as entries:
            later = [entry for entry in entries if entry.name >= name and not entry.name.startswith(".")]
        statuses = []
        for entry in sorted(later, key=lambda entry: entry.name):
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue
            statuses.append(
                FileStatus(
                    entry.name,
                    stat.st_size,
                    stat.st_mtime_ns // 1_000_000,
                    f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}",
                )
            )
        return statuses

    def read(self, path: str) -> bytes:
        with _as_store_errors("read", path), open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        with _as_store_errors("read", path):
            return open(path, "rb")

    def put_if_absent(self, path: str, data: bytes) -> None:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4().hex}.tmp")
        with _as_store_errors("write", path):
            _make_directory(directory)
            try:
                _write_durably(temporary, data)
                _link(temporary, path)
            finally:
                _remove_if_present(temporary)
            _sync_directory(directory)


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


def _write_durably(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        raise StoreError(
            f"The file system of {path} has no hard links, so two writers could both commit one version. "
            "Put the table on a local POSIX file system.",
            file=path,
        ) from error


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
