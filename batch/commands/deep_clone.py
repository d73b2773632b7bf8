"""DEEP CLONE: copies the files of a table byte for byte, so that the clone needs nothing of its source.

Which files an existing clone has already is told by their names: that of a copy has a digest of what makes
the file the source's. A copy that no commit names is left to VACUUM.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log import LOG_DIRECTORY, AddFile, DeletionVectorDescriptor, RemoveFile, Snapshot, add_files
from deltaflow.log.files.data_path import encoded_path, store_paths
from deltaflow.log.files.data_places import LogPlaces
from deltaflow.log.files.deletion_vectors import vector_text, vector_uri
from deltaflow.log.files.file_key import decoded_path
from deltaflow.store import LogStore, absent, store_for

_THREADS = 8
_COPIES_AT_ONCE = 1_000
_BUFFER_BYTES = 4 * 1024 * 1024
_VECTOR_NAME = re.compile(r"(?:^|/)deletion_vector_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.bin$")


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file that is to be copied."""

    source: str
    """Its path, as its store knows it."""
    place: str
    """The place of the copy in the clone's directory."""
    size: int | None
    """In bytes, where the log has it: not of a file of deletion vectors."""


@dataclass(slots=True)
class CopyPlan:
    """What a deep clone copies and commits."""

    copies: list[FileCopy] = field(default_factory=list)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    num_copied: int = 0
    """Of data files; the same for the sizes, in bytes."""
    copied_size: int = 0
    num_removed: int = 0
    removed_size: int = 0


def plan_copies(
    root: str,
    adds: Sequence[AddFile],
    identity: Callable[[AddFile], object],
    before: Snapshot | None,
    now_ms: int,
    *,
    needs_ids: bool = False,
) -> CopyPlan:
    """How the table that is `before` becomes a copy of the files `adds` of the table at `root`.

    `identity` is what makes a file what it is: two files with the same identity have the same content. If the
    table `needs_ids`, files of it that have no row ids are added again, by which the commit gives them some.
    """
    plan = CopyPlan()
    existing = {}
    if before is not None:
        existing = {decoded_path(add.path): add for add in add_files(before.with_stats(before.files))}
    vectors = {place for add in existing.values() if (place := _vector_place(add)) is not None}
    paths = pa.array([add.path for add in adds], pa.string())
    sources = store_paths(root, pa.chunked_array([paths])).to_pylist()
    store, directory = store_for(root)
    places = LogPlaces(store.data_directory(directory))
    for add, source, inside in zip(adds, sources, places.exact(paths).to_pylist(), strict=True):
        place = _place(inside, source, identity(add))
        try:
            vector = _moved(add.deletion_vector, places)
        except ValueError as error:
            raise CorruptLogError(
                error_class="DELTA_DELETION_VECTOR_INVALID",
                data_file=add.path,
                reason=str(error),
                table=root,
                file=add.path,
            ) from error
        old = existing.pop(place, None)
        if old is None:
            plan.copies.append(FileCopy(source, place, add.size))
            plan.num_copied += 1
            plan.copied_size += add.size
        copy = msgspec.structs.replace(
            add,
            path=encoded_path(place),
            deletion_vector=vector,
            data_change=True,
            # The rows of a clone have row ids of their own.
            base_row_id=None if old is None else old.base_row_id,
            default_row_commit_version=None if old is None else old.default_row_commit_version,
        )
        lacks_ids = needs_ids and copy.base_row_id is None
        if old is not None and not lacks_ids and msgspec.structs.replace(old, data_change=True) == copy:
            continue
        if old is not None and _vector_id(old) == _vector_id(copy):
            # Streams and the change data feed have its rows already: only what the log says of them is new.
            plan.adds.append(msgspec.structs.replace(copy, data_change=False))
            continue
        plan.adds.append(copy)
        if old is not None:
            plan.removes.append(old.remove(now_ms))
        vector_place = _vector_place(copy)
        if vector_place is not None and vector_place not in vectors:
            vectors.add(vector_place)
            plan.copies.append(FileCopy(_vector_source(add, root), vector_place, None))
    for old in existing.values():
        plan.removes.append(old.remove(now_ms))
        plan.num_removed += 1
        plan.removed_size += old.size
    return plan


