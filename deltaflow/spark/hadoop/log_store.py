"""The log store on Hadoop's file systems."""

from __future__ import annotations

import enum
import io
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from deltaflow.errors import StoreError, WriteRefusedError
from deltaflow.spark.hadoop.data_directory import HadoopDataDirectory
from deltaflow.spark.hadoop.java_files import JavaFiles, local_file
from deltaflow.store import DataDirectory, ExclusionTrial, FileStatus, LogStore, check_sizes

_HDFS_SCHEMES = {"hdfs", "webhdfs", "swebhdfs"}
_AZURE_SCHEMES = {"abfs", "abfss"}
_COMPARED_BYTES = 1 << 20


class PutMethod(enum.Enum):
    """How the store writes a file only if its name is free."""

    RENAME = enum.auto()
    """It writes a hidden file and renames it. The file system refuses to rename onto an existing name."""
    CONDITION = enum.auto()
    """It creates an object with a condition, which the object store checks when the object is complete."""
    CREATE = enum.auto()
    """It creates an object without overwriting, which the connector turns into such a condition."""
    SINGLE_WRITER = enum.auto()
    """It checks whether the name is free, and then renames a hidden file. There is no other writer."""


class HadoopLogStore(LogStore):
    """Writes files by the method with which their file system excludes other writers, if it has one.

    Before its first put in a file system the store tries whether a second put of a name is refused, because
    gateways and servers that speak S3's protocol may ignore the condition. Two stores are equal if they have
    the same file system and the same statement about a single writer.
    """

    files_read_together = 64

    def __init__(
        self, files: JavaFiles, root: str, trial: ExclusionTrial, *, single_writer: bool = False
    ) -> None:
        """`root` is the file system, as `scheme://authority/`."""
        self._files = files
        self._root = root
        self._trial = trial
        self._single_writer = single_writer
        self._places: dict[str, _Place] = {}
        """By the root; by the directory behind mount points, which may lead to different file systems."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, HadoopLogStore)
            and other._root == self._root
            and other._single_writer == self._single_writer
        )

    def __hash__(self) -> int:
        return hash((HadoopLogStore, self._root, self._single_writer))

    def check_writable(self, directory: str) -> None:
        place = self._place(directory)
        # The trial of a rename needs the directory, which may not be there yet.
        if place.method in (PutMethod.CONDITION, PutMethod.CREATE):
            self._try(place, directory)

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        # The listing begins after the name that it is given, hence a little earlier.
        found = _statuses(self._files.list_after(directory, name[:-1]))
        return sorted(
            (status for status in found if status.name >= name and not status.name.startswith(".")),
            key=lambda status: status.name,
        )

    def status(self, path: str) -> FileStatus:
        try:
            found = _statuses(self._files.status(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        if not found:
            raise FileNotFoundError(path)
        return found[0]

    def read(self, path: str) -> bytes:
        directory, name = posixpath.split(path)
        (content,) = self._files.read(directory, {name: -1})
        if content is None:
            raise FileNotFoundError(path)
        return content

    def read_together(self, directory: str, files: Sequence[FileStatus]) -> list[bytes | None]:
        # With the sizes no client has to ask for them first.
        contents = self._files.read(directory, {file.name: file.size for file in files})
        check_sizes(directory, files, contents)
        return contents

    def open(self, path: str) -> BinaryIO:
        return self._files.download(path)

    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        try:
            return self._files.tails(files, size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"Cannot read data files: {error}") from error

    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        try:
            return self._files.slices(pieces)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"Cannot read data files: {error}") from error

    def absent(self, paths: Sequence[str]) -> list[str]:
        return self._files.absent(paths)

    def data_directory(self, path: str) -> DataDirectory:
        return HadoopDataDirectory(self._files, path)

    def make_directory(self, directory: str) -> None:
        if self._place(directory).method in (PutMethod.RENAME, PutMethod.SINGLE_WRITER):
            try:
                self._files.make_directory(directory)
            except FileExistsError as error:
                raise NotADirectoryError(str(error)) from error

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._check_excluding(posixpath.dirname(path))
        self._put(path, data)

    def put_auxiliary_if_absent(self, path: str, data: bytes) -> None:
        if self._check_excluding(posixpath.dirname(path)) is not PutMethod.RENAME:
            self._put(path, data)
            return
        with local_file() as (file, local):
            file.write(data)
            file.flush()
            # A reader may see it half written. This saves the request of a rename.
            self._files.create(local, path, overwrite=False, with_directories=False)

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        directory = posixpath.dirname(path)
        try:
            method = self._check_excluding(directory)
        except FileNotFoundError:
            self.make_directory(directory)
            method = self._check_excluding(directory)
        with local_file() as (file, local):
            yield file
            file.flush()
            if method in (PutMethod.CONDITION, PutMethod.CREATE):
                # An object appears whole.
                self._files.create(local, path, overwrite=True, with_directories=True)
            else:
                self._rename_new(file, local, path, overwrite=True)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._check_excluding(posixpath.dirname(path))
            self._delete(path)

    def _delete(self, path: str) -> None:
        with suppress(NotADirectoryError):
            self._files.delete(path)

    def _put(self, path: str, data: bytes) -> None:
        with local_file() as (file, local):
            file.write(data)
            file.flush()
            match self._place(posixpath.dirname(path)).method:
                case PutMethod.CONDITION:
                    self._files.create_conditionally(local, path)
                case PutMethod.CREATE:
                    self._files.create(local, path, overwrite=False, with_directories=True)
                case PutMethod.RENAME:
                    self._rename_new(file, local, path, overwrite=False)
                case PutMethod.SINGLE_WRITER:
                    with suppress(FileNotFoundError):
                        self.status(path)
                        raise FileExistsError(f"{path} exists")
                    self._rename_new(file, local, path, overwrite=False)

    def _rename_new(self, file: BinaryIO, local: str, path: str, *, overwrite: bool) -> None:
        """Make a local file's content that of `path`, all at once."""
        directory, name = posixpath.split(path)
        temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            self._files.create(local, temporary, overwrite=True, with_directories=overwrite)
        except FileExistsError as error:
            raise NotADirectoryError(f"{directory} cannot be a directory: {error}") from error
        except StoreError as error:
            raise WriteRefusedError(error.message, error_class=error.error_class, file=path) from error
        try:
            self._files.rename(temporary, path, overwrite=overwrite)
        except FileExistsError:
            self._delete(temporary)
            # The name was free, and nobody else writes there: it may be this rename that has taken it.
            if not (self._single_writer and self._has_content(path, file)):
                raise
        except (StoreError, FileNotFoundError) as error:
            self._clean_up(temporary, path, error, file)

    def _clean_up(self, temporary: str, path: str, error: Exception, file: BinaryIO) -> None:
        """Raises the error of a failed rename: WriteRefusedError if the hidden file is still there.

        Not if the content is at its place: then the rename was done, and its answer was lost.
        """
        message = f"The rename to {path} failed: {error}"
        try:
            is_left = self._files.delete(temporary)
        except StoreError as failure:
            error.add_note(f"{temporary} may have been left behind: {failure}")
            is_left = False
        if is_left:
            raise WriteRefusedError(message, file=path) from error
        if not self._has_content(path, file):
            raise StoreError(message, file=path) from error

    def _has_content(self, path: str, file: BinaryIO) -> bool:
        """Whether what is at a path has the content of a local file, as far as that can be read."""
        try:
            if self.status(path).size != file.seek(0, io.SEEK_END):
                return False
            file.seek(0)
            with self.open(path) as other:
                while block := file.read(_COMPARED_BYTES):
                    if block != other.read(len(block)):
                        return False
        except (FileNotFoundError, StoreError):
            return False
        return True

    def _check_excluding(self, directory: str) -> PutMethod:
        """The put method for a directory; WriteRefusedError if it does not exclude other writers."""
        place = self._place(directory)
        if place.method is not PutMethod.SINGLE_WRITER:
            self._try(place, directory)
        return place.method

    def _try(self, place: _Place, directory: str) -> None:
        self._trial.check(
            place.root,
            directory,
            put=lambda path: self._put(path, b""),
            delete=self._delete,
            needed="It ignores the condition of the put, as HttpFS and some servers with S3's protocol "
            "do. Use a server that does, or, if this is the only writer of the table, say so: "
            f"{self._statement}.",
        )

    def _place(self, directory: str) -> _Place:
        if self._single_writer:
            return _Place(PutMethod.SINGLE_WRITER, self._root)
        place = self._places.get(directory) or self._places.get(self._root)
        if place is None:
            scheme, client, conditions, access_lists, root, is_mounted = self._files.abilities(directory)
            method = _put_method(scheme, client, conditions == "true", access_lists == "true")
            if method is None:
                raise WriteRefusedError(
                    f"Cannot write to {directory}: {_what_is_missing(scheme)}, so two writers could both "
                    "commit one version. If this is the only writer of the table, say so: "
                    f"{self._statement}. Reading needs nothing.",
                    error_class="DELTA_STORE_WITHOUT_MUTUAL_EXCLUSION",
                    file=directory,
                )
            place = _Place(method, root)
            self._places[directory if is_mounted == "true" else self._root] = place
        return place

    @property
    def _statement(self) -> str:
        """What a user writes to state that there is a single writer."""
        scheme = self._root.partition(":")[0]
        return f"single_writer=True, in Spark spark.deltaflow.store.{scheme}.singleWriter=true"


