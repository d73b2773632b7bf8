"""A server on the loopback interface that speaks WebHDFS' REST interface and keeps its files in a directory.

It answers what Hadoop's own client asks: the redirects of OPEN and CREATE included, and a file that is being
created can be seen before it is whole, as on HDFS. It counts the requests, and a test may tell it to fail.

    python -m tests.webhdfs DIRECTORY [LATENCY_MS]     # serves until its standard input ends; prints the URL
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

_PREFIX = "/webhdfs/v1"
_LISTED_AT_ONCE = 1_000

Failure = Literal["503", "reset", "lost reply"]
"""A refusal before anything is done; a broken connection before, or after it was done."""


class Refusal(Exception):
    """What the server refuses, by the Java exception that HDFS has for it."""

    def __init__(self, status: int, java_class: str, message: str) -> None:
        super().__init__(message)
        self.status, self.java_class = status, java_class


@dataclass
class Fault:
    """The next `times` requests of an operation, whose path holds `path`, fail."""

    operation: str
    failure: Failure
    times: int = 1
    path: str = ""


class WebHdfsServer:
    """Serves `directory` while it is open; a directory's listing comes `listed_at_once` names at a time."""

    def __init__(self, directory: Path, *, listed_at_once: int = _LISTED_AT_ONCE) -> None:
        self.directory = directory
        self.listed_at_once = listed_at_once
        self.latency_s = 0.0
        """What each request waits before it is answered."""
        self.denied: set[str] = set()
        """Paths at and below which every access is denied."""
        self.ignores_rename_options = False
        """Whether RENAME does as that of HttpFS, which knows no options and says whether it renamed."""
        self.requests: list[tuple[str, str]] = []
        """Operation and path of every request, in order; redirected ones once."""
        self.requests_of: dict[str, set[tuple[str, str]]] = {}
        """Operations and paths by the agent that asked: the first word of `-Dhttp.agent` of its JVM."""
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._file_ids: dict[int, int] = {}
        self._next_file_id = itertools.count(16_386)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.of = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"webhdfs://{self.authority}"

    def counted(self) -> Counter[str]:
        """How many requests of each operation came since this was last asked."""
        with self.lock:
            counted = Counter(operation for operation, _ in self.requests)
            self.requests.clear()
        return counted

    def file_id(self, inode: int, *, is_new: bool = False) -> int:
        """An id that no other file ever had, as HDFS has it; inodes are used again."""
        with self.lock:
            if is_new or inode not in self._file_ids:
                self._file_ids[inode] = next(self._next_file_id)
            return self._file_ids[inode]

    def fail(self, operation: str, failure: Failure, times: int = 1, path: str = "") -> None:
        self.faults.append(Fault(operation, failure, times, path))

    def take_fault(self, operation: str, path: str) -> Failure | None:
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


