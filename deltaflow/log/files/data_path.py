"""Where the file of an action is, and whether it may be deleted with its table."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.files.file_rows import ABSOLUTE_PATHS, decoded_path, is_absolute
from deltaflow.log.protocol.commit import LOG_DIRECTORY
from deltaflow.store import scheme_of, table_path


@dataclass(frozen=True, slots=True)
class DataPath:
    """The place of an action's file, as the table's store knows it.

    `deletable`: the file lies in the table's directory, below no link that leads out of it, and not in
    its log. Only such a file may ever be deleted on behalf of the table.
    """

    path: str
    deletable: bool


def resolve_data_path(root: str, path: str) -> DataPath:
    """The place of the file whose action has `path`, in the table that its store knows as `root`.

    `path` is a URI (RFC 2396), relative to the table or absolute (PROTOCOL.md, "Add File and Remove
    File"). CorruptLogError if it is not one. A local table's links are looked up on the disk.
    """
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise CorruptLogError(
            f"The log names a file by {path!r}, which is no URI: it does not decode to UTF-8.", table=root
        ) from error
    if not decoded or "\0" in decoded:
        raise CorruptLogError(f"The log names a file by {path!r}, which is no path.", table=root)
    is_local = scheme_of(root) is None
    if not is_absolute(path):
        place = f"{root.rstrip('/')}/{decoded}"
        return _local_place(root, place) if is_local else _remote_place(root, place)
    # As in `is_absolute`, the scheme is looked for before decoding.
    return (_local if is_local else _remote)(root, decoded, scheme_of(path))


def hadoop_path(path: str) -> str:
    """A local path as Hadoop's Path prints it, with its scheme; not URL-encoded."""
    return f"file:{path}" if path.startswith("/") else path


def complete_paths(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Paths of the log as complete, decoded paths: they are URIs, relative to the table or absolute
    (PROTOCOL.md, "Add File")."""
    prefix = pc.if_else(pc.match_substring_regex(paths, ABSOLUTE_PATHS), "", hadoop_path(root) + "/")
    if pc.any(pc.match_substring(paths, "%")).as_py():
        paths = pa.chunked_array([pa.array([decoded_path(path) for path in paths.to_pylist()], pa.string())])
    return pc.binary_join_element_wise(prefix, paths, "")


def absolute_uris(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Paths of the log of the local table at `root` as absolute URIs, which another log can have."""
    rooted = pc.match_substring_regex(paths, "^(?:/|%2[Ff])")
    absolute = pc.match_substring_regex(paths, ABSOLUTE_PATHS)
    prefix = pc.if_else(rooted, "file:", pc.if_else(absolute, "", encoded_path(f"file:{root}/")))
    return pc.binary_join_element_wise(prefix, paths, "")


def encoded_path(path: str) -> str:
    """A path as the log has it, a URI. Colons in names are encoded, so that a relative path has no scheme."""
    scheme, path = ("file:", path.removeprefix("file:")) if path.startswith("file:/") else ("", path)
    return scheme + quote(path, safe="/!$&'()*+,;=@-._~")


def _local(root: str, decoded: str, scheme: str | None) -> DataPath:
    if scheme is None:
        place = decoded
    elif scheme == "file":
        try:
            place = table_path(decoded)
        except StoreError:
            return DataPath(decoded, deletable=False)
    else:
        return DataPath(decoded, deletable=False)
    return _local_place(root, place)


def _local_place(root: str, place: str) -> DataPath:
    directory, name = posixpath.split(place)
    # To delete a link does not delete its target, so only the directory is resolved.
    real = os.path.join(os.path.realpath(directory), name)
    return DataPath(place, _is_below(os.path.realpath(root), real))


def _remote(root: str, decoded: str, scheme: str | None) -> DataPath:
    if scheme is not None:
        # The schemes of one storage are one: the table's own goes on.
        named = root[: root.index(":")] if scheme == scheme_of(root) else scheme
        place = f"{named}:{decoded[decoded.index(':') + 1 :]}"
    else:
        authority = root.split("/", 3)[:3]
        place = "/".join(authority) + decoded
    return _remote_place(root, place)


def _remote_place(root: str, place: str) -> DataPath:
    return DataPath(place, _is_below(root.rstrip("/"), place))


def _is_below(directory: str, place: str) -> bool:
    inner = place.removeprefix(directory.rstrip("/") + "/")
    parts = inner.split("/")
    # Clients of object stores may resolve `.`, `..` and empty steps as a disk does.
    return inner != place and not {"", ".", ".."}.intersection(parts) and parts[0] != LOG_DIRECTORY