def copy_files(copies: Sequence[FileCopy], root: str, target: str, read: str) -> None:
    """Copies files into the directory of the clone, in parallel.

    StoreError, which names the file, for the first one that is not there or does not have its size; `read`
    says of which version of the table at `root` it is.
    """
    store, directory = store_for(target)
    with ThreadPoolExecutor(_THREADS, "deltaflow-clone") as pool:
        # Few of a million copies wait for their turn, since those go on that wait when one fails.
        for start in range(0, len(copies), _COPIES_AT_ONCE):
            some = copies[start : start + _COPIES_AT_ONCE]
            futures = [pool.submit(_copy, copy, root, store, directory, read) for copy in some]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def copy_lost_files(copies: Sequence[FileCopy], root: str, target: str, read: str) -> list[str]:
    """Copies those files again that are not there any more; the paths of those that have gone once more.

    A vacuum of the clone that has looked at its log before the commit deletes what was at these places then.
    """
    lost = _absent(copies, target)
    copy_files(list(lost.values()), root, target, read)
    return list(_absent(list(lost.values()), target))


def _absent(copies: Sequence[FileCopy], target: str) -> dict[str, FileCopy]:
    _, directory = store_for(target)
    paths = {f"{directory}/{copy.place}": copy for copy in copies}
    return {path: paths[path] for path in absent(list(paths))}


def _copy(copy: FileCopy, root: str, store: LogStore, directory: str, read: str) -> None:
    source_store, source = store_for(copy.source)
    try:
        content = source_store.open(source)
    except FileNotFoundError as error:
        raise StoreError(
            error_class="DELTA_FILE_NOT_FOUND_DETAILED",
            path=copy.source,
            read=read,
            root=root,
            table=root,
            file=copy.source,
        ) from error
    with content, store.open_output(f"{directory}/{copy.place}") as output:
        copied = 0
        while block := content.read(_BUFFER_BYTES):
            copied += output.write(block)
        if copy.size is not None and copied != copy.size:
            raise StoreError(
                f"{copy.source} has {copied} bytes, and the log of {root} says that it has {copy.size}: it "
                "was cut off or replaced. Nothing was committed. Restore the file from a copy.",
                table=root,
                file=copy.source,
            )


def _place(inside: str | None, source: str, identity: object) -> str:
    """The place in the clone of a file that is at this place in its source's directory; None for one outside
    of it."""
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    directory, name = posixpath.split(source if inside is None else inside)
    if inside is None or directory.split("/")[0] == LOG_DIRECTORY:
        directory = ""
    return posixpath.join(directory, f"{digest}-{name}")


def _moved(vector: DeletionVectorDescriptor | None, places: LogPlaces) -> DeletionVectorDescriptor | None:
    """How the clone's log names a deletion vector: relative to the table, as vacuums of others need it, and
    in its directory, whatever the source's log says."""
    if vector is None or vector.storage_type == "i":
        return vector
    uri = vector_uri(vector.storage_type, vector.path_or_inline_dv)
    found = None
    if vector.storage_type == "p":
        found = _VECTOR_NAME.search(decoded_path(uri))
    else:
        [inside] = places.exact(pa.array([uri])).to_pylist()
        if inside is not None and inside.split("/")[0] != LOG_DIRECTORY:
            return vector
    unique = uuid.uuid5(uuid.NAMESPACE_URL, uri) if found is None else uuid.UUID(found[1])
    return msgspec.structs.replace(vector, storage_type="u", path_or_inline_dv=vector_text(unique, None))


def _vector_place(add: AddFile) -> str | None:
    """The place of the file of a deletion vector in the table; None if it is in none, or elsewhere."""
    vector = add.deletion_vector
    if vector is None or vector.storage_type != "u":
        return None
    return decoded_path(vector_uri(vector.storage_type, vector.path_or_inline_dv))


def _vector_source(add: AddFile, root: str) -> str:
    vector = add.deletion_vector
    assert vector is not None
    uri = vector_uri(vector.storage_type, vector.path_or_inline_dv)
    [source] = store_paths(root, pa.chunked_array([[uri]], pa.string())).to_pylist()
    return str(source)


def _vector_id(add: AddFile) -> str | None:
    return None if add.deletion_vector is None else add.deletion_vector.unique_id
