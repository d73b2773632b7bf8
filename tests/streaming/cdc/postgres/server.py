"""A PostgreSQL server of a test's own: a private folder, socket and port, logical decoding on."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

SET_UP = "apt-get install postgresql postgresql-contrib && pip install -e '.[capture]'"
DATABASE, USER = "source", "tester"


def programs() -> Path | None:
    """The folder with the programs of the newest server that is installed; None without one."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if found:
        return max(found, key=lambda folder: float(folder.parent.name))
    return None if on_path is None else Path(on_path).parent


class Server:
    """A running server, which a `with` block stops; its folder goes, too."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="deltaflow-postgres-"))
        self.password = secrets.token_hex()
        # PostgreSQL refuses to be run by root.
        self._as_user: list[str] = []
        if os.getuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        data, password = self.folder / "data", self.folder / "password"
        password.write_text(self.password)
        password.chmod(0o644)
        initdb = [str(self._programs / "initdb"), "-D", str(data), "-U", USER, "--pwfile", str(password)]
        self._run([*initdb, "-A", "scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
        password.unlink()
        settings = {
            "wal_level": "logical",
            "max_replication_slots": "4",
            "max_wal_senders": "4",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            # Nobody kills the server.
            "fsync": "off",
            "timezone": "UTC",
            "deadlock_timeout": "100ms",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("wb") as log:
            command = [*self._as_user, str(self._programs / "postgres"), "-D", str(data), *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        ready = [
            str(self._programs / "pg_isready"),
            "-q",
            "-t",
            "1",
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
        ]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
        self.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # Clients that are left are sent away.
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the server's clients."""
        return os.environ | {"PGPASSWORD": self.password}

    def psql(self, database: str = DATABASE) -> list[str]:
        """The command of a client that reads statements and prints values alone."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        return [str(self._programs / "psql"), "-qAtX", *place]

    def sql(self, statements: str, database: str = DATABASE) -> list[str]:
        """Runs statements, each by itself; the lines of their answers. The first error is raised."""
        done = subprocess.run(
            [*self.psql(database), "-v", "ON_ERROR_STOP=1"],
            input=statements,
            capture_output=True,
            text=True,
            env=self.environment,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.splitlines()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            [*self._as_user, *command], capture_output=True, text=True, cwd=self.folder, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
