"""Directories of data files on Hadoop's file systems: what may be deleted, and what is."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import DataDirectory
from tests.object_store.server import ObjectStoreServer
from tests.webhdfs import WebHdfsServer

pytestmark = pytest.mark.spark


def directory_at(stores: StoresOfSpark, path: str) -> DataDirectory:
    found = stores.open(path, False)
    assert found is not None
    store, root = found
    return store.data_directory(root)


def test_a_failed_deletion_deletes_no_other_file(
    tmp_path: Path, stores: StoresOfSpark, no_pauses: None
) -> None:
    """The name that could not be deleted has a line end, and another file's name after it."""
    (tmp_path / "t" / "a\nb" / "inner").mkdir(parents=True)
    (tmp_path / "t" / "b").write_bytes(b"content")
    _, failures = directory_at(stores, f"file:{tmp_path}/t").delete("", ["a\nb"])
    assert [failure.file for failure in failures] == [f"file:{tmp_path}/t/a\nb"]
    assert (tmp_path / "t" / "b").exists()


@pytest.mark.parametrize("key", ["t/./f", "t/../f", "t/."])
def test_keys_with_steps_are_no_entries(
    objects_server: ObjectStoreServer, bucket: str, objects: StoresOfSpark, key: str
) -> None:
    """A walk through the directories would list the first one again and again."""
    for name in ("t/a/f", key):
        put = urllib.request.Request(f"{objects_server.endpoint}/{bucket}/{name}", method="PUT")
        urllib.request.urlopen(put).close()
    assert objects_server.keys(bucket) == sorted(["t/a/f", key])
    assert {entry.name for entry in directory_at(objects, f"s3a://{bucket}/t").entries("")} == {"a"}


def test_a_place_is_known_by_its_mount_point_and_behind_it(
    server: WebHdfsServer, stores_of: Callable[..., StoresOfSpark]
) -> None:
    (server.directory / "warehouse" / "t").mkdir(parents=True)
    cluster = f"m{uuid.uuid4().hex}"
    stores = stores_of({f"fs.viewfs.mounttable.{cluster}.link./data": f"{server.url}/warehouse"})
    by_mount_point, behind = f"viewfs://{cluster}/data", f"{server.url}/warehouse"
    for path in (by_mount_point, behind):
        directory = directory_at(stores, f"{path}/t")
        assert directory.real_place(f"{by_mount_point}/t/f") == "f"
        assert directory.real_place(f"{behind}/t/f") == "f"
        assert directory.real_place(f"{by_mount_point}/none/f") is None
        assert directory.real_place(f"{behind}/none/f") is None
