from __future__ import annotations

import threading
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
    """Storage options of an S3 server on the loopback interface, which decides on one request at a time."""
    moto = pytest.importorskip("moto.server", reason="moto and s3fs belong to the extra dev")
    from werkzeug.serving import WSGIRequestHandler, make_server

    class SilentHandler(WSGIRequestHandler):
        def log(self, *arguments: object) -> None:
            return

    application = moto.DomainDispatcherApplication(moto.create_backend_app)
    # One thread: a conditional put is then as atomic as S3's own.
    server = make_server("127.0.0.1", 0, application, threaded=False, request_handler=SilentHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {
            "key": "test",
            "secret": "test",
            "endpoint_url": f"http://127.0.0.1:{server.server_port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def bucket(s3_options: dict[str, Any]) -> str:
    """A new bucket of that server."""
    name = f"b{uuid.uuid4().hex}"
    store, _ = store_for(f"s3://{name}/t", s3_options)
    store._fs.call_s3("create_bucket", Bucket=name)  # type: ignore[attr-defined]
    return name
