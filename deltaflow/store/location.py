"""From a path that a user or Spark gives to the store that keeps it, and the path in that store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fsspec

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.store.base import LogStore
from deltaflow.store.fsspec_store import FsspecLogStore, MemoryLogStore
from deltaflow.store.local import LocalLogStore
from deltaflow.store.s3 import VERSION_MARK, S3LogStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FILE_SYSTEM = re.compile(rf"{_SCHEME.pattern}(?://[^/]*)?")
# A password may have slashes, as half of the secret keys of AWS. What follows a port or is in an ARN is none.
_WITH_PASSWORD = re.compile(
    rf"((?:[^/:]+::)*{_SCHEME.pattern}//(?!arn:)[^/@:\[]*):(?!\d+(?:/|$)).*@", re.DOTALL
)
_FSSPEC_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}
"""Schemes of Hadoop whose file system has another name in fsspec; the others have the same."""
_REQUIREMENTS = {
    "s3": 'pip install "deltaflow[s3]"',
    "gs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "hdfs": "libhdfs of a Hadoop installation, Java, and the variables HADOOP_HOME and CLASSPATH "
    "(`hadoop classpath --glob` prints its value)",
}
OpenStore = Callable[[str, bool], tuple[LogStore, str] | None]
"""From a path, and whether there is a single writer, to its store and its path there; None for others."""
_stores_of_spark: OpenStore | None = None
_default_scheme = "file"
"""The scheme of the paths without one that a user gives to Spark."""
_working_directory = ""
"""The directory of relative local paths, with a slash at its end; "" is that of this process."""
_STORES: dict[str, type[FsspecLogStore]] = {"s3": S3LogStore, "memory": MemoryLogStore}


def use_stores_of_spark(open_store: OpenStore, default_scheme: str, working_directory: str) -> None:
    """From now on paths with a scheme are in the stores of a Spark session, where it has one for them.

    `default_scheme` is that of Spark's default file system; `working_directory` that of its JVM, below which
    Spark looks for relative local paths, such as those of checkpoints, wherever Python has gone since.
    """
    global _stores_of_spark, _default_scheme, _working_directory
    _stores_of_spark, _default_scheme = open_store, default_scheme
    _working_directory = working_directory.rstrip("/") + "/"


def scheme_part(path: str) -> str | None:
    """The scheme of a path as it is written; None without one."""
    match = _SCHEME.match(path)
    return None if match is None else match[1]


def file_system_part(path: str) -> str:
    """The scheme of a path and its authority, if it has one, as they are written; "" without a scheme."""
    match = _FILE_SYSTEM.match(path)
    return "" if match is None else match[0]


def scheme_of(path: str) -> str | None:
    """The scheme of a path, by fsspec's name, in lower case; None without one."""
    given = scheme_part(path)
    return None if given is None else _FSSPEC_SCHEMES.get(given.lower(), given.lower())


def table_path(path: str) -> str:
    """The path by which its store knows a path that a user or Spark gives.

    A path without a scheme is in Spark's default file system, everywhere else in the local one. Local paths
    lose their scheme. No path is URL-encoded: a `%` stays a `%`, as in Hadoop's `Path`. StoreError where
    Spark has no file system for it.
    """
    _check_given(path)
    scheme = scheme_part(path) or _default_scheme
    if scheme.lower() == "file":
        return local_path(path)
    found = None if _stores_of_spark is None else _stores_of_spark(path, False)
    if found is None:
        raise StoreError(
            f"Spark cannot reach {path}: its Hadoop has no file system for {scheme}:. Add the connector of "
            "this storage to spark.jars.packages before the session starts, or use another path.",
            error_class="DELTA_UNSUPPORTED_STORE",
            file=path,
        )
    return found[1]


def is_absolute_path(path: str) -> bool:
    """Whether a path that a user gives begins at the root of a file system."""
    scheme = scheme_part(path)
    return path.startswith("/") if scheme is None else path.startswith("/", len(scheme) + 1)


def qualified_path(path: str) -> str:
    """A path that a user or Spark gives, complete if it has no scheme and is not in the local file system."""
    return path if scheme_part(path) is not None or _default_scheme == "file" else table_path(path)


def given_path(path: str) -> str:
    """A path, as its store knows it, in the form in which a user or Spark would give it (`table_path`)."""
    return f"file:{path}" if scheme_part(path) is None and _default_scheme != "file" else path


def directories_above(path: str) -> Iterator[str]:
    """The directories above a path, as its store knows it: the innermost one first, then up to the root."""
    root = file_system_part(path)
    while len(path) > len(root):
        path = path.rpartition("/")[0]
        yield path or "/"


