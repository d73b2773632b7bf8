"""What fsspec's file systems raise and list, in the terms of a LogStore."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, BinaryIO

from deltaflow.errors import StoreError, cause_without_secrets
from deltaflow.store.base import FileStatus


@contextmanager
def as_store_errors(verb: str, path: str) -> Iterator[None]:
    """Raise failures as StoreError, except those that the contract of a LogStore names."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError, StoreError):
        raise
    # The drivers of fsspec's file systems raise exceptions of their own libraries.
    except Exception as error:
        raise StoreError(
            f"Cannot {verb} {path}: {str(error) or type(error).__name__}. Check the path, the credentials "
            "and the connection.",
            file=path,
        ) from cause_without_secrets(error)


class FsspecFile(io.RawIOBase):
    """A file that is open for reading, whose failures are StoreErrors."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def read(self, size: int | None = -1, /) -> bytes:
        with as_store_errors("read", self._path):
            return self._file.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with as_store_errors("read", self._path):
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def forget_listing(file_system: Any, directory: str) -> None:
    """Let fsspec's file system list a directory anew.

    Some, as Azure's, remember listings by paths without a scheme, and do not take it off here.
    """
    file_system.invalidate_cache(file_system._strip_protocol(directory))


def file_status(entry: dict[str, Any]) -> FileStatus:
    """A file's status by its entry in fsspec's listing, whose names differ between file systems."""
    times = (entry.get(key) for key in ("LastModified", "last_modified", "mtime", "updated", "created"))
    of_webhdfs = int(entry.get("modificationTime", 0)) / 1_000  # its client keeps the server's milliseconds
    modified = next((time for time in times if time is not None), of_webhdfs)
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    seconds = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    etag = next((entry[key] for key in ("ETag", "etag", "generation") if entry.get(key)), None)
    size = int(entry["size"] or 0)
    return FileStatus(
        posixpath.basename(entry["name"].rstrip("/")),
        size,
        # Without the microseconds, some milliseconds of 2038 would become those before.
        round(seconds * 1_000_000) // 1_000,
        str(etag) if etag is not None else f"{seconds}-{size}",
    )
