"""The directory of a table's data: its entries, and the deletion of files that are certainly inside it."""

from __future__ import annotations

import enum
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deltaflow.errors import StoreError


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

    No link is followed on the way from the directory to a place, unless a method says so. Failures are
    StoreErrors.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        """The directory, as its store knows it."""

    @abstractmethod
    def entries(self, directory: str, *, follow_links: bool = False) -> Iterator[Entry]:
        """The entries of a directory, in no order; none if the directory is not there (any more).

        With `follow_links`, links on the way are followed, and the entry of a link has the type, size and
        time of what it leads to.
        """

    @abstractmethod
    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        """Delete files of a directory; how many were deleted, and the failures for others."""

    @abstractmethod
    def delete_if_empty(self, directory: str) -> bool:
        """Delete a directory if it is there and empty; whether it was deleted."""

    def link_target(self, place: str) -> str | None:
        """The absolute path to which the link at a place leads; None if none is there. Most storages have
        none."""
        return None

    @abstractmethod
    def real_place(self, path: str) -> str | None:
        """The place of a file by its absolute path, links on the way included; None if it is outside.

        Where it cannot be told whether the path is outside, it is a place: this decides what may be deleted.
        """


def place_below(directory: str, path: str) -> str | None:
    """The place in a directory of a path with a scheme; None if its path part lies elsewhere.

    Schemes and authorities are not compared: one storage may have several names. Steps such as `..` are
    resolved, as Hadoop's `Path` does.
    """
    root, inner = (_path_part(each) for each in (directory, path))
    below = inner.removeprefix(root.rstrip("/") + "/")
    return None if below == inner else below


def _path_part(path: str) -> str:
    rest = path.partition(":")[2]
    inner = rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return posixpath.normpath("/" + inner.lstrip("/"))
