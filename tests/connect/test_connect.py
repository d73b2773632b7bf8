"""A Spark Connect server, and two clients of it at the same time, each in a process of its own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.connect.client import APPENDS
from tests.connect.server import TOKEN, start_server
from tests.processes import run_at_once
from tests.tables import load, rows_by_deltalake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CLIENT = Path(__file__).with_name("client.py")
URL = r"serves (sc://localhost:(\d+)(/;token=\S+)?)$"


@dataclass
class Finished:
    """A server that two clients have used, and what is left of it."""

    root: Path
    tables: dict[str, Any]
    """What the first client found."""
    streams: dict[str, Any]
    """What the second client found."""
    exit_code: int
    """Of the server, which got a SIGTERM while a stream ran."""
    is_port_closed: bool
    printed: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    root = tmp_path_factory.mktemp("root")
    with ExitStack() as stack:
        server = start_server(tmp_path_factory.mktemp("servers") / "first", "--port", "0")
        stack.callback(server.kill)
        url, port = server.wait_for(URL).group(1, 2)
        arguments = [[name, url, str(root)] for name in ("tables", "streams")]
        tables, streams = run_at_once(CLIENT, arguments, timeout_s=240)
        exit_code = server.end(signal.SIGTERM)
        with socket.socket() as port_in_use:
            is_port_closed = port_in_use.connect_ex(("127.0.0.1", int(port))) != 0
        yield Finished(root, tables, streams, exit_code, is_port_closed, server.printed)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a client found that ran every operation of a table."""
    server = start_server(tmp_path_factory.mktemp("servers") / "third", "--port", "0")
    try:
        arguments = ["operations", server.wait_for(URL).group(1), str(tmp_path_factory.mktemp("root"))]
        [found] = run_at_once(CLIENT, [arguments], timeout_s=240)
    finally:
        server.kill()
    return found


def test_two_clients_write_one_table_at_the_same_time(finished: Finished) -> None:
    ids = [row["id"] for row in rows_by_deltalake(str(finished.root / "shared"))]
    assert sorted(ids) == [*range(APPENDS), *range(100, 100 + APPENDS)]


def test_tables_by_path_and_by_name(finished: Finished) -> None:
    assert finished.tables["batch"] == {"rows": 20, "odd": 10, "before": 10}
    assert finished.tables["names"] == {
        "named": [[1, "a"], [2, "b"]],
        "copy": [[2, "b"]],
        "operations": ["CREATE TABLE AS SELECT", "DELETE"],
        "before": [[1, "a"], [2, "b"]],
    }


def test_the_planner_and_the_optimizer_of_a_client_have_the_rules_of_deltaflow(finished: Finished) -> None:
    assert finished.tables["rules"] == {"rows": [[1, 1], [3, 2]], "count_reads_files": False}


def test_merge_with_columns_and_with_sql(finished: Finished) -> None:
    merged = finished.tables["merge"]
    assert merged["done"] == {
        "num_affected_rows": 3,
        "num_updated_rows": 1,
        "num_deleted_rows": 1,
        "num_inserted_rows": 1,
    }
    assert merged["rows"] == [[1, "a", 1, "z"], [2, "{x} it's\\{!}'\\", 22, None]]
    assert merged["into"] == [[1, 9], [2, 9], [3, 7]]
    # The frames of the client are views for one statement only.
    assert merged["views"] == ["changes"]


@pytest.mark.long
def test_columns_mean_the_same_whatever_the_parser_does_with_escapes(operated: dict[str, Any]) -> None:
    assert operated["literals"] == [["a\\\\b", "it\\'s"], ["it\\'s"]] * 2


@pytest.mark.long
def test_every_operation_of_a_table(operated: dict[str, Any]) -> None:
    found = operated["operations"]
    violation = found.pop("violation")
    assert violation["class"] == "DeltaInvariantViolationException"
    assert violation["condition"] == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert " - kind : 100" in violation["message"]
    assert found == {
        "compacted": 3,
        "ordered": 1,
        "history": ["OPTIMIZE", "OPTIMIZE"],
        "format": "delta",
        "restored": 1,
        "manifest": True,
        "protocol": 3,
        "columns": ["path"],
        "deleted": [7, 0, 0],
        "found": [7, 7],
        "missing": [0, 0],
        "clone": 10,
        "deep": 10,
        "property": "it's",
        "older": 20,
        "converted": [[0, 0], [1, 1], [2, 2]],
    }


def test_builders_make_the_table_that_they_describe(finished: Finished) -> None:
    built = finished.tables["builders"]
    key, listed, partition = built["schema"]["fields"]
    assert key == {"name": "id", "type": "integer", "nullable": False, "metadata": {"comment": "a key"}}
    inner = listed["type"]["elementType"]["fields"]
    assert inner[0] == {"name": "x", "type": "long", "nullable": False, "metadata": {"comment": "it's"}}
    assert [field["name"] for field in inner] == ["x", "a-b"]
    assert partition["name"] == "p"
    assert built["partitions"] == ["p"]
    assert built["description"] == "all of it's"
    assert built["properties"] == {"delta.appendOnly": "true"}
    assert built["replaced"] == ["x"]
    assert "array<bigint> without nulls inside has no form in SQL" in built["refused"]["message"]


def test_the_names_of_deltaflow_serve_clients_too(finished: Finished) -> None:
    assert finished.tables["surface"] == {
        "registered": True,
        "is_table": [True, False],
        "class": "deltaflow.connect.delta_table",
        "named": "deltaflow.connect.delta_table",
        "builder": "deltaflow.connect.table_builder",
        "active": "deltaflow.connect.table_builder",
        "no_jvm": True,
    }


