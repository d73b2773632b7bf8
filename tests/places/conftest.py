"""The file systems on which every scenario runs: a local disk, WebHDFS, and an object store.

The object store is reached by the connector of the tests, and once more by Hadoop's own S3A where
`DELTAFLOW_S3A_JARS` names its jars (hadoop-aws of Spark's Hadoop, and the AWS SDK), with commas between them.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.object_store.server import ObjectStoreServer
from tests.webhdfs import WebHdfsServer

if TYPE_CHECKING:
    from tests.conftest import Settings

PLACES = ["local", "webhdfs", "objects", "s3a"]
_OF_S3A = {
    "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
    "fs.s3a.access.key": "test",
    "fs.s3a.secret.key": "test",
    "fs.s3a.endpoint.region": "us-east-1",
    "fs.s3a.connection.ssl.enabled": "false",
}


@dataclass(frozen=True)
class Place:
    """A directory of a file system, whose files a test sees without Spark and without deltaflow."""

    name: str
    root: str
    names: Callable[[], list[str]]
    """The paths of all files below the root."""
    read: Callable[[str], bytes]
    """The content of one of them."""
    counted: Callable[[], Counter[str]]
    """The requests of each operation since this was last asked; none of a local disk."""

    def path(self, name: str) -> str:
        """The path that Spark knows for a name in the directory."""
        return f"{self.root}/{name}"

    def files(self, name: str) -> set[str]:
        """The data files of a table, by their paths in it."""
        inner = (path.removeprefix(f"{name}/") for path in self.names() if path.startswith(f"{name}/"))
        return {path for path in inner if path.endswith(".parquet") and not path.startswith("_delta_log/")}

    def versions(self, name: str) -> list[int]:
        """The versions that a table's log has."""
        log = "_delta_log/" if name == "." else f"{name}/_delta_log/"
        names = (path.removeprefix(log) for path in self.names() if path.startswith(log))
        return sorted(int(file[:-5]) for file in names if file.endswith(".json") and file[:-5].isdigit())


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the file systems in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return _of_directory("local", str(tmp_path), tmp_path, Counter)


@pytest.fixture
def webhdfs(tmp_path: Path) -> Iterator[Place]:
    directory = tmp_path / "webhdfs"
    directory.mkdir()
    with WebHdfsServer(directory) as server:
        yield _of_directory("webhdfs", server.url, directory, server.counted)


def _of_directory(name: str, root: str, directory: Path, counted: Callable[[], Counter[str]]) -> Place:
    def names() -> list[str]:
        return [str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()]

    return Place(name, root, names, lambda path: (directory / path).read_bytes(), counted)


@pytest.fixture(scope="session")
def objects_server() -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer() as server:
        yield server


@pytest.fixture
def objects(objects_server: ObjectStoreServer, hadoop_settings: Settings) -> Iterator[Place]:
    with hadoop_settings(objects_server.settings()):
        yield _of_bucket("objects", objects_server)


@pytest.fixture
def s3a(objects_server: ObjectStoreServer, hadoop_settings: Settings) -> Iterator[Place]:
    if not os.environ.get("DELTAFLOW_S3A_JARS"):
        pytest.skip("DELTAFLOW_S3A_JARS names no jars of hadoop-aws, which is in no package of PyPI")
    with hadoop_settings({**objects_server.settings(), **_OF_S3A}):
        yield _of_bucket("s3a", objects_server)


def _of_bucket(name: str, objects_server: ObjectStoreServer) -> Place:
    bucket = objects_server.new_bucket()
    return Place(
        name,
        f"s3a://{bucket}",
        lambda: objects_server.keys(bucket),
        lambda path: objects_server.content(bucket, path),
        objects_server.counted,
    )


@pytest.fixture
def table_name() -> Iterator[str]:
    """A name of the catalog that no other test has."""
    return f"places_{next(_NUMBERS)}"


_NUMBERS = itertools.count()
