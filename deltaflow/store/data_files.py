"""Data files by their complete paths, in whichever storages they are: a table may name files of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from deltaflow.store.base import LogStore
from deltaflow.store.location import file_system_part, store_for

Stores: TypeAlias = Mapping[str, LogStore]
"""Stores that are open, with the options of their users, by their `file_system_part`."""
NO_STORES: Stores = MappingProxyType({})


def tails(files: Sequence[tuple[str, int]], size: int, stores: Stores = NO_STORES) -> list[bytes]:
    """As `LogStore.tails`; the paths are those that their stores know. `stores` are those of some of them."""
    found: list[bytes] = [b""] * len(files)
    for store, positions in _by_store([path for path, _ in files], stores):
        some = store.tails([files[i] for i in positions], size)
        for position, tail in zip(positions, some, strict=True):
            found[position] = tail
    return found


def slices(pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """As `LogStore.slices`; the paths are those that their stores know."""
    found: list[bytes] = [b""] * len(pieces)
    for store, positions in _by_store([path for path, _, _ in pieces], NO_STORES):
        some = store.slices([pieces[i] for i in positions])
        for position, piece in zip(positions, some, strict=True):
            found[position] = piece
    return found


def absent(paths: Sequence[str], stores: Stores = NO_STORES) -> list[str]:
    """As `LogStore.absent`; `stores` are those of some of the paths."""
    found = _by_store(paths, stores)
    return [path for store, positions in found for path in store.absent([paths[i] for i in positions])]


def _by_store(paths: Sequence[str], stores: Stores) -> list[tuple[LogStore, list[int]]]:
    """The positions of the paths in each of their storages."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, path in enumerate(paths):
        positions[file_system_part(path)].append(position)
    return [
        (stores.get(file_system) or store_for(paths[found[0]])[0], found)
        for file_system, found in positions.items()
    ]
