"""OPTIMIZE of a clustered table: which files are clustered, and how they are marked (delta-spark's ZCubes).

A ZCube is what one run has clustered: its files have the tags ZCUBE_ID and ZCUBE_ZORDER_BY (the names of the
columns). Files that were written since belong to none. Small ZCubes are clustered again together with these.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log import AddFile
from deltaflow.log.protocol.indexed_columns import ColumnPath
from deltaflow.log.protocol.properties import CLUSTERING_MIN_CUBE_SIZE, CLUSTERING_TARGET_CUBE_SIZE

_PROVIDER = "liquid"
_ID, _COLUMNS = "ZCUBE_ID", "ZCUBE_ZORDER_BY"


def names_of_columns(columns: Sequence[ColumnPath]) -> list[str]:
    """The columns as tags and commits name them."""
    return [".".join(path) for path in columns]


def files_to_cluster(
    files: pa.Table, columns: Sequence[ColumnPath], settings: Mapping[str, str], *, full: bool
) -> pa.Table:
    """Those of `files` that OPTIMIZE clusters: large ZCubes never, and small ones only together with files
    that are in none, or if fewer of them come out.

    Files of ZCubes by other columns, or of another kind of clustering, are clustered only by OPTIMIZE FULL.
    """
    cubes = _tag(files, _ID)
    by_these = pc.equal(_tag(files, _COLUMNS), _json(names_of_columns(columns)))
    is_in_cube = pc.and_(cubes.is_valid(), _tag(files, _COLUMNS).is_valid())
    is_own = pc.fill_null(pc.equal(_providers(files), _PROVIDER), True)
    fits = pc.and_(is_own, pc.or_(pc.invert(is_in_cube), pc.fill_null(by_these, False)))
    sizes = files["size"].combine_chunks()
    in_cubes = pa.table({"cube": cubes, "size": sizes}).filter(pc.and_(fits, is_in_cube))
    totals = in_cubes.group_by("cube").aggregate([("size", "sum")])
    least = CLUSTERING_MIN_CUBE_SIZE.of(settings)
    large = totals["cube"].filter(pc.greater_equal(totals["size_sum"], least)).combine_chunks()
    is_large = pc.and_(is_in_cube, pc.is_in(cubes, value_set=large))
    chosen = pc.and_(fits, pc.invert(is_large))
    others = pc.invert(fits)
    if full and pc.any(others).as_py():
        chosen = pc.or_(chosen, others)
        return files.filter(chosen)
    small = pc.unique(pc.if_else(is_in_cube, cubes, pa.scalar("")).filter(chosen)).to_pylist()
    found = files.filter(chosen)
    gains = "" in small or len(cubes_of(found, settings)) < len(small)
    return found if gains else found.slice(0, 0)


def cubes_of(files: pa.Table, settings: Mapping[str, str]) -> list[pa.Table]:
    """The files in the parts that each become a ZCube, those that are in none first."""
    size = max(CLUSTERING_TARGET_CUBE_SIZE.of(settings), CLUSTERING_MIN_CUBE_SIZE.of(settings))
    files = files.take(pc.sort_indices(pc.fill_null(_tag(files, _ID), "")))
    return list(_parts(files, size))


def _parts(files: pa.Table, size: int) -> Iterator[pa.Table]:
    start = total = 0
    for at, of_file in enumerate(files["size"].to_pylist()):
        if at > start and total + of_file > size:
            yield files.slice(start, at - start)
            start, total = at, 0
        total += of_file
    if files.num_rows > start:
        yield files.slice(start)


def tagged(columns: Sequence[ColumnPath]) -> Callable[[Sequence[AddFile]], list[AddFile]]:
    """Marks the files of a new ZCube."""

    def of(adds: Sequence[AddFile]) -> list[AddFile]:
        tags: dict[str, str | None] = {_ID: str(uuid.uuid4()), _COLUMNS: _json(names_of_columns(columns))}
        return [
            msgspec.structs.replace(add, tags={**(add.tags or {}), **tags}, clustering_provider=_PROVIDER)
            for add in adds
        ]

    return of


def clustering_stats(
    files: pa.Table, columns: Sequence[ColumnPath], merged: pa.Table, num_cubes: int
) -> dict[str, Any]:
    """The metrics of a run over `files`, of which it has `merged` some into `num_cubes` ZCubes."""
    is_in_cube = pc.fill_null(pc.equal(_tag(files, _COLUMNS), _json(names_of_columns(columns))), False)
    in_cubes = files.filter(is_in_cube)
    return {
        "inputZCubeFiles": _files(in_cubes),
        "inputOtherFiles": _files(files.filter(pc.invert(is_in_cube))),
        "inputNumZCubes": len(pc.unique(_tag(in_cubes, _ID))),
        "mergedFiles": _files(merged),
        "numOutputZCubes": num_cubes,
    }


def _files(files: pa.Table) -> dict[str, int]:
    return {"numFiles": files.num_rows, "size": pc.sum(files["size"], min_count=0).as_py()}


def _tag(files: pa.Table, name: str) -> pa.Array:
    found = pc.map_lookup(files["tags"], name, "first")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _providers(files: pa.Table) -> pa.Array:
    found = pc.extract_regex(files["extra"], r'"clusteringProvider":"(?P<name>[^"]*)"')
    return pc.struct_field(found, "name").combine_chunks()


def _json(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()
