"""What a table asks of a storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from deltaflow.errors import StoreError
from deltaflow.store.data_directory import DataDirectory


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file of a directory; `size` in bytes; `etag` differs when the name was given to other content."""

    name: str
    size: int
    modification_time_ms: int
    etag: str


def check_sizes(directory: str, files: Sequence[FileStatus], contents: Sequence[bytes | None]) -> None:
    """StoreError if the content of a file of a directory has not the size that the directory says."""
    for file, content in zip(files, contents, strict=True):
        if content is not None and len(content) != file.size:
            path = f"{directory}/{file.name}"
            raise StoreError(
                f"{path} was read as {len(content)} bytes, and its directory says that it has "
                f"{file.size}. Read it again: a connection may have ended early.",
                file=path,
            )


class LogStore(ABC):
    """A storage on which a log is safe. Every implementation guarantees three things.

    Mutual exclusion: of all puts of one path, by any process on any machine, at most one succeeds.
    Durability and atomicity: what was written survives a crash, and no reader ever sees part of it.
    Consistent listing: a file whose put returned is in every listing that begins afterwards.

    A store that cannot exclude other writers raises StoreError instead of writing, unless its user
    stated that there is a single writer. Failures that the methods do not name are StoreErrors.
    """

    failed_put_never_lands: bool = False
    """Whether a put that raised, and whose path is then absent, can never appear later."""

    lists_whole_directories: bool = False
    """Whether a listing costs what is in its directory, wherever it begins: `status` is cheaper then."""

    files_read_together: int = 1
    """How many small files `read_together` reads at about the cost of one."""

    def directory_state(self, directory: str) -> str | None:
        """A text that differs once files have come into the directory or gone; None if the store has none."""
        return None

    def check_writable(self, directory: str) -> None:
        """StoreError, which says why, where the store cannot exclude other writers of the directory.

        The writing methods check this by themselves; a caller with much work before its writes checks first.
        """
        return

    @abstractmethod
    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        """Files of `directory` named `name` or later, sorted by name; hidden ones (`.…`) are left out.

        FileNotFoundError without the directory, NotADirectoryError where a file is in the way.
        """

    def status(self, path: str) -> FileStatus:
        """The status of a file, as a listing has it; FileNotFoundError if absent."""
        directory, _, name = path.rpartition("/")
        found = next(iter(self.list_from(directory, name)), None)
        if found is None or found.name != name:
            raise FileNotFoundError(path)
        return found

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file; FileNotFoundError if absent."""

    def read_together(self, directory: str, files: Sequence[FileStatus]) -> list[bytes | None]:
        """Whole small files of a directory, as a listing has them, in that order; None for an absent one."""
        return [self._read_if_present(f"{directory}/{file.name}") for file in files]

    def _read_if_present(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """The file, to be read from any position; FileNotFoundError if absent.

        Reading may raise StoreError or OSError.
        """

    @abstractmethod
    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        """The last `size` bytes of data files, whose paths and sizes are given; shorter files whole.

        StoreError if one is absent, or is known not to have its size.
        """

    @abstractmethod
    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Pieces of data files, each given by its file's path, the position of its first byte and its length.

        A piece is shorter where its file ends before it. StoreError if a file is absent.
        """

    @abstractmethod
    def absent(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths at which there is neither a file nor a directory."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return not self.absent([path])

    @abstractmethod
    def data_directory(self, path: str) -> DataDirectory:
        """The directory at a path, with everything below it."""

    def make_directory(self, directory: str) -> None:
        """Make a directory and its parents durably, where the storage has any.

        NotADirectoryError where a file is in the way.
        """
        return

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a file that is not there yet; FileExistsError if it is there.

        FileNotFoundError where the storage needs a directory that is not there (`make_directory`),
        NotADirectoryError where a file is in the way, WriteRefusedError if nothing was written for another
        reason. After any other error the file may be there, or appear later.
        """

    def put_auxiliary_if_absent(self, path: str, data: bytes) -> None:
        """As `put_if_absent`, for a file that nobody depends on, in a directory that is there.

        It need not survive a crash of the machine, and may be found empty after one.
        """
        self.put_if_absent(path, data)

    @abstractmethod
    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file that appears as a whole when the block ends and replaces any other; not if the block raises.

        Its directory is made. It is for hints and for files that all writers would write alike, since it does
        not exclude other writers.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; nothing happens if it is absent."""
