"""What a transaction log asks of a storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file of a directory; `size` in bytes; `etag` differs when the name was given to other content."""

    name: str
    size: int
    modification_time_ms: int
    etag: str


class LogStore(ABC):
    """A storage on which a log is safe. Every implementation guarantees three things.

    Mutual exclusion: of all puts of one path, by any process on any machine, at most one succeeds.
    Durability and atomicity: a put that returned survives a crash, and no reader ever sees part of it.
    Consistent listing: a file whose put returned is in every listing that begins afterwards.

    Failures that the methods do not name are StoreErrors.
    """

    failed_put_never_lands: bool = False
    """Whether a put that raised, and whose path is then absent, can never appear later."""

    @abstractmethod
    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        """Files of `directory` named `name` or later, sorted by name.

        FileNotFoundError without the directory, NotADirectoryError where a file is in the way.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file; FileNotFoundError if absent."""

    def open(self, path: str) -> BinaryIO:
        """The file as a seekable stream, for files of which only a part is needed; FileNotFoundError if
        absent. Reading it may raise OSError.
        """
        return BytesIO(self.read(path))

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a file that is not there yet, making its directory; FileExistsError if it is there.

        NotADirectoryError where a file is in the way.
        """
