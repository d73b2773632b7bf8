from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from deltaflow.store import FsspecLogStore, LocalLogStore, LogStore, S3LogStore, store_for
from tests.store.contract import InPlace, ReadOnlyContract, SingleWriterContract, StoreContract


class TestLocal(StoreContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"{tmp_path}/root"

    @pytest.fixture
    def store(self) -> LogStore:
        return LocalLogStore()


class TestMemory(InPlace, StoreContract):
    @pytest.fixture
    def place(self) -> tuple[LogStore, str]:
        return store_for(f"memory://{uuid.uuid4().hex}/t")


class TestS3(StoreContract):
    hierarchical = False

    @pytest.fixture
    def root(self, bucket: str) -> str:
        return f"s3://{bucket}/t"

    @pytest.fixture
    def store(self, root: str, s3_options: dict[str, Any]) -> LogStore:
        return store_for(root, s3_options)[0]

    def test_what_others_do_is_seen(self, store: LogStore, root: str, bucket: str) -> None:
        """s3fs answers from listings that it remembers."""
        assert isinstance(store, S3LogStore)
        store.put_if_absent(f"{root}/d/1", b"")
        assert [entry.name for entry in store.data_directory(root).entries("d")] == ["1"]
        store._fs.call_s3("delete_object", Bucket=bucket, Key="t/d/1")
        store._fs.call_s3("put_object", Bucket=bucket, Key="t/d/2", Body=b"")
        assert store.absent([f"{root}/d/1", f"{root}/d/2"]) == [f"{root}/d/1"]


class TestAnyFileSystemWithASingleWriter(SingleWriterContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/root"

    @pytest.fixture
    def store(self) -> LogStore:
        return FsspecLogStore(fsspec.filesystem("file"), single_writer=True)


class TestS3WithASingleWriter(SingleWriterContract):
    hierarchical = False

    @pytest.fixture
    def root(self, bucket: str) -> str:
        return f"s3://{bucket}/t"

    @pytest.fixture
    def store(self, root: str, s3_options: dict[str, Any]) -> LogStore:
        return store_for(root, s3_options, single_writer=True)[0]


class TestAnyFileSystem(ReadOnlyContract):
    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        (tmp_path / "1.json").write_bytes(b"content")
        return "1.json"

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"

    @pytest.fixture
    def store(self) -> LogStore:
        return FsspecLogStore(fsspec.filesystem("file"))


class TestS3ThatHeedsNoConditions(ReadOnlyContract):
    """A server that lets every put through, as a client meets it that does not send the header."""

    @pytest.fixture
    def root(self, bucket: str) -> str:
        return f"s3://{bucket}/t"

    @pytest.fixture
    def file(self, root: str, s3_options: dict[str, Any]) -> str:
        store_for(root, s3_options)[0].put_if_absent(f"{root}/1.json", b"content")
        return "1.json"

    @pytest.fixture
    def store(
        self, root: str, file: str, s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> LogStore:
        store = store_for(root, s3_options)[0]
        assert isinstance(store, S3LogStore)
        put = store._fs.pipe_file
        monkeypatch.setattr(store._fs, "pipe_file", lambda path, data, mode: put(path, data))
        return store