@pytest.mark.parametrize(
    ("call", "error", "condition", "message"),
    [
        ("load", "DeltaTableNotFoundError", "PATH_NOT_FOUND", "/nothing. Check the path"),
        ("forPath", "DeltaTableNotFoundError", "DELTA_MISSING_DELTA_TABLE", "/nothing is not a Delta table"),
        ("forName", "DeltaTableNotFoundError", "DELTA_MISSING_DELTA_TABLE", "no_such_table is not a Delta"),
        ("schema", "SchemaMismatchError", "DELTA_FAILED_TO_MERGE_FIELDS", "column id is bigint in the table"),
        (
            "version",
            "VersionNotFoundError",
            "DELTA_VERSION_NOT_FOUND",
            "Available versions: [0, 2].",
        ),
        (
            "checkpoints",
            "DeltaUnsupportedOperationException",
            None,
            "checkpoints of vacuum has no form",
        ),
        ("udf", "DeltaUnsupportedOperationException", None, "The function <lambda> has no form in SQL"),
        ("column", "DeltaUnsupportedOperationException", None, "id as a column of one DataFrame has no form"),
        (
            "itself",
            "DeltaIllegalArgumentException",
            "DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
            "a different target",
        ),
        ("nothing", "DeltaAnalysisException", "DELTA_MERGE_MISSING_WHEN", "at least one WHEN clause"),
        (
            "apply_changes",
            "DeltaIllegalArgumentException",
            "DELTA_APPLY_CHANGES_ARGUMENT",
            "source is of a client of Spark Connect",
        ),
        ("condition", "AnalysisException", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "`nope` cannot be resolved"),
    ],
)
def test_a_client_gets_the_error_of_the_server_or_of_what_sql_cannot_say(
    finished: Finished, call: str, error: str, condition: str | None, message: str
) -> None:
    found = finished.tables["errors"][call]
    assert (found["class"], found["condition"]) == (error, condition or "DELTA_OPERATION_NOT_ALLOWED_DETAIL")
    assert found["sqlState"]
    assert message in found["message"]
    assert found["message"].startswith(f"[{found['condition']}] ")
    assert found["message"].count(found["condition"]) == 1


def test_a_client_with_another_token_is_refused(finished: Finished) -> None:
    assert "UNAUTHENTICATED" in finished.tables["tokens"]["message"]


def test_a_stream_of_a_client_goes_on_from_its_checkpoint_exactly_once(finished: Finished) -> None:
    assert finished.streams["tables"] == {
        "rows": [*range(15)],
        "input": [10, 5],
        "same": True,
        "outstanding": "0",
        "epochs": ["0", "1"],
    }


def test_foreach_batch_merges_on_the_server(finished: Finished) -> None:
    rows = [[number, number % 2] for number in range(3)]
    rows += [[number, 100] for number in (3, 4)] + [[number, number % 2] for number in range(5, 15)]
    assert finished.streams["batches"] == {"rows": sorted(rows, key=str), "error": "None"}


def test_functions_and_modules_of_a_client_run_on_the_server(finished: Finished) -> None:
    assert finished.streams["functions"] == {"rows": [[0], [4], [6]]}
    assert finished.streams["artifacts"] == {"rows": [[1000], [1001]]}


def test_a_stream_of_a_client_reads_change_rows(finished: Finished) -> None:
    assert finished.streams["changes"] == [[1, "delete", 2], [1, "insert", 1], [2, "insert", 1]]


def test_sigterm_stops_the_streams_and_closes_the_port(finished: Finished, spark: SparkSession) -> None:
    assert finished.streams["left"] == {"active": True}
    assert (finished.exit_code, finished.is_port_closed) == (0, True)
    assert "Exception" not in finished.printed.split("\nStopping.\n")[1]
    # The stream that ran goes on in another session, from where it was.
    source, target = str(finished.root / "source"), str(finished.root / "left")
    before = {row.id for row in load(spark, target).collect()}
    spark.range(50, 52).selectExpr("id", "id % 2 AS kind").write.format("delta").mode("append").save(source)
    writer = spark.readStream.format("delta").load(source).writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(finished.root / "checkpoint-left"))
    writer.trigger(availableNow=True).start(target).awaitTermination()
    assert before == set(range(15))
    assert sorted(row.id for row in load(spark, target).collect()) == [*range(15), 50, 51]


@pytest.mark.long
def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start_server(tmp_path / "server", "--port", str(taken.getsockname()[1]))
        try:
            assert server.wait() == 1
        finally:
            server.kill()
    found = re.search(r"cannot listen at 127\.0\.0\.1:\d+: .*Failed to bind", server.printed)
    assert found, server.printed


@pytest.mark.long
def test_a_server_without_a_token_ends_by_ctrl_c(tmp_path: Path) -> None:
    server = start_server(tmp_path / "server", "--port", "0", "--no-token", **{TOKEN: "not asked for"})
    try:
        [url] = (server.wait_for(URL).group(1),)
        program = (
            "import sys; from pyspark.sql import SparkSession; "
            "print(SparkSession.builder.remote(sys.argv[1]).getOrCreate().range(3).count())"
        )
        printed = subprocess.check_output([sys.executable, "-c", program, url], text=True)
        assert (printed, server.end(signal.SIGINT)) == ("3\n", 0)
    finally:
        server.kill()
