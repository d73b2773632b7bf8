"""Lists the Parquet files of a directory and their partitions.

It lists what Spark's readers read: partitions are folders `column=value`, names that begin with `_` or `.`
are left out, and if a stream wrote the directory, its `_spark_metadata` lists the files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from deltaflow.errors import CorruptLogError, DeltaAnalysisException
from deltaflow.log.files.partition_values import NULL_FOLDER, folder_values
from deltaflow.log.protocol.actions import Long
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import DataDirectory, EntryType, LogStore, real_path, scheme_part, store_for, table_path

RawValues = tuple[tuple[str, str | None], ...]
"""The columns and values in the name of a folder, decoded."""
_File = tuple[str, int, int]
"""Path relative to the table, size in bytes, modification time in milliseconds."""
_SINK_LOG = "_spark_metadata"
_THREADS = 8


@dataclass(frozen=True)
class ParquetFiles:
    """The files below `root`: `files` has a row for each file, `partitions` an entry for each partition."""

    root: str
    files: pa.Table
    """path (relative, not encoded), size, modification_time (ms), partition (its index in `partitions`)."""
    partitions: Sequence[RawValues]
    folders: Sequence[str]
    """The folder of each partition; "" for a table without partitions."""

    def paths_and_sizes(self, start: int, count: int) -> list[tuple[str, int]]:
        """Complete paths and sizes of some of the files."""
        some = self.files.slice(start, count)
        return [
            (posixpath.join(self.root, path), size)
            for path, size in zip(some["path"].to_pylist(), some["size"].to_pylist(), strict=True)
        ]

    def first_path(self, partition: int) -> str:
        """A file of a partition, for errors."""
        row = self.files["partition"].index(partition).as_py()
        return posixpath.join(self.root, self.files["path"][row].as_py())


def files_of_directory(root: str) -> ParquetFiles:
    """The files in a directory; DELTA_PATH_DOES_NOT_EXIST if there is none."""
    store, _ = store_for(root)
    if not store.exists(root):
        raise DeltaAnalysisException(error_class="DELTA_PATH_DOES_NOT_EXIST", path=root)
    directory = store.data_directory(root)
    files = _files_of_sink(store, directory)
    listing = _Listing(root)
    if files is None:
        [files] = _walk(directory, [""])
    for path, size, time_ms in files:
        folder, values = _partition_of(path)
        listing.add(path, size, time_ms, folder, values)
    return listing.done()


def files_of_partitions(root: str, partitions: Mapping[str, Mapping[str, str | None]]) -> ParquetFiles:
    """The files of the partitions that a catalog lists: the values of each, by its directory."""
    directory = store_for(root)[0].data_directory(root)
    listing = _Listing(root)
    folders = [_relative(root, table_path(path)) for path in partitions]
    # Of a directory that is not there, Spark's readers read no rows.
    for folder, values, files in zip(folders, partitions.values(), _walk(directory, folders), strict=True):
        raw = tuple((name, None if v == NULL_FOLDER else v) for name, v in values.items())
        for file, size, time_ms in files:
            listing.add(file, size, time_ms, folder, raw)
    return listing.done()


@dataclass
class _Listing:
    root: str
    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    partitions: dict[tuple[str, RawValues], int] = field(default_factory=dict)

    def add(self, path: str, size: int, time_ms: int, folder: str, values: RawValues) -> None:
        if ":" in posixpath.basename(path) and scheme_part(self.root) is None:
            raise DeltaAnalysisException(
                f"The file {path} in {self.root} has a name with a colon, which Spark cannot open on a local "
                "file system. Rename it.",
                error_class="DELTA_FAILED_READ_FILE_FOOTER",
                file=path,
            )
        self.paths.append(path)
        self.sizes.append(size)
        self.times.append(time_ms)
        self.numbers.append(self.partitions.setdefault((folder, values), len(self.partitions)))

    def done(self) -> ParquetFiles:
        if not self.paths:
            raise DeltaAnalysisException(error_class="DELTA_EMPTY_DIRECTORY", directory=self.root)
        columns = {
            "path": pa.array(self.paths, pa.string()),
            "size": pa.array(self.sizes, pa.int64()),
            "modification_time": pa.array(self.times, pa.int64()),
            "partition": pa.array(self.numbers, pa.int32()),
        }
        return ParquetFiles(
            self.root,
            pa.table(columns),
            [values for _, values in self.partitions],
            [folder for folder, _ in self.partitions],
        )


def _walk(directory: DataDirectory, starts: Sequence[str]) -> list[list[_File]]:
    """The files below each of some folders, in the order of their names. Links are followed."""
    files: list[list[_File]] = [[] for _ in starts]
    with ThreadPoolExecutor(_THREADS, "deltaflow-listing") as pool:
        level = list(enumerate(starts))
        while level:
            deeper: list[tuple[int, str]] = []
            listings = pool.map(lambda found: list(directory.entries(found[1], follow_links=True)), level)
            for (start, folder), entries in zip(level, listings, strict=True):
                for entry in entries:
                    path, is_hidden = posixpath.join(folder, entry.name), entry.name[0] in "_."
                    if entry.type is EntryType.DIRECTORY and (not is_hidden or "=" in entry.name):
                        if entry.target is not None:
                            _refuse_loop(directory, path, entry.target)
                        deeper.append((start, path))
                    elif entry.type is EntryType.FILE and not is_hidden:
                        files[start].append((path, entry.size, entry.modification_time_ms))
            level = deeper
    return [sorted(found, key=lambda file: file[0].split("/")) for found in files]


def _refuse_loop(directory: DataDirectory, path: str, target: str) -> None:
    """Raises for a link to a directory that has the link in it."""
    link = posixpath.join(directory.path, path)
    # Only local file systems have links.
    if posixpath.join(real_path(posixpath.dirname(link)), "").startswith(posixpath.join(target, "")):
        raise DeltaAnalysisException(
            f"{link} is a link to {target}, in which it lies: the files would have no end. Remove the link.",
            error_class="DELTA_PATH_DOES_NOT_EXIST",
            file=link,
        )


def _partition_of(path: str) -> tuple[str, RawValues]:
    """The folder and the values of a file's partition: the innermost consecutive folders `column=value`, as
    in Spark's PartitioningUtils.parsePartition."""
    folders = path.split("/")[:-1]
    while folders and "=" not in folders[-1]:
        folders.pop()
    first = len(folders)
    while first > 0 and "=" in folders[first - 1]:
        first -= 1
    named = "/".join(folders[first:])
    if not named:
        return "", ()
    values = tuple(folder_values(named).items())
    if len(values) < len(folders) - first or any("" in column for column in values):
        raise DeltaAnalysisException(error_class="DELTA_INVALID_PARTITION_PATH", path=named, file=path)
    return named, values


