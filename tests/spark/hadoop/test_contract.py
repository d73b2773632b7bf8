"""What every log store must do, on file systems of Hadoop."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import LogStore
from tests.object_store.server import ObjectStoreServer
from tests.store.contract import InPlace, ReadOnlyContract, SingleWriterContract, StoreContract
from tests.webhdfs import WebHdfsServer

pytestmark = pytest.mark.spark


def opened(stores: StoresOfSpark, path: str, *, single_writer: bool = False) -> tuple[LogStore, str]:
    found = stores.open(path, single_writer)
    assert found is not None
    return found


class TestWebHdfs(InPlace, StoreContract):
    @pytest.fixture
    def place(self, server: WebHdfsServer, stores: StoresOfSpark) -> tuple[LogStore, str]:
        return opened(stores, f"{server.url}/tables/t")


class TestWebHdfsThatListsInPages(InPlace, StoreContract):
    @pytest.fixture
    def place(self, server: WebHdfsServer, stores: StoresOfSpark) -> tuple[LogStore, str]:
        server.listed_at_once = 2
        return opened(stores, f"{server.url}/tables/t")


class TestMountPoint(InPlace, StoreContract):
    """Of viewfs, over WebHDFS."""

    @pytest.fixture
    def place(self, server: WebHdfsServer, stores_of: Callable[..., StoresOfSpark]) -> tuple[LogStore, str]:
        (server.directory / "mounted").mkdir()
        table = f"m{uuid.uuid4().hex}"  # Hadoop keeps a file system by its authority
        stores = stores_of({f"fs.viewfs.mounttable.{table}.link./data/m": f"{server.url}/mounted"})
        return opened(stores, f"viewfs://{table}/data/m/tables/t")


class TestFileSystemOfTheMachine(InPlace, SingleWriterContract):
    @pytest.fixture
    def place(self, tmp_path: Path, stores: StoresOfSpark) -> tuple[LogStore, str]:
        return opened(stores, f"file:{tmp_path}/root", single_writer=True)

    def test_an_etag_tells_a_replaced_file(self, store: LogStore, root: str) -> None:
        pytest.skip("Hadoop tells of files there the size and the millisecond of modification alone")


class TestObjectStore(InPlace, StoreContract):
    """With conditional creates, as Hadoop's S3A has them from 3.4.2 on."""

    hierarchical = False

    @pytest.fixture
    def place(self, bucket: str, objects: StoresOfSpark) -> tuple[LogStore, str]:
        return opened(objects, f"s3a://{bucket}/tables/t")


class TestObjectStoreThatListsInPages(InPlace, StoreContract):
    hierarchical = False

    @pytest.fixture
    def place(
        self, bucket: str, objects: StoresOfSpark, objects_server: ObjectStoreServer
    ) -> tuple[LogStore, str]:
        objects_server.listed_at_once = 2
        return opened(objects, f"s3a://{bucket}/tables/t")


class TestFileSystemThatExcludesNobody(InPlace, ReadOnlyContract):
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "1.json").write_bytes(b"content")
        return "1.json"

    @pytest.fixture
    def place(self, tmp_path: Path, stores: StoresOfSpark) -> tuple[LogStore, str]:
        return opened(stores, f"file:{tmp_path}/root")


class TestMountPointOfSuchAFileSystem(InPlace, ReadOnlyContract):
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        (tmp_path / "1.json").write_bytes(b"content")
        return "1.json"

    @pytest.fixture
    def place(self, tmp_path: Path, stores_of: Callable[..., StoresOfSpark]) -> tuple[LogStore, str]:
        table = f"m{uuid.uuid4().hex}"
        stores = stores_of({f"fs.viewfs.mounttable.{table}.link./m": f"file:{tmp_path}"})
        return opened(stores, f"viewfs://{table}/m")


class TestGatewayThatHeedsNoCondition(InPlace, ReadOnlyContract):
    """HttpFS answers a rename that it did not do as one that it did, unless one looks at its answer."""

    @pytest.fixture
    def file(self, server: WebHdfsServer) -> str:
        (server.directory / "t").mkdir()
        (server.directory / "t" / "1.json").write_bytes(b"content")
        return "1.json"

    @pytest.fixture
    def place(self, server: WebHdfsServer, stores: StoresOfSpark) -> tuple[LogStore, str]:
        server.ignores_rename_options = True
        return opened(stores, f"{server.url}/t")


class TestObjectStoreThatHeedsNoCondition(InPlace, ReadOnlyContract):
    """As servers that speak S3's protocol but not all of it."""

    @pytest.fixture
    def file(self, bucket: str, objects: StoresOfSpark) -> str:
        store, root = opened(objects, f"s3a://{bucket}/t")
        store.put_if_absent(f"{root}/1.json", b"content")
        return "1.json"

    @pytest.fixture
    def place(
        self,
        bucket: str,
        objects_of: Callable[..., StoresOfSpark],
        objects_server: ObjectStoreServer,
        file: str,
    ) -> tuple[LogStore, str]:
        objects_server.ignores_conditions = True
        return opened(objects_of(), f"s3a://{bucket}/t")