def local_path(path: str) -> str:
    """Absolute local path, without scheme and trailing slash, of a path as Hadoop's `Path` prints it.

    StoreError for another scheme than `file`.
    """
    scheme = scheme_part(path)
    if scheme is None:
        return _absolute(path)
    if scheme.lower() != "file":
        raise StoreError(f"{path} is not a local path.", error_class="DELTA_UNSUPPORTED_STORE", file=path)
    rest = path[len(scheme) + 1 :]
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        if authority not in ("", "localhost"):
            raise StoreError(
                f"{path} names the host {authority!r}. Write file:///{authority}/{rest} for a local path.",
                error_class="DELTA_UNSUPPORTED_STORE",
                file=path,
            )
        rest = "/" + rest
    return _absolute(rest)


def is_same_directory(path: str, other: str) -> bool:
    """Whether two paths, as their stores know them, are one directory: by name, or through local links."""
    if path == other or scheme_part(path) is not None or scheme_part(other) is not None:
        return path == other
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them is not there yet
        return real_path(path) == real_path(other)


def store_for(
    path: str, storage_options: Mapping[str, Any] | None = None, *, single_writer: bool = False
) -> tuple[LogStore, str]:
    """The store that keeps `path`, and the path by which that store knows it, without trailing slash.

    `storage_options` are those of fsspec's file system. `single_writer` states that nobody else writes
    there: stores that cannot exclude other writers are written only then. Equal stores and paths are the
    same place. A path without a scheme is local. StoreError if there is no such file system, or its driver
    is missing.
    """
    _check_given(path)
    scheme = scheme_of(path)
    if scheme is None or scheme == "file":
        return LocalLogStore(single_writer=single_writer), local_path(path)
    # Options of fsspec's file system ask for that one.
    if _stores_of_spark is not None and not storage_options:
        found = _stores_of_spark(path, single_writer)
        if found is not None:
            return found
    store = fsspec_store(path, storage_options or {}, single_writer=single_writer)
    file_system, url = store.file_system, _url(path)
    return store, str(file_system.unstrip_protocol(file_system._strip_protocol(url))).rstrip("/")


def fsspec_store(path: str, storage_options: Mapping[str, Any], *, single_writer: bool) -> FsspecLogStore:
    """The store that keeps `path` through fsspec's file system of its scheme, with options of that one."""
    url, scheme = _url(path), scheme_of(path)
    assert scheme is not None
    file_system = _file_system(scheme, url, storage_options)
    if scheme == "s3" and url.startswith("s3:///"):
        raise StoreError(f"{path} names no bucket. Write s3://bucket/path.", file=path)
    if scheme == "s3" and VERSION_MARK in url:
        raise StoreError(
            f"{path} cannot be reached through s3fs, which takes it for a version of "
            f"{path.partition(VERSION_MARK)[0]}. Give the table a path without {VERSION_MARK}.",
            file=path,
        )
    return _STORES.get(scheme, FsspecLogStore)(file_system, single_writer=single_writer)


def _url(path: str) -> str:
    """A path with fsspec's scheme, and with an authority, which Hadoop leaves out where it is empty."""
    rest = path[path.index(":") + 1 :]
    authority, _, inner = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return f"{scheme_of(path)}://{authority}/" + "/".join(part for part in inner.split("/") if part)


def _file_system(scheme: str, url: str, storage_options: Mapping[str, Any]) -> Any:
    try:
        file_system_class = fsspec.get_filesystem_class(scheme)
        return file_system_class(**{**file_system_class._get_kwargs_from_urls(url), **storage_options})
    # A driver that is missing, or does not start, raises what its libraries raise.
    except Exception as error:
        needed = _REQUIREMENTS.get(scheme)
        reason = str(error).split("\n")[0].rstrip(".")
        raise StoreError(
            f"Cannot reach {url}: {reason}. "
            + (f"Tables there need {needed}." if needed else "Check the scheme and the storage options."),
            error_class="DELTA_UNSUPPORTED_STORE",
            file=url,
        ) from error


def real_path(path: str) -> str:
    """A local path without links."""
    return os.path.realpath(path)


def _check_given(path: str) -> None:
    if not path.strip():
        raise DeltaIllegalArgumentException(
            "'path' is not specified. Give the directory of the table.",
            error_class="DELTA_PATH_NOT_SPECIFIED",
        )
    with_password = _WITH_PASSWORD.match(path)
    if with_password:
        path = f"{with_password[1]}:***@{path[with_password.end() :]}"
        raise DeltaIllegalArgumentException(
            f"The path {path} has a password. Logs, histories and plans keep paths, so give the password to "
            "Spark's Hadoop configuration or to the storage options instead.",
            error_class="DELTA_PATH_WITH_PASSWORD",
            file=path,
        )


def _absolute(path: str) -> str:
    # abspath keeps two leading slashes, to which POSIX allows a meaning of their own; Hadoop has none.
    return os.path.abspath("/" + path.lstrip("/") if path.startswith("/") else f"{_working_directory}{path}")
