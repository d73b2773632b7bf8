"""From a path that a user or Spark gives to the store that keeps it, and the path in that store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import fsspec

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.store.base import LogStore
from deltaflow.store.fsspec_store import FsspecLogStore, MemoryLogStore
from deltaflow.store.local import LocalLogStore
from deltaflow.store.s3 import S3LogStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
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
_STORES: dict[str, type[FsspecLogStore]] = {"s3": S3LogStore, "memory": MemoryLogStore}


def use_stores_of_spark(open_store: OpenStore) -> None:
    """From now on paths with a scheme are in the stores of a Spark session, where it has one for them."""
    global _stores_of_spark
    _stores_of_spark = open_store


def scheme_of(path: str) -> str | None:
    """The scheme of a path, by fsspec's name, in lower case; None without one."""
    match = _SCHEME.match(path)
    if match is None:
        return None
    scheme = match[1].lower()
    return _FSSPEC_SCHEMES.get(scheme, scheme)


def table_path(path: str) -> str:
    """Absolute local path, without scheme and trailing slash, of a path as Hadoop's `Path` prints it.

    Such a path is not URL-encoded: a `%` stays a `%`. StoreError for another scheme than `file`.
    """
    _check_not_blank(path)
    match = _SCHEME.match(path)
    if match is None:
        return _absolute(path)
    if match[1].lower() != "file":
        raise StoreError(
            f"Tables on {match[1]}: are not supported yet ({path}). Use a path on the local file system.",
            error_class="DELTA_UNSUPPORTED_STORE",
        )
    rest = path[match.end() :]
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        if authority not in ("", "localhost"):
            raise StoreError(
                f"{path} names the host {authority!r}. Write file:///{authority}/{rest} for a local path.",
                error_class="DELTA_UNSUPPORTED_STORE",
            )
        rest = "/" + rest
    return _absolute(rest)


def is_same_directory(path: str, other: str) -> bool:
    """Whether two local paths are one directory: by the same name, or through links."""
    try:
        return path == other or os.path.samefile(path, other)
    except OSError:  # one of them is not there
        return False


def store_for(
    path: str, storage_options: Mapping[str, Any] | None = None, *, single_writer: bool = False
) -> tuple[LogStore, str]:
    """The store that keeps `path`, and the path by which that store knows it, without trailing slash.

    `storage_options` are those of fsspec's file system. `single_writer` states that nobody else writes
    there: stores that cannot exclude other writers are written only then. Equal stores and paths are the
    same place. StoreError if there is no such file system, or its driver is missing.
    """
    _check_not_blank(path)
    scheme = scheme_of(path)
    if scheme is None or scheme == "file":
        return LocalLogStore(single_writer=single_writer), table_path(path)
    # Options of fsspec's file system ask for that one.
    if _stores_of_spark is not None and not storage_options:
        found = _stores_of_spark(path, single_writer)
        if found is not None:
            return found
    # fsspec takes only the form with an authority, which Hadoop leaves out where it is empty.
    rest = path[path.index(":") + 1 :]
    authority, _, inner = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    url = f"{scheme}://{authority}/" + "/".join(part for part in inner.split("/") if part)
    file_system = _file_system(scheme, url, storage_options or {})
    if scheme == "s3" and not authority:
        raise StoreError(f"{path} names no bucket. Write s3://bucket/path.", file=path)
    store = _STORES.get(scheme, FsspecLogStore)(file_system, single_writer=single_writer)
    return store, str(file_system.unstrip_protocol(file_system._strip_protocol(url))).rstrip("/")


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


def _check_not_blank(path: str) -> None:
    if not path.strip():
        raise DeltaIllegalArgumentException(
            "'path' is not specified. Give the directory of the table.",
            error_class="DELTA_PATH_NOT_SPECIFIED",
        )


def _absolute(path: str) -> str:
    # abspath keeps two leading slashes, to which POSIX allows a meaning of their own; Hadoop has none.
    return os.path.abspath("/" + path.lstrip("/") if path.startswith("/") else path)
