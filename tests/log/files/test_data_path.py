from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.data_path import DataPath, absolute_uris, complete_paths, resolve_data_path
from deltaflow.log.files.file_key import logical_key


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t" / "p=1").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_bytes(b"")
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("a.parquet", "a.parquet"),
        ("p=1/a%20b.parquet", "p=1/a b.parquet"),
        ("p=%2531/x", "p=%31/x"),
        ("a%3Ab", "a:b"),
        ("%C3%BC/+", "ü/+"),
        ("not/there/yet", "not/there/yet"),
    ],
)
def test_a_relative_path_is_decoded_and_in_the_table(table: Path, given: str, place: str) -> None:
    assert resolve_data_path(str(table), given) == DataPath(f"{table}/{place}", deletable=True)
    assert resolve_data_path("s3://b/t", given) == DataPath(f"s3://b/t/{place}", deletable=True)


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "FILE:"])
def test_an_absolute_path_into_the_table_is_in_it(table: Path, prefix: str) -> None:
    assert resolve_data_path(str(table), f"{prefix}{table}/a%20b") == DataPath(f"{table}/a b", deletable=True)


@pytest.mark.parametrize(
    "given",
    [
        "../outside/kept",
        "p=1/../../outside/kept",
        "%2E%2E/outside/kept",
        "..%2Foutside%2Fkept",
        "{parent}/outside/kept",
        "file:{parent}/outside/kept",
        "file://{parent}/outside/kept",
        "file://host{parent}/t/a",
        "{parent}/t2/a",
        "{parent}/t",
        "{parent}/t/",
        "p=1/..",
        "_delta_log/00000000000000000000.json",
        "p=1/../_delta_log/00000000000000000000.json",
        "s3://bucket/a",
        "/etc/passwd",
    ],
)
def test_what_is_outside_of_the_table_is_not_deletable(table: Path, given: str) -> None:
    found = resolve_data_path(str(table), given.format(parent=table.parent))
    assert not found.deletable


def test_a_link_is_followed_to_the_directory_of_the_file(table: Path) -> None:
    (table / "out").symlink_to(table.parent / "outside")
    (table / "in").symlink_to(table / "p=1")
    (table / "link.parquet").symlink_to(table.parent / "outside" / "kept")
    (table.parent / "t-by-link").symlink_to(table)
    assert not resolve_data_path(str(table), "out/kept").deletable
    assert not resolve_data_path(str(table), "out/../kept").deletable
    assert resolve_data_path(str(table), "in/a").deletable
    # Deleting the link itself takes nothing from outside.
    assert resolve_data_path(str(table), "link.parquet").deletable
    assert resolve_data_path(str(table.parent / "t-by-link"), "p=1/a").deletable
    assert resolve_data_path(str(table.parent / "t-by-link"), f"{table}/p=1/a").deletable


@pytest.mark.parametrize(
    ("given", "place", "deletable"),
    [
        ("s3a://b/t/x", "s3://b/t/x", True),
        ("s3://b/t/a%20b", "s3://b/t/a b", True),
        ("s3://b/t2/x", "s3://b/t2/x", False),
        ("s3://other/t/x", "s3://other/t/x", False),
        ("s3://b/t/../u/x", "s3://b/t/../u/x", False),
        ("../u/x", "s3://b/t/../u/x", False),
        ("a//x", "s3://b/t/a//x", False),
        ("_delta_log/x", "s3://b/t/_delta_log/x", False),
        ("/t/x", "s3://b/t/x", True),
        ("/u/x", "s3://b/u/x", False),
        ("file:/t/x", "file:/t/x", False),
    ],
)
def test_paths_of_a_table_on_s3(given: str, place: str, deletable: bool) -> None:
    assert resolve_data_path("s3://b/t", given) == DataPath(place, deletable)


@pytest.mark.parametrize("given", ["s3a://b/t/x", "s3://b/t/x", "s3n://b/t/x", "/t/x", "x"])
def test_a_place_is_named_as_the_table_is(given: str) -> None:
    assert resolve_data_path("s3a://b/t", given) == DataPath("s3a://b/t/x", deletable=True)


@pytest.mark.parametrize("root", ["hdfs://host/data/t", "viewfs:/data/t"])
def test_a_path_from_the_root_is_in_the_file_system_of_the_table(root: str) -> None:
    file_system = root.removesuffix("/data/t")
    assert resolve_data_path(root, "/data/t/x") == DataPath(f"{root}/x", deletable=True)
    paths = pa.chunked_array([["/data/u/x", "y"]])
    assert complete_paths(root, paths).to_pylist() == [f"{file_system}/data/u/x", f"{root}/y"]
    assert absolute_uris(root, paths).to_pylist() == [f"{file_system}/data/u/x", f"{root}/y"]
    assert logical_key("/data/t/x", None, root) == "x"


@pytest.mark.parametrize("given", ["", "%00", "a%FF"])
def test_what_is_no_path(table: Path, given: str) -> None:
    with pytest.raises(CorruptLogError, match=r"no (path|URI)"):
        resolve_data_path(str(table), given)
