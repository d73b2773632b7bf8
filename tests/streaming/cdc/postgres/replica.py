"""A replica of PostgreSQL's tables in Delta, by a real Debezium engine, while processes are killed.

The long run: random transactions, and ten kills of the capture and of the streams:

    python -m tests.streaming.cdc.postgres.replica [--kills 10] [--transactions 1500] [--seed N] [FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import datetime
import functools
import json
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.streaming.cdc.postgres.server import DATABASE, USER, Server
from tests.streaming.cdc.postgres.workload import SENTINEL, Workload, make_tables, shown_rows

ROOT = Path(__file__).parents[4]
TIMEOUT_S = 240


def wait_until(holds: Callable[[], bool], what: str, *processes: Process) -> None:
    """Waits for an event in files, which has no other sign; the processes have to live until then."""
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        for process in processes:
            process.check()
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


class Process:
    """A process that is killed and begun again; what it prints goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._command, self._log, self._environment = command, log, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            # Debezium writes a log of its own into the folder that it is run in.
            folder = self._log.parent
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, cwd=folder
            )

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._command[1:3]} has ended:\n{self._log.read_text()[-6_000:]}")

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(TIMEOUT_S)

    def run(self) -> None:
        """Starts the process and waits for its end without an error."""
        self.start()
        assert self._process is not None
        if self._process.wait(10 * TIMEOUT_S) != 0:
            self.check()


class Replica:
    """The server, its tables, and a capture that lands their changes in `folder`."""

    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self.server, self.folder = server, folder
        self.tables = make_tables(server)
        self.workload = Workload(server, self.tables, seed)
        names = ",".join(f"public.{name}" for name in [*(t.name for t in self.tables), SENTINEL])
        command = [
            sys.executable,
            str(ROOT / "docker" / "capture" / "capture.py"),
            "--port",
            str(server.port),
        ]
        command += ["--database", DATABASE, "--user", USER, "--tables", names, "--landing", str(self.landing)]
        self.capture = Process(command, folder / "capture.log", server.environment)
        self._sentinels = 0

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    def landed(self) -> int:
        return len(list(self.landing.glob("*/[!.]*.json")))

    def wait_for_all_changes(self) -> None:
        """Waits until all that was committed has landed."""
        self._sentinels += 1
        self.server.sql(f"INSERT INTO {SENTINEL} VALUES ({self._sentinels});")
        last = f'"after":{{"id":{self._sentinels}}}'

        def has_landed() -> bool:
            return any(
                last in file.read_text() for file in self.landing.glob(f"public.{SENTINEL}/[!.]*.json")
            )

        wait_until(has_landed, "the last change has not landed", self.capture)

    def start_capture(self) -> None:
        """Returns when the first snapshot is complete: a capture that ends earlier begins it anew."""
        self.capture.start()
        slots = "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL;"
        wait_until(lambda: self.server.sql(slots) == ["1"], "there is no slot", self.capture)
        self.wait_for_all_changes()

    def differences(self, target: Callable[[str], Path]) -> list[str]:
        """What is different in the tables and their replicas, as texts."""
        found = []
        for table in self.tables:
            names = [*table.keys, *(column.name for column in table.columns)]
            kinds = [*("" for _ in table.keys), *(column.type for column in table.columns)]
            rows = shown_rows(self.server, table)
            wanted = Counter(tuple(map(_wanted, row, kinds)) for row in rows)
            replica = DeltaTable(str(target(table.name))).to_pyarrow_table()
            missing = [name for name in names if name not in replica.column_names]
            if missing:
                found.append(f"{table.name} has no column {', '.join(missing)}")
                continue
            columns = zip(*(replica[name].to_pylist() for name in names), strict=True)
            held = Counter(tuple(map(_held, row, kinds)) for row in columns)
            for text, several in (("lacks", wanted - held), ("has", held - wanted)):
                for row in sorted(several, key=str):
                    shown = (f"{name}={str(v)[:60]!r}" for name, v in zip(names, row, strict=True))
                    found.append(f"{table.name} {text} {', '.join(shown)}")
            if not wanted:
                found.append(f"{table.name} is empty: nothing was compared")
        return found


_AS_JSON = ("int[]", "bigint[]", "text[]")


def _wanted(text: str | None, kind: str) -> str | None:
    """A value of PostgreSQL as the text that the replica's is compared by."""
    if text is None:
        return None
    match kind:
        case "real" | "double precision":
            return struct.pack("<f" if kind == "real" else "<d", float(text)).hex()
        case _ if kind in _AS_JSON:
            return json.dumps(json.loads(text))
        case _:
            return text


def _held(value: Any, kind: str) -> str | None:
    """A value of the replica as the text that PostgreSQL's is compared by."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case float():
            return struct.pack("<f" if kind == "real" else "<d", value).hex()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case dict():
            return f"{value['x']},{value['y']}"
        case list() if kind in _AS_JSON:
            return json.dumps(value)
        case list():
            return ",".join("null" if item is None else str(item) for item in value)
        case _:
            return str(value)


def _has_files(folder: Path, sign: str, number: int) -> bool:
    return len(list(folder.glob(sign))) >= number


def main() -> None:
    """The long run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--transactions", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="deltaflow-replica-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, folder {folder}", flush=True)
    chance = random.Random(given.seed)
    with Server() as server, ExitStack() as processes, ThreadPoolExecutor(1) as pool:
        replica = Replica(server, folder, given.seed)
        part = given.transactions // (given.kills + 2)
        replica.workload.run(part, round_=-1)
        command = [sys.executable, "-m", "tests.streaming.cdc.postgres.pipeline", str(folder)]
        tables = [f"{table.name}:{','.join(table.keys)}" for table in replica.tables]
        environment = server.environment | {"PYTHONPATH": str(ROOT)}
        streams = Process([*command, "on", *tables], folder / "streams.log", environment)
        processes.callback(streams.end)
        processes.callback(replica.capture.end)
        replica.start_capture()
        streams.start()
        for number in range(given.kills):
            victim, other = (replica.capture, streams) if number % 2 else (streams, replica.capture)
            signs = ["landing/*/[!.]*.json"]
            if victim is streams:
                signs = ["checkpoints/*/offsets/*", "checkpoints/*/commits/*", "tables/**/_delta_log/*.json"]
            sign = chance.choice(signs)
            awaited = len(list(folder.glob(sign))) + chance.randint(1, 3)
            work = pool.submit(replica.workload.run, part, round_=number)
            wait_until(functools.partial(_has_files, folder, sign, awaited), f"no new {sign}", victim, other)
            victim.end()
            print(f"kill {number + 1}: {'streams' if victim is streams else 'capture'} at {sign}", flush=True)
            work.result()
            victim.start()
        # After the last column was added.
        replica.workload.run(part, round_=-2)
        replica.wait_for_all_changes()
        replica.capture.end(signal.SIGTERM)
        streams.end()
        last = Process([*command, "now", *tables], folder / "streams.log", environment)
        processes.callback(last.end)
        last.run()
        differences = replica.differences(lambda name: folder / "tables" / name)
        rows = {table.name: len(shown_rows(server, table)) for table in replica.tables}
    print("\n".join(differences[:20]))
    print(f"{replica.landed()} files landed; rows {rows}; {len(differences)} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
