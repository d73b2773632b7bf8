"""Lists old files below a table's directory, in parallel and into columns: the candidates of a vacuum."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from deltaflow.log.files.file_rows import ROWS_PER_BATCH
from deltaflow.log.protocol.commit import LOG_DIRECTORY
from deltaflow.store import DataDirectory, Entry, EntryType

_LOG = logging.getLogger(__name__)
LISTING_SCHEMA = pa.schema([pa.field("path", pa.string(), False), pa.field("size", pa.int64(), False)])
"""One row per file: its place in the directory, as it is on the disk, and its size in bytes."""
THREADS = 8
_DIRECTORIES_AT_ONCE = 1_024
# Directories that delta-spark's vacuum looks into although their names are those of hidden ones.
_NOT_HIDDEN = ("_delta_index", "_change_data")


@dataclass(slots=True)
class DataListing:
    """Files and empty directories that were last modified before a time, and are not hidden."""

    files: list[pa.RecordBatch] = field(default_factory=list)
    """By LISTING_SCHEMA."""
    empty_directories: list[str] = field(default_factory=list)
    num_directories: int = 0
    """How many directories were listed."""
    linked: list[str] | None = field(default_factory=list)
    """Places in the directory that links in it lead to; None if they were not looked for."""
    is_complete: bool = True
    """Whether all files are found that commits before that time removed, as far as no vacuum has."""


def is_hidden(name: str, partition_columns: Iterable[str]) -> bool:
    """Whether nobody may delete what has this name (delta-spark's isHiddenDirectory): it begins with `_` or
    `.`, and is neither a partition's folder nor `_change_data` or `_delta_index`; or it is not UTF-8."""
    if name.startswith(("_", ".")):
        return not name.startswith((*_NOT_HIDDEN, *(f"{column}=" for column in partition_columns)))
    # A name that is not UTF-8 on the disk cannot be in a log: nobody knows whose file it is.
    return not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)


def list_data(
    directory: DataDirectory, partition_columns: Sequence[str], before_ms: int, threads: int = THREADS
) -> DataListing:
    """The files and empty directories of a table's directory that may be deleted by their names and ages.

    Left out are links, hidden names, and directories with a log of their own, which are other tables.
    """
    list_one = _Lister(directory, partition_columns, before_ms)
    listing = DataListing()
    linked: list[str] = []
    with ThreadPoolExecutor(threads, "deltaflow-listing") as pool:
        level = [("", before_ms)]
        while level:
            deeper: list[tuple[str, int]] = []
            for start in range(0, len(level), _DIRECTORIES_AT_ONCE):
                for found in pool.map(list_one, level[start : start + _DIRECTORIES_AT_ONCE]):
                    deeper += found.directories
                    listing.files += found.files
                    listing.empty_directories += found.empty_directories
                    linked += found.linked
                    listing.num_directories += 1
            level = deeper
    listing.linked = linked
    return listing


@dataclass(slots=True)
class _Found:
    files: list[pa.RecordBatch] = field(default_factory=list)
    directories: list[tuple[str, int]] = field(default_factory=list)
    """With their modification times."""
    empty_directories: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Lister:
    """Lists one directory."""

    root: DataDirectory
    partition_columns: Sequence[str]
    before_ms: int

    def __call__(self, listed: tuple[str, int]) -> _Found:
        directory, modification_time_ms = listed
        found = _Found()
        is_empty = True
        paths: list[str] = []
        sizes: list[int] = []
        prefix = f"{directory}/" if directory else ""
        for entry in self.root.entries(directory):
            is_empty = False
            if entry.name == LOG_DIRECTORY and directory:
                _LOG.info("%s/%s is another table: it is left alone", self.root.path, directory)
                return _Found()
            if entry.type is EntryType.LINK:
                found.linked += self._linked(entry)
            elif is_hidden(entry.name, self.partition_columns):
                continue
            elif entry.type is EntryType.DIRECTORY:
                found.directories.append((prefix + entry.name, entry.modification_time_ms))
            elif entry.type is EntryType.FILE and entry.modification_time_ms < self.before_ms:
                paths.append(prefix + entry.name)
                sizes.append(entry.size)
                if len(paths) == ROWS_PER_BATCH:
                    found.files.append(_batch(paths, sizes))
                    paths, sizes = [], []
        if paths:
            found.files.append(_batch(paths, sizes))
        if is_empty and modification_time_ms < self.before_ms:
            found.empty_directories.append(directory)
        return found

    def _linked(self, entry: Entry) -> Iterator[str]:
        place = None if entry.target is None else self.root.real_place(entry.target)
        if place is not None:
            yield place


def _batch(paths: list[str], sizes: list[int]) -> pa.RecordBatch:
    # The default pool keeps for each thread what it frees, which would be more than these batches hold.
    pool = pa.system_memory_pool()
    columns = [pa.array(paths, pa.string(), memory_pool=pool), pa.array(sizes, pa.int64(), memory_pool=pool)]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)
