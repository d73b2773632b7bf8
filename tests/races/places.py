"""Where the tables of races are: on a local disk, or in the tests' object store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.object_store.server import ObjectStoreServer


@dataclass(frozen=True)
class Place:
    """A directory for tables: how Spark and deltalake name and reach it, and how its files are read."""

    root: str
    root_of_deltalake: str
    read: Callable[[str], bytes]
    """A file by its path below the root; FileNotFoundError without one."""
    settings: dict[str, str] = field(default_factory=dict)
    """Hadoop's."""
    options: dict[str, str] = field(default_factory=dict)
    """The storage options of deltalake."""
    log: Callable[[str], Path | None] = lambda name: None
    """The directory of a table's log, if it is local."""


@contextmanager
def local(parent: str | None = None) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Place(
            folder,
            folder,
            lambda path: Path(folder, path).read_bytes(),
            log=lambda name: Path(folder, name, "_delta_log"),
        )


@contextmanager
def objects() -> Iterator[Place]:
    with ObjectStoreServer() as server:
        bucket = server.new_bucket()

        def read(path: str) -> bytes:
            try:
                return server.content(bucket, path)
            except KeyError:
                raise FileNotFoundError(path) from None

        yield Place(
            f"s3a://{bucket}",
            f"s3://{bucket}",
            read,
            settings=server.settings(),
            options=server.storage_options(),
        )


PLACES = {"local": local, "objects": objects}
