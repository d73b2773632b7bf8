"""Credentials of a job are in none of the files that it writes, nor in its logs, errors and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog
from deltaflow.store import store_for

SECRET = "hunter2-of-the-tests"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Iterator[Callable[[object], None]]:
    """Takes objects whose texts lack the secret, as do all files and lines of logs afterwards."""
    caplog.set_level(logging.DEBUG, logger="deltaflow")
    texts: list[str] = []
    yield lambda value: texts.append(f"{value} {value!r}")
    assert [text for text in texts if SECRET in text] == []
    assert SECRET not in caplog.text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_storage_options(
    tmp_path: Path, told: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AZURE_STORAGE_KEY", SECRET)
    options = {"secret": SECRET, "key": SECRET, "client_kwargs": {"password": SECRET}}
    for path in ("memory://credentials/t", "s3://bucket-of-nobody/t"):
        store, root = store_for(path, storage_options=options if path.startswith("s3") else {})
        told(store)
        told(root)
    with pytest.raises(DeltaError) as error:
        store_for("nothing://host/t", storage_options=options)
    told(error.value)
    log = DeltaLog.for_table(str(tmp_path / "t"), storage_options={"auto_mkdir": True})
    told(log)
