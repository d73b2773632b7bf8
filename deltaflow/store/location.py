"""From the path that a user or Spark names to a store and the path inside it."""

from __future__ import annotations

import os
import re

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.store.base import LogStore
from deltaflow.store.local import LocalLogStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL_STORE = LocalLogStore()


def table_path(path: str) -> str:
    """Absolute local path, without scheme and trailing slash, of a path as Hadoop's `Path` prints it.

    Such a path is not URL-encoded: a `%` stays a `%`. Schemes but `file` raise StoreError.
    """
    if not path.strip():
        raise DeltaIllegalArgumentException(
            "'path' is not specified. Give the directory of the table.",
            error_class="DELTA_PATH_NOT_SPECIFIED",
        )
    scheme = _SCHEME.match(path)
    if scheme is None:
        return _absolute(path)
    if scheme[1].lower() != "file":
        raise StoreError(
            f"Tables on {scheme[1]}: are not supported yet ({path}). Use a path on the local file system.",
            error_class="DELTA_UNSUPPORTED_STORE",
        )
    rest = path[scheme.end() :]
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        if authority not in ("", "localhost"):
            raise StoreError(
                f"{path} names the host {authority!r}. Write file:///{authority}/{rest} for a local path.",
                error_class="DELTA_UNSUPPORTED_STORE",
            )
        rest = "/" + rest
    return _absolute(rest)


def _absolute(path: str) -> str:
    # abspath keeps two leading slashes, to which POSIX allows a meaning of their own; Hadoop has none.
    return os.path.abspath("/" + path.lstrip("/") if path.startswith("/") else path)


def store_for(path: str) -> tuple[LogStore, str]:
    """The store that keeps `path`, and the path by which that store knows it."""
    return _LOCAL_STORE, table_path(path)
