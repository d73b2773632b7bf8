"""Where the file of an action is, and whether it may be deleted with its table."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.files.file_key import ABSOLUTE_PATHS, decoded_path, is_absolute
from deltaflow.log.protocol.commit import LOG_DIRECTORY
from deltaflow.store import file_system_part, local_path, real_path, scheme_of, scheme_part


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
    """Paths of the log as complete, decoded paths, as Hadoop prints them. In the log they are URIs, relative
    to the table or absolute (PROTOCOL.md, "Add File")."""
    prefix = _prefix(paths, hadoop_path(root) + "/", file_system_part(root))
    if pc.any(pc.match_substring(paths, "%")).as_py():
        paths = pa.chunked_array([pa.array([decoded_path(path) for path in paths.to_pylist()], pa.string())])
    return _in_own_scheme(root, pc.binary_join_element_wise(prefix, paths, ""))


def store_paths(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """As `complete_paths`, as their stores know them: local ones have no scheme."""
    return pc.replace_substring_regex(complete_paths(root, paths), "^file:(//)?", "")


def sized_paths(root: str, files: pa.Table) -> list[tuple[str, int]]:
    """Of files of the table at `root`, each one's path, as its store knows it, and its size in bytes."""
    paths = store_paths(root, files["path"]).to_pylist()
    return list(zip(paths, files["size"].to_pylist(), strict=True))


def store_path(uri: str) -> str:
    """The path, as its store knows it, of an absolute URI of Hadoop."""
    return unquote(uri).removeprefix("file://").removeprefix("file:")


def absolute_uris(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Paths of the log of the table at `root` as absolute URIs, which another log can have."""
    prefix = _prefix(paths, encoded_uri(hadoop_path(root) + "/"), file_system_part(root) or "file:")
    return _in_own_scheme(root, pc.binary_join_element_wise(prefix, paths, ""))


def _prefix(paths: pa.ChunkedArray, of_relative: str, of_rooted: str) -> pa.ChunkedArray | pa.Scalar:
    """What completes paths of the log: nothing where they have a scheme. One prefix if all are relative."""
    absolute = pc.match_substring_regex(paths, ABSOLUTE_PATHS)
    if not pc.any(absolute).as_py():
        return pa.scalar(of_relative)
    rooted = pc.match_substring_regex(paths, "^(?:/|%2[Ff])")
    return pc.if_else(rooted, of_rooted, pc.if_else(absolute, "", of_relative))


def _in_own_scheme(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same paths, by the name that the table's path has for the scheme of its storage: one of several."""
    own = scheme_part(root)
    if scheme_of(root) != "s3":
        return paths
    return pc.replace_substring_regex(paths, "^[sS]3[aAnN]?:", f"{own}:")


def encoded_path(path: str) -> str:
    """A relative path as the log has it, a URI. Colons in names are encoded, so that it has no scheme."""
    return quote(path, safe="/!$&'()*+,;=@-._~")


def encoded_uri(path: str) -> str:
    """A complete path, as Hadoop prints it, as the log has it."""
    prefix = file_system_part(path)
    assert prefix, path
    return prefix + encoded_path(path[len(prefix) :])


def _local(root: str, decoded: str, scheme: str | None) -> DataPath:
    if scheme is None:
        place = decoded
    elif scheme == "file":
        try:
            place = local_path(decoded)
        except StoreError:
            return DataPath(decoded, deletable=False)
    else:
        return DataPath(decoded, deletable=False)
    return _local_place(root, place)


def _local_place(root: str, place: str) -> DataPath:
    directory, name = posixpath.split(place)
    # To delete a link does not delete its target, so only the directory is resolved.
    return DataPath(place, _is_below(real_path(root), posixpath.join(real_path(directory), name)))


def _remote(root: str, decoded: str, scheme: str | None) -> DataPath:
    if scheme is not None:
        # The schemes of one storage are one: the table's own goes on.
        named = root[: root.index(":")] if scheme == scheme_of(root) else scheme
        place = f"{named}:{decoded[decoded.index(':') + 1 :]}"
    else:
        place = file_system_part(root) + decoded
    return _remote_place(root, place)


def _remote_place(root: str, place: str) -> DataPath:
    return DataPath(place, _is_below(root.rstrip("/"), place))


def _is_below(directory: str, place: str) -> bool:
    inner = place.removeprefix(directory.rstrip("/") + "/")
    parts = inner.split("/")
    # Clients of object stores may resolve `.`, `..` and empty steps as a disk does.
    return inner != place and not {"", ".", ".."}.intersection(parts) and parts[0] != LOG_DIRECTORY
