"""The calls of the Java classes HadoopFiles and HadoopDataFiles, and what their failures are to Python."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from deltaflow.errors import StoreError, WriteRefusedError
from deltaflow.store import RetryPolicy

_RETRIES = RetryPolicy(max_attempts=6, first_pause_ms=200, longest_pause_ms=2_000)
_DELETIONS = RetryPolicy(max_attempts=3, first_pause_ms=200, longest_pause_ms=2_000)
"""Bulk deletions say of each file why it is left, in words from which a busy server cannot be told."""
_LOOKS_OF_A_CALL = 10_000
_SECRETS = re.compile(
    r"((?:[?&;\s]|^)(?:delegation|token|sig|signature|password|secret|x-amz-[a-z-]+|[\w.-]*(?:secret|key))=)"
    r"[^&;\s\"']+",
    re.IGNORECASE,
)


class JavaFiles:
    """Every method is one call into the JVM. Content crosses in private local files.

    The methods raise FileNotFoundError, FileExistsError, NotADirectoryError, and StoreError for all other
    failures. A call that fails because a server is busy or a connection breaks is tried again.
    """

    def __init__(self, java: Any) -> None:
        """`java` is a HadoopFiles."""
        self._java = java
        self._data = java.dataFiles()

    def defaults(self) -> list[str]:
        """HadoopFiles.defaults, line by line."""
        return self._call("read the settings of", "fs.defaultFS", self._java.defaults).split("\n", 1)

    def file_system_class(self, scheme: str) -> str:
        """The name of the class of Hadoop's file system of a scheme; "" if there is none."""
        return self._call("read the settings of", scheme, lambda: self._java.fileSystemClass(scheme))

    def open(self, scheme: str, path: str) -> list[str]:
        """HadoopFiles.open, line by line."""
        return self._call("reach", path, lambda: self._java.open(scheme, path)).split("\n")

    def settings(self, prefix: str) -> dict[str, str]:
        """Hadoop's settings whose names begin with the prefix."""
        found = self._call("read the settings of", prefix, lambda: self._java.settings(prefix))
        return {prefix + name: value for name, value in json.loads(found).items()}

    def abilities(self, directory: str) -> list[str]:
        """HadoopFiles.abilities, line by line."""
        return self._call("reach", directory, lambda: self._java.abilities(directory)).split("\n")

    def list_after(self, directory: str, after: str) -> list[str]:
        """Name, size, modification time and tag in turn of a directory's files that come after a name."""
        with local_file() as (answer, path):
            self._call("list", directory, lambda: self._java.list(directory, after, path))
            return answer.read().decode("utf-8", "replace").split("/")[:-1]

    def status(self, path: str) -> list[str]:
        """As `list_after`, of one file; nothing of what is no file."""
        return self._call("look at", path, lambda: self._java.status(path)).split("/")[:-1]

    def read(self, directory: str, files: Mapping[str, int]) -> list[bytes | None]:
        """The contents of files of a directory by name, with their sizes, -1 of one that is not known.

        None of a file that is absent.
        """
        first, *others = files
        read, names = _named([f"{directory}/{first}", *others]), "/".join(files)
        lengths = " ".join(map(str, files.values()))
        with local_file() as (answer, path):
            sizes = self._call("read", read, lambda: self._java.read(directory, names, lengths, path))
            return [None if size == "-1" else answer.read(int(size)) for size in sizes.split()]

    def download(self, path: str) -> BinaryIO:
        """A local copy of a file, which no other process sees, and which is gone when it is closed."""
        with local_file() as (answer, local):
            self._call("read", path, lambda: self._java.download(path, local))
            return os.fdopen(os.dup(answer.fileno()), "rb")

    def make_directory(self, directory: str) -> None:
        """Makes a directory and those above it, where the file system has any."""
        self._call("make", directory, lambda: self._java.makeDirectory(directory))

    def create(self, local: str, path: str, *, overwrite: bool, with_directories: bool) -> None:
        """Writes a local file's content to a new file or over one; FileNotFoundError without a directory."""
        self._call("write", path, lambda: self._java.create(local, path, overwrite, with_directories))

    def create_conditionally(self, local: str, path: str) -> None:
        """Writes a local file's content to a file that appears whole, and only where none is."""
        self._call("write", path, lambda: self._java.createConditionally(local, path))

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Gives a file another name, which with `overwrite` may be taken."""
        self._call("write", target, lambda: self._java.rename(source, target, overwrite))

    def delete(self, path: str) -> bool:
        """Deletes a file; whether there was one."""
        return self._call("delete", path, lambda: self._java.delete(path)) == "true"

    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        """The last `size` bytes of files, whose paths and sizes are given."""
        paths, sizes = "\0".join(path for path, _ in files), " ".join(str(size) for _, size in files)
        read = _named([path for path, _ in files])
        with local_file() as (answer, local):
            found = self._call("read", read, lambda: self._data.tails(paths, sizes, size, local))
            return [answer.read(int(size)) for size in found.split()]

    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Pieces of files, whose paths, first positions and lengths are given; shorter where a file ends."""
        paths = "\0".join(path for path, _, _ in pieces)
        starts, lengths = (" ".join(str(piece[i]) for piece in pieces) for i in (1, 2))
        read = _named([path for path, _, _ in pieces])
        with local_file() as (answer, local):
            found = self._call("read", read, lambda: self._data.slices(paths, starts, lengths, local))
            return [answer.read(int(size)) for size in found.split()]

    def absent(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths at which there is neither a file nor a directory."""
        missing: list[str] = []
        for start in range(0, len(paths), _LOOKS_OF_A_CALL):
            some = paths[start : start + _LOOKS_OF_A_CALL]
            found = self._call("look at", _named(some), partial(self._data.absent, "\0".join(some)))
            missing += [some[int(position)] for position in found.split()]
        return missing

    def entries(self, directory: str) -> list[str]:
        """Name, type (f, d or o), size and modification time in turn of a directory's entries."""
        with local_file() as (answer, local):
            self._call("list", directory, lambda: self._data.entries(directory, local))
            return answer.read().decode("utf-8", "replace").split("/")[:-1]

    def delete_all(self, directory: str, names: Sequence[str]) -> dict[str, str]:
        """Deletes files of a directory; those that could not be deleted, and why."""
        failures: dict[str, str] = {}
        left = list(names)
        for pause_ms in _DELETIONS.pauses_ms():
            time.sleep(pause_ms / 1_000)
            delete = partial(self._data.deleteAll, directory, "/".join(left))
            answer = self._call("delete files of", directory, delete)
            found = [failure.partition("/") for failure in answer.split("\0")[:-1]]
            failures = {name: _SECRETS.sub(r"\1***", why) for name, _, why in found}
            left = list(failures)
            if not left:
                break
        return failures

    def delete_if_empty(self, directory: str) -> bool:
        """Deletes a directory without entries; whether there was one."""
        return self._call("delete", directory, lambda: self._data.deleteIfEmpty(directory)) == "true"

    def resolve(self, path: str) -> str:
        """Where a path leads behind mount points."""
        return self._call("look at", path, lambda: self._data.resolve(path))

    def _call(self, verb: str, path: str, call: Callable[[], str]) -> str:
        meaning = words = ""
        was_tried = False
        for pause_ms in _RETRIES.pauses_ms():
            time.sleep(pause_ms / 1_000)
            answer = call()
            if answer.startswith("="):
                return answer[1:]
            meaning, _, words = answer[1:].partition("\n")
            if meaning != "transient":
                break
            was_tried = True
        raise self._failure(verb, path, meaning, _SECRETS.sub(r"\1***", words), was_tried=was_tried)

    def _failure(self, verb: str, path: str, meaning: str, words: str, *, was_tried: bool) -> Exception:
        """The error of a call; `was_tried` if an earlier attempt may have done it, or may do it yet."""
        match meaning:
            case "absent":
                return FileNotFoundError(f"{path} is not there: {words}")
            case "exists":
                return FileExistsError(f"{path} exists: {words}")
            case "not a directory":
                return NotADirectoryError(f"{path} cannot be there: {words}")
            case "denied":
                who = self._identity(path)
                help_ = "Grant the access, or give Spark's Hadoop configuration other credentials"
                refused = WriteRefusedError if verb == "write" and not was_tried else StoreError
                return refused(
                    f"Cannot {verb} {path}: the storage denied access{who}: {words}. {help_}.",
                    error_class="DELTA_STORE_ACCESS_DENIED",
                    file=path,
                )
            case "transient":
                tried = f"{_RETRIES.max_attempts} times; the storage is busy, or the connection broke"
                return StoreError(f"Cannot {verb} {path}, tried {tried}: {words}.", file=path)
        help_ = "Check the path, and what Spark's Hadoop configuration says of this storage"
        return StoreError(f"Cannot {verb} {path}: {words}. {help_}.", file=path)

    def _identity(self, path: str) -> str:
        """Who this is to a path's storage, as the end of a clause; empty where Hadoop does not tell."""
        scheme, _, rest = path.partition("://")
        if scheme == "s3a":
            bucket = rest.partition("/")[0]
            settings = self.settings("fs.s3a.")
            key = settings.get(f"fs.s3a.bucket.{bucket}.access.key") or settings.get("fs.s3a.access.key")
            return f" to the access key {key}" if key else ""
        # Their users are not Hadoop's.
        if scheme in ("abfs", "abfss", "gs"):
            return ""
        user = str(self._java.user())
        return f" to the user {user[1:]}" if user.startswith("=") else ""


def _named(paths: Sequence[str]) -> str:
    return paths[0] + (f" and {len(paths) - 1} other files" if len(paths) > 1 else "")


@contextmanager
def local_file() -> Iterator[tuple[BinaryIO, str]]:
    """A private local file, which is gone afterwards, and its path."""
    descriptor, path = tempfile.mkstemp(prefix="deltaflow-")
    try:
        with os.fdopen(descriptor, "r+b") as file:
            yield file, path
    finally:
        os.unlink(path)
