"""Paths of the log and names on the disk in one form, so that they can be compared a column at a time."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import StoreError
from deltaflow.log.files.data_path import resolve_data_path
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.files.file_key import ODD_PATHS, decoded_path, is_absolute
from deltaflow.log.files.file_rows import ROWS_PER_BATCH
from deltaflow.store import DataDirectory, local_path, scheme_of

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
            yield comparable_places(self.exact(chunk))

    def exact(self, paths: pa.Array) -> pa.Array:
        """The places of the log's paths as they are on the disk; null for files outside of the directory."""
        odd = pc.match_substring_regex(paths, ODD_PATHS)
        if not pc.any(odd).as_py():
            return paths
        places = [self._place(path) for path in paths.filter(odd).to_pylist()]
        return pc.replace_with_mask(paths, odd, pa.array(places, pa.string()))

    def real_directory(self, place: str) -> str | None:
        """The place to which links lead from the place of a directory: itself without any; None if they lead
        outside."""
        real = self._real_directory(f"{self._directory.path.rstrip('/')}/{place}")
        return None if real is None else real.rstrip("/")

    def of_vectors(self, vectors: Iterable[pa.StructArray]) -> Iterator[pa.Array]:
        """As `of`, for the files of the deletion vectors of files or tombstones."""
        for chunk in vectors:
            uris = vector_uris(chunk)
            if uris:
                yield from self.of([pa.array(uris, pa.string())])

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
        decoded, root = decoded_path(path), self._directory.path
        if not is_absolute(path):
            inside = posixpath.normpath(decoded)
            if inside.split("/")[0] != "..":
                return inside
            # It leads out of the directory, and may lead back.
            place = f"{root.rstrip('/')}/{inside}"
        else:
            try:
                is_local = scheme_of(root) is None
                place = local_path(decoded) if is_local else resolve_data_path(root, path).path
            except StoreError:  # of another storage, or another machine
                return None
        directory, name = posixpath.split(place)
        real = None if name == ".." else self._real_directory(directory)
        return None if real is None else f"{real}{name}"

    def _find_real_directory(self, directory: str) -> str | None:
        place = self._directory.real_place(f"{directory}/x")
        return None if place is None else place[:-1]
