"""Log stores on fsspec's file systems: all of them for reading, and the one in memory for writing, too."""

from __future__ import annotations

import posixpath
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar, cast

from fsspec import AbstractFileSystem

from deltaflow.errors import StoreError, WriteRefusedError
from deltaflow.store.base import FileStatus, LogStore, check_sizes
from deltaflow.store.data_directory import DataDirectory
from deltaflow.store.fsspec_directory import FsspecDataDirectory
from deltaflow.store.fsspec_files import FsspecFile, as_store_errors, file_status, forget_listing

_THREADS = 16


class FsspecLogStore(LogStore):
    """Reads from any of fsspec's file systems; writes only for a single writer, as it excludes nobody.

    Paths are URLs with the scheme that fsspec gives the file system. Equal stores are the same storage
    with the same options.
    """

    def __init__(self, file_system: Any, *, single_writer: bool = False) -> None:
        self._fs = file_system
        self._single_writer = single_writer

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FsspecLogStore)
            and type(other) is type(self)
            and other._fs == self._fs
            and other._single_writer == self._single_writer
        )

    def __hash__(self) -> int:
        return hash((type(self), self._fs, self._single_writer))

    @property
    def file_system(self) -> Any:
        """fsspec's file system."""
        return self._fs

    def check_writable(self, directory: str) -> None:
        if not self._single_writer:
            raise WriteRefusedError(
                f"Cannot write to {directory}: deltaflow knows of no way in which this storage lets only one "
                "of several writers create a file, so two writers could both commit one version. If this is "
                "the only writer of the table, say so: single_writer=True. Reading needs nothing.",
                error_class="DELTA_STORE_WITHOUT_MUTUAL_EXCLUSION",
                file=directory,
            )

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        with as_store_errors("list", directory):
            forget_listing(self._fs, directory)
            try:
                entries = self._fs.ls(directory, detail=True)
            except FileNotFoundError:
                self._check_no_file_in_the_way(directory)
                raise
        own = self._fs._strip_protocol(directory).rstrip("/")
        if any(entry["type"] == "file" and entry["name"].rstrip("/") == own for entry in entries):
            raise NotADirectoryError(f"{directory} is a file")
        statuses = (file_status(entry) for entry in entries if entry["type"] == "file")
        return sorted(
            (status for status in statuses if status.name >= name and not status.name.startswith(".")),
            key=lambda status: status.name,
        )

    def read(self, path: str) -> bytes:
        self._forget_listing(path)
        return self._content(path)

    def _content(self, path: str) -> bytes:
        with as_store_errors("read", path):
            return bytes(self._fs.cat_file(path))

    def _read_if_present(self, path: str) -> bytes | None:
        try:
            return self._content(path)
        except FileNotFoundError:
            return None

    def read_together(self, directory: str, files: Sequence[FileStatus]) -> list[bytes | None]:
        # Once: some list the directory anew to know a file's size.
        forget_listing(self._fs, directory)
        contents = super().read_together(directory, files)
        # A web server's listing has no sizes.
        sized = [content if file.size else None for file, content in zip(files, contents, strict=True)]
        check_sizes(directory, files, sized)
        return contents

    def open(self, path: str) -> BinaryIO:
        with as_store_errors("read", path):
            self._forget_listing(path)
            return cast("BinaryIO", FsspecFile(self._fs.open(path, "rb"), path))

    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        starts = [(path, max(file_size - size, 0), file_size) for path, file_size in files]
        return self.slices([(path, start, end - start) for path, start, end in starts])

    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        def read(piece: tuple[str, int, int]) -> bytes:
            path, start, length = piece
            with as_store_errors("read", path):
                try:
                    return bytes(self._fs.cat_file(path, start=start, end=start + length))
                except FileNotFoundError as error:
                    raise StoreError(f"Cannot read data file {path}: {error}", file=path) from error

        with ThreadPoolExecutor(_THREADS, "deltaflow-fsspec") as pool:
            return list(pool.map(read, pieces))

    def absent(self, paths: Sequence[str]) -> list[str]:
        def exists(path: str) -> bool:
            with as_store_errors("look at", path):
                return self._exists(path)

        # It may remember a listing of before others wrote and deleted files.
        self._fs.invalidate_cache()
        with ThreadPoolExecutor(_THREADS, "deltaflow-fsspec") as pool:
            return [path for path, found in zip(paths, pool.map(exists, paths), strict=True) if not found]

    def data_directory(self, path: str) -> DataDirectory:
        return FsspecDataDirectory(self._fs, path)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with as_store_errors("write", path):
            self.check_writable(posixpath.dirname(path))
            self._check_no_file_in_the_way(posixpath.dirname(path))
            self._forget_listing(path)
            if self._exists(path):
                raise FileExistsError(f"{path} exists")
        with self.open_output(path) as file:
            file.write(data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        with as_store_errors("write", path):
            self.check_writable(posixpath.dirname(path))
            self._check_no_file_in_the_way(posixpath.dirname(path))
        with tempfile.TemporaryDirectory() as directory:
            local = f"{directory}/content"
            with open(local, "xb") as file:
                yield file
            with as_store_errors("write", path):
                self._upload(local, path)

    def delete(self, path: str) -> None:
        with as_store_errors("delete", path):
            self.check_writable(posixpath.dirname(path))
            self._forget_listing(path)
            if self._exists(path):
                self._fs.rm_file(path)

    def _exists(self, path: str) -> bool:
        """Unlike fsspec's `exists` it does not say no where the storage fails."""
        try:
            self._fs.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _upload(self, local: str, path: str) -> None:
        """Give `path` the content of the local file, all at once."""
        directory, name = posixpath.split(path)
        temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
        self._fs.makedirs(directory, exist_ok=True)
        try:
            self._fs.put_file(local, temporary)
            self._move(temporary, path)
            # Not all say so where it fails.
            self._forget_listing(path)
            if self._exists(temporary) or not self._exists(path):
                raise StoreError(f"{temporary} was written, and did not get the name {name}.", file=path)
        except BaseException:
            if self._fs.exists(temporary):
                self._fs.rm_file(temporary)
            raise

    def _move(self, source: str, target: str) -> None:
        # Some put the scheme into their request.
        source, target = self._fs._strip_protocol(source), self._fs._strip_protocol(target)
        if type(self._fs).mv is not AbstractFileSystem.mv:
            self._fs.mv(source, target)
            return
        # Fsspec's own takes some names for patterns.
        self._fs.cp_file(source, target)
        self._fs.rm_file(source)

    def _forget_listing(self, path: str) -> None:
        """A listing of before others wrote the file would say that it is not there, or has another size."""
        forget_listing(self._fs, posixpath.dirname(path))

    def _check_no_file_in_the_way(self, directory: str) -> None:
        """NotADirectoryError if `directory` or one above it is a file."""
        inner = self._fs._strip_protocol(directory)
        while inner and inner != posixpath.dirname(inner):
            if self._fs.isfile(inner):
                raise NotADirectoryError(f"{inner} is a file")
            inner = posixpath.dirname(inner)


class MemoryLogStore(FsspecLogStore):
    """fsspec's file system in the memory of this process."""

    failed_put_never_lands = True
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def check_writable(self, directory: str) -> None:
        return

    def put_if_absent(self, path: str, data: bytes) -> None:
        # No other process can reach this memory, and the threads of this one wait for one another.
        with self._lock:
            super().put_if_absent(path, data)

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        with self._lock:
            return super().list_from(directory, name)

    def _upload(self, local: str, path: str) -> None:
        with self._lock, open(local, "rb") as file:
            self._fs.pipe_file(path, file.read())
