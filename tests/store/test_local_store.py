from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from deltaflow.errors import StoreError
from deltaflow.store import LocalLogStore

STORE = LocalLogStore()


def test_a_put_is_listed_and_read(tmp_path: Path) -> None:
    STORE.make_directory(f"{tmp_path}/a/b")
    STORE.put_if_absent(f"{tmp_path}/a/b/1.json", b"one")
    STORE.put_if_absent(f"{tmp_path}/a/b/2.json", b"two!")
    statuses = STORE.list_from(f"{tmp_path}/a/b", "1.json")
    assert [(status.name, status.size) for status in statuses] == [("1.json", 3), ("2.json", 4)]
    assert statuses[0].modification_time_ms == (tmp_path / "a/b/1.json").stat().st_mtime_ns // 1_000_000
    assert STORE.read(f"{tmp_path}/a/b/2.json") == b"two!"
    assert [status.name for status in STORE.list_from(f"{tmp_path}/a/b", "2")] == ["2.json"]


def test_the_second_put_of_a_name_fails_and_changes_nothing(tmp_path: Path) -> None:
    STORE.put_if_absent(f"{tmp_path}/1.json", b"one")
    with pytest.raises(FileExistsError):
        STORE.put_if_absent(f"{tmp_path}/1.json", b"other")
    assert STORE.read(f"{tmp_path}/1.json") == b"one"
    assert os.listdir(tmp_path) == ["1.json"]


def test_an_etag_tells_a_replaced_file(tmp_path: Path) -> None:
    STORE.put_if_absent(f"{tmp_path}/1.json", b"one")
    before = STORE.list_from(str(tmp_path), "")[0]
    assert STORE.list_from(str(tmp_path), "")[0] == before
    (tmp_path / "1.json").rename(tmp_path / "kept.json")
    STORE.put_if_absent(f"{tmp_path}/1.json", b"two")
    assert STORE.list_from(str(tmp_path), "")[0].etag != before.etag


def test_the_file_is_synced_before_it_has_its_name_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        fsync(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        visible = sorted(os.listdir(tmp_path / "log")) if (tmp_path / "log").exists() else []
        synced.append((os.path.relpath(name, tmp_path), visible))

    monkeypatch.setattr(os, "fsync", record)
    STORE.make_directory(f"{tmp_path}/log")
    STORE.put_if_absent(f"{tmp_path}/log/1.json", b"one")
    (parent, _), (file, during), (directory, after) = synced
    assert parent == "."
    assert file.startswith("log/.1.json.")
    assert "1.json" not in during
    assert directory == "log"
    assert after == ["1.json"]


def test_a_crash_during_the_write_leaves_only_a_hidden_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", crash)
        patch.setattr(os, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            STORE.put_if_absent(f"{tmp_path}/1.json", b"one")
    assert [name[0] for name in os.listdir(tmp_path)] == ["."]
    assert STORE.list_from(str(tmp_path), "") == []
    STORE.put_if_absent(f"{tmp_path}/1.json", b"again")
    assert STORE.read(f"{tmp_path}/1.json") == b"again"


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync" if call == "fsync" else "link", full)
    with pytest.raises(StoreError, match="No space left"):
        STORE.put_if_absent(f"{tmp_path}/1.json", b"one")
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreError, match="hard links"):
        STORE.put_if_absent(f"{tmp_path}/1.json", b"one")
    assert os.listdir(tmp_path) == []


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        STORE.read(f"{tmp_path}/1.json")
    with pytest.raises(FileNotFoundError):
        STORE.list_from(f"{tmp_path}/none", "")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_cannot_be_looked_at_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    gone = [f"{tmp_path}/{name}" for name in ("none", "file/none", "loop", "x" * 300, "a\0b")]
    assert STORE.absent([f"{tmp_path}/file", *gone, str(tmp_path)]) == gone

    def fail(path: str, *args: object, **options: object) -> os.stat_result:
        raise OSError(code, os.strerror(code), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail)
        with pytest.raises(StoreError, match="Cannot look at"):
            STORE.absent([f"{tmp_path}/file"])


def test_a_file_in_the_way_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for directory in (f"{tmp_path}/file", f"{tmp_path}/file/log"):
        with pytest.raises(NotADirectoryError):
            STORE.list_from(directory, "")
        with pytest.raises(NotADirectoryError):
            STORE.put_if_absent(f"{directory}/1.json", b"one")
        with pytest.raises(NotADirectoryError):
            STORE.make_directory(directory)


def test_a_put_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        STORE.put_if_absent(f"{tmp_path}/log/1.json", b"one")
    assert not (tmp_path / "log").exists()


def test_a_directory_in_the_way_of_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "1.json").mkdir()
    with pytest.raises(StoreError, match=r"Cannot read .*1\.json"):
        STORE.read(f"{tmp_path}/1.json")


def test_hadoops_checksum_of_a_file_goes_with_it(tmp_path: Path) -> None:
    """Hadoop's local file system refuses to read a file that does not fit its checksum."""
    store = LocalLogStore()
    for name in ("replaced", "deleted"):
        (tmp_path / name).write_bytes(b"by Hadoop")
        (tmp_path / f".{name}.crc").write_bytes(b"its checksum")
    with store.open_output(str(tmp_path / "replaced")) as file:
        file.write(b"by us")
    store.delete(str(tmp_path / "deleted"))
    assert [file.name for file in tmp_path.iterdir()] == ["replaced"]


@pytest.mark.parametrize("put", [LocalLogStore.put_if_absent, LocalLogStore.put_auxiliary_if_absent])
def test_a_new_file_has_no_checksum_of_one_that_was_deleted(tmp_path: Path, put: Any) -> None:
    """As where somebody deletes the last commit of a log by hand."""
    (tmp_path / ".5.json.crc").write_bytes(b"by Hadoop")
    put(LocalLogStore(), str(tmp_path / "5.json"), b"by us")
    assert [file.name for file in tmp_path.iterdir()] == ["5.json"]