def _files_of_sink(store: LogStore, directory: DataDirectory) -> list[_File] | None:
    """The files that a stream's file sink has committed (Spark's FileStreamSinkLog): those of the newest
    batch that repeats all earlier ones (`.compact`), and of the batches after it. None without such a log."""
    names = {entry.name for entry in directory.entries(_SINK_LOG)}
    if not names:
        return None
    names = {name for name in names if name.removesuffix(".compact").isdecimal()}
    compacted = max((int(name.removesuffix(".compact")) for name in names if "." in name), default=-1)
    batches = sorted(int(name) for name in names if "." not in name and int(name) > compacted)
    files: dict[str, _File] = {}
    for name in [*([f"{compacted}.compact"] if compacted >= 0 else []), *map(str, batches)]:
        for entry in _entries_of_sink(store, f"{directory.path}/{_SINK_LOG}/{name}"):
            path = _relative(directory.path, table_path(entry.path))
            if entry.action == "add":
                files[path] = path, entry.size, entry.modification_time
            else:
                files.pop(path, None)
    return sorted(files.values())


class _SinkEntry(msgspec.Struct, rename="camel"):
    """Spark's SinkFileStatus."""

    path: str
    size: Long
    modification_time: Long
    action: str


def _entries_of_sink(store: LogStore, file: str) -> Iterator[_SinkEntry]:
    """The entries of a batch of a file sink, with decoded paths."""
    try:
        for line in store.read(file).decode().splitlines()[1:]:
            entry = decode_json(line, as_type=_SinkEntry)
            entry.path = unquote(entry.path, errors="strict")
            yield entry
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CorruptLogError(
            f"{file} is no list of the files that a stream wrote: {error}. Restore it from a copy.", file=file
        ) from error


def _relative(root: str, path: str) -> str:
    """A path below the root, relative to it. Raises for a path that is not below the root."""
    if path == root:
        return ""
    if not path.startswith(root + "/") or ".." in path.split("/"):
        raise DeltaAnalysisException(
            f"{path} is a part of the Parquet table at {root}, and not in its directory. A Delta table has "
            "its files in its own directory: move it there first.",
            error_class="DELTA_CONVERT_NON_PARQUET_TABLE",
            table=root,
            file=path,
        )
    return path.removeprefix(root + "/")
