from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from deltaflow.store import location, store_for


@pytest.fixture(autouse=True)
def no_stores_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves paths to fsspec, as in a process without Spark, whatever tests ran before."""
    monkeypatch.setattr(location, "_stores_of_spark", None)


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """Storage options of an S3 server on the loopback interface."""
    pytest.importorskip("moto.server", reason="moto and s3fs belong to the extra dev")
    from tests.object_store.server import ObjectStoreServer

    with ObjectStoreServer() as server:
        yield {
            "key": "test",
            "secret": "test",
            "endpoint_url": server.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }


@pytest.fixture
def bucket(s3_options: dict[str, Any]) -> str:
    """A new bucket of that server."""
    name = f"b{uuid.uuid4().hex}"
    store, _ = store_for(f"s3://{name}/t", s3_options)
    store._fs.call_s3("create_bucket", Bucket=name)  # type: ignore[attr-defined]
    return name