class _Server(ThreadingHTTPServer):
    of: WebHdfsServer
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients that a test kills, and connections that a fault breaks.
        return


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *arguments: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer()

    do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        of = self.server.of
        url = urlsplit(self.path)
        # Hadoop's client leaves the UTF-8 bytes of a path as they are.
        path = unquote(url.path.removeprefix(_PREFIX).encode("latin-1").decode()) or "/"
        self.query = {name.lower(): values[-1] for name, values in parse_qs(url.query).items()}
        operation = self.query.get("op", "").upper()
        is_redirected = "datanode" in self.query
        if not is_redirected:
            with of.lock:
                of.requests.append((operation, path))
                agent = self.headers.get("User-Agent", "").partition(" ")[0]
                of.requests_of.setdefault(agent, set()).add((operation, path))
            time.sleep(of.latency_s)
        redirects = operation in ("OPEN", "CREATE") and not is_redirected
        failure = None if redirects else of.take_fault(operation, path)
        if failure == "503":
            self._drain()
            self._reply(503, b"")
            return
        if failure == "reset":
            self._break()
            return
        try:
            answer = self._done(operation, path, redirects)
        except Refusal as refusal:
            self._drain()
            told = {"exception": refusal.java_class.rpartition(".")[2], "javaClassName": refusal.java_class}
            self._reply(refusal.status, _json({"RemoteException": {**told, "message": str(refusal)}}))
            return
        if failure == "lost reply":
            self._break()
        elif redirects:
            location = f"http://{of.authority}{_PREFIX}{quote(path)}?{url.query}&datanode=true"
            self._reply(307, b"", Location=location)
        else:
            self._reply(201 if operation == "CREATE" else 200, answer)

    def _done(self, operation: str, path: str, redirects: bool) -> bytes:
        of = self.server.of
        if any(path == denied or path.startswith(f"{denied}/") for denied in of.denied):
            raise Refusal(
                403, "org.apache.hadoop.security.AccessControlException", f"Permission denied: {path}"
            )
        local = self._local(path)
        if redirects:
            if operation == "CREATE":
                self._check_creatable(path, local)
            else:
                self._existing(path, local)
            return b""
        function = _OPERATIONS.get(operation)
        if function is None:
            raise Refusal(400, "java.lang.UnsupportedOperationException", f"{operation} is not supported.")
        return function(self, path, local)

    def _local(self, path: str) -> Path:
        parts = [part for part in path.split("/") if part]
        if ".." in parts or "." in parts:
            raise Refusal(400, "org.apache.hadoop.fs.InvalidPathException", f"Invalid path name {path}")
        inner = self.server.of.directory
        for part in parts:
            if inner.is_file():
                raise Refusal(
                    403,
                    "org.apache.hadoop.fs.ParentNotDirectoryException",
                    f"{inner.name} (is not a directory)",
                )
            inner = inner / part
        return inner

    def _existing(self, path: str, local: Path) -> os.stat_result:
        try:
            return local.stat()
        except FileNotFoundError:
            raise Refusal(404, "java.io.FileNotFoundException", f"File does not exist: {path}") from None

    def _check_creatable(self, path: str, local: Path) -> None:
        if local.is_dir():
            raise _exists(f"{path} is a directory")
        if local.exists() and self.query.get("overwrite", "true") != "true":
            raise _exists(f"{path} already exists")

    def _status(self, local: Path, name: str) -> dict[str, Any]:
        found = local.stat()
        is_directory = local.is_dir()
        return {
            "accessTime": found.st_mtime_ns // 1_000_000,
            "blockSize": 0 if is_directory else 134_217_728,
            "childrenNum": 0,
            "fileId": self.server.of.file_id(found.st_ino),
            "group": "group",
            "length": 0 if is_directory else found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "owner": "owner",
            "pathSuffix": name,
            "permission": "755" if is_directory else "644",
            "replication": 0 if is_directory else 1,
            "storagePolicy": 0,
            "type": "DIRECTORY" if is_directory else "FILE",
        }

    def _get_status(self, path: str, local: Path) -> bytes:
        self._existing(path, local)
        return _json({"FileStatus": self._status(local, "")})

    def _listed(self, path: str, local: Path, after: str) -> list[dict[str, Any]]:
        self._existing(path, local)
        if not local.is_dir():
            return [self._status(local, "")]
        found = []
        for name in sorted(os.listdir(local), key=str.encode):
            if name > after:
                try:
                    found.append(self._status(local / name, name))
                except FileNotFoundError:
                    continue
        return found

    def _list(self, path: str, local: Path) -> bytes:
        return _json({"FileStatuses": {"FileStatus": self._listed(path, local, "")}})

    def _list_batch(self, path: str, local: Path) -> bytes:
        found = self._listed(path, local, self.query.get("startafter", ""))
        page = found[: self.server.of.listed_at_once]
        listing = {
            "partialListing": {"FileStatuses": {"FileStatus": page}},
            "remainingEntries": len(found) - len(page),
        }
        return _json({"DirectoryListing": listing})

    def _open(self, path: str, local: Path) -> bytes:
        self._existing(path, local)
        with local.open("rb") as file:
            file.seek(int(self.query.get("offset", 0)))
            return file.read(int(self.query["length"])) if "length" in self.query else file.read()

    def _create(self, path: str, local: Path) -> bytes:
        with self.server.of.lock:
            self._check_creatable(path, local)
            if self.query.get("createparent") == "false" and not local.parent.is_dir():
                raise Refusal(404, "java.io.FileNotFoundException", f"No parent directory: {path}")
            local.parent.mkdir(parents=True, exist_ok=True)
            file = local.open("wb")
            self.server.of.file_id(os.fstat(file.fileno()).st_ino, is_new=True)
        # Who looks meanwhile sees the part that has come.
        with file:
            for piece in self._body():
                file.write(piece)
                file.flush()
        return b""

    def _rename(self, path: str, local: Path) -> bytes:
        of = self.server.of
        target = self._local(self.query["destination"])
        options = "" if of.ignores_rename_options else self.query.get("renameoptions", "")
        with of.lock:
            if not options:  # the older rename answers by a boolean
                if not local.exists() or target.is_file() or not target.parent.is_dir():
                    return _json({"boolean": False})
                local.rename(target / local.name if target.is_dir() else target)
                return _json({"boolean": True})
            self._existing(path, local)
            if not target.parent.is_dir():
                raise Refusal(
                    404, "java.io.FileNotFoundException", f"rename destination parent of {target.name}"
                )
            if target.exists():
                if options.upper() != "OVERWRITE":
                    raise _exists(f"rename destination {self.query['destination']} already exists")
                if target.is_dir():
                    target.rmdir()
            local.rename(target)
        return b""

    def _delete(self, path: str, local: Path) -> bytes:
        with self.server.of.lock:
            if not local.exists():
                return _json({"boolean": False})
            if not local.is_dir():
                local.unlink()
            elif self.query.get("recursive") == "true":
                shutil.rmtree(local)
            elif any(local.iterdir()):
                raise Refusal(
                    403, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", f"{path} is non empty"
                )
            else:
                local.rmdir()
        return _json({"boolean": True})

    def _make_directories(self, path: str, local: Path) -> bytes:
        if local.is_file():
            raise _exists(f"Path is not a directory: {path}")
        local.mkdir(parents=True, exist_ok=True)
        return _json({"boolean": True})

    def _block_locations(self, path: str, local: Path) -> bytes:
        length = self._existing(path, local).st_size
        block = {
            "cachedHosts": [],
            "corrupt": False,
            "hosts": ["127.0.0.1"],
            "length": length,
            "names": [self.server.of.authority],
            "offset": 0,
            "storageTypes": ["DISK"],
            "topologyPaths": ["/default-rack/127.0.0.1"],
        }
        return _json({"BlockLocations": {"BlockLocation": [block] if length else []}})

    def _defaults(self, path: str, local: Path) -> bytes:
        defaults = {
            "blockSize": 134_217_728,
            "bytesPerChecksum": 512,
            "checksumType": 2,
            "defaultStoragePolicyId": 7,
            "encryptDataTransfer": False,
            "fileBufferSize": 4_096,
            "keyProviderUri": "",
            "replication": 1,
            "trashInterval": 0,
            "writePacketSize": 65_536,
        }
        return _json({"FsServerDefaults": defaults})

    def _home(self, path: str, local: Path) -> bytes:
        return _json({"Path": f"/user/{self.query.get('user.name', 'nobody')}"})

    def _accept(self, path: str, local: Path) -> bytes:
        self._existing(path, local)
        return b""

    def _no_token(self, path: str, local: Path) -> bytes:
        raise Refusal(400, "java.io.IOException", "This server issues no delegation tokens.")

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue

    def _drain(self) -> None:
        if self.command in ("PUT", "POST"):
            for _ in self._body():
                continue

    def _reply(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        # No Content-Type: Hadoop 3.5's shaded client lacks the class that it would read it with.
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _break(self) -> None:
        """Resets the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


_OPERATIONS: dict[str, Callable[[_Handler, str, Path], bytes]] = {
    "CHECKACCESS": _Handler._accept,
    "CREATE": _Handler._create,
    "DELETE": _Handler._delete,
    "GETDELEGATIONTOKEN": _Handler._no_token,
    "GETFILEBLOCKLOCATIONS": _Handler._block_locations,
    "GETFILELINKSTATUS": _Handler._get_status,
    "GETFILESTATUS": _Handler._get_status,
    "GETHOMEDIRECTORY": _Handler._home,
    "GETSERVERDEFAULTS": _Handler._defaults,
    "LISTSTATUS": _Handler._list,
    "LISTSTATUS_BATCH": _Handler._list_batch,
    "MKDIRS": _Handler._make_directories,
    "OPEN": _Handler._open,
    "RENAME": _Handler._rename,
    "SETPERMISSION": _Handler._accept,
    "SETTIMES": _Handler._accept,
}


def _exists(message: str) -> Refusal:
    return Refusal(403, "org.apache.hadoop.fs.FileAlreadyExistsException", message)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    with WebHdfsServer(Path(sys.argv[1])) as server:
        server.latency_s = float(sys.argv[2]) / 1_000 if len(sys.argv) > 2 else 0.0
        print(server.url, flush=True)
        sys.stdin.read()
