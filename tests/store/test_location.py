from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.store import (
    FsspecLogStore,
    LocalLogStore,
    MemoryLogStore,
    S3LogStore,
    directories_above,
    is_same_directory,
    scheme_of,
    store_for,
    table_path,
)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("//data//t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/t/", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("FILE:/data/t", "/data/t"),
        ("/data/a b%20c/ü", "/data/a b%20c/ü"),
        ("file:/data/a b%20c", "/data/a b%20c"),
        ("/data/x/../t", "/data/t"),
        ("/", "/"),
    ],
)
def test_local_paths_become_absolute_and_stay_undecoded(given: str, path: str) -> None:
    assert table_path(given) == path
    assert store_for(given) == (LocalLogStore(), path)


def test_a_relative_path_is_taken_from_the_working_directory() -> None:
    assert table_path("some/t") == f"{os.getcwd()}/some/t"


@pytest.mark.parametrize(
    "given", ["s3://bucket/t", "s3a://bucket/t", "hdfs://host/t", "memory:/t", "file://host/t"]
)
def test_places_that_are_not_local_have_no_local_path(given: str) -> None:
    with pytest.raises(StoreError) as raised:
        table_path(given)
    assert given.split(":")[0] in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        "webhdfs://host:9870/a@b",
        "webhdfs://[::1]:9870/a@b",
        "s3a://arn:aws:s3:eu-central-1:1:accesspoint/a@b",
        "abfss://box@account.example/a:b@c",
        "s3a://bucket/a:b@c",
    ],
)
def test_paths_with_an_at_sign_and_no_password(given: str) -> None:
    with pytest.raises(StoreError, match="Spark cannot reach"):
        table_path(given)


@pytest.mark.parametrize("given", ["", "  "])
def test_no_path(given: str) -> None:
    for function in (table_path, store_for):
        with pytest.raises(DeltaIllegalArgumentException, match="'path' is not specified"):
            function(given)


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ("s3a://b/t", "s3"),
        ("s3n://b/t", "s3"),
        ("S3://b/t", "s3"),
        ("gs://b/t", "gs"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs"),
        ("hdfs://host/t", "hdfs"),
        ("file:/t", "file"),
        ("/t", None),
        ("a b/c:d", None),
    ],
)
def test_schemes_of_hadoop_have_names_in_fsspec(given: str, scheme: str | None) -> None:
    assert scheme_of(given) == scheme


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("s3://bucket/a/t", "s3://bucket/a/t"),
        ("s3a://bucket//a//t/", "s3://bucket/a/t"),
        ("s3n://bucket/a b%20c", "s3://bucket/a b%20c"),
        ("s3a://bucket", "s3://bucket"),
    ],
)
def test_a_path_on_s3(given: str, path: str) -> None:
    pytest.importorskip("s3fs")
    store, found = store_for(given, {"anon": True})
    assert isinstance(store, S3LogStore)
    assert found == path


@pytest.mark.parametrize("given", ["memory://a/t", "memory:/a/t", "memory:///a/t/"])
def test_a_path_in_memory(given: str) -> None:
    store, path = store_for(given)
    assert isinstance(store, MemoryLogStore)
    assert path == "memory:///a/t"


def test_equal_places_are_equal_and_others_are_not() -> None:
    pytest.importorskip("s3fs")
    options: dict[str, Any] = {"key": "k", "secret": "s"}
    places = [
        store_for("s3a://bucket/t", options),
        store_for("s3a://bucket/t", {**options, "key": "other"}),
        store_for("s3a://bucket/t", options, single_writer=True),
        store_for("s3a://bucket/u", options),
        store_for("memory://bucket/t"),
        store_for("/bucket/t"),
        store_for("/bucket/t", single_writer=True),
    ]
    assert store_for("s3://bucket/t/", options) == places[0]
    assert store_for("file:/bucket/t") == places[5]
    assert len(set(places)) == len(places)


def test_a_path_on_s3_without_a_bucket() -> None:
    pytest.importorskip("s3fs")
    with pytest.raises(StoreError, match="names no bucket"):
        store_for("s3:/t", {"anon": True})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_path_that_s3fs_takes_for_a_version_of_another(scheme: str) -> None:
    pytest.importorskip("s3fs")
    with pytest.raises(StoreError, match=rf"takes it for a version of {scheme}://bucket/a\. Give"):
        store_for(f"{scheme}://bucket/a?versionId=3/t", {"anon": True})


def test_hdfs_without_libhdfs_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/nowhere")
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    with pytest.raises(StoreError, match=r"Cannot reach hdfs://host:9000/t: .*libhdfs of a Hadoop") as raised:
        store_for("hdfs://host:9000/t")
    assert raised.value.error_class == "DELTA_UNSUPPORTED_STORE"


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(StoreError, match=r'Install s3fs.*pip install "deltaflow\[s3\]"'):
        store_for("s3a://bucket/t")


def test_an_unknown_scheme() -> None:
    with pytest.raises(StoreError, match="nonsense"):
        store_for("nonsense://host/t")


def test_other_file_systems_of_fsspec_are_for_reading() -> None:
    pytest.importorskip("aiohttp")
    store, path = store_for("http://host/t/")
    assert type(store) is FsspecLogStore
    assert path == "http://host/t"


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/a/b", ["/a", "/"]),
        ("hdfs://host/a/b", ["hdfs://host/a", "hdfs://host"]),
        ("hdfs://host", []),
        ("viewfs:/a/b/c", ["viewfs:/a/b", "viewfs:/a", "viewfs:"]),
    ],
)
def test_the_directories_above_a_path(path: str, above: list[str]) -> None:
    assert list(directories_above(path)) == above


def test_a_directory_is_the_same_by_every_name(tmp_path: Path) -> None:
    table, other, link = tmp_path / "table", tmp_path / "other", tmp_path / "link"
    table.mkdir()
    other.mkdir()
    link.symlink_to(table)
    assert is_same_directory(str(link), str(table))
    assert is_same_directory(str(tmp_path / "none"), str(tmp_path / "none"))
    assert not is_same_directory(str(other), str(table))
    assert not is_same_directory(str(tmp_path / "none"), str(table))
    assert is_same_directory(str(link / "none"), str(table / "none"))
