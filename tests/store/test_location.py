from __future__ import annotations

import os

import pytest

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.store import store_for, table_path


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
def test_paths_become_absolute_and_stay_undecoded(given: str, path: str) -> None:
    assert table_path(given) == path
    assert store_for(given)[1] == path


def test_a_relative_path_is_taken_from_the_working_directory() -> None:
    assert table_path("some/t") == f"{os.getcwd()}/some/t"


@pytest.mark.parametrize(
    "given", ["s3://bucket/t", "s3a://bucket/t", "hdfs://host/t", "memory:/t", "file://host/t"]
)
def test_other_places_are_refused(given: str) -> None:
    with pytest.raises(StoreError) as raised:
        store_for(given)
    assert given.split(":")[0] in str(raised.value)


@pytest.mark.parametrize("given", ["", "  "])
def test_no_path(given: str) -> None:
    with pytest.raises(DeltaIllegalArgumentException, match="'path' is not specified"):
        table_path(given)
