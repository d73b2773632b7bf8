"""A server on the loopback interface that speaks S3's protocol, made of moto's.

It counts the requests, may answer late, and a test may tell it to fail. It decides on one request at a time:
a conditional put is then as atomic as S3's own.

    python -m tests.object_store.server [LATENCY_MS]   # serves until its standard input ends; prints the URL
"""

from __future__ import annotations

import io
import socket
import struct
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlencode

import moto.server
from moto.backends import get_backend
from werkzeug.serving import WSGIRequestHandler, make_server

Operation = Literal[
    "CopyObject",
    "CreateBucket",
    "DeleteObject",
    "DeleteObjects",
    "GetObject",
    "HeadBucket",
    "HeadObject",
    "ListObjectsV2",
    "PutObject",
    "another",
]
"""S3's name of a request; requests that only s3fs makes have none here."""

Failure = Literal["503", "500", "reset", "lost reply", "503 afterwards", "500 afterwards", "half"]
"""A refusal or a broken connection before anything is done; a lost or a wrong reply after it was done; the
first half of a reply's body."""

_CODES = {
    "403": ("403 FORBIDDEN", "AccessDenied", "Access Denied"),
    "500": ("500 INTERNAL SERVER ERROR", "InternalError", "We encountered an internal error."),
    "503": ("503 SERVICE UNAVAILABLE", "SlowDown", "Reduce your request rate."),
}

# moto denies who signs nothing, and does not check what is signed.
_AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"


@dataclass
class Fault:
    """The next `times` requests of an operation, whose path holds `path`, fail."""

    operation: Operation
    failure: Failure
    times: int = 1
    path: str = ""


def object_store_settings(endpoint: str) -> dict[str, str]:
    """Hadoop's settings by which ObjectStore.java serves `s3a:` and reaches a server."""
    return {
        "fs.s3a.impl": "deltaflow.tests.ObjectStore",
        "fs.AbstractFileSystem.s3a.impl": "deltaflow.tests.ObjectStore$Context",
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.path.style.access": "true",
    }


class ObjectStoreServer:
    """Serves moto's S3 while it is open. A request's path is `/bucket/key`, of a listing `/bucket/prefix`."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        """What each request waits before it is answered."""
        self.latencies_s: dict[Operation, float] = {}
        """What the requests of an operation wait instead."""
        self.listed_at_once = 1_000
        """How many keys come in a page of a listing at most."""
        self.denied: set[str] = set()
        """Paths at and below which access is denied; of one with a slash at its end, the listing alone."""
        self.denied_operations: set[Operation] = set()
        self.ignores_conditions = False
        """Whether a put replaces an object though its condition says that none may be there."""
        self.requests: list[tuple[Operation, str]] = []
        """Operation and path of every request, in order."""
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._deciding = threading.Lock()
        self._moto = moto.server.create_backend_app("s3")
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def settings(self) -> dict[str, str]:
        """Those of `object_store_settings` for this server."""
        return object_store_settings(self.endpoint)

    def storage_options(self) -> dict[str, str]:
        """The options by which deltalake reaches this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def new_bucket(self) -> str:
        """The name of a bucket that no test had before: Hadoop keeps a file system by its authority."""
        name = f"b{uuid.uuid4().hex}"
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")).close()
        self.counted()
        return name

    def keys(self, bucket: str) -> list[str]:
        """All keys of a bucket, past the counting and the faults."""
        with self._deciding:
            return sorted(get_backend("s3")["123456789012"]["aws"].buckets[bucket].keys)

    def content(self, bucket: str, key: str) -> bytes:
        """An object, past the counting and the faults."""
        with self._deciding:
            return bytes(get_backend("s3")["123456789012"]["aws"].buckets[bucket].keys[key].value)

    def counted(self) -> Counter[str]:
        """How many requests of each operation came since this was last asked."""
        with self.lock:
            counted: Counter[str] = Counter(operation for operation, _ in self.requests)
            self.requests.clear()
        return counted

    def fail(self, operation: Operation, failure: Failure, times: int = 1, path: str = "") -> None:
        self.faults.append(Fault(operation, failure, times, path))

    def take_fault(self, operation: Operation, path: str) -> Failure | None:
        with self.lock:
            for fault in self.faults:
                if fault.operation == operation and fault.times > 0 and fault.path in path:
                    fault.times -= 1
                    return fault.failure
        return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        path = environ["PATH_INFO"].encode("latin-1").decode()
        operation = _operation(environ, query, path)
        if operation == "ListObjectsV2":
            path = f"{path.rstrip('/')}/{query.get('prefix', '')}"
            asked = int(query.get("max-keys", self.listed_at_once))
            environ["QUERY_STRING"] = urlencode({**query, "max-keys": min(asked, self.listed_at_once)})
        with self.lock:
            self.requests.append((operation, path))
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        time.sleep(self.latencies_s.get(operation, self.latency_s))
        failure = self.take_fault(operation, path)
        if failure == "reset":
            _break(environ)
        if failure in ("503", "500"):
            return _refuse(failure, operation, start_response)
        if operation in self.denied_operations or any(
            path == denied or path.startswith(f"{denied}/") for denied in self.denied
        ):
            return _refuse("403", operation, start_response)
        environ.setdefault("HTTP_AUTHORIZATION", _AUTHORIZATION)
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        status, headers, body = self._decided(environ)
        if failure == "lost reply":
            _break(environ)
        if failure in ("503 afterwards", "500 afterwards"):
            return _refuse(failure[:3], operation, start_response)
        if failure == "half":
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
            body = body[: len(body) // 2]
        start_response(status, headers)
        return [body]

    def _decided(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """moto's status, headers and body."""
        found: list[Any] = []
        with self._deciding:
            answer = self._moto(environ, lambda status, headers, _=None: found.extend((status, headers)))
            body = b"".join(answer)
            if hasattr(answer, "close"):
                answer.close()
        return found[0], found[1], body


def _operation(environ: dict[str, Any], query: dict[str, str], path: str) -> Operation:
    is_bucket = path.count("/") == 1 or (path.endswith("/") and path.count("/") == 2)
    match environ["REQUEST_METHOD"]:
        case "GET":
            return "ListObjectsV2" if is_bucket and "list-type" in query else "GetObject"
        case "HEAD":
            return "HeadBucket" if is_bucket else "HeadObject"
        case "POST" if "delete" in query:
            return "DeleteObjects"
        case "DELETE":
            return "DeleteObject"
        case "PUT" if "HTTP_X_AMZ_COPY_SOURCE" in environ:
            return "CopyObject"
        case "PUT":
            return "CreateBucket" if is_bucket else "PutObject"
    return "another"


def _refuse(code: str, operation: Operation, start_response: Any) -> list[bytes]:
    status, name, message = _CODES[code]
    body = f"<Error><Code>{name}</Code><Message>{message}</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [b""] if operation.startswith("Head") else [body]


def _break(environ: dict[str, Any]) -> None:
    """Resets the connection."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    raise ConnectionResetError("A test resets the connection.")


class _Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True

    def log(self, *arguments: object) -> None:
        return

    def connection_dropped(self, error: BaseException, environ: object = None) -> None:
        # Otherwise it would wait for the next request, and hold the connection.
        self.close_connection = True


if __name__ == "__main__":
    with ObjectStoreServer() as server:
        print(server.endpoint, server.new_bucket(), flush=True)
        server.latency_s = float(sys.argv[1]) / 1_000 if len(sys.argv) > 1 else 0.0
        sys.stdin.read()
