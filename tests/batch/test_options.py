"""Options of reads and writes: the path."""

from __future__ import annotations

import pytest

from deltaflow.batch.options import required_path
from deltaflow.errors import DeltaIllegalArgumentException, StoreError


@pytest.mark.parametrize("path", ["/t", "file:/t", "file:///a b%20c/t", "some/t"])
def test_local_paths_are_taken_as_they_are(path: str) -> None:
    assert required_path(path) == path


@pytest.mark.parametrize("path", ["abfss://c@a/t", "gs://b/t", "memory:/t"])
def test_places_that_spark_cannot_reach_are_refused_though_the_log_core_reaches_some(path: str) -> None:
    with pytest.raises(StoreError, match=r"has no file system for \w+:\. Add the connector") as raised:
        required_path(path)
    assert raised.value.error_class == "DELTA_UNSUPPORTED_STORE"
    assert path in str(raised.value)


@pytest.mark.parametrize("path", [None, ""])
def test_no_path(path: str | None) -> None:
    with pytest.raises(DeltaIllegalArgumentException, match="'path' is not specified"):
        required_path(path)