@dataclass(frozen=True, slots=True)
class _Place:
    """The put method for a directory, and the root of the file system that holds it."""

    method: PutMethod
    root: str


def _put_method(scheme: str, client: str, has_conditions: bool, has_access_lists: bool) -> PutMethod | None:
    if client == "hdfs" and scheme in _HDFS_SCHEMES:
        return PutMethod.RENAME
    # Without a hierarchical namespace Azure's rename is a copy. Only with one there are access lists.
    if scheme in _AZURE_SCHEMES and has_access_lists:
        return PutMethod.RENAME
    if has_conditions:
        return PutMethod.CONDITION
    return PutMethod.CREATE if scheme == "gs" else None


def _what_is_missing(scheme: str) -> str:
    if scheme == "s3a":
        return (
            "the hadoop-aws that is installed has no conditional create, which comes with Hadoop 3.4.2 and "
            'PySpark 4.1, and s3fs, which has one, is not installed (pip install "deltaflow[s3]")'
        )
    if scheme in _AZURE_SCHEMES:
        return "its storage account has no hierarchical namespace, without which a rename is not atomic"
    return (
        f"deltaflow knows of no way in which Hadoop's file system of {scheme}: lets only one of several "
        "writers create a file"
    )


def _statuses(fields: list[str]) -> list[FileStatus]:
    return [
        FileStatus(name, int(size), int(modified), tag or f"{modified}-{size}")
        for name, size, modified, tag in zip(*(fields[n::4] for n in range(4)), strict=True)
    ]
