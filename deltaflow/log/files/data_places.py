"""Paths of the log and names on the disk in one form, so that they can be compared a column at a time."""

from __future__ import annotations

import base64
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.files.data_path import resolve_data_path
from deltaflow.log.files.file_key import ODD_PATHS, decoded_path, is_absolute
from deltaflow.log.files.file_rows import ROWS_PER_BATCH
from deltaflow.store import DataDirectory, local_path, scheme_of

# Besides what is encoded or absolute: steps that lead nowhere, or up.
_ODD = rf"{ODD_PATHS}|(?:^|/)\.{{0,2}}(?:/|$)"
# The alphabet of Z85, and that of Python's base 85.
_TO_B85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
_ENCODED_ID = 20
_CACHED_DIRECTORIES = 65_536


def comparable_places(places: pa.Array) -> pa.Array:
    """Places in a form in which two are equal if some file system could take them for one: in lower case, and
    with accents composed (NFC). A deletion that compares them so errs on the safe side.
    """
    if not pc.all(pc.string_is_ascii(places)).as_py():
        places = pc.utf8_normalize(places, form="NFC")
    lowered = pc.utf8_lower(places)
    # Most names are in lower case already: then no copy is kept.
    return places if lowered.equals(places) else lowered


class LogPlaces:
    """The places in a table's directory of the files that its log names."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._real_directory = lru_cache(_CACHED_DIRECTORIES)(self._find_real_directory)

    def of(self, paths: Iterable[pa.Array]) -> Iterator[pa.Array]:
        """The comparable places of chunks of the log's paths; null for files outside of the directory."""
        for chunk in paths:
            odd = pc.match_substring_regex(chunk, _ODD)
            if pc.any(odd).as_py():
                places = [self._place(path) for path in chunk.filter(odd).to_pylist()]
                chunk = pc.replace_with_mask(chunk, odd, pa.array(places, pa.string()))
            yield comparable_places(chunk)

    def of_vectors(self, extra: Iterable[pa.Array]) -> Iterator[pa.Array]:
        """As `of`, for the deletion vectors that a column `extra` of files or tombstones names."""
        for chunk in extra:
            if chunk.null_count == len(chunk):
                continue
            named = chunk.filter(pc.match_substring(chunk, '"deletionVector"'))
            vectors = (msgspec.json.decode(text).get("deletionVector") for text in named.to_pylist())
            paths = [path for vector in vectors if vector and (path := _vector_path(vector)) is not None]
            yield from self.of([pa.array(paths, pa.string())])

    def of_each(self, paths: Iterable[str]) -> Iterator[pa.Array]:
        """As `of`, for paths that come one by one."""
        rows: list[str] = []
        for path in paths:
            rows.append(path)
            if len(rows) == ROWS_PER_BATCH:
                yield from self.of([pa.array(rows, pa.string())])
                rows = []
        if rows:
            yield from self.of([pa.array(rows, pa.string())])

    def _place(self, path: str) -> str | None:
        decoded = decoded_path(path)
        if not is_absolute(path):
            inside = posixpath.normpath(decoded)
            return None if inside.startswith("..") and inside[2:3] in ("", "/") else inside
        try:
            is_local = scheme_of(self._directory.path) is None
            place = local_path(decoded) if is_local else resolve_data_path(self._directory.path, path).path
        except StoreError:  # of another storage, or another machine
            return None
        directory, name = posixpath.split(place)
        real = self._real_directory(directory)
        return None if real is None else f"{real}{name}"

    def _find_real_directory(self, directory: str) -> str | None:
        place = self._directory.real_place(f"{directory}/x")
        return None if place is None else place[:-1]


def _vector_path(vector: dict[str, Any]) -> str | None:
    """The path of a deletion vector's file; None if it is in no file (PROTOCOL.md, "Derived Fields")."""
    storage_type, text = vector.get("storageType"), vector.get("pathOrInlineDv", "")
    if storage_type == "p":
        return str(text)
    if storage_type != "u":
        return None
    prefix, encoded = text[:-_ENCODED_ID], text[-_ENCODED_ID:]
    try:
        unique = uuid.UUID(bytes=base64.b85decode(encoded.encode().translate(_TO_B85)))
    except ValueError as error:
        raise CorruptLogError(f"The log names a deletion vector by {text!r}, which is no id.") from error
    return f"{prefix}/deletion_vector_{unique}.bin" if prefix else f"deletion_vector_{unique}.bin"
