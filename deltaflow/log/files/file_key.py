"""What identifies a file of a table: its path in the log, decoded, without steps that lead nowhere or up, and
relative if it is in the table."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from deltaflow.log.protocol.actions import AddFile, RemoveFile
from deltaflow.store import file_system_part, scheme_of

ABSOLUTE_PATHS = r"^(?:/|%2[Ff]|[A-Za-z][A-Za-z0-9+.-]*:)"
"""A regular expression for absolute paths of the log, which are URI-encoded; all others are relative to the
table. An encoded colon belongs to a name and ends no scheme; an encoded slash is a slash."""
_STEPS = r"(?:^|/)\.{0,2}(?:/|$)"
ODD_PATHS = f"%|{ABSOLUTE_PATHS}|{_STEPS}"
"""A regular expression for the paths whose key (`logical_key`) may not be the path itself."""
_ABSOLUTE = re.compile(ABSOLUTE_PATHS)
_WITH_STEPS = re.compile(_STEPS)


def file_key(action: AddFile | RemoveFile, table_path: str) -> str:
    """What identifies a logical file (PROTOCOL.md, "Action Reconciliation"): decoded path and vector id."""
    vector = action.deletion_vector
    return logical_key(action.path, None if vector is None else vector.unique_id, table_path)


def logical_key(path: str, vector_id: str | None, table_path: str) -> str:
    """As `file_key`, for a path as in the log and the unique id of a deletion vector."""
    scheme, relative = scheme_of(path), not is_absolute(path)
    if "%" in path:
        path = decoded_path(path)
    if not relative:
        table = _with_scheme(table_path, scheme_of(table_path))
        if scheme is None:
            # In the file system of the table.
            path = f"{file_system_part(table)}/{path.lstrip('/')}"
        elif scheme == "file":
            path = "/" + path[path.index(":") + 1 :].lstrip("/")
        else:
            path = _with_scheme(path, scheme)
        path = _normalized(path, file_system_part(path)).removeprefix(table.rstrip("/") + "/")
    elif _WITH_STEPS.search(path):
        path = _normalized(path, "")
    return path if vector_id is None else f"{path}\0{vector_id}"


def _normalized(path: str, root: str) -> str:
    """The path without empty, `.` and `..` steps, as Hadoop's `Path` has it; `root` is its file system."""
    return root + posixpath.normpath(path[len(root) :])


def _with_scheme(path: str, scheme: str | None) -> str:
    return path if scheme is None else f"{scheme}:{path[path.index(':') + 1 :]}"


def is_absolute(path: str) -> bool:
    """Whether a path, encoded as in the log, is absolute (ABSOLUTE_PATHS)."""
    return _ABSOLUTE.match(path) is not None


def decoded_path(path: str) -> str:
    """A path as in the log without its URI encoding."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        # It does not decode to UTF-8, so it is no encoded name.
        return path
