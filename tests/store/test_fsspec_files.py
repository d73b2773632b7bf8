"""Entries of listings by fsspec's file systems."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from deltaflow.errors import StoreError
from deltaflow.store.fsspec_files import file_status
from deltaflow.store.fsspec_store import FsspecLogStore

FIRST_MS = 2_150_000_000_000


@pytest.mark.parametrize("microseconds", [0, 1, 999])
def test_every_millisecond_is_that_of_the_file_system(microseconds: int) -> None:
    """From 2038 on, floating-point numbers of seconds are too coarse for some of them."""
    times = [FIRST_MS + 1_000_003 * i for i in range(2_000)]
    for time_ms in times:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms, microseconds=microseconds)
        entries: list[dict[str, Any]] = [{"updated": moment.isoformat()}, {"last_modified": moment}]
        if microseconds == 0:
            entries.append({"modificationTime": time_ms})
        found = [file_status({"name": "t/f", "size": 1, **entry}) for entry in entries]
        assert [status.modification_time_ms for status in found] == [time_ms] * len(entries)


class _FailingFiles(MemoryFileSystem):
    """Fails to tell about a file. Then fsspec's own `exists` says that it is not there."""

    protocol = "failing"
    store: ClassVar[dict[str, Any]] = {}

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if path.endswith("1.json"):
            raise ConnectionResetError(104, "reset by peer")
        return dict(super().info(path, **options))


def test_a_file_that_cannot_be_looked_at_counts_neither_as_absent_nor_as_free() -> None:
    store = FsspecLogStore(_FailingFiles(), single_writer=True)
    store.put_if_absent("/t/0.json", b"first")
    _FailingFiles().pipe_file("/t/1.json", b"a commit of another writer")
    assert store.absent(["/t/0.json", "/t/2.json"]) == ["/t/2.json"]
    for call in (
        lambda: store.absent(["/t/1.json"]),
        lambda: store.put_if_absent("/t/1.json", b"mine"),
        lambda: store.delete("/t/1.json"),
    ):
        with pytest.raises(StoreError, match="reset by peer"):
            call()
    assert store.read("/t/1.json") == b"a commit of another writer"


class _CopyingFiles(MemoryFileSystem):
    """Renames by copies, as most object stores."""

    protocol = "copying"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


class _DeafFiles(_CopyingFiles):
    """Only its answer says that a rename did not take place, as that of WebHDFS where a file is there."""

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        return


@pytest.mark.parametrize("directory", ["t", "a[1]", "a*b", "a?b", "{a}"])
def test_a_file_gets_its_name_in_any_directory(directory: str) -> None:
    store, files = FsspecLogStore(_CopyingFiles(), single_writer=True), _CopyingFiles.store
    files.clear()
    store.put_if_absent(f"memory://{directory}/0.json", b"first")
    assert {path: file.getvalue() for path, file in files.items()} == {f"/{directory}/0.json": b"first"}


def test_a_file_that_does_not_get_its_name_is_an_error() -> None:
    store = FsspecLogStore(_DeafFiles(), single_writer=True)
    _DeafFiles.store.clear()
    with pytest.raises(StoreError, match=r"did not get the name 0\.json"):
        store.put_if_absent("memory://t/0.json", b"first")
    assert not _DeafFiles.store


class _RememberingFiles(MemoryFileSystem):
    """Remembers listings by paths without a scheme, which it takes off for a listing alone."""

    protocol = "remembering"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        own = self._strip_protocol(path)
        if own not in self.dircache:
            self.dircache[own] = super().ls(path, detail=True, **options)
        return list(self.dircache[own])

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        own = self._strip_protocol(path)
        # A remembered listing of the directory `own` is no answer about it.
        found = [entry for entry in self._ls_from_cache(own) or () if entry["name"] == own]
        return dict(found[0] if found else super().info(path, **options))

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self.dircache.clear()
        else:
            self.dircache.pop(path, None)


def test_what_others_write_after_a_listing_is_there() -> None:
    files, root = _RememberingFiles(), "memory://t"
    store = FsspecLogStore(files, single_writer=True)
    store.put_if_absent(f"{root}/0.json", b"first")
    for name in ("1.json", "2.json", "3.json"):
        assert name not in [status.name for status in store.list_from(root, "")]
        _RememberingFiles.store[f"/t/{name}"] = MemoryFile(None, f"/t/{name}", b"a commit of another writer")
        match name:
            case "1.json":
                assert name in [status.name for status in store.list_from(root, "")]
            case "2.json":
                assert name in [entry.name for entry in store.data_directory(root).entries("")]
            case "3.json":
                with pytest.raises(FileExistsError):
                    store.put_if_absent(f"{root}/{name}", b"mine")
